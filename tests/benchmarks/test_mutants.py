"""Do the seeded faults still fit the code, and is one of them noticed?"""

import ast

import pytest

from benchmarks import mutant_trials
from benchmarks.mutant_list import MUTANTS
from tests.commands import ROOT


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_fault_has_one_place_and_tests_that_exist(mutant):
    text = (ROOT / "dpsparfl_jax" / mutant.file).read_text(encoding="utf-8")
    wrong = mutant_trials.spoiled(text, mutant)
    assert ast.dump(ast.parse(wrong)) != ast.dump(ast.parse(text))
    assert all((ROOT / "tests" / name).is_file() for name in mutant.tests)


def test_names_are_distinct():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 60


@pytest.mark.slow
def test_a_fault_is_killed_and_a_right_project_is_not():
    """One here; `python -m benchmarks.mutants` makes all of them."""
    name = "rates do not depend on budgets"
    (wrong,) = [each for each in MUTANTS if each.name == name]
    found = mutant_trials.measure((wrong, wrong._replace(wrong=wrong.right)), workers=1)
    assert [row["killed"] for row in found] == [True, False]
    assert found[1]["code"] == 0
