r"""A short private federated training, to see that everything works.

    python -m experiments.smoke                                   # drawn stripes
    python -m experiments.smoke --data.dir=DIR --data.name=mnist  # a real set

Ten clients hold equal parts of the training images; each round, three of them drawn at
random from those whose privacy budget is not spent train privately, keep a random part
of their gradient, and the server averages.
"""

import functools
import time

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


def main() -> None:
    """Trains and prints a table."""
    settings = cli.config_from_flags(BASE)
    training, perf = settings.training, settings.perf
    sets = load(settings)
    if len(sets.train.labels) < CLIENTS * EXAMPLES:
        raise InputError(
            f"{settings.data.name} has {len(sets.train.labels)} training images, but "
            f"{CLIENTS} clients need {EXAMPLES} each: choose a larger set."
        )
    shape = sets.train.images.shape[1:]
    order = rng.host_stream(settings.seed, "partition").permutation(
        len(sets.train.labels)
    )
    parts = order[: CLIENTS * EXAMPLES].reshape(CLIENTS, EXAMPLES)
    tables = packing.pack_clients([parts], len(sets.train.labels))
    rate = packing.sampling_rate(training.batch_size, tables.sizes)
    capacity = packing.batch_capacity(
        tables.sizes, rate, settings.privacy.overflow_probability
    )
    ledger, message = start.start_ledger(settings, tables.sizes[0], capacity)
    print(message)
    net = models.make_model(settings.model.name, sets.num_classes)
    params = models.init_params(net, keys.init_key(settings.seed), shape)
    spec = local.make_spec(
        net,
        params,
        shape,
        steps=training.local_steps,
        padded_sizes=packing.padded_sizes(
            EXAMPLES, float(rate.max()), capacity, perf.padded_sizes
        ),
        method=perf.clipping_method,
        optimizer=training.optimizer,
        mask_kind=training.mask,
        generator=settings.privacy.generator,
    )
    step = cohort.make_cohort_step(
        spec, execution=perf.execution, chunk_size=perf.chunk_size
    )
    measure = evaluate.make_evaluate(
        net, shape, batch_size=perf.eval_batch_size, execution=perf.execution
    )
    state = cohort.replicate(jax.tree.map(lambda leaf: leaf[None], params))
    data, test, device_tables, roots = cohort.replicate(
        (sets.train, sets.test, tables, keys.root_key_words(settings.seed))
    )
    clip = norms.choose_clip_norm(
        settings,
        functools.partial(
            norms.make_gradient_norms(net, params, shape, method=perf.clipping_method),
            params,
        ),
        sets.train,
        sets.test,
        [parts[i] for i in np.flatnonzero(ledger.live)],
    )
    print(f"Clip norm {clip.value:.3g}: {clip.statement}.")
    choices = rng.host_stream(settings.seed, "policy")
    noise = settings.privacy.noise_multiplier if settings.privacy.noise else None
    history = [(measure(state, test), None)]
    began = time.perf_counter()
    for round_index in tqdm(range(_ROUNDS.value), desc="rounds", disable=None):
        live = np.flatnonzero(ledger.live)
        if not live.size:
            tqdm.write(f"All budgets are spent after {round_index} rounds.")
            break
        selected = choices.choice(live, min(SELECTED, live.size), replace=False)
        idle = SELECTED - selected.size  # slots of the compiled program left empty
        ledger = ledger.charge(selected)
        rows = tasks.make_tasks(
            tables,
            run=0,
            client=np.concatenate([selected, np.zeros(idle, selected.dtype)]),
            round_index=round_index,
            active=np.arange(SELECTED) < selected.size,
            keep_rate=KEEP_RATE,
            clip_norm=clip.value,
            noise_multiplier=noise,
            learning_rate=training.learning_rate,
            batch_size=training.batch_size,
            capacity=capacity,
            overflow_probability=settings.privacy.overflow_probability,
            clipping=training.clipping,
        )
        state, diagnostics = step(
            state, data, device_tables, roots, cohort.replicate(rows)
        )
        history.append((measure(state, test), diagnostics))
    history = jax.device_get(history)
    print_table(history, time.perf_counter() - began)
    print_budgets(ledger, settings.privacy)


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
