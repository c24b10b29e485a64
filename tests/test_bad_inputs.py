"""Does bad input get one sentence and exit code 2, and is nothing lost?

A part of all cases, by their number; `python -m benchmarks.bad_inputs` tries all.
"""

import pytest

from benchmarks import bad_input_cases
from benchmarks.bad_inputs import Workshop, attempt

ALL = bad_input_cases.all_cases()
SLOW = ("noise_multiplier=0.3", "delta=1e-39", "prepare_data", "advice", "private")
QUICK = [
    case
    for number, case in enumerate(ALL)
    if not case.needs_run
    and not any(word in case.name for word in SLOW)
    # Every setting has several values, of like kinds: some of them will do.
    and (number % 4 == 0 or not case.name.startswith(("setting", "idx")))
]


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    return Workshop(tmp_path_factory.mktemp("bad"))


def test_there_are_many_cases():
    assert len(ALL) > 800
    assert len(QUICK) > 300
    kinds = {case.program for case in QUICK}
    assert {"run", "sweep", "tune", "budget", "report", "schedule_only"} <= kinds


@pytest.mark.parametrize("case", QUICK, ids=[case.name[:60] for case in QUICK])
def test_bad_input_gets_one_sentence(case, workshop):
    outcome = attempt(case, workshop)
    assert not outcome.problem, outcome
