"""Ten ways to break the mechanism, and the audits that must notice.

Every fault is patched into the modules that the compiled program is traced from; the
library itself has none of them.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from dpsparfl_jax.privacy import rdp
from dpsparfl_jax.rng import Purpose
from dpsparfl_jax.runner import programs
from dpsparfl_jax.training import clipping, keys, local, noise, sampling
from experiments.auditing import generator, sensitivity, white_box
from experiments.auditing.program import Setting

SIGNIFICANCE = 1e-3  # of a bound: how often a good mechanism may be called broken
DELTA = 1e-2

FULL = Setting(records=4, batch_size=4, noise_multiplier=1.0)
SAMPLED = Setting(
    records=16, batch_size=2, noise_multiplier=1.0, rounds=8, keep_rate=0.5
)
POISSON_SUMS = sensitivity.default_settings(("audit_dense",), ("vmap",))


# --------------------------------------------------------------------- faults


def scale_noise(factor, patch):
    real = noise.add_noise

    def add_noise(key, total, mask, noise_std, rounds=20):
        return real(key, total, mask, noise_std * np.float32(factor), rounds)

    patch.setattr(noise, "add_noise", add_noise)


def patch_factors(formula, patch):
    """Clip factors by another formula of norms and bound."""

    def clip_factors(norms, losses, real, bound):
        usable = real & jnp.isfinite(norms) & jnp.isfinite(losses)
        return jnp.where(usable, formula(norms, bound), np.float32(0)), usable

    patch.setattr(clipping, "clip_factors", clip_factors)


def one_everywhere(mask):
    """Not as a constant, which large products on a CPU get wrong (see `norms.py`)."""
    return mask * np.float32(0) + np.float32(1)


def mask_after_clipping(patch):
    """Whole gradients are clipped at C = 1, then masked; noise is for sqrt(s) C."""
    real = local._clipped_sum

    def clipped_sum(spec, params, mask, data, rows, count, bound, choose_size):
        whole = {
            layer: {name: one_everywhere(leaf) for name, leaf in leaves.items()}
            for layer, leaves in mask.items()
        }
        one = jnp.ones_like(bound)
        return real(spec, params, whole, data, rows, count, one, choose_size)

    patch.setattr(local, "_clipped_sum", clipped_sum)


def noise_key_without_round(patch):
    real = keys.task_key

    def task_key(root, purpose, round_index, client):
        if purpose == Purpose.NOISE:
            round_index = jnp.zeros_like(round_index)
        return real(root, purpose, round_index, client)

    patch.setattr(keys, "task_key", task_key)


def double_sampling_rate(patch):
    real = sampling.poisson_batches

    def poisson_batches(key, inclusion, size, **shapes):
        twice = inclusion * np.uint32(2) + np.uint32(1)
        return real(key, twice, size, **shapes)

    patch.setattr(sampling, "poisson_batches", poisson_batches)


def fixed_batches(patch):
    """Exactly `SAMPLED.batch_size` records a step, every such set equally likely."""
    real, wanted = sampling.poisson_batches, int(SAMPLED.batch_size)

    def poisson_batches(key, inclusion, size, *, steps, table_lengths, capacity):
        longest = table_lengths[-1]
        every = jnp.full_like(inclusion, np.uint32(2**32 - 1))
        drawn = real(
            *(key, every, size),
            steps=steps,
            table_lengths=table_lengths,
            capacity=longest,
        )
        counts = jnp.minimum(jnp.full_like(drawn.counts, wanted), drawn.counts)
        width = min(capacity, longest)
        return sampling.Batches(drawn.positions[:, :width], counts, 0 * counts)

    patch.setattr(sampling, "poisson_batches", poisson_batches)


def divide_by_realised_batch(patch):
    """The division by the expected batch, which comes later, is undone here."""
    real_advance, real_sum = local.advance, local._clipped_sum
    real_noise, seen = noise.add_noise, {}

    def advance(spec, prepared, state, records, task, steps, *, choose_size):
        seen["expected"] = task.batch_size
        return real_advance(
            *(spec, prepared, state, records, task, steps),
            choose_size=choose_size,
        )

    def clipped_sum(spec, params, mask, data, rows, count, bound, choose_size):
        seen["realised"] = jnp.maximum(count, 1).astype(jnp.float32)
        return real_sum(spec, params, mask, data, rows, count, bound, choose_size)

    def add_noise(key, total, mask, noise_std, rounds=20):
        noisy = real_noise(key, total, mask, noise_std, rounds)
        factor = seen["expected"] / seen["realised"]
        return {
            layer: {name: leaf * factor for name, leaf in leaves.items()}
            for layer, leaves in noisy.items()
        }

    patch.setattr(local, "advance", advance)
    patch.setattr(local, "_clipped_sum", clipped_sum)
    patch.setattr(noise, "add_noise", add_noise)


def double_mixture(patch):
    """The paper's printed moment: the sampling rate is squared."""
    real = rdp.divergence

    def divergence(release, at):
        squared = dataclasses.replace(release, sampling_rate=release.sampling_rate**2)
        return real(squared, at)

    patch.setattr(rdp, "divergence", divergence)


FAULTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "noise halved": functools.partial(scale_noise, 0.5),
    "noise 20% less": functools.partial(scale_noise, 0.8),
    "clipping off": functools.partial(
        patch_factors, lambda norms, bound: jnp.ones_like(norms)
    ),
    "clip factor as printed in the paper": functools.partial(
        patch_factors, lambda norms, bound: jnp.minimum(np.float32(1), norms / bound)
    ),
    "mask after clipping": mask_after_clipping,
    "noise key without round": noise_key_without_round,
    "sampling rate doubled": double_sampling_rate,
    "fixed batches accounted as Poisson": fixed_batches,
    "division by the realised batch": divide_by_realised_batch,
    "double mixture in the accountant": double_mixture,
}


@contextlib.contextmanager
def broken(fault: str | None):
    """The product with this fault (None: as it is); programs are compiled anew."""
    programs.get_program.cache_clear()
    try:
        with pytest.MonkeyPatch.context() as patch:
            if fault is not None:
                FAULTS[fault](patch)
            yield
    finally:
        programs.get_program.cache_clear()


# --------------------------------------------------------------------- audits


class Verdict(NamedTuple):
    is_broken: bool
    text: str


def _white_box(setting, trials, **changes) -> Verdict:
    found = white_box.audit(
        *("", setting, trials), delta=DELTA, significance=SIGNIFICANCE, **changes
    )
    claim, proved = min(found.claims.values()), found.bounds.clopper_pearson
    return Verdict(found.is_broken, f"{proved:.2f} > {claim:.2f}")


def full_batches(trials=50_000) -> Verdict:
    return _white_box(FULL, trials)


def poisson_batches(trials=20_000) -> Verdict:
    return _white_box(SAMPLED, trials)


def crowd(trials=20_000) -> Verdict:
    plain = dataclasses.replace(SAMPLED, keep_rate=1.0)
    return _white_box(plain, trials, crowded=True)


def one_record() -> Verdict:
    worst = max(sensitivity.check(POISSON_SUMS, 100), key=lambda each: each.worst)
    return Verdict(worst.is_broken, f"{worst.worst:.3g} bounds ({worst.family})")


def random_numbers() -> Verdict:
    worst = min(generator.check(), key=lambda each: each.p_value)
    text = f"{worst.name}: {worst.found:.3g}, not {worst.expected}"
    return Verdict(worst.is_broken, text)


AUDITS: dict[str, Callable[[], Verdict]] = {
    "white-box, whole batches": full_batches,
    "white-box, Poisson batches": poisson_batches,
    "white-box, crowd": crowd,
    "sensitivity": one_record,
    "generator": random_numbers,
}
# The audit that suits a fault: others may notice it too.
SUITS = {
    "noise halved": "white-box, whole batches",
    "noise 20% less": "white-box, whole batches",
    "clipping off": "sensitivity",
    "clip factor as printed in the paper": "sensitivity",
    "mask after clipping": "sensitivity",
    "noise key without round": "generator",
    "sampling rate doubled": "white-box, Poisson batches",
    "fixed batches accounted as Poisson": "white-box, crowd",
    "division by the realised batch": "sensitivity",
    "double mixture in the accountant": "white-box, Poisson batches",
}
