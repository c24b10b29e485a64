"""Running the examples of a page, and comparing what they print with what it shows."""

import re
import shlex

import pytest

from experiments.__main__ import COMMANDS
from tests.commands import call_program

FENCED = re.DOTALL | re.M
NUMBER = r"\(?[+-]?\d[\d.]*%?\)?"


def run_page(path, name, folder, capsys):
    """Runs examples and commands in turn, and compares what they print."""
    namespace = {"__name__": "page"}
    said = None
    for number, (kind, code) in enumerate(executed_blocks(path), start=1):
        where = f"{name}, block {number}"
        if kind == "output":
            assert_printed(said, code, where)
        elif kind == "sh":
            _, command, *words = shlex.split(code)
            program, _ = COMMANDS[command]
            done = call_program(f"experiments.{program}", *words, folder=folder)
            assert done.returncode == 0, done.stderr
            said = done.stdout
        else:
            exec(compile(code, where, "exec"), namespace)
            said = capsys.readouterr().out


def executed_blocks(path):
    """Kind and content of examples, of commands and of what they print."""
    found = re.findall(
        r"^```(python|output|sh)\n(.*?)^```", path.read_text("utf-8"), FENCED
    )
    return [
        (kind, code)
        for kind, code in found
        if kind != "sh" or code.startswith("dpsparfl ")  # others install
    ]


def assert_printed(said, shown, where):
    """What a page shows is what is printed; accuracies may differ between machines."""
    ours, theirs = (
        [words for line in text.splitlines() if (words := line.split())]
        for text in (said, shown)
    )
    heading = "accuracy" in theirs[0]
    for mine, printed in zip(ours, theirs, strict=True):
        learned = "accuracy" in printed or "right" in printed
        in_points = "(points)" in printed or any("%" in word for word in printed)
        for one, other in zip(mine, printed, strict=True):
            if not re.fullmatch(NUMBER, other):
                assert one == other, where
                continue
            value = float(other.strip("()%"))
            margin = max(0.02 * abs(value), 0.011)
            if learned and in_points:
                margin = 12  # ends of intervals move most
            elif (learned or heading) and "." in other and abs(value) < 1:
                margin = 0.1
            assert float(one.strip("()%")) == pytest.approx(value, abs=margin), where
