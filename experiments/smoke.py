r"""A short private federated training, to see that everything works.

    python -m experiments.smoke                                   # drawn stripes
    python -m experiments.smoke --data.dir=DIR --data.name=mnist  # a real set

Ten clients hold equal parts of the training images; each round, three of them drawn at
random from those whose privacy budget is not spent train privately, keep a random part
of their gradient, and the server averages.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from absl import flags
from tqdm import tqdm

from dpsparfl_jax import config, rng
from dpsparfl_jax.data import packing, sources
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.privacy import start
from dpsparfl_jax.privacy.ledger import Ledger
from dpsparfl_jax.training import cohort, evaluate, keys, local, models, norms, tasks
from dpsparfl_jax.types import ClientTables
from experiments import cli

CLIENTS, SELECTED, EXAMPLES = 10, 3, 300
KEEP_RATE = 0.5
BASE = config.RunConfig(
    model=config.ModelConfig(name="small_cnn"),
    training=config.TrainingConfig(
        local_steps=20, batch_size=16, learning_rate=0.1, clip_norm=2.0
    ),
    privacy=config.PrivacyConfig(noise_multiplier=1.0),
)

cli.define_config_flags(BASE)
flags.adopt_module_key_flags(cli)  # --help lists them
_ROUNDS = flags.DEFINE_integer("rounds", 10, "rounds to train", lower_bound=1)


def stripes(seed: int, count: int) -> sources.ImageSet:
    """Ten classes of noisy 28x28 stripes, told apart by their angle."""
    random = rng.host_stream(seed, "stripes")
    labels = random.integers(0, 10, count)
    angle = (labels + random.normal(0, 0.15, count)) * np.pi / 10
    phase = random.uniform(0, 2 * np.pi, count)
    rows, columns = np.mgrid[:28, :28][:, None]
    along = np.cos(angle)[:, None, None] * rows + np.sin(angle)[:, None, None] * columns
    wave = 128 + 80 * np.sin(0.9 * along + phase[:, None, None])
    pixels = np.clip(wave + random.normal(0, 30, wave.shape), 0, 255)
    return sources.check_images(pixels[..., None].astype(np.uint8), labels)


def load(settings: config.RunConfig) -> sources.LabelledSets:
    """The image set named by the flags, or stripes if no folder is given."""
    if settings.data.dir:
        return sources.load_npz(settings.data.name, settings.data.dir)
    train = stripes(settings.seed, CLIENTS * EXAMPLES)
    return sources.LabelledSets(train, stripes(settings.seed + 1, 1000), 10)


class Program(NamedTuple):
    """What is compiled for a run."""

    params: Any  # initial model
    step: Callable[..., Any]  # one round
    evaluate: evaluate.Evaluate
    norms: norms.GradientNorms


def deal(settings: config.RunConfig, images: int) -> np.ndarray:
    """Equal parts of the training images: [clients, examples]."""
    if images < CLIENTS * EXAMPLES:
        raise InputError(
            f"{settings.data.name} has {images} training images, but {CLIENTS} clients "
            f"need {EXAMPLES} each: choose a larger set."
        )
    order = rng.host_stream(settings.seed, "partition").permutation(images)
    return order[: CLIENTS * EXAMPLES].reshape(CLIENTS, EXAMPLES)


def build(
    settings: config.RunConfig, sets: sources.LabelledSets, capacity: int
) -> Program:
    """The compiled parts of a run, for padded batches of `capacity`."""
    training, perf = settings.training, settings.perf
    shape = sets.train.images.shape[1:]
    net = models.make_model(settings.model.name, sets.num_classes)
    params = models.init_params(net, keys.init_key(settings.seed), shape)
    rate = training.batch_size / EXAMPLES
    spec = local.make_spec(
        net,
        params,
        shape,
        steps=training.local_steps,
        padded_sizes=packing.padded_sizes(EXAMPLES, rate, capacity, perf.padded_sizes),
        method=perf.clipping_method,
        optimizer=training.optimizer,
        mask_kind=training.mask,
        generator=settings.privacy.generator,
    )
    return Program(
        params,
        cohort.make_cohort_step(
            spec, execution=perf.execution, chunk_size=perf.chunk_size
        ),
        evaluate.make_evaluate(
            net, shape, batch_size=perf.eval_batch_size, execution=perf.execution
        ),
        norms.make_gradient_norms(net, params, shape, method=perf.clipping_method),
    )


def main() -> None:
    """Trains and prints tables."""
    settings = cli.config_from_flags(BASE)
    sets = load(settings)
    parts = deal(settings, len(sets.train.labels))
    tables = packing.pack_clients([parts], len(sets.train.labels))
    capacity = packing.batch_capacity(
        tables.sizes,
        packing.sampling_rate(settings.training.batch_size, tables.sizes),
        settings.privacy.overflow_probability,
    )
    ledger, message = start.start_ledger(settings, tables.sizes[0], capacity)
    print(message)
    program = build(settings, sets, capacity)
    clip = norms.choose_clip_norm(
        settings,
        lambda images: program.norms(program.params, images),
        sets.train,
        sets.test,
        [parts[client] for client in np.flatnonzero(ledger.live)],
    )
    print(f"Clip norm {clip.value:.3g}: {clip.statement}.")
    began = time.perf_counter()
    history, ledger = train(
        settings, program, sets, tables, capacity, ledger, clip.value
    )
    print_table(history, time.perf_counter() - began)
    print_budgets(ledger, settings.privacy)


def train(
    settings: config.RunConfig,
    program: Program,
    sets: sources.LabelledSets,
    tables: ClientTables,
    capacity: int,
    ledger: Ledger,
    clip_norm: float,
) -> tuple[list, Ledger]:
    """All rounds, or as many as the budgets allow."""
    training, privacy = settings.training, settings.privacy
    state = cohort.replicate(jax.tree.map(lambda leaf: leaf[None], program.params))
    data, test, device_tables, roots = cohort.replicate(
        (sets.train, sets.test, tables, keys.root_key_words(settings.seed))
    )
    choices = rng.host_stream(settings.seed, "policy")
    history = [(program.evaluate(state, test), None)]
    for round_index in tqdm(range(_ROUNDS.value), desc="rounds", disable=None):
        live = np.flatnonzero(ledger.live)
        if not live.size:
            tqdm.write(f"All budgets are spent after {round_index} rounds.")
            break
        selected = choices.choice(live, min(SELECTED, live.size), replace=False)
        ledger = ledger.charge(selected)
        rows = tasks.make_tasks(
            tables,
            run=0,
            client=np.resize(selected, SELECTED),  # idle slots repeat a client
            round_index=round_index,
            active=np.arange(SELECTED) < selected.size,
            keep_rate=KEEP_RATE,
            clip_norm=clip_norm,
            noise_multiplier=privacy.noise_multiplier if privacy.noise else None,
            learning_rate=training.learning_rate,
            batch_size=training.batch_size,
            capacity=capacity,
            overflow_probability=privacy.overflow_probability,
            clipping=training.clipping,
        )
        state, diagnostics = program.step(
            state, data, device_tables, roots, cohort.replicate(rows)
        )
        history.append((program.evaluate(state, test), diagnostics))
    return jax.device_get(history), ledger


def print_table(history: list, seconds: float) -> None:
    """One line a round: what the test set and the clients say."""
    print("round  accuracy  test loss  clipped  median norm  examples  diverged")
    for index, (test, clients) in enumerate(history):
        line = f"{index:5d}  {test.accuracy[0]:8.3f}  {test.loss[0]:9.3f}"
        if clients is not None:
            line += (
                f"  {clients.clipped_fraction.mean():7.2f}"
                f"  {np.median(clients.median_norm):11.2f}"
                f"  {clients.examples.sum():8d}  {clients.diverged.sum():8d}"
            )
        print(line)
    print(f"{len(history) - 1} rounds in {seconds:.1f} s, compilation included.")


def print_budgets(accounts: Ledger, privacy: config.PrivacyConfig) -> None:
    """One line a client: what it allowed and what it spent."""
    print("client  participations  afforded  epsilon spent  epsilon asked")
    for client, count in enumerate(accounts.participations):
        print(
            f"{client:6d}  {count:14d}  {accounts.affordable[client]:8d}"
            f"  {accounts.epsilon_spent[client]:13.3f}"
            f"  {accounts.budget[client]:13.3f}"
        )
    print(f"delta {privacy.delta:g}, accountant {privacy.accountant}.")


if __name__ == "__main__":
    cli.run(main)
