r"""How fast is private local training, and how much memory does it need?

    python -m benchmarks.engine --json results.json [--peers]

Rates are real examples per second (padding is not counted) of whole local steps of five
clients; compilation is not counted, and all contenders of a row take turns in one
process.

engine              what a user runs: Poisson sampling, mask, clipping, noise, update
textbook            the same mechanism in everyday Flax: Poisson sampling into one fixed
                    shape, vmap(grad) over examples and clients, mask, clip, noise
textbook_unpadded   the same on batches of exactly the expected size (another mechanism
                    than the accountant's, and the most that textbook code can reach)
nonprivate          everyday Flax SGD, client after client, batches of the expected size

`engine_peak_mb` and `textbook_peak_mb` are what XLA plans for the clipped sum of one
client's batch of the expected size.
"""

import json
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags
from tqdm import tqdm

from benchmarks import peers, plain, timing
from benchmarks.plain import CLIP, NOISE, RATE
from dpsparfl_jax.data import packing
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.privacy import poisson
from dpsparfl_jax.runner import tasks
from dpsparfl_jax.training import clipping, cohort, keys, local, masks, models, server
from dpsparfl_jax.types import ClientTables, ImageSet, RunConstants
from experiments import cli

CLIENTS = 5
EXAMPLES = 1000
OVERFLOW = 1e-10
IMAGE_SHAPES = {"mnist_cnn": (28, 28, 1), "cifar_cnn": (32, 32, 3)}
ROWS = (
    ("mnist_cnn", 8, 0.3),
    ("mnist_cnn", 8, 1.0),
    ("mnist_cnn", 16, 0.3),
    ("mnist_cnn", 16, 1.0),
    ("mnist_cnn", 64, 0.3),
    ("mnist_cnn", 64, 1.0),
    ("cifar_cnn", 8, 0.3),
    ("cifar_cnn", 32, 0.3),
)

_JSON = flags.DEFINE_string("json", "", "write the results to this file")
_PEERS = flags.DEFINE_bool("peers", False, "also measure Opacus and jax_privacy")
_MODEL = flags.DEFINE_multi_string("model", None, "only rows of these models")
_BATCH = flags.DEFINE_multi_integer("batch", None, "only rows of these batch sizes")
_STEPS = flags.DEFINE_integer("steps", 20, "local steps of a turn", 1)
_REPEATS = flags.DEFINE_integer("repeats", 5, "timed turns of every contender", 1)


class Setting:
    """What the contenders of one row share."""

    def __init__(self, model: str, batch: int, keep_rate: float) -> None:
        """Makes random images, tables and parameters."""
        self.batch, self.keep_rate = batch, keep_rate
        self.shape = IMAGE_SHAPES[model]
        self.net = models.make_model(model)
        assert isinstance(self.net, models.ConvNet)
        self.plain_net = plain.PlainConvNet(self.net)
        self.params = models.init_params(self.net, keys.init_key(0), self.shape)
        rng = np.random.default_rng(0)
        total = CLIENTS * EXAMPLES
        self.data = ImageSet(
            rng.integers(0, 256, (total, *self.shape), np.uint8),
            rng.integers(0, 10, total).astype(np.int32),
        )
        self.tables: ClientTables = packing.pack_clients(
            [list(np.arange(total).reshape(CLIENTS, -1))], total
        )
        rate = batch / EXAMPLES
        self.capacity = poisson.batch_capacity(self.tables.sizes, rate, OVERFLOW)
        self.padded_sizes = poisson.padded_sizes(EXAMPLES, rate, self.capacity, 6)
        self.rng = rng


def engine(setting: Setting, steps: int) -> timing.Contender:
    """Rounds of five clients by the engine."""
    spec = local.make_spec(
        setting.net,
        setting.params,
        setting.shape,
        steps=steps,
        padded_sizes=setting.padded_sizes,
    )
    step = cohort.make_cohort_step(spec)
    rows = tasks.make_tasks(
        setting.tables,
        run=0,
        client=np.arange(CLIENTS),
        round_index=0,
        keep_rate=setting.keep_rate,
        clip_norm=CLIP,
        noise_multiplier=NOISE,
        learning_rate=RATE,
        batch_size=setting.batch,
        capacity=setting.capacity,
        overflow_probability=OVERFLOW,
    )
    batched = jax.tree.map(lambda leaf: leaf[None], setting.params)
    state = cohort.replicate(server.make_server().init(batched))
    constants = RunConstants(keys.root_key_words(0), np.ones(1, np.float32))
    data, tables, constants, rows = cohort.replicate(
        (setting.data, setting.tables, constants, rows)
    )
    turn = 0

    def work() -> int:
        nonlocal state, turn
        turn += 1
        now = rows._replace(round=cohort.replicate(np.full(CLIENTS, turn, np.int32)))
        state, diagnostics = step(state, data, tables, constants, now)
        return int(diagnostics.examples.sum())

    return work


def textbook(setting: Setting, width: int) -> timing.Contender:
    """One step of five vmapped clients in batches padded to `width`."""
    step = plain.private_step(
        setting.plain_net,
        keep_rate=setting.keep_rate,
        clip=CLIP,
        noise=NOISE,
        rate=RATE,
        expected=setting.batch,
    )
    all_clients = jax.jit(jax.vmap(step))
    state = jax.tree.map(
        lambda leaf: jnp.repeat(leaf[None], CLIENTS, axis=0), setting.params
    )

    def draw(key: jax.Array) -> Any:
        keep = jnp.asarray(poisson.probability_word(setting.keep_rate))
        return masks.bernoulli_mask(key, setting.params, keep)

    mask = jax.vmap(draw)(jax.random.split(jax.random.key(1), CLIENTS))
    roots = jax.random.split(jax.random.key(2), CLIENTS)
    pixels = local.normalise(jnp.asarray(setting.data.images), (0.5,), (0.5,))
    labels = jnp.asarray(setting.data.labels)
    padded = width > setting.batch

    def work() -> int:
        nonlocal state
        rows, counts = zip(
            *(_draw_batch(setting, i, width, padded) for i in range(CLIENTS)),
            strict=True,
        )
        chosen = np.stack(rows)
        real = np.arange(width) < np.array(counts)[:, None]
        state = all_clients(state, mask, roots, pixels[chosen], labels[chosen], real)
        jax.block_until_ready(state)
        return sum(counts)

    return work


def _draw_batch(
    setting: Setting, client: int, width: int, padded: bool
) -> tuple[np.ndarray, int]:
    """Rows of a client, the first `count` of which are its batch."""
    count = setting.rng.binomial(EXAMPLES, setting.batch / EXAMPLES)
    count = min(count, width) if padded else setting.batch
    return client * EXAMPLES + setting.rng.permutation(EXAMPLES)[:width], count


def nonprivate(setting: Setting, steps: int) -> timing.Contender:
    """Everyday SGD of five clients, one after another."""
    step = plain.sgd_step(setting.plain_net, RATE)
    states = [setting.params] * CLIENTS
    pixels = local.normalise(jnp.asarray(setting.data.images), (0.5,), (0.5,))
    labels = jnp.asarray(setting.data.labels)

    def work() -> int:
        for client in range(CLIENTS):
            for _ in range(steps):
                rows, _ = _draw_batch(setting, client, setting.batch, False)
                states[client] = step(states[client], pixels[rows], labels[rows])
        jax.block_until_ready(states)
        return CLIENTS * steps * setting.batch

    return work


def peak_mb(setting: Setting, method: str) -> float:
    """Peak memory that XLA plans for the clipped sum of one batch."""
    clipped_sum = clipping.make_clipped_sum(
        setting.net, setting.params, setting.shape, method
    )
    batch = setting.batch
    arguments = (
        setting.params,
        setting.params,
        jax.ShapeDtypeStruct((batch, *setting.shape), jnp.float32),
        jax.ShapeDtypeStruct((batch,), jnp.int32),
        jax.ShapeDtypeStruct((batch,), bool),
        jax.ShapeDtypeStruct((), jnp.float32),
    )
    plan: Any = jax.jit(clipped_sum).lower(*arguments).compile().memory_analysis()
    return (plan.temp_size_in_bytes + plan.output_size_in_bytes) / 1e6


def flops_per_example(setting: Setting) -> float:
    """Floating-point operations of one example's non-private gradient (3 x forward)."""
    forward = jax.jit(setting.net.apply).lower(
        {"params": setting.params},
        jax.ShapeDtypeStruct((1, *setting.shape), jnp.float32),
    )
    costs: Any = forward.compile().cost_analysis()
    return 3.0 * costs["flops"]


def measure(model: str, batch: int, keep_rate: float) -> dict[str, Any]:
    """One row of the results."""
    setting = Setting(model, batch, keep_rate)
    steps = _STEPS.value
    contenders = {
        "engine": engine(setting, steps),
        "nonprivate": nonprivate(setting, steps),
        "textbook": textbook(setting, setting.capacity),
        "textbook_unpadded": textbook(setting, batch),
    }
    if _PEERS.value:
        contenders |= peers.contenders(setting, steps)
    before = timing.gemm_peak_gflops()
    rates = timing.examples_per_second(contenders, _REPEATS.value)
    peak = max(before, timing.gemm_peak_gflops())
    achieved = rates["engine"] * flops_per_example(setting) / 1e9
    return {
        "model": model,
        "batch": batch,
        "keep_rate": keep_rate,
        **{name: round(rate, 1) for name, rate in rates.items()},
        "engine_over_textbook": round(rates["engine"] / rates["textbook"], 2),
        "engine_over_nonprivate": round(rates["engine"] / rates["nonprivate"], 3),
        "gemm_gflops": round(peak, 1),
        "fraction_of_peak": round(achieved / peak, 3),
        "engine_peak_mb": round(peak_mb(setting, "ghost"), 1),
        "textbook_peak_mb": round(peak_mb(setting, "vmap"), 1),
    }


def main() -> None:
    """Measures the rows asked for, prints them and writes them as JSON."""
    cli.check_output("json", _JSON.value)
    wanted = [
        row
        for row in ROWS
        if (not _MODEL.value or row[0] in _MODEL.value)
        and (not _BATCH.value or row[1] in _BATCH.value)
    ]
    if not wanted:
        raise InputError(f"no such row: the rows are {ROWS}.")
    results: dict[str, Any] = {
        "machine": timing.machine(),
        "clients": CLIENTS,
        "steps": _STEPS.value,
        "rows": [],
    }
    for row in tqdm(wanted, desc="rows", disable=None):
        results["rows"].append(measure(*row))
        tqdm.write(json.dumps(results["rows"][-1]))
        if _JSON.value:
            text = json.dumps(results, indent=1)
            pathlib.Path(_JSON.value).write_text(text + "\n")


if __name__ == "__main__":
    cli.run(main)
