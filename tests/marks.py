"""Marks for long lists of cases."""

import pytest


def mostly_slow(cases, every):
    """The first of every so many cases is in the fast set; all are in the whole one."""
    return [
        case
        if number % every == 0
        else pytest.param(
            *(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow
        )
        for number, case in enumerate(cases)
    ]
