"""Does the arithmetic on traces count every operation once, and for its part?"""

import gzip
import json

import pytest

from benchmarks import traces

PROGRAM = """
HloModule jit_step, entry_computation_layout={(f32[2]{0})->f32[2]{0}}

%body (p: (s32[], f32[2])) -> (s32[], f32[2]) {
  %dot.1 = f32[2]{0} dot(%a, %b), metadata={op_name="jit(s)/while/norms/dot_general"}
  %bare.2 = f32[2]{0} copy(%dot.1)
  ROOT %add.3 = f32[2]{0} fusion(%bare.2), calls=%f, metadata={op_name="s/noise/add"}
}

ENTRY %main (x: f32[2]) -> f32[2] {
  %loop.4 = (s32[], f32[2]{0}) while(%x), body=%body, metadata={op_name="jit(s)/while"}
  ROOT %alone = f32[2]{0} negate(%x)
}
"""


def event(name, start, length, thread=1, device="0", **more):
    arguments = {"hlo_op": name, "device_ordinal": device}
    return {
        **{"ph": "X", "pid": 7, "tid": thread, "ts": start, "dur": length},
        **{"name": name, "args": arguments, **more},
    }


# A loop of 100 us around three operations, and one after it; 20 us are nobody's.
EVENTS = [
    {"ph": "M", "pid": 7, "tid": 1, "name": "thread_name", "args": {"name": "worker"}},
    event("loop.4", 0, 100),
    event("dot.1", 10, 40),
    event("bare.2", 50, 10),
    event("add.3", 60, 30),
    event("alone", 110, 20),
    {**event("python", 0, 500), "args": {}},
    {},
]


@pytest.fixture
def program():
    return traces.read_program(PROGRAM)


def test_programs_are_read(program):
    assert {name: each.opcode for name, each in program.items()} == {
        "dot.1": "dot",
        "bare.2": "copy",
        "add.3": "fusion",
        "loop.4": "while",
        "alone": "negate",
    }
    assert program["bare.2"].path == program["dot.1"].path  # that of its operand
    assert program["alone"].path == ""


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("jit(step)/while/body/norms/bkpi,bpo->bkio/dot_general", "norms"),
        ("jit(step)/norms/windows/concatenate", "windows"),
        ("jit(step)/vmap(sums)/dot_general", "sums"),
        ("jit(step)/noise/add", "noise and update"),
        ("jit(step)/update/add", "noise and update"),
        ("jit(step)/jvp(vmap(ConvNet))/Conv_0/conv_general_dilated", "forward"),
        ("jit(step)/transpose(jvp(vmap(ConvNet)))/Conv_0/mul", "backward"),
        ("jit(step)/transpose(jvp(vmap(windows)))/pad", "windows"),
        ("jit(step)/while/body/transpose", "other"),
        ("jit(step)/while/body/dynamic_update_slice", "other"),
        ("", "other"),
    ],
)
def test_parts_come_from_the_innermost_name(path, part):
    assert traces.part_of(path) == part


def test_own_times_leave_out_what_runs_inside():
    own = traces.self_times(traces.operation_events(EVENTS))
    assert own == {"loop.4": 20, "dot.1": 40, "bare.2": 10, "add.3": 30, "alone": 20}


def test_containers_are_not_counted_twice(program):
    found = traces.times(EVENTS, program, wall=150)
    assert "loop.4" not in found.operations
    assert sum(found.operations.values()) + found.idle == 150
    parts = traces.by_part(found, program)
    assert sum(parts.values()) == 150
    told = {part: time for part, time in parts.items() if time}
    assert told == {"norms": 50, "noise and update": 30, "other": 20, "host": 50}


def test_a_container_may_wait_for_another_thread(program):
    moved = [
        {**each, "tid": 2} if each.get("name") in ("dot.1", "bare.2", "add.3") else each
        for each in EVENTS
    ]
    assert traces.times(moved, program, 150) == traces.times(EVENTS, program, 150)


def test_devices_add_up(program):
    other = [event("dot.1", 0, 90, thread=9, device="1")]
    found = traces.times([*EVENTS, *other], program, wall=150, devices=2)
    assert found.operations["dot.1"] == 130
    assert found.idle == 50 + 60


def test_operations_at_the_same_time_leave_no_more_idle():
    both = traces.operation_events([event("a", 0, 10), event("b", 5, 10, thread=2)])
    assert traces.covered(both) == 15


def test_an_accelerators_row_of_operations_is_the_one_that_counts():
    events = [
        {"ph": "M", "pid": 1, "tid": 3, "name": "thread_name", "args": {"name": "x"}},
        {
            **{"ph": "M", "pid": 1, "tid": 4, "name": "thread_name"},
            "args": {"name": "XLA Ops"},
        },
        {**event("dot.1", 0, 10, thread=3), "pid": 1},
        {**event("dot.1", 0, 10, thread=4), "pid": 1},
        {"ph": "X", "pid": 1, "tid": 4, "ts": 10, "dur": 5, "name": "add.3"},
    ]
    own = traces.self_times(traces.operation_events(events))
    assert own == {"dot.1": 10, "add.3": 5}


def test_traces_are_found_below_a_folder(tmp_path):
    folder = tmp_path / "plugins" / "profile"
    folder.mkdir(parents=True)
    with gzip.open(folder / "host.trace.json.gz", "wt") as file:
        json.dump({"traceEvents": EVENTS}, file)
    assert traces.read_events(tmp_path) == EVENTS
