"""White-box audit: is the canary in the data, judged by everything that is released?

The canary's gradient is far above the clip bound whatever the mask leaves of it, so a
step that samples it moves the sum by exactly the bound in a direction that is known;
all other records have no gradient. The auditor reads masks off the updates and scores a
run by the exact log-likelihood ratio of what it saw. A participation of one step gives

    log(1 - q + q exp((2 y - 1) / (2 sigma^2))),

y the projection of the noisy sum on the canary's direction over the bound. Of tau > 1
steps only their sum Y is released, and the canary may be in any of them: the ratio is

    log sum_k Binomial(k; tau, q) exp((2 k Y - k^2) / (2 tau sigma^2)).

Accountants compose all tau steps, as if each were seen: for tau > 1 the best attack
there is stays below the claim, and how far below is what hiding the steps is worth.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from dpsparfl_jax.training import clipping, models
from dpsparfl_jax.types import Params

from . import bounds, probes
from .program import Clients, Setting, equal_tables

Scores = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Audit:
    """One setting's scores as bounds, beside what is claimed."""

    name: str
    setting: Setting
    trials: int  # runs with the canary, and as many without
    delta: float
    claims: dict[str, float]  # epsilon by accountant
    bounds: bounds.LowerBounds

    @property
    def is_broken(self) -> bool:
        """Whether more is proved than any accountant claims."""
        return self.bounds.clopper_pearson > min(self.claims.values())


def canary_direction(setting: Setting) -> NDArray[np.float64]:
    """The canary's gradient at parameters of zero, [D], by its sign alone."""
    model = models.make_model(setting.model, probes.CLASSES)
    data = probes.loud_records()
    image = data.images[:1].astype(np.float32) / np.float32(127.5) - np.float32(1)
    params = models.init_params(model, jax.random.key(0), probes.SHAPE)

    def loss(params: Params) -> jax.Array:
        logits: Any = model.apply({"params": params}, image)
        return clipping.example_losses(logits, data.labels[:1])[0]

    gradient = jax.grad(loss)(jax.tree.map(np.zeros_like, jax.device_get(params)))
    flat = [np.asarray(leaf).reshape(-1) for leaf in jax.tree.leaves(gradient)]
    return np.sign(np.concatenate(flat)).astype(np.float64)


def project(released: Scores, direction: Scores, bound: float) -> Scores:
    """How many canaries a release [R, D] holds, plus noise: [R].

    A coordinate that is exactly zero was dropped by the mask: kept ones have noise.
    """
    kept = released != 0
    length = np.sqrt(np.maximum(kept.sum(axis=1), 1))
    return (released * direction).sum(axis=1) / length / bound


def log_ratio(held: Scores, setting: Setting) -> Scores:
    """Exact log-likelihood ratio of one participation, canary in against out."""
    assert setting.noise_multiplier is not None
    count = np.arange(setting.steps + 1)
    variance = setting.steps * setting.noise_multiplier**2
    log_chance = stats.binom.logpmf(count, setting.steps, setting.sampling_rate)
    exponent = (2 * held[:, None] * count - count**2) / (2 * variance)
    return special.logsumexp(log_chance + exponent, axis=1)


def crowded_log_ratio(held: Scores, setting: Setting) -> Scores:
    """As `log_ratio` for one step, if a batch always had its expected size.

    All other records oppose the canary. Were batches of a fixed size b, the canary
    would come in place of one of them: b - 2 opponents net instead of b, against b - 1
    where its place is empty.
    """
    assert setting.noise_multiplier is not None
    rate, variance = setting.sampling_rate, setting.noise_multiplier**2
    above = held + setting.batch_size
    rest = np.log1p(-rate) if rate < 1 else -np.inf

    def log_density(shift: float) -> Scores:
        moved = np.log(rate) + (2 * above * shift - shift**2) / (2 * variance)
        return np.logaddexp(rest, moved)

    return log_density(2.0) - log_density(1.0)


def score(
    setting: Setting,
    trials: int,
    *,
    seed: int = 0,
    crowded: bool = False,
    tick: Callable[[int], None] = lambda rounds: None,
) -> tuple[Scores, Scores]:
    """Scores of `trials` runs with the canary and as many without, seeds all different.

    Runs that are `crowded` have records that oppose the canary in place of empty ones.
    """
    other = probes.OPPOSITE if crowded else probes.NOTHING
    rows = np.full((2 * trials, 1, setting.records), other, np.int32)
    rows[:, 0, 0] = np.repeat([probes.CANARY, probes.NOTHING], trials)
    seeds = np.uint64(seed << 32) + np.arange(2 * trials, dtype=np.uint64)
    runs = Clients(setting, probes.loud_records(), equal_tables(rows), seeds)
    direction = canary_direction(setting)
    ratio = crowded_log_ratio if crowded else log_ratio
    total = np.zeros(2 * trials)
    for number in range(setting.rounds):
        held = project(runs.release(number), direction, setting.bound)
        total += ratio(held, setting)
        tick(1)
    return total[:trials], total[trials:]


def audit(
    name: str,
    setting: Setting,
    trials: int,
    *,
    delta: float,
    significance: float,
    seed: int = 0,
    crowded: bool = False,
    tick: Callable[[int], None] = lambda rounds: None,
) -> Audit:
    """Audits one setting."""
    scores = score(setting, trials, seed=seed, crowded=crowded, tick=tick)
    proved = bounds.lower_bounds(
        *scores, delta=delta, significance=significance, seed=seed
    )
    claims = bounds.claimed(setting.mechanism(delta), setting.rounds)
    return Audit(name, setting, trials, delta, claims, proved)
