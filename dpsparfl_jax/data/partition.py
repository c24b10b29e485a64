"""Which client owns which images: at random, by class, in groups or from a file.

Every random choice comes from the stream `partition` of the seed: clients' class
weights, training lists and test lists each from their own part of it, so that training
lists do not depend on how clients are tested.
"""

import enum
import json
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax import rng
from dpsparfl_jax.config import DataConfig
from dpsparfl_jax.data.files import Counts, LabelledSets
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.options import COUNTS
from dpsparfl_jax.registry import PARTITIONS

Indices = NDArray[np.int64]
_NO_MASS = 1e-12  # class weights below this in all are as good as none


class Partition(NamedTuple):
    """Image numbers of each client."""

    train: tuple[Indices, ...]
    test: tuple[Indices, ...]  # of the training set, if judged by validation images


class _Part(enum.IntEnum):
    """What a stream of the partition is for."""

    WEIGHTS = 0
    TRAIN = 1
    TEST = 2
    VALIDATION = 3


class Dealer(Protocol):
    """A way to share images among clients; registered as a class without arguments.

    Examples:
        Everybody gets consecutive images:

        >>> import numpy as np
        >>> import dpsparfl_jax as fl
        >>> from dpsparfl_jax.data.partition import Partition, deal
        >>> @fl.register_partition("in_order")
        ... class InOrder:
        ...     def sizes(self, settings):
        ...         return np.full(settings.num_clients, settings.train_examples)
        ...     def deal(self, settings, sets, seed):
        ...         def split(each):
        ...             numbers = np.arange(settings.num_clients * each)
        ...             return tuple(np.split(numbers, settings.num_clients))
        ...         return Partition(
        ...             split(settings.train_examples), split(settings.test_examples)
        ...         )
        >>> data = fl.DataConfig(
        ...     partition="in_order", num_clients=2, train_examples=3, test_examples=1
        ... )
        >>> deal(data, None, seed=0).train
        (array([0, 1, 2]), array([3, 4, 5]))
    """

    def sizes(self, settings: DataConfig) -> Indices:
        """Training images of each client, known without the data.

        Args:
            settings: the section `data` of the run.

        Returns:
            Whole numbers [U]; planning and accounting go by them.
        """

    def deal(self, settings: DataConfig, sets: LabelledSets, seed: int) -> Partition:
        """Says who owns which image.

        Args:
            settings: the section `data` of the run.
            sets: training and test images with labels.
            seed: of the run; randomness comes from a stream of it (`rng.host_stream`).

        Returns:
            Image numbers of each client, training lists of the lengths that `sizes`
            gives; no image has two owners.
        """


def make_dealer(name: str) -> Dealer:
    """The partition registered under that name."""
    factory: Any = PARTITIONS.get(name)
    return factory()


def client_sizes(settings: DataConfig) -> Indices:
    """Training images of each client, known without the data."""
    return make_dealer(settings.partition).sizes(settings)


def check_counts(settings: DataConfig, counts: Counts, *, validated: bool) -> None:
    """Refuses a set with fewer images than the clients will ask for.

    What is dealt is checked again; this is known before anything is planned. How many
    test images a partition of your own deals is not.
    """
    dealer = make_dealer(settings.partition)
    sizes, tested = dealer.sizes(settings), _tested(settings)
    _check_total(sizes, counts.train, "training")
    if isinstance(dealer, Iid):
        _check_total(tested, counts.test, "test")
    if isinstance(dealer, FromFile):
        dealer.check(settings, counts)
    if validated:
        _check_unowned(tested, counts.train - int(sizes.sum()))


def deal(settings: DataConfig, sets: LabelledSets, seed: int) -> Partition:
    """Deals the images to the clients as `settings.partition` says."""
    return make_dealer(settings.partition).deal(settings, sets, seed)


def deal_unowned(
    settings: DataConfig, sets: LabelledSets, owned: Sequence[Indices], seed: int
) -> tuple[Indices, ...]:
    """Training images that no client owns, to judge models without test images.

    Each client gets as many as it would get test images, with the classes of its own
    training images, as far as there are enough.
    """
    labels = sets.train.labels
    free = np.ones(len(labels), bool)
    free[np.concatenate(list(owned))] = False
    numbers = np.flatnonzero(free)
    tested = _tested(settings)
    _check_unowned(tested, numbers.size)
    counts = label_counts(labels, owned, sets.num_classes)
    weights = counts / counts.sum(axis=1, keepdims=True)
    stream = _stream(seed, _Part.VALIDATION)
    dealt = _deal_by_class(labels[numbers], weights, tested, stream)
    return tuple(numbers[part] for part in dealt)


@PARTITIONS.register("iid")
class Iid:
    """Equal shares at random."""

    def sizes(self, settings: DataConfig) -> Indices:
        """The same for all."""
        return np.full(settings.num_clients, settings.train_examples, np.int64)

    def deal(self, settings: DataConfig, sets: LabelledSets, seed: int) -> Partition:
        """Training and test images at random."""
        sizes, tested = self.sizes(settings), _tested(settings)
        _check_total(sizes, len(sets.train.labels), "training")
        _check_total(tested, len(sets.test.labels), "test")
        train, test = _stream(seed, _Part.TRAIN), _stream(seed, _Part.TEST)
        return Partition(
            _deal_at_random(len(sets.train.labels), sizes, train),
            _deal_at_random(len(sets.test.labels), tested, test),
        )


@PARTITIONS.register("imbalanced")
class Imbalanced(Iid):
    """Groups of clients of different sizes, at random."""

    def sizes(self, settings: DataConfig) -> Indices:
        """Groups have equally many clients."""
        groups = _group_sizes(settings)
        return np.repeat(groups, settings.num_clients // groups.size)


@PARTITIONS.register("dirichlet")
class Dirichlet(Iid):
    """Classes by weights that each client draws from Dir(alpha).

    Where a class has run out, the rest are drawn by the same weights over the classes
    that are left. Test images follow the same weights. Clients are served in random
    order, for the last ones get what is left.
    """

    def deal(self, settings: DataConfig, sets: LabelledSets, seed: int) -> Partition:
        """Draws weights, then training and test images by them."""
        sizes, tested = self.sizes(settings), _tested(settings)
        _check_total(sizes, len(sets.train.labels), "training")
        _check_total(tested, len(sets.test.labels), "test")
        train, test = _stream(seed, _Part.TRAIN), _stream(seed, _Part.TEST)
        weights = _stream(seed, _Part.WEIGHTS).dirichlet(
            np.full(sets.num_classes, settings.dirichlet_alpha), settings.num_clients
        )
        return Partition(
            _deal_by_class(sets.train.labels, weights, sizes, train),
            _deal_by_class(sets.test.labels, weights, tested, test),
        )


@PARTITIONS.register("file")
class FromFile:
    """As `partition_file` lists; clients without test lists get random ones."""

    def sizes(self, settings: DataConfig) -> Indices:
        """The lengths of the lists."""
        lists = _read_file(settings)["train"]
        return np.array([len(client) for client in lists], np.int64)

    def check(self, settings: DataConfig, counts: Counts) -> None:
        """Refuses lists of images that are not there, or belong to two clients."""
        for kind, lists in _read_file(settings).items():
            place = f"{kind} of {settings.partition_file}"
            _owned(lists, getattr(counts, kind), place)

    def deal(self, settings: DataConfig, sets: LabelledSets, seed: int) -> Partition:
        """The lists, checked."""
        return _from_file(settings, sets, _tested(settings), seed)


def _tested(settings: DataConfig) -> Indices:
    return np.full(settings.num_clients, settings.test_examples, np.int64)


def _group_sizes(settings: DataConfig) -> Indices:
    groups = COUNTS.read(settings.group_sizes)
    if settings.num_clients % len(groups):
        raise InputError(
            f"num_clients must be a multiple of the {len(groups)} groups of "
            f"group_sizes, but is {settings.num_clients}."
        )
    return np.array(groups, np.int64)


def _stream(seed: int, part: _Part) -> np.random.Generator:
    return rng.host_stream(seed, "partition", part)


def _check_total(sizes: Indices, count: int, kind: str) -> None:
    if sizes.sum() > count:
        raise InputError(
            f"{len(sizes)} clients ask for {sizes.sum()} {kind} images, but the set "
            f"has {count}: lower num_clients or the images of a client."
        )


def _check_unowned(tested: Indices, unowned: int) -> None:
    if tested.sum() > unowned:
        raise InputError(
            f"validation needs {tested.sum()} training images that no client owns, but "
            f"there are {unowned}: lower data.test_examples or the images of a client."
        )


def _deal_at_random(
    count: int, sizes: Indices, stream: np.random.Generator
) -> tuple[Indices, ...]:
    dealt = stream.permutation(count)[: sizes.sum()].astype(np.int64)
    return tuple(np.split(dealt, np.cumsum(sizes)[:-1]))


def _deal_by_class(
    labels: NDArray[Any],
    weights: NDArray[np.float64],
    sizes: Indices,
    stream: np.random.Generator,
) -> tuple[Indices, ...]:
    """Disjoint lists whose classes follow each client's weights [U, classes]."""
    piles = [
        stream.permutation(np.flatnonzero(labels == c)).astype(np.int64)
        for c in range(weights.shape[1])
    ]
    left = np.array([pile.size for pile in piles])
    dealt: list[Indices] = [np.zeros(0, np.int64)] * len(sizes)
    for client in stream.permutation(len(sizes)):
        counts = _draw_classes(weights[client], int(sizes[client]), left, stream)
        rest = left - counts
        dealt[client] = np.concatenate(
            [pile[a:b] for pile, a, b in zip(piles, rest, left, strict=True)]
        )
        left = rest
    return tuple(dealt)


def _draw_classes(
    weights: NDArray[np.float64],
    size: int,
    left: NDArray[np.int64],
    stream: np.random.Generator,
) -> NDArray[np.int64]:
    """How many images of each class, `size` in all and at most what is left."""
    counts = np.zeros_like(left)
    while missing := size - int(counts.sum()):
        has_some = left > counts
        chance = np.where(has_some, weights, 0.0)
        if chance.sum() < _NO_MASS:
            chance = has_some.astype(np.float64)
        drawn = stream.multinomial(missing, chance / chance.sum())
        counts = np.minimum(counts + drawn, left)
    return counts


def _read_file(settings: DataConfig) -> dict[str, list[list[int]]]:
    """The lists of a partition file, one for each client, of whole numbers."""
    path = pathlib.Path(settings.partition_file).expanduser()
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            f"the partition file {path} is not readable as JSON ({error})."
        ) from error
    if not isinstance(content, dict) or not {"train"} <= set(content) <= set(
        Partition._fields
    ):
        raise InputError(
            f'{path} must be {{"train": [[image numbers of client 0], ...], "test": '
            "[...]}; test may be left out."
        )
    for kind, lists in content.items():
        _check_lists(lists, f"{kind} of {path}", settings.num_clients)
    return content


def _check_lists(lists: Any, place: str, num_clients: int) -> None:
    if not isinstance(lists, list) or len(lists) != num_clients:
        count = len(lists) if isinstance(lists, list) else "no"
        raise InputError(
            f"{place} has {count} lists, but num_clients is {num_clients}: make them "
            "equal."
        )
    for number, client in enumerate(lists):
        if not isinstance(client, list) or not client:
            raise InputError(f"{place}: client {number} needs a list of image numbers.")
        if not all(type(image) is int for image in client):
            raise InputError(
                f"{place}: client {number} lists something that is no whole number."
            )


def _from_file(
    settings: DataConfig, sets: LabelledSets, tested: Indices, seed: int
) -> Partition:
    lists = _read_file(settings)
    place = settings.partition_file
    train = _owned(lists["train"], len(sets.train.labels), f"train of {place}")
    if "test" in lists:
        test = _owned(lists["test"], len(sets.test.labels), f"test of {place}")
    else:
        _check_total(tested, len(sets.test.labels), "test")
        count = len(sets.test.labels)
        test = _deal_at_random(count, tested, _stream(seed, _Part.TEST))
    return Partition(train, test)


def _owned(lists: list[list[int]], count: int, place: str) -> tuple[Indices, ...]:
    """Lists as arrays, in range and without an image twice."""
    taken: set[int] = set()
    for number, client in enumerate(lists):
        if min(client) < 0 or max(client) >= count:
            raise InputError(
                f"{place}: client {number} lists images {min(client)} to "
                f"{max(client)}, but the set has 0 to {count - 1}."
            )
        if len(set(client)) < len(client) or taken & set(client):
            raise InputError(
                f"{place}: client {number} lists an image that is taken: each image "
                "belongs to one client, once."
            )
        taken |= set(client)
    return tuple(np.array(client, np.int64) for client in lists)


def label_counts(
    labels: NDArray[Any], owned: Sequence[NDArray[Any]], num_classes: int
) -> NDArray[np.int64]:
    """How many images of each class each client owns: [U, classes]."""
    return np.stack(
        [np.bincount(labels[client], minlength=num_classes) for client in owned]
    ).astype(np.int64)
