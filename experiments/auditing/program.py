"""The compiled training program as an auditor runs it: one client a run, many runs.

Nothing of a training step is written here. `programs.get_program` gives the program
that runs of these settings train with; every row of its run axis is a run of one client
with a seed of its own, and what that client released is read off the server's model.
"""

import dataclasses
from typing import Any

import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsparfl_jax import config
from dpsparfl_jax.privacy import poisson
from dpsparfl_jax.privacy.mechanism import Mechanism, Release
from dpsparfl_jax.runner import programs, tasks
from dpsparfl_jax.runner.run import Outline
from dpsparfl_jax.sparsifiers import make_sparsifier
from dpsparfl_jax.training import cohort, keys, local, models, server
from dpsparfl_jax.types import ClientTables, ImageSet, Params, RunConstants, ServerState

from . import probes

_OVERFLOW = 1e-12  # probability of a cut-off batch that may be left out of claims
_TINY_STEP = 2.0**-24  # keeps a model at its start for thousands of steps


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """What is audited: the mechanism of a client, and how it is executed."""

    noise_multiplier: float | None = 1.0  # None adds no noise
    batch_size: float = 2.0
    records: int = 16
    rounds: int = 1
    steps: int = 1
    keep_rate: float = 1.0
    clip_norm: float = 1.0
    clipping: str = "adjusted"
    sparsifier: str = "bernoulli"
    method: str = "ghost"
    generator: str = "threefry"
    execution: str = "vmap"
    model: str = "audit_linear"

    @property
    def sampling_rate(self) -> float:
        """The probability that a record enters a step."""
        return self.batch_size / self.records

    @property
    def bound(self) -> float:
        """How far one record may move the sum of a step."""
        bound = tasks.clip_bound(
            self.clip_norm,
            self.keep_rate,
            self.clipping,
            make_sparsifier(self.sparsifier),
        )
        return float(bound)

    def mechanism(self, delta: float) -> Mechanism:
        """What accountants are told of one participation."""
        assert self.noise_multiplier is not None
        release = Release(self.sampling_rate, self.noise_multiplier, self.steps)
        return Mechanism(release, delta, _OVERFLOW)

    @property
    def outline(self) -> Outline:
        """The shapes that the program is compiled for."""
        rate = self.sampling_rate
        capacity = poisson.batch_capacity(self.records, rate, _OVERFLOW)
        choices = 2 if self.execution == "map" else 1  # others pad to the largest
        return Outline(
            np.array([self.records]),
            probes.SHAPE,
            probes.CLASSES,
            models.measure(self.model, probes.CLASSES, probes.SHAPE),
            capacity,
            poisson.padded_sizes(self.records, rate, capacity, choices),
            (self.records,),
        )

    def program(self) -> programs.Program:
        """The program that runs of these settings train with."""
        settings = config.RunConfig(
            model=config.ModelConfig(name=self.model),
            training=config.TrainingConfig(
                local_steps=self.steps, sparsifier=self.sparsifier
            ),
            privacy=config.PrivacyConfig(generator=self.generator),
            perf=config.PerfConfig(
                execution=self.execution, clipping_method=self.method, devices=1
            ),
        )
        return programs.get_program(programs.program_key(settings, self.outline))


def equal_tables(rows: NDArray[np.int32]) -> ClientTables:
    """Tables of clients that own equally many records: rows [R, U, M]."""
    runs, clients, each = rows.shape
    first = np.broadcast_to(np.arange(clients, dtype=np.int32) * each, (runs, clients))
    sizes = np.full((runs, clients), each, np.int32)
    return ClientTables(rows.reshape(runs, -1), first, sizes)


class Clients:
    """Runs of one client each, trained round by round by the compiled program."""

    def __init__(
        self,
        setting: Setting,
        data: ImageSet,
        tables: ClientTables,
        seeds: ArrayLike,
        clients: ArrayLike = 0,
        *,
        params: Params | None = None,
        learning_rate: float = _TINY_STEP,
    ) -> None:
        """Places everything on the device.

        Args:
            setting: what is audited.
            data: coded images, shared by all runs.
            tables: which of them the clients of each run own.
            seeds: of the runs, [R].
            clients: which client of its table takes part in each run, [R].
            params: of every run before the first round; zeros unless given.
            learning_rate: of one step per record of the expected batch.
        """
        self.setting = setting
        self._program = setting.program()
        self._rate = learning_rate * setting.batch_size
        one = jax.device_get(self._program.init(keys.init_key(0)))
        start = jax.tree.map(np.zeros_like, one) if params is None else params
        runs = np.size(seeds)
        repeated = jax.tree.map(
            lambda leaf: np.repeat(np.asarray(leaf)[None], runs, axis=0), start
        )
        # Checked once; later rounds differ in their number only.
        self._rows = tasks.make_tasks(
            tables,
            run=np.arange(runs),
            client=clients,
            round_index=0,
            keep_rate=setting.keep_rate,
            clip_norm=setting.clip_norm,
            noise_multiplier=setting.noise_multiplier,
            learning_rate=self._rate,
            batch_size=setting.batch_size,
            capacity=setting.outline.capacity,
            overflow_probability=_OVERFLOW,
            clipping=setting.clipping,
            sparsifier=make_sparsifier(setting.sparsifier),
            weight=1.0,
        )
        self._records, self._constants = self._put(
            (
                local.Records(data, tables.rows),
                RunConstants(keys.root_key_words(seeds), server.plain_rates(runs)),
            )
        )
        self._state: ServerState = self._program.server_init(self._put(repeated))
        self._before = self._flat()
        self.dropped = np.zeros(runs, bool)  # updates so large that servers drop them

    def _put(self, tree: Any) -> Any:
        return cohort.replicate(tree, self._program.mesh)

    def _flat(self) -> NDArray[np.float64]:
        """Parameters of every run in the order of coordinates, [R, D]."""
        leaves = jax.tree.leaves(jax.device_get(self._state.params))
        flat = [np.asarray(leaf).reshape(len(leaf), -1) for leaf in leaves]
        return np.concatenate(flat, axis=1).astype(np.float64)

    def release(self, round_index: int) -> NDArray[np.float64]:
        """What each client sends in a round: the sum over steps of noisy sums, [R, D].

        That is the negative update times expected batch size over learning rate; exact
        where the model stays at its start, as a tiny learning rate has it.
        """
        rows = self._rows._replace(round=np.full_like(self._rows.round, round_index))
        self._state, told = self._program.step(
            self._state,
            self._records,
            self._constants,
            self._put(rows),
        )
        self.dropped = np.asarray(jax.device_get(told.diverged))
        now = self._flat()
        moved, self._before = now - self._before, now
        return moved * (-self.setting.batch_size / self._rate)
