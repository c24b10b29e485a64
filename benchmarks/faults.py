"""Runs and sweeps that are disturbed: is nothing lost, and do they end the same?

    python -m benchmarks.faults --json results.json

One small run and one small sweep go through undisturbed. Then they are made again and
disturbed:

- killed (SIGKILL) at moments drawn uniformly from their life, start-up included, and
  resumed by a new process;
- written to a disk that is full (a limit on file size stands in for it), then resumed;
- started twice at the same time in one folder;
- started in a folder where nothing can be written;
- left without their last word (DONE) and with one file cut off or one bit turned, for
  every file that they have, then resumed.

A disturbed run must end equal to the undisturbed one: records (but for wall times),
table of clients and parameters, to the bit. Where it refuses instead, it must do so in
one sentence, with exit code 2, and leave every file as it was.
"""

import json
import pathlib

from absl import flags

from benchmarks import timing
from benchmarks.disturbances import measure
from experiments import cli

_JSON = flags.DEFINE_string("json", "", "write the results to this file")
_KILLS = flags.DEFINE_integer(
    "kills", 50, "how many to kill and resume: runs and sweeps in turn", lower_bound=1
)
_SEED = flags.DEFINE_integer("seed", 0, "seed of moments and damages")


def main() -> int:
    """Measures, prints, writes."""
    cli.check_output("json", _JSON.value)
    results = measure(_KILLS.value, _SEED.value)
    trials = results["trials"]
    for trial in trials:
        mark = "good" if trial["good"] else "BAD "
        print(f"{mark} {trial['fault']}: {trial['what']}: {trial['ending']}")
    for fault in dict.fromkeys(trial["fault"] for trial in trials):
        these = [trial["good"] for trial in trials if trial["fault"] == fault]
        print(f"{fault}: {sum(these)} of {len(these)} good.")
    if _JSON.value:
        content = {"machine": timing.machine(), **results}
        pathlib.Path(_JSON.value).write_text(json.dumps(content, indent=1) + "\n")
    return int(not all(trial["good"] for trial in trials))


if __name__ == "__main__":
    cli.run(main)
