r"""What a privacy budget affords.

    dpsparfl budget --sigma 0.6 --batch 10 --examples 1000 --steps 60 \
        --delta 1e-3 --epsilon 2,5,10

prints how often a client may take part under both accountants; with `--plot=FILE` it
draws epsilon over participations. With `--participations 100` it also prints the noise
multiplier that affords so many. Neighbouring data sets differ in one record replaced by
a null one.

    dpsparfl budget --advise --examples 1000 --epsilon 2..10

looks for settings that spend such budgets well: the largest signal, (batch / sigma) *
sqrt(steps afforded), for the examples that clients train on. It prints (and draws) the
frontier of both, beside what --sigma, --batch and --steps give.
"""

import json
import math
import pathlib
import sys
from collections.abc import Mapping

import numpy as np
from absl import flags
from tqdm import tqdm

from dpsparfl_jax import config
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.options import LARGEST_COUNT
from dpsparfl_jax.privacy import advise, budgets, calibrate, first_ledger, poisson
from dpsparfl_jax.privacy.accountants import all_accountants, make_accountant
from dpsparfl_jax.privacy.curves import CurveStore, affordable, check_noise
from dpsparfl_jax.privacy.mechanism import Mechanism, Release, group_mechanisms

from . import advice, cli

_DEFAULT = config.RunConfig()
_SIGMA = flags.DEFINE_float(
    "sigma", _DEFAULT.privacy.noise_multiplier, "noise multiplier"
)
_BATCH = flags.DEFINE_float(
    "batch", _DEFAULT.training.batch_size, "expected Poisson batch size"
)
_EXAMPLES = flags.DEFINE_integer(
    "examples", 1000, "records of the client", upper_bound=LARGEST_COUNT
)
_STEPS = flags.DEFINE_integer(
    "steps",
    _DEFAULT.training.local_steps,
    "noisy steps of one participation",
    upper_bound=LARGEST_COUNT,
)
_DELTA = flags.DEFINE_float("delta", _DEFAULT.privacy.delta, "delta of the guarantee")
_OVERFLOW = flags.DEFINE_float(
    "overflow",
    0.0,
    "probability that one step cuts its padded batch off, charged to delta (a run "
    f"allows up to {_DEFAULT.privacy.overflow_probability:g})",
)
_PARAMETERS = flags.DEFINE_integer(
    "parameters",
    0,
    "of the model: the end of their generated noise is charged to delta, as in a run; "
    "0 for noise without an end",
    lower_bound=0,
)
_EPSILON = flags.DEFINE_string(
    "epsilon",
    "2,5,10",
    "budgets, separated by commas; for --advise also a range as in 2..10",
)
_PARTICIPATIONS = flags.DEFINE_integer(
    "participations",
    None,
    "also find the noise multiplier that affords so many",
    lower_bound=1,
)
_LIMIT = flags.DEFINE_integer(
    "limit",
    10_000,
    "participations to look at, at most (default for --advise: "
    f"{_DEFAULT.privacy.max_participations}, as runs have it)",
    lower_bound=1,
)
_JSON = flags.DEFINE_string("json", "", "file for the numbers")
_PLOT = flags.DEFINE_string("plot", "", "draw it to this file (png, pdf, svg)")
_CACHE = flags.DEFINE_string(
    "cache_dir", _DEFAULT.perf.cache_dir, "folder of computed epsilon curves"
)
_ADVISE = flags.DEFINE_bool("advise", False, "look for settings that spend well")
_CLIENTS = flags.DEFINE_integer("clients", 20, "for --advise: clients", lower_bound=1)
_CHANNELS = flags.DEFINE_integer(
    "channels", 5, "for --advise: clients that take part in a round", lower_bound=1
)
_MOST_EXAMPLES = flags.DEFINE_float(
    "most_examples",
    2e6,
    "for --advise: examples that all clients may train on; 0 for no limit",
    lower_bound=0,
)
_MOST_ROUNDS = flags.DEFINE_integer(
    "most_rounds", 0, "for --advise: rounds at most; 0 for no limit", lower_bound=0
)
_MOST_BATCH = flags.DEFINE_float(
    "most_batch", 256, "for --advise: the largest batch to look at (at most 256)"
)
_ONLY_FOR_ADVICE = (_CLIENTS, _CHANNELS, _MOST_EXAMPLES, _MOST_ROUNDS, _MOST_BATCH)


def mechanism_from_flags() -> Mechanism:
    """The client's mechanism."""
    if _EXAMPLES.value < 1:
        raise InputError(f"--examples must be at least 1, but is {_EXAMPLES.value}.")
    rate = float(poisson.sampling_rate(_BATCH.value, _EXAMPLES.value))
    release = Release(rate, _SIGMA.value, _STEPS.value)
    mechanism = Mechanism(
        release, _DELTA.value, _OVERFLOW.value, coordinates=_PARAMETERS.value
    )
    check_noise(mechanism)
    return mechanism


def main() -> None:
    """Prints the table; draws the figure and writes the numbers where asked to."""
    for count in (_PARTICIPATIONS, _LIMIT, _CLIENTS, _CHANNELS, _MOST_ROUNDS):
        if (count.value or 0) > LARGEST_COUNT:
            raise InputError(
                f"--{count.name} must be at most {LARGEST_COUNT}, but is {count.value}."
            )
    cli.check_output("json", _JSON.value)
    cli.check_output("plot", _PLOT.value)
    if _PLOT.value:
        cli.check_picture(_PLOT.value)
    mechanism = mechanism_from_flags()
    if _ADVISE.value:
        give_advice()
        return
    for flag in _ONLY_FOR_ADVICE:
        if flags.FLAGS[flag.name].present:
            raise InputError(
                f"--{flag.name} is for --advise: add that, or leave it out."
            )
    wanted = budgets.parse_budgets(_EPSILON.value)
    epsilons = budgets.given_budgets(wanted, len(wanted))
    first_ledger.check_budgets(epsilons)
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
    warn_of_little(after_one, epsilons)
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
        from dpsparfl_jax.report import (  # they load matplotlib
            picture_style,
            plan_pictures,
        )

        figure = plan_pictures.epsilon_figure(curves, wanted, _DELTA.value, title)
        picture_style.save(figure, _PLOT.value)
        print(f"figure: {_PLOT.value}")


def warn_of_little(after_one: Mapping[str, float], epsilons: np.ndarray) -> None:
    """Says what to change where not even one participation is afforded."""
    if min(after_one.values()) > np.max(epsilons):
        print(
            "No budget affords a single participation: raise --sigma, or lower --batch "
            "or --steps.",
            file=sys.stderr,
        )
    beyond = [name.upper() for name, value in after_one.items() if math.isinf(value)]
    if beyond:
        print(
            f"{' and '.join(beyond)}: no finite epsilon can be computed for so small a "
            "delta, so many steps or so little noise.",
            file=sys.stderr,
        )


def give_advice() -> None:
    """Prints, draws and writes the settings that spend the budgets best."""
    if _PARTICIPATIONS.value is not None:
        raise InputError("--participations is not for --advise: leave one of them out.")
    for most in (_MOST_BATCH, _MOST_EXAMPLES):
        if math.isnan(most.value):  # bounds of flags let it pass
            raise InputError(f"--{most.name} must be a number, but is nan.")
    limit = _LIMIT.value
    if not flags.FLAGS[_LIMIT.name].present:
        limit = _DEFAULT.privacy.max_participations  # after which runs retire a client
    clients = advise.Clients(
        advice.budgets_of(_EPSILON.value),
        examples=_EXAMPLES.value,
        count=_CLIENTS.value,
        channels=_CHANNELS.value,
        delta=_DELTA.value,
        overflow_probability=_OVERFLOW.value,
        limit=limit,
        coordinates=_PARAMETERS.value,
    )
    limits = advise.Limits(
        _MOST_EXAMPLES.value or math.inf, _MOST_ROUNDS.value or math.inf
    )
    present = advise.Setting(_SIGMA.value, _BATCH.value, _STEPS.value)
    grid = advise.settings_grid(clients.examples, _MOST_BATCH.value)
    store = CurveStore(make_accountant("pld"), _CACHE.value)
    given = advice.seek(clients, limits, present, grid, store)
    title = (
        f"{clients.count} clients of {clients.examples} records, epsilon "
        f"{_EPSILON.value}, delta {clients.delta:g}"
    )
    print(title)
    print(advice.table(given))
    print(advice.sentence(given))
    if _JSON.value:
        text = json.dumps(advice.numbers(given), indent=1)
        pathlib.Path(_JSON.value).write_text(text + "\n")
    if _PLOT.value:
        from dpsparfl_jax.report import (  # they load matplotlib
            picture_style,
            plan_pictures,
        )

        figure = plan_pictures.frontier_figure(
            given.frontier, given.best, given.present, limits.examples, title
        )
        picture_style.save(figure, _PLOT.value)
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
