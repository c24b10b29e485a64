"""From a profiler's trace to time by part: arithmetic on dictionaries and text.

An operation belongs to a part by the path that the compiler keeps of it, such as
`jit(step)/while/body/norms/dot_general`: the engine names its parts by
`jax.named_scope`, and of several names the innermost counts. What has no such name is
backward if it comes from a transposed function and forward if from a differentiated
one. A fusion has the path of its root alone: where XLA fuses two parts, all of it
counts for the later one. An operation that XLA made without a path has that of its
first operand which has one.
"""

import gzip
import json
import pathlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

SCOPES = {
    "norms": "norms",
    "sums": "sums",
    "windows": "windows",
    "noise": "noise and update",
    "update": "noise and update",
    "sampling": "sampling",
    "mask": "mask",
    "diagnosis": "diagnosis",
    "aggregation": "aggregation",
}
FORWARD, BACKWARD, OTHER, HOST = "forward", "backward", "other", "host"
PARTS = (FORWARD, BACKWARD, *dict.fromkeys(SCOPES.values()), OTHER, HOST)

# Operations that only run others, which are in the trace themselves.
CONTAINERS = ("while", "conditional", "call")

_INSTRUCTION = re.compile(
    r"^\s*(?:ROOT )?%?(?P<name>[\w.\-]+) = .*? (?P<opcode>[a-z][\w\-]*)\((?P<rest>.*)$",
    re.MULTILINE,
)
_PATH = re.compile(r'metadata=\{[^}]*?op_name="([^"]*)"')
_OPERAND = re.compile(r"%([\w.\-]+)")
# Longest chain of operands without a path that is followed.
_FAR = 4


class Instruction(NamedTuple):
    """What the text of a compiled program says of an operation."""

    opcode: str
    path: str  # empty: neither it nor its operands have one


class Times(NamedTuple):
    """What a trace says, in microseconds summed over devices."""

    operations: dict[str, float]  # own time of every operation that is no container
    idle: float  # time in which a device runs no such operation


def read_program(text: str) -> dict[str, Instruction]:
    """Operations of a compiled program by name, from `compiled.as_text()`."""
    opcodes, paths, operands = {}, {}, {}
    for found in _INSTRUCTION.finditer(text):
        name, rest = found["name"], found["rest"]
        path = _PATH.search(rest)
        opcodes[name], paths[name] = found["opcode"], path[1] if path else ""
        operands[name] = _OPERAND.findall(rest.partition(")")[0])

    def path_of(name: str, far: int) -> str:
        if paths.get(name) or not far:
            return paths.get(name, "")
        inherited = (path_of(each, far - 1) for each in operands.get(name, ()))
        return next(filter(None, inherited), "")

    return {
        name: Instruction(opcode, path_of(name, _FAR))
        for name, opcode in opcodes.items()
    }


def part_of(path: str) -> str:
    """The part that an operation with this path belongs to."""
    for word in reversed(re.findall(r"[^/()]+", path)):
        if word in SCOPES:
            return SCOPES[word]
    if "transpose(" in path:
        return BACKWARD
    return FORWARD if "jvp(" in path else OTHER


def read_events(folder: pathlib.Path) -> list[dict[str, Any]]:
    """All events of the traces that a profiler wrote below a folder."""
    events: list[dict[str, Any]] = []
    for path in sorted(folder.rglob("*.trace.json.gz")):
        with gzip.open(path, "rt") as file:
            events.extend(json.load(file)["traceEvents"])
    return events


def operation_events(events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The events in which a device runs an operation: name, device, thread, times.

    An accelerator's trace repeats its operations in further rows of the same picture;
    where it has a row "XLA Ops", that one counts.
    """
    events = list(events)
    named = {
        (event["pid"], event["tid"])
        for event in events
        if event.get("name") == "thread_name"
        and event.get("args", {}).get("name") == "XLA Ops"
    }
    chosen = []
    for event in events:
        arguments = event.get("args", {})
        thread = (event.get("pid"), event.get("tid"))
        if event.get("ph") != "X" or (thread not in named if named else False):
            continue
        if not named and "hlo_op" not in arguments:
            continue
        chosen.append(
            {
                "name": arguments.get("hlo_op", event.get("name", "")),
                "device": (thread[0], arguments.get("device_ordinal")),
                "thread": thread,
                "start": float(event["ts"]),
                "end": float(event["ts"]) + float(event["dur"]),
            }
        )
    return chosen


def self_times(events: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Time of every operation without what runs inside it on the same thread."""
    threads = defaultdict(list)
    for event in events:
        threads[event["thread"]].append(event)
    total: dict[str, float] = defaultdict(float)
    for thread in threads.values():
        around: list[Mapping[str, Any]] = []
        for event in sorted(thread, key=lambda each: (each["start"], -each["end"])):
            while around and around[-1]["end"] <= event["start"]:
                around.pop()
            length = event["end"] - event["start"]
            total[event["name"]] += length
            if around:
                total[around[-1]["name"]] -= length
            around.append(event)
    return dict(total)


def covered(events: Iterable[Mapping[str, Any]]) -> float:
    """Time in which at least one of these events is under way."""
    total, reached = 0.0, -float("inf")
    for start, end in sorted((event["start"], event["end"]) for event in events):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def times(
    events: Iterable[Mapping[str, Any]],
    program: Mapping[str, Instruction],
    wall: float,
    devices: int = 1,
) -> Times:
    """Own times of operations, and how long devices idled in `wall` microseconds.

    A container's own time is that of the runtime between operations: it counts as idle,
    since a container may also just wait for what other threads do.
    """
    found = operation_events(events)
    container = {name for name, each in program.items() if each.opcode in CONTAINERS}
    own = self_times(found)
    leaves = defaultdict(list)
    for event in found:
        if event["name"] not in container:
            leaves[event["device"]].append(event)
    busy = sum(covered(each) for each in leaves.values())
    return Times(
        {name: time for name, time in own.items() if name not in container},
        max(0.0, wall * devices - busy),
    )


def over_branches(
    found: Times, program: Mapping[str, Instruction]
) -> dict[tuple[str, str], float]:
    """Time by kind of operation and path, summed over the branches of a switch.

    A batch runs in one of several padded sizes, each compiled as a branch: the same
    operation in all of them is one. Kinds are names without their numbers.
    """
    total: dict[tuple[str, str], float] = defaultdict(float)
    for name, value in found.operations.items():
        path = re.sub(r"branch_\d+_fun/", "", path_of(name, program))
        total[name.split(".")[0], path] += value
    return dict(total)


def by_part(found: Times, program: Mapping[str, Instruction]) -> dict[str, float]:
    """Time of every part; the idle time is the host's."""
    total = dict.fromkeys(PARTS, 0.0)
    for name, time in found.operations.items():
        total[part_of(path_of(name, program))] += time
    total[HOST] = found.idle
    return total


def path_of(name: str, program: Mapping[str, Instruction]) -> str:
    """The path of an operation; empty if the program does not know it."""
    return program[name].path if name in program else ""
