"""From a configuration to a ledger: what a run may spend, said before it starts."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax.client_values import client_values
from dpsparfl_jax.config import RunConfig
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.privacy import budgets, calibrate, rounding
from dpsparfl_jax.privacy.accountants import Accountant, make_accountant
from dpsparfl_jax.privacy.clip_norm import QuantileQuery
from dpsparfl_jax.privacy.curves import CurveStore, affordable, check_noise
from dpsparfl_jax.privacy.ledger import Ledger, non_private_ledger, open_ledger
from dpsparfl_jax.privacy.mechanism import ClientGroups, client_groups
from dpsparfl_jax.privacy.rdp import RdpAccountant

_LARGEST_EPSILON = 1000.0
_ENDLESS = 1000  # participations of every client that nobody can have meant


class OpenedLedger(NamedTuple):
    """A fresh ledger and what to tell the user about it."""

    ledger: Ledger
    message: str


def start_ledger(
    settings: RunConfig,
    sizes: NDArray[np.int_],
    capacity: int | None,
    parameters: int,
) -> OpenedLedger:
    """The ledger of clients with `sizes` [U] records and a padded batch of `capacity`.

    The model has `parameters` coordinates, each with noise of its own. Refuses to start
    only if no client can take part even once.
    """
    privacy, training = settings.privacy, settings.training
    limit = privacy.max_participations
    if not privacy.noise:
        message = "No noise is added: this run is not private, epsilon is infinite."
        return OpenedLedger(non_private_ledger(len(sizes), limit), message)
    accountant: Accountant = make_accountant(privacy.accountant)
    asked = client_budgets(settings, len(sizes))
    query = quantile_query(settings)
    groups = client_groups(
        sizes,
        batch_size=training.batch_size,
        noise_multiplier=client_values(
            privacy, "noise_multiplier", settings.seed, len(sizes)
        ),
        steps=training.local_steps,
        delta=privacy.delta,
        capacity=capacity,
        setup=None if query is None else query.release,
        coordinates=parameters,
    )
    groups = rounding.fewer(groups, privacy.most_mechanisms)
    if groups.rounded:
        accountant = rounding.InSteps(accountant)
    _require_end(settings, groups, asked)
    store = CurveStore(accountant, settings.perf.cache_dir)
    ledger = open_ledger(asked, groups, store, limit=limit)
    _require_anyone(ledger, groups, accountant, sizes)
    return OpenedLedger(ledger, _message(ledger, groups, store, limit))


def client_budgets(settings: RunConfig, num_clients: int) -> NDArray[np.float64]:
    """Epsilon of every client [U], given or drawn."""
    privacy = settings.privacy
    if privacy.epsilons:
        values = budgets.parse_budgets(privacy.epsilons)
        asked = budgets.given_budgets(values, num_clients)
    else:
        asked = budgets.draw_budgets(
            settings.seed, num_clients, privacy.epsilon_lo, privacy.epsilon_hi
        )
    check_budgets(asked)
    return asked


def check_budgets(epsilons: NDArray[np.float64]) -> None:
    """Refuses budgets that protect nothing."""
    if np.max(epsilons) > _LARGEST_EPSILON:
        raise InputError(
            f"an epsilon of {np.max(epsilons):g} protects nothing and takes hours to "
            f"account for: allow at most {_LARGEST_EPSILON:g}, or train without noise."
        )


def quantile_query(settings: RunConfig) -> QuantileQuery | None:
    """The private clip-norm query of a configuration, if it wants one."""
    privacy = settings.privacy
    if privacy.clip_calibration != "private":
        return None
    return QuantileQuery(
        quantile=privacy.clip_quantile,
        rounds=privacy.clip_rounds,
        sampling_rate=privacy.clip_sampling_rate,
        noise_multiplier=privacy.clip_noise_multiplier,
        start=settings.training.clip_norm,
    )


def affordability_table(
    groups: ClientGroups,
    epsilons: NDArray[np.float64],
    stores: Mapping[str, CurveStore],
    limit: int,
) -> str:
    """What a setting affords: a line an epsilon, a column of participations a store.

    "3-17" is the range over clients with different mechanisms; ">=" marks `limit`.
    """
    columns = {
        name: [
            store.curve(mechanism, max_epsilon=float(np.max(epsilons)), limit=limit)
            for mechanism in groups.mechanisms
        ]
        for name, store in stores.items()
    }
    lines = [f"{'epsilon':>8}" + "".join(f"{name.upper():>14}" for name in columns)]
    for epsilon in epsilons:
        cells = [
            _range([affordable(curve, epsilon, limit) for curve in curves], limit)
            for curves in columns.values()
        ]
        lines.append(f"{epsilon:8.4g}" + "".join(f"{cell:>14}" for cell in cells))
    return "\n".join(lines)


def _range(counts: list[int], limit: int) -> str:
    ends = sorted({min(counts), max(counts)})
    return "-".join(f">={n}" if n == limit else str(n) for n in ends)


def _message(
    ledger: Ledger, groups: ClientGroups, store: CurveStore, limit: int
) -> str:
    low, high = float(np.min(ledger.budget)), float(np.max(ledger.budget))
    epsilons = np.linspace(low, high, 5) if high > low else np.array([low])
    able = int(np.sum(ledger.affordable > 0))
    delta, name = groups.mechanisms[0].delta, store.accountant.name
    return (
        f"Participations that an epsilon affords at delta {delta:g} "
        "(one record of one client against a null one):\n"
        f"{affordability_table(groups, epsilons, {name: store}, limit)}\n"
        f"Accountant {name}: {able} of {len(ledger.budget)} clients can take "
        f"part, {int(np.sum(ledger.affordable))} times in all."
        f"{groups.rounded and ' '}{groups.rounded}"
    )


def _require_end(
    settings: RunConfig, groups: ClientGroups, asked: NDArray[np.float64]
) -> None:
    """Refuses budgets that never end, without computing their curves.

    Renyi accounting decides: what lasts by it, lasts.
    """
    limit = np.array([settings.privacy.max_participations])
    if settings.length.rounds or limit[0] < _ENDLESS:
        return
    for mechanism, clients in zip(groups.mechanisms, groups.members(), strict=True):
        check_noise(mechanism)
        least = np.min(asked[clients], initial=np.inf)
        if RdpAccountant().epsilon(mechanism, limit)[0] > least:
            return
    require_end(settings, np.broadcast_to(limit, asked.shape))


def require_end(settings: RunConfig, affordable: NDArray[np.int64]) -> None:
    """Refuses a run that neither a budget nor a setting ends within reason."""
    limit = settings.privacy.max_participations
    if settings.length.rounds or limit < _ENDLESS or np.any(affordable < limit):
        return
    rounds = math.ceil(limit * len(affordable) / settings.wireless.num_channels)
    raise InputError(
        f"no budget ends this run: every client could take part {limit} times, in some "
        f"{max(rounds, limit):,} rounds; set length.rounds, or lower "
        "privacy.max_participations."
    )


def _require_anyone(
    ledger: Ledger,
    groups: ClientGroups,
    accountant: Accountant,
    sizes: NDArray[np.int_],
) -> None:
    """Refuses a setting in which no client can take part even once, with advice."""
    if np.any(ledger.affordable > 0):
        return
    nearest = int(np.argmin(ledger.epsilon_next - ledger.budget))
    mechanism = groups.mechanisms[groups.group[nearest]]
    epsilon = float(ledger.budget[nearest])
    noise = calibrate.noise_multiplier_for(
        accountant, mechanism, epsilon=epsilon, participations=1
    )
    batch = calibrate.batch_size_for(
        accountant,
        mechanism,
        examples=int(sizes[nearest]),
        epsilon=epsilon,
        participations=1,
    )
    smaller = f", or the batch size to at most {batch}" if batch else ""
    raise InputError(
        "no client can take part even once: a participation costs epsilon "
        f"{ledger.epsilon_next[nearest]:.3g} ({accountant.name}), but the nearest "
        f"client allows {epsilon:.3g}; set the noise multiplier to at least "
        f"{np.ceil(noise * 1000) / 1000:.3f}{smaller}."
    )
