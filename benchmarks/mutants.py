"""Would the tests notice? Faults are made one by one, and the fast tests are run.

    python -m benchmarks.mutants --json results.json

makes every fault of `mutant_list.py` in a copy of the project and runs the tests that
stand nearest to it (those that are not marked as slow). A fault is killed when one of
them fails. Survivors are printed: each is a test that is missing, or a fault that
changes nothing. About half an hour on two cores.
"""

import json
import pathlib

from absl import flags

from benchmarks import timing
from benchmarks.mutant_list import MUTANTS
from benchmarks.mutant_trials import measure
from dpsparfl_jax.errors import InputError
from experiments import cli

_JSON = flags.DEFINE_string("json", "", "write the results to this file")
_ONLY = flags.DEFINE_string("only", "", "faults whose name contains this")
_WORKERS = flags.DEFINE_integer("workers", 2, "faults at the same time", lower_bound=1)


def main() -> int:
    """Measures, prints, writes."""
    cli.check_output("json", _JSON.value)
    mutants = tuple(each for each in MUTANTS if _ONLY.value in each.name)
    if not mutants:
        raise InputError(f"no fault has {_ONLY.value!r} in its name.")
    found = measure(mutants, _WORKERS.value)
    for row in found:
        verdict = f"killed by {row['by']}" if row["killed"] else "SURVIVED"
        print(f"{row['file']}: {row['name']}: {verdict}")
    killed = sum(row["killed"] for row in found)
    print(f"{killed} of {len(found)} faults are killed ({killed / len(found):.0%}).")
    if _JSON.value:
        content = {"machine": timing.machine(), "killed": killed, "faults": found}
        pathlib.Path(_JSON.value).write_text(json.dumps(content, indent=1) + "\n")
    return int(killed < 0.95 * len(found))


if __name__ == "__main__":
    cli.run(main)
