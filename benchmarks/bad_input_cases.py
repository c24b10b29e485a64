"""Bad input of every kind: flags, files, folders, and values given from Python.

A case is a program and its arguments, with `{root}` for a folder of its own in which
`prepare` has put files. What it must get is one sentence and exit code 2.
"""

from benchmarks import bad_files, bad_flags
from benchmarks.bad_case import Case


def all_cases() -> list[Case]:
    """Every case; names are unique."""
    cases = [
        *bad_flags.of_runs(),
        *bad_files.cases(),
        *bad_flags.of_other_programs(),
    ]
    names = [case.name for case in cases]
    twice = {name for name in names if names.count(name) > 1}
    assert not twice, twice
    return cases
