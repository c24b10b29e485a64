"""Generator check: are noise, masks and batches what the accountants take them for?

Everything is read off releases of the compiled program. Clients without a gradient
release their noise alone; a keep rate of one half shows their masks; a canary without
noise shows in which steps it was sampled. Every test has an exact or asymptotic p-value
and fails below `FALSE_ALARM` over the number of tests, so that a good generator fails
the whole check with a probability below `FALSE_ALARM`.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy import stats

from dpsparfl_jax.rng import LARGEST_NOISE, Purpose
from dpsparfl_jax.training import keys, noise

from . import probes
from .program import Clients, Setting, equal_tables

FALSE_ALARM = 1e-4
_STEPS = 4
_AXES = {"round": 0, "seed": 1, "client": 2, "coordinate": 3}
Values = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Statistic:
    """One number that would be off if the generator were."""

    name: str
    found: float
    expected: str
    p_value: float
    is_broken: bool = False


def largest_noise() -> float:
    """The largest |z| that the generator can give: its words have a last one."""
    last = np.array([0, 2**31 - 1, 2**31, 2**32 - 1], np.uint32)
    radius, angle = np.meshgrid(last, last)
    return float(jnp.max(jnp.abs(noise.words_to_normal(radius, angle))))


def _releases(
    setting: Setting, record: int, seeds: int, clients: int, seed: int
) -> Values:
    """Releases of clients with one record that is not empty: [T, S, U, D]."""
    rows = np.full(
        (seeds * clients, clients, setting.records), probes.NOTHING, np.int32
    )
    rows[:, :, 0] = record
    roots = np.uint64(seed << 32) + np.arange(seeds, dtype=np.uint64)
    runs = Clients(
        setting,
        probes.loud_records(),
        equal_tables(rows),
        np.repeat(roots, clients),
        np.tile(np.arange(clients), seeds),
    )
    released = [runs.release(number) for number in range(setting.rounds)]
    return np.stack(released).reshape(setting.rounds, seeds, clients, -1)


def _test(name: str, found: float, expected: str, z: float) -> Statistic:
    return Statistic(name, found, expected, float(2 * stats.norm.sf(abs(z))))


def _share(
    name: str, hits: NDArray[np.bool_] | int, count: int, rate: float
) -> Statistic:
    total = int(np.sum(hits))
    p_value = stats.binomtest(total, count, rate).pvalue
    return Statistic(name, total / count, f"{rate:.3g}", float(p_value))


def _variance(name: str, values: Values, expected: float) -> Statistic:
    found = float(np.mean(values**2)) / expected
    return _test(name, found, "1", (found - 1) * np.sqrt(values.size / 2))


def _correlation(name: str, first: Values, second: Values) -> Statistic:
    """Of standardised values; its square root of n multiple is standard normal."""
    found = float(np.mean(first * second))
    return _test(name, found, "0", found * np.sqrt(first.size))


def _neighbours(what: str, values: Values) -> list[Statistic]:
    """Correlations of values [T, S, U, D] with their neighbours along every axis."""
    tests = []
    for axis, number in _AXES.items():
        length = values.shape[number]
        if length < 2:
            continue
        first = values.take(range(length - 1), number)
        second = values.take(range(1, length), number)
        tests.append(_correlation(f"{what}: next {axis}", first, second))
    return tests


def _of_noise(z: Values) -> list[Statistic]:
    """Distribution and independence of standardised noise [T, S, U, D]."""
    flat = z.reshape(-1)
    edge = largest_noise()
    sample = flat[:: max(1, flat.size // 10**6)]
    gap = stats.kstest(sample, "norm")
    highest = float(np.max(np.abs(flat)))
    tests = [
        _test("noise: mean", float(flat.mean()), "0", flat.mean() * np.sqrt(flat.size)),
        _variance("noise: variance", flat, 1.0),
        Statistic("noise: Kolmogorov-Smirnov", gap.statistic, "0", float(gap.pvalue)),
        Statistic(
            "noise: largest",
            highest,
            f"at most {edge:.2f}",
            float(highest <= edge * (1 + 1e-5)),
        ),
        Statistic(
            "noise: edge of its support",
            edge,
            f"the {LARGEST_NOISE:.2f} that the ledger charges for",
            float(abs(edge - LARGEST_NOISE) <= 1e-5 * LARGEST_NOISE),
        ),
    ]
    for cut in (3, 4, 4.5):
        rate = 2 * stats.norm.sf(cut)
        tests.append(
            _share(f"noise: beyond {cut}", np.abs(flat) > cut, flat.size, rate)
        )
    # Squares: keys that repeat up to a sign, or scale each other, show here.
    squares = (z**2 - 1) / np.sqrt(2)
    return [*tests, *_neighbours("noise", z), *_neighbours("noise squared", squares)]


def _of_keys(seeds: int, clients: int, rounds: int, seed: int) -> Statistic:
    """How many keys of all purposes, rounds, clients and steps occur twice."""
    roots = jnp.asarray(
        keys.root_key_words(np.uint64(seed << 32) + np.arange(seeds, dtype=np.uint64))
    )
    numbers = jnp.arange(_STEPS, dtype=jnp.uint32)
    grid = np.stack(
        np.meshgrid(np.arange(seeds), np.arange(rounds), np.arange(clients)), -1
    ).reshape(-1, 3)
    words = []
    for purpose in (Purpose.MASK, Purpose.SAMPLING, Purpose.NOISE):

        def folded(row: jax.Array, purpose: Purpose = purpose) -> jax.Array:
            key = keys.task_key(roots[row[0]], purpose, row[1], row[2])
            steps = jax.vmap(lambda step: jax.random.fold_in(key, step))(numbers)
            own = jax.random.key_data(key)[None]
            return jnp.concatenate([own, jax.random.key_data(steps)])

        words.append(np.asarray(jax.vmap(folded)(jnp.asarray(grid))).reshape(-1, 2))
    every = np.concatenate(words)
    twice = len(every) - len(np.unique(every, axis=0))
    return Statistic("keys that occur twice", twice, "0", float(twice == 0))


def check(
    generator: str = "threefry",
    *,
    seeds: int = 64,
    clients: int = 8,
    rounds: int = 8,
    seed: int = 0,
    tick: Callable[[int], None] = lambda parts: None,
) -> list[Statistic]:
    """All tests of a generator."""
    base = Setting(records=4, batch_size=4, rounds=rounds, generator=generator)
    size = (seeds, clients, seed)

    z = _releases(base, probes.NOTHING, *size) / base.bound
    tests = _of_noise(z)
    tick(1)

    several = dataclasses.replace(base, steps=_STEPS)
    summed = _releases(several, probes.NOTHING, *size) / base.bound
    tests.append(_variance("noise: variance of a sum of steps", summed, float(_STEPS)))
    tick(1)

    half = dataclasses.replace(base, keep_rate=0.5)
    kept = _releases(half, probes.NOTHING, *size) != 0
    tests.append(_share("mask: kept", kept, kept.size, 0.5))
    bits = 2.0 * kept - 1
    tests += _neighbours("mask", bits)
    tests.append(_correlation("mask and noise", bits, z))
    tick(1)

    silent = dataclasses.replace(
        base, noise_multiplier=None, batch_size=1.0, steps=_STEPS
    )
    length = np.linalg.norm(_releases(silent, probes.CANARY, *size), axis=-1)
    # In how many of the steps; clipping that is broken could give anything.
    sampled = np.clip(np.nan_to_num(np.round(length / silent.bound)), 0, _STEPS)
    rate = silent.sampling_rate
    tests.append(
        _share("sampling: rate", int(sampled.sum()), _STEPS * sampled.size, rate)
    )
    spread = _STEPS * rate * (1 - rate)
    centred = (sampled - _STEPS * rate)[..., None] / np.sqrt(spread)
    tests += [
        test
        for test in _neighbours("sampling", centred)
        if not test.name.endswith("coordinate")
    ]
    # Steps that share a batch would have the same record all in, or all out.
    excess = float(np.mean(centred**2))
    kurtosis = 3 + (1 - 6 * rate * (1 - rate)) / spread
    tests.append(
        _test(
            "sampling: variance over steps",
            excess,
            "1",
            (excess - 1) * np.sqrt(centred.size / (kurtosis - 1)),
        )
    )
    tests.append(_correlation("sampling and noise", centred * np.ones_like(z), z))
    tests.append(_correlation("sampling and mask", centred[..., 0], bits[..., 0]))
    tests.append(_of_keys(*size[:2], rounds, seed))
    tick(1)
    limit = FALSE_ALARM / len(tests)
    return [
        dataclasses.replace(test, is_broken=bool(test.p_value < limit))
        for test in tests
    ]


PARTS = 4  # of a check: what `tick` is told
