r"""How fast is private local training, and how much memory does it need?

    python -m benchmarks.engine --json results.json [--peers]

Rates are real examples per second (padding is not counted) of whole local steps of five
clients: medians over the turns, and quartiles as `_spread`. Compilation is not counted.
All contenders of a row take turns and may use the same cores; the engine spreads its
clients over one CPU device for each core, and every other contender has a process of
its own (`benchmarks.workers`).

engine              what a user runs: Poisson sampling, mask, clipping, noise, update
textbook            the same mechanism in everyday Flax: Poisson sampling into one fixed
                    shape, vmap(grad) over examples and clients, mask, clip, noise
textbook_unpadded   the same on batches of exactly the expected size (another mechanism
                    than the accountant's, and the most that textbook code can reach)
nonprivate          everyday Flax SGD, client after client, batches of the expected size

With `--peers`, where installed: Opacus and jax_privacy (`benchmarks.peers`), and
without privacy torch_sgd (the same as nonprivate in everyday PyTorch) and pfl, a
simulation by pfl-research in a process for each core (`benchmarks.pfl_peer`).

A row's `steps` are the local steps of one round; only engine and pfl average clients
after each round.
`engine_peak_mb` and `textbook_peak_mb` are what XLA plans for the clipped sum of one
client's batch of the expected size.
"""

import contextlib
import json
import logging
import pathlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags
from tqdm import tqdm

from benchmarks import peers, plain, timing, workers
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


class Row(NamedTuple):
    """One row of the results; without steps, those of the flag."""

    model: str
    batch: int
    keep_rate: float
    steps: int | None = None


ROWS = (
    Row("mnist_cnn", 8, 0.3),
    Row("mnist_cnn", 8, 1.0),
    Row("mnist_cnn", 10, 0.3),
    Row("mnist_cnn", 16, 0.3),
    Row("mnist_cnn", 16, 0.3, steps=1),
    Row("mnist_cnn", 16, 1.0),
    Row("mnist_cnn", 64, 0.3),
    Row("mnist_cnn", 64, 1.0),
    Row("cifar_cnn", 2, 0.3),
    Row("cifar_cnn", 8, 0.3),
    Row("cifar_cnn", 32, 0.3),
)
_LOG = logging.getLogger(__name__)

_JSON = flags.DEFINE_string("json", "", "write the results to this file")
_PEERS = flags.DEFINE_bool("peers", False, "also measure other libraries")
_ONLY = flags.DEFINE_multi_string("only", None, "only these beside the engine")
_MODEL = flags.DEFINE_multi_string("model", None, "only rows of these models")
_BATCH = flags.DEFINE_multi_integer("batch", None, "only rows of these batch sizes")
_STEPS = flags.DEFINE_integer("steps", 20, "local steps of a turn", 1)
_DEVICES = flags.DEFINE_integer(
    "devices", 0, "CPU devices of the engine; 0 is one for each core", 0
)
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
        self.padded_sizes = poisson.padded_sizes(EXAMPLES, rate, self.capacity, 8)
        self.rng = rng


def use_devices(count: int = 0) -> None:
    """Makes as many CPU devices as there are cores, or `count`, before JAX is used."""
    jax.config.update("jax_num_cpu_devices", count or timing.cores())


def engine(setting: Setting, steps: int) -> timing.Contender:
    """Rounds of five clients by the engine, spread over the devices."""
    mesh = cohort.task_mesh(jax.devices()[:CLIENTS])
    spec = local.make_spec(
        setting.net,
        setting.params,
        setting.shape,
        steps=steps,
        padded_sizes=setting.padded_sizes,
        table_lengths=(EXAMPLES,),
    )
    step = cohort.make_cohort_step(spec, mesh=mesh)
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
    state = cohort.replicate(server.make_server().init(batched), mesh)
    constants = RunConstants(keys.root_key_words(0), server.plain_rates(1))
    owned = local.Records(setting.data, setting.tables.rows)
    records, constants, rows = cohort.replicate((owned, constants, rows), mesh)
    turn = 0

    def work() -> int:
        nonlocal state, turn
        turn += 1
        rounds = cohort.replicate(np.full(CLIENTS, turn, np.int32), mesh)
        now = rows._replace(round=rounds)
        state, diagnostics = step(state, records, constants, now)
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


def other_contenders(
    stack: contextlib.ExitStack, row: Row, steps: int, rounds: int
) -> dict[str, timing.Contender]:
    """Those that have processes of their own, which end with the stack."""
    names = ["nonprivate", "textbook", "textbook_unpadded"]
    names += [*peers.MAKERS, "pfl"] if _PEERS.value else []
    unknown = set(_ONLY.value or ()) - set(names)
    if unknown:
        listed = ", ".join(names)
        raise InputError(f"only: no contender {min(unknown)!r}; there are {listed}.")
    names = [name for name in names if not _ONLY.value or name in _ONLY.value]
    task = row._asdict() | {"steps": steps, "rounds": rounds}
    started = {
        name: stack.enter_context(
            workers.Workers(
                task | {"contender": name}, timing.cores() if name == "pfl" else 1
            )
        )
        for name in names
    }
    contenders: dict[str, timing.Contender] = {}
    for name, processes in started.items():
        try:
            processes.ready()
            contenders[name] = processes
        except ImportError as missing:
            _LOG.warning("%s is left out: %s", name, missing)
    return contenders


def measure(row: Row) -> dict[str, Any]:
    """One row of the results."""
    setting = Setting(row.model, row.batch, row.keep_rate)
    steps = row.steps or _STEPS.value
    rounds = max(1, _STEPS.value // steps)  # turns of few steps would be too short
    one_round = engine(setting, steps)
    before = timing.gemm_peak_gflops()
    with contextlib.ExitStack() as stack:
        contenders = {
            "engine": lambda: sum(one_round() for _ in range(rounds)),
            **other_contenders(stack, row, steps, rounds),
        }
        rates = timing.examples_per_second(contenders, _REPEATS.value)
    peak = max(before, timing.gemm_peak_gflops())
    achieved = rates["engine"].median * flops_per_example(setting) / 1e9
    return {
        **row._asdict(),
        "steps": steps,
        **_rates_and_ratios(rates),
        "gemm_gflops": round(peak, 1),
        "fraction_of_peak": round(achieved / peak, 3),
        "engine_peak_mb": round(peak_mb(setting, "ghost"), 1),
        "textbook_peak_mb": round(peak_mb(setting, "vmap"), 1),
    }


def _rates_and_ratios(rates: dict[str, timing.Spread]) -> dict[str, Any]:
    """Medians, quartiles and how many times faster the engine is than each other."""
    columns: dict[str, Any] = {}
    for name, rate in rates.items():
        columns[name] = round(rate.median, 1)
        columns[f"{name}_spread"] = [round(rate.low, 1), round(rate.high, 1)]
    for name, rate in rates.items():
        if name != "engine":
            ratio = rates["engine"].median / rate.median
            columns[f"engine_over_{name}"] = round(ratio, 3)
    return columns


def main() -> None:
    """Measures the rows asked for, prints them and writes them as JSON."""
    cli.check_output("json", _JSON.value)
    wanted = [
        row
        for row in ROWS
        if (not _MODEL.value or row.model in _MODEL.value)
        and (not _BATCH.value or row.batch in _BATCH.value)
    ]
    if not wanted:
        rows = ", ".join(str(tuple(row)) for row in ROWS)
        raise InputError(f"no such row: the rows are {rows}.")
    use_devices(_DEVICES.value)
    results: dict[str, Any] = {
        "machine": timing.machine(),
        "clients": CLIENTS,
        "devices": len(jax.devices()),
        "repeats": _REPEATS.value,
        "rows": [],
    }
    for row in tqdm(wanted, desc="rows", disable=None):
        results["rows"].append(measure(row))
        tqdm.write(json.dumps(results["rows"][-1]))
        if _JSON.value:
            text = json.dumps(results, indent=1)
            pathlib.Path(_JSON.value).write_text(text + "\n")


if __name__ == "__main__":
    cli.run(main)
