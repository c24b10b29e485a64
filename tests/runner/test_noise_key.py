"""Can noise be subtracted by whoever sees two runs of one seed?"""

import jax
import numpy as np
import pytest

import dpsparfl_jax as fl
from tests import toy

SIGMAS = (2.0, 2.5, 3.0)


def released(noise_key):
    """Models after one step under three noise multipliers, all else being equal."""
    runs = [
        toy.settings(
            privacy={
                "noise_multiplier": sigma,
                "noise_key": noise_key,
                "epsilons": ",".join(["1000"] * 6),
                "max_participations": 5,
            },
            training={"local_steps": 1},
            length={"rounds": 1},
        )
        for sigma in SIGMAS
    ]
    models = [each.params for each in fl.simulate_grid(runs, progress=False)]
    return np.stack(
        [
            np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(model)])
            for model in models
        ]
    ).astype(np.float64)


def without_noise(models, one, other):
    """What noise in proportion to sigma was added to, if it was the same noise."""
    low, high = SIGMAS[one], SIGMAS[other]
    return (high * models[one] - low * models[other]) / (high - low)


@pytest.mark.parametrize("noise_key", ["own", "paired"])
def test_two_noise_multipliers_reveal_the_model_only_if_paired(noise_key):
    models = released(noise_key)
    first, second = without_noise(models, 0, 1), without_noise(models, 1, 2)
    apart = np.linalg.norm(first - second)
    noise = np.linalg.norm(models[2] - models[1])
    if noise_key == "own":
        assert apart > 3 * noise  # the attack only makes it louder
        # Independent, in both draws: the difference has both variances.
        ratio = noise / np.linalg.norm(models[1] - models[0])
        assert ratio == pytest.approx(np.hypot(3, 2.5) / np.hypot(2, 2.5), rel=0.1)
    else:
        assert apart < 1e-4 * noise
