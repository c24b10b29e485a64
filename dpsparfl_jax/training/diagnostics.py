"""What is told of every task after training: declared and computed here alone.

A new number needs a field and its value here, and a column in `records/columns.py`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpsparfl_jax.training import sampling
from dpsparfl_jax.types import Array

_ZERO = np.float32(0)


class Diagnostics(NamedTuple):
    """What is known of each task after training; none of it is private.

    These are measured on raw records. They are for the experimenter's eyes; feeding
    them to a policy or publishing them would need its own privacy accounting.
    """

    loss: Array  # mean loss of the examples used
    clipped_fraction: Array  # share of examples with a masked norm above the bound
    median_norm: Array  # median masked gradient norm before clipping
    gradient_to_noise: Array  # first step: norm of the sum / expected norm of the noise
    examples: Array  # examples used over all steps
    overflow: Array  # examples that a padded batch cut off
    nonfinite_examples: Array  # examples left out because their gradient was not finite
    kept: Array  # coordinates that the mask kept
    diverged: Array  # True: the update was not finite, or huge, and was dropped


class StepTrace(NamedTuple):
    """What a local step leaves for the diagnosis; stacked over the steps."""

    norms: jax.Array  # [capacity]
    loss_sum: jax.Array
    nonfinite: jax.Array
    sum_norm: jax.Array  # of the clipped sum; measured at the first step only


def diagnose(
    trace: StepTrace,
    batches: sampling.Batches,
    bound: jax.Array,
    noise_std: jax.Array,
    kept: jax.Array,
    diverged: jax.Array,
) -> Diagnostics:
    """What is told of a task, from the traces of its steps [tau]."""
    norms = trace.norms.reshape(-1)  # infinite where there was no usable example
    used = jnp.sum(jnp.isfinite(norms), dtype=jnp.int32)
    middle = jnp.sort(norms)[jnp.maximum(used - 1, 0) // 2]
    divisor = jnp.maximum(used, 1).astype(jnp.float32)
    at_least_one = jnp.maximum(kept, 1).astype(jnp.float32)
    clipped = jnp.sum(jnp.isfinite(norms) & (norms > bound), dtype=jnp.int32)
    return Diagnostics(
        loss=jnp.sum(trace.loss_sum) / divisor,
        clipped_fraction=clipped.astype(jnp.float32) / divisor,
        median_norm=jnp.where(used > 0, middle, _ZERO),
        gradient_to_noise=jnp.where(
            noise_std > 0,
            trace.sum_norm[0] / (noise_std * jnp.sqrt(at_least_one)),
            np.float32(np.inf),
        ),
        examples=jnp.sum(batches.counts, dtype=jnp.int32),
        overflow=jnp.sum(batches.overflow, dtype=jnp.int32),
        nonfinite_examples=jnp.sum(trace.nonfinite, dtype=jnp.int32),
        kept=kept,
        diverged=diverged,
    )
