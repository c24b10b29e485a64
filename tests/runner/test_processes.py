"""Do processes that train together settle all that may differ, and follow the first?

Threads with a store between them stand in for processes with JAX's coordinator; real
ones are in test_distributed.
"""

import concurrent.futures
import dataclasses
import threading

import numpy as np
import pytest

from dpsparfl_jax.errors import InputError, LostProcessError
from dpsparfl_jax.privacy.clip_norm import ClipNorm
from dpsparfl_jax.runner import processes
from dpsparfl_jax.runner.processes import JoinedProcesses, Processes
from dpsparfl_jax.runner.shared_sinks import share_sinks
from dpsparfl_jax.runner.sinks import Beginning, MemorySink, RoundRecord
from dpsparfl_jax.types import ServerState
from tests import toy

COUNT = 3
CLIP = ClipNorm(1.0, True, "by hand")


class Store:
    """What the client of JAX's coordinator does, for threads."""

    def __init__(self):
        self.values, self.waiting = {}, {}
        self.changed = threading.Condition()

    def key_value_set_bytes(self, key, value):
        with self.changed:
            assert key not in self.values
            self.values[key] = value
            self.changed.notify_all()

    def blocking_key_value_get_bytes(self, key, _):
        with self.changed:
            assert self.changed.wait_for(lambda: key in self.values, timeout=20)
            return self.values[key]

    def key_value_dir_get(self, folder):
        return [(k, v) for k, v in self.values.items() if k.startswith(folder)]

    def key_value_delete(self, key):
        with self.changed:
            for each in [k for k in self.values if f"{k}/".startswith(f"{key}/")]:
                del self.values[each]

    def wait_at_barrier(self, name, milliseconds):
        with self.changed:
            barrier = self.waiting.setdefault(name, threading.Barrier(COUNT))
        barrier.wait(milliseconds / 1000)


def together(work, store=None):
    """What `work(process)` gives or raises in each of three processes."""
    store = store or Store()

    def one(number):
        try:
            return work(JoinedProcesses(store, number, COUNT))
        except (InputError, LostProcessError) as reason:
            return reason

    with concurrent.futures.ThreadPoolExecutor(COUNT) as pool:
        return list(pool.map(one, range(COUNT)))


def test_without_jax_distributed_a_process_is_alone_and_all_is_settled():
    alone = processes.current()
    assert type(alone) is Processes
    assert alone.first
    problem = {"run": InputError("no.")}
    assert alone.settle(problem) == problem
    assert alone.from_first(lambda: 7) == 7
    assert alone.agreed(lambda: True)()
    alone.require_same("settings", "a")
    alone.require_all_failed(InputError("no."))
    assert alone.meets_at_the_end(0)


def test_what_stops_a_run_in_one_process_stops_it_in_all():
    def work(one):
        own = {"b": InputError("no images.")} if one.index == 1 else {}
        return {name: str(reason) for name, reason in one.settle(own).items()}

    told = {"b": "process 1: no images."}
    assert together(work) == [told, {"b": "no images."}, told]


def test_processes_that_differ_are_refused_by_all():
    def work(one):
        one.require_same("plans", "the same")
        one.require_same("plans", "another" if one.index == 2 else "the same")

    for reason in together(work):
        assert str(reason) == (
            "process 2 has plans that differ from those of process 0: give all "
            "processes the same settings, files and versions."
        )


@pytest.mark.parametrize("asked", range(COUNT))
def test_all_stop_before_the_same_round_whoever_is_asked(asked):
    store = Store()

    def work(one):
        rounds = 0

        def stop():
            return one.index == asked and rounds >= 100

        agreed = one.agreed(stop)
        while not agreed():
            store.wait_at_barrier(f"round {rounds}", 20_000)  # as devices do
            rounds += 1
        return rounds

    stopped = together(work, store)
    assert len(set(stopped)) == 1
    assert 100 <= stopped[0] < 300
    assert len(store.values) < 80  # what all have read is forgotten


def test_a_failure_of_all_is_gone_on_from_and_that_of_one_ends_it(monkeypatch):
    def fail(one):
        one.require_all_failed(MemoryError("all of it"))

    assert together(fail) == [None] * COUNT
    monkeypatch.setattr(processes, "_MEETING_S", 0.1)

    def fail_alone(one):
        if one.index == 1:
            one.require_all_failed(MemoryError("here"))

    _, reason, _ = together(fail_alone)
    assert isinstance(reason, LostProcessError)
    assert str(reason) == "process 1 failed and the others did not (here)."


class Remembering(MemorySink):
    """A sink that goes on after two rounds, or refuses to."""

    def __init__(self, schedule=None, refuses=False):
        super().__init__()
        self.schedule, self.refuses = schedule, refuses

    def saved_schedule(self):
        return self.schedule

    def begin(self, clip, first):
        if self.refuses:
            raise InputError("other images.")
        return Beginning(2, first._replace(params={"w": np.array([-0.0, 3.0])}))


def schedule():
    return toy.prepare(toy.settings(privacy={"accountant": "rdp"})).schedule


def test_the_others_follow_the_first_and_write_nothing():
    saved = schedule()
    first = ServerState({"w": np.zeros(2)}, (), {"w": np.zeros(2)})
    settings = dict.fromkeys("abcd", toy.settings(perf={"checkpoint_every": 5}))
    done = MemorySink()
    done.is_done = True

    def work(one):
        sinks = {"a": Remembering(saved), "b": MemorySink(), "c": done}
        refused = {"d": InputError("another run.")}
        if not one.first:
            sinks, refused = {}, {}
        sinks, refused = share_sinks(settings, sinks, refused, one)
        assert {name: str(why) for name, why in refused.items()} == {
            "d": "another run."
        }
        assert [sink.is_done for sink in sinks.values()] == [False, False, True]
        found = sinks["a"].saved_schedule()
        for name, column in dataclasses.asdict(saved).items():
            np.testing.assert_array_equal(dataclasses.asdict(found)[name], column)
        assert sinks["b"].saved_schedule() is None
        beginning = sinks["a"].begin(CLIP, first)
        assert beginning.rounds == 2
        assert beginning.state.params["w"].tobytes() == np.array([-0.0, 3.0]).tobytes()
        assert sinks["b"].begin(CLIP, first) == Beginning(0, first)
        one.require_same("beginnings", "heard")
        sinks["a"].add(RoundRecord({"round": 1}, None, None))
        assert not sinks["a"].is_done
        sinks["a"].add(RoundRecord({"round": 2}, None, [{"client": 0}]))
        assert sinks["a"].is_done
        for sink in sinks.values():
            sink.close()
        return [sink.snapshot_every for sink in sinks.values()]

    store = Store()
    every = together(work, store)
    assert every == [[0, 0, 0], [5, 5, 5], [5, 5, 5]]
    assert not store.key_value_dir_get("dpsparfl/runs/a")  # heard and forgotten


def test_where_the_first_cannot_begin_nobody_does():
    def work(one):
        sinks = {"a": Remembering(refuses=True)} if one.first else {}
        sinks, _ = share_sinks({"a": toy.settings()}, sinks, {}, one)
        sinks["a"].begin(CLIP, ServerState({}, (), {}))

    assert [str(reason) for reason in together(work)] == ["other images."] * COUNT
