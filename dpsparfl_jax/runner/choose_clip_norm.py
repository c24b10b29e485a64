"""The clip norm of a run, as its settings say: by hand, or measured before training."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax.config import RunConfig
from dpsparfl_jax.config_values import noise_seed
from dpsparfl_jax.privacy import clip_norm, first_ledger
from dpsparfl_jax.types import ImageSet

NormsOf = Callable[[ImageSet], jax.Array]


def choose_clip_norm(
    settings: RunConfig,
    norms_of: NormsOf,
    train: ImageSet,
    test: ImageSet,
    answering: Sequence[NDArray[Any]],
) -> clip_norm.ClipNorm:
    """The clip norm as `privacy.clip_calibration` says.

    `norms_of` measures gradients of the initial model, which no record has touched;
    `answering` lists the training images of each client that can take part.
    """
    way = settings.privacy.clip_calibration
    if way == "none":
        statement = "set by hand (training.clip_norm)"
        return clip_norm.ClipNorm(settings.training.clip_norm, True, statement)
    if way == "heldout":
        return clip_norm.median_clip_norm(jax.device_get(norms_of(test)), public=True)
    owned = np.concatenate(answering)
    norms = jax.device_get(norms_of(ImageSet(train.images[owned], train.labels[owned])))
    if way == "median":
        return clip_norm.median_clip_norm(norms)
    query = first_ledger.quantile_query(settings)
    assert query is not None
    ends = np.cumsum([len(client) for client in answering])[:-1]
    parts = np.split(norms, ends)
    return clip_norm.private_clip_norm(parts, query, noise_seed(settings))[0]
