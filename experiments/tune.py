r"""Searches settings on validation images: random trials, the better ones for longer.

    dpsparfl tune --preset=efficient_fashion --data.dir=DIR --out=DIR2 \
        --search='training.clip_norm=1..20;training.learning_rate=1e-3..1e-1' \
        --trials=16 --rounds=10,40

All trials are trained for the first number of rounds, the best share of them again for
the next one, and so on (successive halving); 0 rounds go on until the budgets end.
Models are judged by training images that no client owns, never by test images; the
average of models counts where there is one. The same command again goes on.

What is chosen by looking at many private models costs epsilon that no ledger here
counts: tune on public or simulated data, or say so.
"""

import itertools
import math
import sys

from absl import flags

from dpsparfl_jax import config, preflight
from dpsparfl_jax.errors import InputError

from . import cli, grid, search, starting

cli.define_config_flags(config.RunConfig())
flags.adopt_module_key_flags(cli)
starting.define_flags("quickstart")
_SEARCH = flags.DEFINE_string(
    "search", "", "settings to search: 'a.b=0.1..10;c.d=x,y'; needed"
)
_TRIALS = flags.DEFINE_integer(
    "trials", 16, "trials to begin with", lower_bound=1, upper_bound=10_000
)
_ROUNDS = flags.DEFINE_string("rounds", "10,40", "rounds of each rung; 0: to the end")
_KEPT = flags.DEFINE_float(
    "kept", 0.25, "share of trials that goes on", lower_bound=0.0, upper_bound=1.0
)
_SEARCH_SEED = flags.DEFINE_integer(
    "search_seed", 0, "seed of the trials", lower_bound=0
)
_OUT = flags.DEFINE_string("out", "", "folder of records, table and picture; needed")


def main() -> int:
    """Trains the rungs, then tells the best."""
    start = starting.begin()
    if start is None:
        return 0
    if not _OUT.value:
        raise InputError("name a folder for the records: --out=DIR.")
    for name in ("length.rounds", "length.eval_on"):
        if cli.is_set(name):
            raise InputError(f"--{name} is what tuning sets itself: leave it out.")
    if math.isnan(_KEPT.value):  # absl's bounds let it pass
        raise InputError("--kept must be a share from 0 to 1, but is nan.")
    rungs = _parse_rounds(_ROUNDS.value)
    dimensions = search.parse(_SEARCH.value)
    base = grid.change(start.settings, {"length.eval_on": "validation"})
    trials = search.draw(dimensions, _TRIALS.value, _SEARCH_SEED.value)
    settings = [grid.change(base, drawn) for drawn in trials]
    for each in settings:
        preflight.check(each)
    for note in cli.notes(base, list(trials[0])):
        print(note, file=sys.stderr)
    out = cli.check_folder("out", _OUT.value)
    from . import tuning  # JAX takes seconds to load: flags are good by now

    code, scores = tuning.climb(settings, out, rungs=rungs, kept=_KEPT.value)
    if not code:
        print(tuning.as_text(trials, scores))
        for path in tuning.write(out, dimensions, trials, scores):
            print(path)
        best = tuning.best_trial(scores)
        chosen = " ".join(f"--{name}={value}" for name, value in trials[best].items())
        print(f"Best: trial {best}: {chosen}")
    return code


def _parse_rounds(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise InputError(f"--rounds={text} is not of the form 10,40.")
    rounds = list(map(int, parts))
    lengths = [number or sys.maxsize for number in rounds]
    if any(a >= b for a, b in itertools.pairwise(lengths)):
        raise InputError(f"--rounds={text}: every rung must be longer than the last.")
    return rounds


if __name__ == "__main__":
    cli.run(main)
