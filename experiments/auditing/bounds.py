"""Lower bounds on epsilon from scores of canaries, and the epsilon that is claimed.

The bounds are those of jax_privacy (`auditing.CanaryScoreAuditor`), which the extra
`audit` installs.
"""

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.privacy.accountants import make_accountant
from dpsparfl_jax.privacy.mechanism import Mechanism

ACCOUNTANTS = ("pld", "rdp")


def auditing() -> Any:
    """The module of jax_privacy, loaded when first needed."""
    try:
        from jax_privacy import auditing as library
    except ImportError:
        raise InputError(
            "an audit needs jax_privacy: pip install 'dpsparfl_jax[audit]'."
        ) from None
    return library


@dataclasses.dataclass(frozen=True)
class LowerBounds:
    """What scores prove of epsilon, at one delta."""

    clopper_pearson: float  # holds with the stated confidence
    gaussian_fit: float  # likewise, but only if the trade-off is a Gaussian's


def lower_bounds(
    scores_in: NDArray[np.float64],
    scores_out: NDArray[np.float64],
    *,
    delta: float,
    significance: float,
    seed: int = 0,
) -> LowerBounds:
    """Bounds from scores of runs with [n] and without [m] the canary.

    Clopper-Pearson (Jagielski, Ullman, Oprea 2020) bounds both error rates at one
    threshold, which is chosen on half of the scores and judged on the other half, and
    takes the better of both directions: both rates hold together with the confidence
    1 - significance. The fit (Nasr et al. 2023) takes all thresholds, corrected for
    their number, and the largest mu of a Gaussian trade-off that they prove.
    """
    library = auditing()
    auditor = library.CanaryScoreAuditor(scores_in, scores_out)
    proved = auditor.epsilon_clopper_pearson(
        significance,
        delta,
        one_sided=False,
        threshold_strategy=library.Split(0.5, seed),
    )
    fitted = auditor.epsilon_from_gdp(significance, delta)
    return LowerBounds(float(proved), float(fitted))


def claimed(mechanism: Mechanism, participations: int) -> dict[str, float]:
    """Epsilon as each accountant claims it."""
    counts = np.array([participations])
    return {
        name: float(make_accountant(name).epsilon(mechanism, counts)[0])
        for name in ACCOUNTANTS
    }
