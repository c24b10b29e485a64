"""Runs that cannot be read: the first few are told of, the others counted."""

import sys

from tqdm import tqdm

from dpsparfl_jax import records

_TOLD = 5  # damaged runs that are told of one by one


class Damaged:
    """Tells of the first runs that cannot be read, and counts the others."""

    def __init__(self) -> None:
        """Nothing was told so far."""
        self.count = 0

    def __call__(self, problem: str) -> None:
        """Hears of one."""
        self.count += 1
        if self.count <= _TOLD:
            tqdm.write(f"Left out: {problem}", file=sys.stderr)

    def end(self) -> None:
        """Says how many others there were."""
        if self.count > _TOLD:
            print(f"and {self.count - _TOLD:,} more.", file=sys.stderr)


def read(found: records.FoundRuns, damaged: Damaged) -> list[records.IndexedRun]:
    """All runs that were found, with a bar if it takes a while."""
    return found.read(
        damaged,
        watch=lambda numbers: tqdm(
            numbers, desc="runs read", disable=None, leave=False, delay=1
        ),
    )
