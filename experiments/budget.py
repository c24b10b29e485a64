r"""What a privacy budget affords.

    python -m experiments.budget --sigma 0.6 --batch 10 --examples 1000 --steps 60 \
        --delta 1e-3 --epsilon 2,5,10

prints how often a client may take part under both accountants and draws epsilon over
participations. With `--participations 100` it also prints the noise multiplier that
affords so many. Neighbouring data sets differ in one record replaced by a null one.
"""

import json
import pathlib

import numpy as np
from absl import flags
from tqdm import tqdm

from dpsparfl_jax import config
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.privacy import budgets, calibrate, first_ledger, poisson
from dpsparfl_jax.privacy.accountants import all_accountants
from dpsparfl_jax.privacy.curves import CurveStore, affordable
from dpsparfl_jax.privacy.mechanism import Mechanism, Release, group_mechanisms

from . import cli

_DEFAULT = config.RunConfig()
_SIGMA = flags.DEFINE_float(
    "sigma", _DEFAULT.privacy.noise_multiplier, "noise multiplier"
)
_BATCH = flags.DEFINE_float(
    "batch", _DEFAULT.training.batch_size, "expected Poisson batch size"
)
_EXAMPLES = flags.DEFINE_integer("examples", 1000, "records of the client")
_STEPS = flags.DEFINE_integer(
    "steps", _DEFAULT.training.local_steps, "noisy steps of one participation"
)
_DELTA = flags.DEFINE_float("delta", _DEFAULT.privacy.delta, "delta of the guarantee")
_OVERFLOW = flags.DEFINE_float(
    "overflow",
    0.0,
    "probability that one step cuts its padded batch off, charged to delta (a run "
    f"allows up to {_DEFAULT.privacy.overflow_probability:g})",
)
_EPSILON = flags.DEFINE_string("epsilon", "2,5,10", "budgets, separated by commas")
_PARTICIPATIONS = flags.DEFINE_integer(
    "participations",
    None,
    "also find the noise multiplier that affords so many",
    lower_bound=1,
)
_LIMIT = flags.DEFINE_integer(
    "limit", 10_000, "participations to look at, at most", lower_bound=1
)
_JSON = flags.DEFINE_string("json", "", "file for the numbers")
_PLOT = flags.DEFINE_string("plot", "budget.png", "file of the figure; empty for none")
_CACHE = flags.DEFINE_string(
    "cache_dir", _DEFAULT.perf.cache_dir, "folder of computed epsilon curves"
)


def mechanism_from_flags() -> Mechanism:
    """The client's mechanism."""
    if _EXAMPLES.value < 1:
        raise InputError(f"--examples must be at least 1, but is {_EXAMPLES.value}.")
    rate = float(poisson.sampling_rate(_BATCH.value, _EXAMPLES.value))
    release = Release(rate, _SIGMA.value, _STEPS.value)
    return Mechanism(release, _DELTA.value, _OVERFLOW.value)


def main() -> None:
    """Prints the table, draws the figure, writes the numbers."""
    cli.check_output("json", _JSON.value)
    cli.check_output("plot", _PLOT.value)
    if _PLOT.value:
        cli.check_picture(_PLOT.value)
    mechanism = mechanism_from_flags()
    wanted = budgets.parse_budgets(_EPSILON.value)
    epsilons = budgets.given_budgets(wanted, len(wanted))
    names = [part.strip() for part in _EPSILON.value.split(",")]
    accountants = all_accountants()
    stores = {name: CurveStore(acc, _CACHE.value) for name, acc in accountants.items()}
    top = float(np.max(epsilons)) * 1.15  # a little more, for the figure
    curves = {
        name: store.curve(mechanism, max_epsilon=top, limit=_LIMIT.value)
        for name, store in tqdm(
            stores.items(), desc="accountants", disable=None, leave=False
        )
    }
    after_one = {name: float(curve[1]) for name, curve in curves.items()}
    title = (
        f"noise multiplier {_SIGMA.value:g}, batch {_BATCH.value:g} of "
        f"{_EXAMPLES.value} records, {_STEPS.value} steps"
    )
    print(f"{title}, delta {_DELTA.value:g}")
    groups = group_mechanisms([mechanism])
    print(first_ledger.affordability_table(groups, epsilons, stores, _LIMIT.value))
    for name, value in after_one.items():
        print(f"epsilon after one participation ({name.upper()}): {value:.4f}")
    if _PARTICIPATIONS.value is not None:
        print_noise(mechanism, epsilons, _PARTICIPATIONS.value)
    if _JSON.value:
        counts = {
            name: {
                text: affordable(curve, float(epsilon), _LIMIT.value)
                for text, epsilon in zip(names, epsilons, strict=True)
            }
            for name, curve in curves.items()
        }
        numbers = {**counts, "epsilon_after_one": after_one}
        pathlib.Path(_JSON.value).write_text(json.dumps(numbers, indent=1) + "\n")
    if _PLOT.value:
        from dpsparfl_jax.report import plan_pictures  # loads matplotlib

        figure = plan_pictures.epsilon_figure(curves, wanted, _DELTA.value, title)
        figure.savefig(_PLOT.value, dpi=150)
        print(f"figure: {_PLOT.value}")


def print_noise(
    mechanism: Mechanism, epsilons: np.ndarray, participations: int
) -> None:
    """The noise multiplier that affords `participations`, for every budget."""
    print(f"noise multiplier that affords {participations} participations:")
    print(
        f"{'epsilon':>8}" + "".join(f"{name.upper():>14}" for name in all_accountants())
    )
    for epsilon in epsilons:
        multipliers = [
            calibrate.noise_multiplier_for(
                accountant,
                mechanism,
                epsilon=float(epsilon),
                participations=participations,
            )
            for accountant in all_accountants().values()
        ]
        print(f"{epsilon:8.4g}" + "".join(f"{noise:14.4f}" for noise in multipliers))


if __name__ == "__main__":
    cli.run(main)
