"""Every value that crosses a stage, in the order in which a round produces them.

Plain named tuples of arrays: NumPy on the host, JAX on the device; JAX treats them as
pytrees. (A planned run, the value between both, is `planning.schedule.Schedule`.)
Axes: R runs, U clients, K tasks, L records of all clients, D parameters.
"""

from typing import Any, NamedTuple

Array = Any  # numpy.ndarray on the host, jax.Array on the device
Params = Any  # nested dict of arrays, as Flax makes it


class ImageSet(NamedTuple):
    """A labelled image set."""

    images: Array  # [n, height, width, channels] uint8
    labels: Array  # [n] int32


class ModelSize(NamedTuple):
    """What planning must know of a model: how much there is to send."""

    parameters: int  # D
    units: int  # output units of all layers: entries of last axes, biases not twice


class ClientTables(NamedTuple):
    """Which images each client owns, per run: one list, client after client."""

    rows: Array  # [R, L] int32 rows of the image set; runs with fewer are padded
    first: Array  # [R, U] int32 where a client's rows begin
    sizes: Array  # [R, U] int32 how many they are

    def of(self, run: int, client: int) -> Array:
        """The rows of one client."""
        first = self.first[run, client]
        return self.rows[run, first : first + self.sizes[run, client]]


class EvalRows(NamedTuple):
    """Which test images each run is judged by."""

    rows: Array  # [R, E] int32 rows of the test set
    wanted: Array  # [R] bool: whether this run is evaluated now


class Tasks(NamedTuple):
    """What a cohort trains in one round: one row a (run, client, round).

    Everything a sweep may vary is data here, so a whole grid shares one program.
    """

    run: Array  # [K] int32 row of the server parameters
    client: Array  # [K] int32
    round: Array  # [K] int32
    active: Array  # [K] bool, False marks an idle slot
    keep: Array  # [K] uint32 largest random word that keeps a coordinate: s
    clip_bound: Array  # [K] float32 sensitivity of the sum: sqrt(s)*C, C, or inf
    noise_multiplier: Array  # [K] float32 noise std / clip bound; 0 adds none
    learning_rate: Array  # [K] float32
    batch_size: Array  # [K] float32 expected batch b, the divisor of the noisy sum
    inclusion: Array  # [K] uint32 largest random word that includes an example
    momentum: Array  # [K] float32 of the client's optimizer, if it has one
    weight: Array  # [K] float32 of the update in the server's mean
    scale: Array  # [K] float32 by which the update is multiplied: 1, or 1/s
    first: Array  # [K] int32 place of the client's first record
    size: Array  # [K] int32 how many records follow from there


class LocalResult(NamedTuple):
    """What one client's local training returns."""

    update: Params  # zero where the mask dropped; zero altogether if diverged
    sensitivity: Array  # L2 bound of one record's part of each step's sum
    diagnostics: Any  # training.diagnostics.Diagnostics of this task
    optimizer: Any  # state of the client's optimizer after the last step


class ServerState(NamedTuple):
    """All that the server carries from round to round; leaves [R, ...].

    Batched over runs, snapshot, checkpointed and resumed as one value: what a server
    method needs to remember (momentum, averages) goes here and nowhere else.
    """

    params: Params
    optimizer: Any  # state of the server's optimizer (optax)
    average: Params  # of the models so far; equal to `params` where none is kept
    clients: Any = None  # optimizers' states of clients that keep them: [R, U, ...]


class ServerRates(NamedTuple):
    """What the server goes by in one round of each run: all [R] float32.

    Known for all rounds before the first one, as the plan is.
    """

    learning_rate: Array
    momentum: Array  # of the server's optimizer, if it has one
    averaging: Array  # share of the new model in the average; 1: it is the new model
    total_weight: Array  # what sums are divided by; 0: by the weights that arrived


class RunConstants(NamedTuple):
    """What differs between the runs of a batch, apart from their tasks."""

    root_key: Array  # [R, 2] uint32 words of the seed
    server: ServerRates  # of the round


class Evaluation(NamedTuple):
    """Test-set figures of every run; zero where none were wanted."""

    accuracy: Array  # [R] float32
    loss: Array  # [R] float32
    right: Array  # [R, E] bool: which test images were told right


class RoundOutput(NamedTuple):
    """One round of one run, as it comes back from the device (NumPy)."""

    run: int  # row of the batch
    round_index: int  # from 0
    diagnostics: Any  # training.diagnostics.Diagnostics, columns [N]: a slot a channel
    accuracy: float | None  # None: not evaluated in this round
    loss: float | None
    right: Array | None  # [E] bool, after a run's last round only
    state: ServerState | None  # after rounds of which a snapshot was wanted
    host_s: float | None  # this run's share of the time; None without a clock
    device_s: float | None
    accuracy_averaged: float | None = None  # of the average of models, if there is one
    loss_averaged: float | None = None
