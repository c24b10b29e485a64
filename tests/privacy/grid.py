"""The settings at which accountants are compared."""

import itertools

from dpsparfl_jax.privacy.mechanism import Mechanism, Release

GRID = tuple(
    itertools.product(
        (0.002, 0.008, 0.032, 0.1),  # sampling rate
        (0.4, 0.6, 1.0, 2.0),  # noise multiplier
        (60, 3000),  # steps
        (1e-3, 1e-5),  # delta
    )
)


def mechanism(q, sigma, steps, delta):
    """Everything in one participation."""
    return Mechanism(Release(q, sigma, steps), delta)
