"""Rounds as TensorBoard events, beside the records.

Written in the caller's thread: a grid of runs has one file each, and a full disk is
noticed where it can be said.
"""

import pathlib

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.summary import scalar

from dpsparfl_jax.records.columns import COLUMNS, Row
from dpsparfl_jax.storage import writing


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
            for name, column in COLUMNS.items():
                if column.tag and row.get(name) is not None:
                    event = Event(
                        summary=scalar(column.tag, row[name]),
                        step=row["round"],
                        wall_time=wall_time,
                    )
                    self._writer.write_event(event)
            self._writer.flush()

    def close(self) -> None:
        """Ends the file."""
        with writing(self._path):
            self._writer.close()
