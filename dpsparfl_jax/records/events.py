"""Rounds as TensorBoard events, beside the records.

Written in the caller's thread: a grid of runs has one file each, and a full disk is
noticed where it can be said.
"""

import pathlib

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.summary import scalar

from dpsparfl_jax.records.rows import Row
from dpsparfl_jax.storage import writing

TAGS = {
    "test/accuracy": "accuracy",
    "test/loss": "loss",
    "train/loss": "train_loss",
    "train/clipped_fraction": "clipped_fraction",
    "train/gradient_to_noise": "gradient_to_noise",
    "delay/round_s": "round_delay_s",
    "delay/cumulative_s": "cumulative_delay_s",
    "energy/cumulative_j": "cumulative_energy_j",
    "schedule/keep_rate_mean": "keep_rate_mean",
    "schedule/delay_queue": "delay_queue",
    "schedule/fairness_queue_max": "fairness_queue_max",
    "schedule/objective": "objective",
    "privacy/epsilon_max": "epsilon_max",
    "privacy/epsilon_mean": "epsilon_mean",
    "privacy/live_clients": "live_clients",
}


class EventLog:
    """The event file of a run that goes on after `first_round` rounds."""

    def __init__(self, folder: pathlib.Path, first_round: int) -> None:
        """Starts a new file; TensorBoard forgets rounds that will come again."""
        self._path = folder
        again = any(folder.glob("events.out.*"))
        with writing(folder):
            self._writer = EventsWriter(str(folder / "events"))
            if again:
                start = SessionLog(status=SessionLog.START)
                self._writer.write_event(Event(session_log=start, step=first_round + 1))

    def add(self, row: Row, wall_time: float) -> None:
        """One round."""
        with writing(self._path):
            for tag, name in TAGS.items():
                if row[name] is not None:
                    event = Event(
                        summary=scalar(tag, row[name]),
                        step=row["round"],
                        wall_time=wall_time,
                    )
                    self._writer.write_event(event)
            self._writer.flush()

    def close(self) -> None:
        """Ends the file."""
        with writing(self._path):
            self._writer.close()
