"""Do colours belong to names?"""

import pytest

from dpsparfl_jax.report import palette, picture_style

OWN = [palette.look(number) for number in range(4)]


@pytest.mark.parametrize("names", [["dp_sparfl", "mine"], ["mine", "dp_sparfl"]])
def test_a_built_in_policy_keeps_its_look_whatever_else_is_shown(names):
    found = dict(zip(names, palette.looks(names), strict=True))
    assert found == {"dp_sparfl": OWN[0], "mine": palette.look(4)}


def test_settings_and_the_study_name_the_same_looks():
    settings = ["random", "round_robin", "delay_min", "dp_sparfl"]
    study = ["random", "round robin", "delay minimization", "DP-SparFL"]
    assert palette.looks(settings) == palette.looks(study) == OWN[::-1]
    assert picture_style.looks(study)["DP-SparFL"] == picture_style.look(0)
    planned = picture_style.looks(["random", "dp_sparfl/joint", "dp_sparfl/paper"])
    assert planned["dp_sparfl/joint"] == picture_style.look(0)


def test_what_has_no_look_of_its_own_goes_by_order():
    assert palette.looks(["a", None, "b"]) == OWN[:3]
    assert palette.looks(["random"] * 3) == OWN[:3]  # of one policy
    assert palette.looks(["random"]) == [OWN[3]]
    twice = palette.looks(["dp_sparfl", "dp_sparfl", "random", "mine"])
    assert twice == [OWN[0], palette.look(4), OWN[3], palette.look(5)]


def test_samples_of_dashes_begin_and_end_with_a_dash():
    for dashes in filter(None, palette.DASHES):
        fitted = palette.fitted(dashes, 30)
        rest = (30 - fitted[0]) % sum(fitted)
        assert min(rest, sum(fitted) - rest) == pytest.approx(0, abs=0.02)
        assert fitted[1] / fitted[0] == pytest.approx(dashes[1] / dashes[0], rel=0.01)
    assert palette.fitted((), 30) == ()
