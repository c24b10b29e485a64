"""One-run audit: many canaries, in or out by coins, in one whole simulated run.

Steinke, Nasr and Jagielski 2023, "Privacy auditing with one (1) training run": every
canary of every client is in the data or replaced by a null record, by a coin of its
own; the run is trained as always; the auditor guesses the coins from what the server
received. An (epsilon, delta) guarantee limits how many guesses are right, and all
canaries of one run count. The run is planned, batched and trained by the product
(`runner.batch.Batch`); one client sends in a round, so the step of the server's model
is that client's update.

A canary's score is minus the slope of its loss along each update of its client, over
the norm of its gradient: how far the update went down its own gradient. What all
canaries of a label have in common is taken off, and every client's scores are brought
to one spread.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax import config
from dpsparfl_jax.privacy.mechanism import Mechanism, Release
from dpsparfl_jax.runner.batch import Batch
from dpsparfl_jax.runner.run import Images, Run, load_images
from dpsparfl_jax.training import clipping, local, models
from dpsparfl_jax.types import ImageSet, Params

from . import bounds, probes

_GUESSED = 0.1  # share of the canaries, those with the largest scores, guessed as in


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """How large a one-run audit is."""

    model: str = "mnist_cnn"
    clients: int = 8
    records: int = 250  # of a client, all of them canaries
    batch_size: float = 50.0
    steps: int = 10
    participations: int = 4  # of a client
    noise_multiplier: float = 1.0
    keep_rate: float = 0.5
    learning_rate: float = 0.002


@dataclasses.dataclass(frozen=True)
class Guess:
    """What the guesses about some canaries prove."""

    who: str
    canaries: int
    participations: int
    claims: dict[str, float]
    one_run: float  # lower bound of Steinke et al.
    one_run_fdp: float  # Mahloujifar et al. 2024: if the trade-off is a Gaussian's
    auroc: float  # 1/2 is guessing blindly

    @property
    def is_broken(self) -> bool:
        """Whether more is proved than any accountant claims."""
        return self.one_run > min(self.claims.values())


class Coins(NamedTuple):
    """The canaries of each client, as they would be, and who is in."""

    rows: NDArray[np.int64]  # [U, m] of the image set
    records: ImageSet
    present: NDArray[np.bool_]  # [U, m]


def run_settings(
    plan: Plan, data: config.DataConfig, delta: float, seed: int
) -> config.RunConfig:
    """Settings of the run: one client a round, in turn, with budgets that suffice."""
    return config.RunConfig(
        data=dataclasses.replace(
            data, num_clients=plan.clients, train_examples=plan.records, test_examples=1
        ),
        model=config.ModelConfig(name=plan.model),
        training=config.TrainingConfig(
            local_steps=plan.steps,
            batch_size=plan.batch_size,
            learning_rate=plan.learning_rate,
        ),
        privacy=config.PrivacyConfig(
            noise_multiplier=plan.noise_multiplier,
            delta=delta,
            epsilons=",".join(["1000"] * plan.clients),
            max_participations=plan.participations,
        ),
        wireless=config.WirelessConfig(num_channels=1),
        schedule=config.ScheduleConfig(policy="round_robin", keep_rate=plan.keep_rate),
        length=config.LengthConfig(
            rounds=plan.clients * plan.participations, eval_every=10**6
        ),
        perf=config.PerfConfig(padded_sizes=1, cache_dir=""),
        seed=seed,
    )


def plant(run: Run, images: Images, seed: int) -> tuple[Run, Coins]:
    """The run with canaries in its clients' data: images with labels by chance."""
    rows = np.stack(run.with_images(images).data.clients.train).astype(np.int64)
    stream = np.random.default_rng([seed, 2])
    train = images.sets.train
    labels = train.labels.copy()
    labels[rows] = stream.integers(0, images.sets.num_classes, rows.shape)
    present = stream.random(rows.shape) < 0.5
    records = ImageSet(train.images, labels.copy())
    labels[rows[~present]] = probes.NOBODYS_LABEL
    sets = images.sets._replace(train=ImageSet(train.images, labels))
    planted = images._replace(sets=sets)
    return run.with_images(planted), Coins(rows, records, present)


def _make_slopes(run: Run) -> Callable[[Params, Params, ImageSet], jax.Array]:
    """Compiled slopes of records' losses along an update."""
    name, classes = run.settings.model.name, run.data.images.sets.num_classes
    model = models.make_model(name, classes)

    @jax.jit
    def slopes(params: Params, update: Params, records: ImageSet) -> jax.Array:
        images = local.normalise(records.images, (0.5,), (0.5,))

        def losses(params: Params) -> jax.Array:
            logits: Any = model.apply({"params": params}, images)
            return clipping.example_losses(logits, records.labels)

        return jax.jvp(losses, (params,), (update,))[1]

    return slopes


def score(run: Run, coins: Coins, tick: Callable[[int], None]) -> NDArray[np.float64]:
    """Scores [U, m] of all canaries, from the server's models round by round."""
    batch = Batch([run])
    slopes = _make_slopes(run)
    scores = np.zeros(coins.rows.shape)
    before = batch.initial[0].params
    for (output,) in batch.train(snapshot_every=1):
        assert output.state is not None
        after = output.state.params
        update = jax.tree.map(np.subtract, after, before)
        client = int(run.schedule.client[output.round_index, 0])
        rows = coins.rows[client]
        own = ImageSet(coins.records.images[rows], coins.records.labels[rows])
        norms = np.asarray(batch.program.norms(before, own), np.float64)
        slope = np.asarray(slopes(before, update, own), np.float64)
        down = -slope / np.maximum(norms, 1e-12)
        for label in np.unique(own.labels):
            same = own.labels == label
            down[same] -= down[same].mean()
        scores[client] += down
        before = after
        tick(1)
    # Clients' scores are compared with each other where canaries are pooled.
    return scores / np.maximum(scores.std(axis=1, keepdims=True), 1e-30)


def audit(
    plan: Plan,
    data: config.DataConfig,
    *,
    delta: float,
    significance: float,
    seed: int = 0,
    tick: Callable[[int], None] = lambda rounds: None,
) -> list[Guess]:
    """Bounds of every client and, last, of all canaries together."""
    settings = run_settings(plan, data, delta, seed)
    run = Run("audit", settings).outlined().planned()
    run, coins = plant(run, load_images(settings), seed)
    scores = score(run, coins, tick)
    release = Release(plan.batch_size / plan.records, plan.noise_multiplier, plan.steps)
    mechanism = Mechanism(release, delta, settings.privacy.overflow_probability)
    times = [int(count) for count in run.schedule.participations]
    claims = {count: bounds.claimed(mechanism, count) for count in set(times)}

    def judge(who: str, chosen: slice, count: int) -> Guess:
        mine, present = scores[chosen].reshape(-1), coins.present[chosen].reshape(-1)
        library = bounds.auditing()
        auditor = library.CanaryScoreAuditor(mine[present], mine[~present])
        # Depends on scores alone, never on coins: no correction for having chosen it.
        least = library.Explicit(float(np.quantile(mine, 1 - _GUESSED)))
        return Guess(
            who,
            mine.size,
            count,
            claims[count],
            float(
                auditor.epsilon_one_run(significance, delta, threshold_strategy=least)
            ),
            float(
                auditor.epsilon_one_run_fdp(
                    significance, delta, threshold_strategy=least
                )
            ),
            float(auditor.attack_auroc()),
        )

    each = [
        judge(f"client {number}", slice(number, number + 1), count)
        for number, count in enumerate(times)
    ]
    return [*each, judge("all clients", slice(None), max(times))]
