"""Is every image dealt at most once, in the numbers and proportions asked for?"""

import json

import numpy as np
import pytest

from dpsparfl_jax.config import DataConfig
from dpsparfl_jax.data import partition
from dpsparfl_jax.data.files import LabelledSets
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.types import ImageSet


def make_sets(train=4000, test=1000, classes=10):
    def one(count):
        labels = (np.arange(count) % classes).astype(np.int32)
        return ImageSet(np.zeros((count, 1, 1, 1), np.uint8), labels)

    return LabelledSets(one(train), one(test), classes)


def make_settings(kind="iid", **changes):
    base = {"num_clients": 8, "train_examples": 100, "test_examples": 50}
    base["group_sizes"] = "30,60,180,210"
    return DataConfig(partition=kind, **{**base, **changes})


def from_file(tmp_path, content, **changes):
    path = tmp_path / "owners.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return make_settings("file", partition_file=str(path), **changes)


def assert_disjoint(lists, count):
    owned = np.concatenate(lists)
    assert all(one.dtype == np.int64 for one in lists)
    assert np.unique(owned).size == owned.size
    assert owned.min() >= 0
    assert owned.max() < count


def assert_equal(a, b):
    for one, other in zip((*a.train, *a.test), (*b.train, *b.test), strict=True):
        np.testing.assert_array_equal(one, other)


KINDS = ("iid", "dirichlet", "imbalanced")


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", KINDS)
def test_lists_are_disjoint_exact_and_reproducible(kind, seed):
    settings, sets = make_settings(kind), make_sets()
    dealt = partition.deal(settings, sets, seed)
    assert_disjoint(dealt.train, 4000)
    assert_disjoint(dealt.test, 1000)
    sizes = partition.client_sizes(settings)
    assert [one.size for one in dealt.train] == sizes.tolist()
    assert [one.size for one in dealt.test] == [50] * 8
    assert_equal(dealt, partition.deal(settings, sets, seed))
    other = partition.deal(settings, sets, seed + 100)
    assert set(dealt.train[0]) != set(other.train[0])


@pytest.mark.parametrize("kind", KINDS)
def test_training_lists_do_not_depend_on_test_examples(kind):
    a = partition.deal(make_settings(kind), make_sets(), 0)
    b = partition.deal(make_settings(kind, test_examples=7), make_sets(), 0)
    for one, other in zip(a.train, b.train, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", KINDS)
def test_unowned_images_have_the_classes_of_their_client(kind):
    settings, sets = make_settings(kind), make_sets()
    dealt = partition.deal(settings, sets, 0)
    free = partition.deal_unowned(settings, sets, dealt.train, 0)
    assert_disjoint(dealt.train + free, 4000)
    assert [one.size for one in free] == [50] * 8
    labels = sets.train.labels
    shares = [
        partition.label_counts(labels, lists, 10) / [[len(one)] for one in lists]
        for lists in (dealt.train, free)
    ]
    # 50 draws a client: standard deviations of up to 0.07 each.
    assert np.max(np.abs(shares[0] - shares[1])) < 0.3
    again = partition.deal_unowned(settings, sets, dealt.train, 0)
    other = partition.deal_unowned(settings, sets, dealt.train, 1)
    np.testing.assert_array_equal(np.concatenate(free), np.concatenate(again))
    assert set(free[0]) != set(other[0])


def test_validation_needs_images_that_nobody_owns():
    settings, sets = make_settings(), make_sets(train=1000)
    dealt = partition.deal(settings, sets, 0)
    with pytest.raises(InputError, match=r"needs 400 .* owns, but there are 200"):
        partition.deal_unowned(settings, sets, dealt.train, 0)


def test_sizes_of_clients():
    sizes = partition.client_sizes
    assert sizes(make_settings()).tolist() == [100] * 8
    assert sizes(make_settings("dirichlet")).tolist() == [100] * 8
    groups = sizes(make_settings("imbalanced"))
    assert groups.tolist() == [30, 30, 60, 60, 180, 180, 210, 210]


def skew(kind, seed, **changes):
    """Mean share of a client's commonest class."""
    sets = make_sets(20_000, 10_000)
    dealt = partition.deal(make_settings(kind, **changes), sets, seed)
    counts = partition.label_counts(sets.train.labels, dealt.train, 10)
    assert counts.sum() == 800
    return (counts.max(axis=1) / counts.sum(axis=1)).mean()


@pytest.mark.parametrize("seed", range(3))
def test_dirichlet_skew(seed):
    even = skew("iid", seed)
    assert skew("dirichlet", seed, dirichlet_alpha=0.1) > even + 0.3
    assert skew("dirichlet", seed, dirichlet_alpha=0.1) > skew("dirichlet", seed) - 0.1
    assert abs(skew("dirichlet", seed, dirichlet_alpha=1e5) - even) < 0.04
    assert skew("dirichlet", seed, dirichlet_alpha=1e-6) > 0.99


def test_class_counts_follow_the_weights():
    # Dir(alpha): a class share has mean 1/10 and variance 0.09 / (10 alpha + 1).
    alpha, clients = 0.5, 400
    settings = make_settings(
        "dirichlet", num_clients=clients, dirichlet_alpha=alpha, test_examples=1
    )
    sets = make_sets(400_000)
    dealt = partition.deal(settings, sets, 0)
    share = partition.label_counts(sets.train.labels, dealt.train, 10) / 100
    within = (share * (1 - share)).mean() / 100  # what the multinomial adds
    assert share.mean(axis=0) == pytest.approx(np.full(10, 0.1), abs=0.03)
    assert share.var() - within == pytest.approx(0.09 / (10 * alpha + 1), rel=0.1)


def test_test_images_follow_the_same_weights():
    sets = make_sets(20_000, 10_000)
    dealt = partition.deal(make_settings("dirichlet", test_examples=100), sets, 0)
    train = partition.label_counts(sets.train.labels, dealt.train, 10)
    test = partition.label_counts(sets.test.labels, dealt.test, 10)
    own = [np.corrcoef(train[i], test[i])[0, 1] for i in range(8)]
    other = [np.corrcoef(train[i], test[i - 1])[0, 1] for i in range(8)]
    assert np.mean(own) > 0.9
    assert np.mean(other) < 0.5


@pytest.mark.parametrize("alpha", [1e-6, 0.2, 10.0])
@pytest.mark.parametrize("seed", range(3))
def test_a_set_can_be_dealt_out_to_the_last_image(alpha, seed):
    sets = make_sets(800, 400)
    settings = make_settings("dirichlet", dirichlet_alpha=alpha)
    dealt = partition.deal(settings, sets, seed)
    assert sorted(np.concatenate(dealt.train)) == list(range(800))
    assert sorted(np.concatenate(dealt.test)) == list(range(400))
    assert {one.size for one in dealt.train} == {100}


@pytest.mark.parametrize("kind", KINDS)
def test_more_than_there_is(kind):
    sets = make_sets(700, 1000)
    wanted = 960 if kind == "imbalanced" else 800
    message = f"8 clients ask for {wanted} training images, but the set has 700"
    with pytest.raises(InputError, match=message):
        partition.deal(make_settings(kind), sets, 0)
    with pytest.raises(
        InputError, match="ask for 400 test images, but the set has 399"
    ):
        partition.deal(make_settings(kind), make_sets(4000, 399), 0)


@pytest.mark.parametrize("sizes", ["", "3,,4", "3,x", "0,5", "-1,5", "1.5,2", "3,²"])
def test_bad_group_sizes(sizes):
    with pytest.raises(InputError, match="whole positive numbers"):
        partition.client_sizes(make_settings("imbalanced", group_sizes=sizes))


def test_groups_are_equally_many():
    with pytest.raises(InputError, match=r"multiple of the 3 groups .* but is 8"):
        partition.client_sizes(make_settings("imbalanced", group_sizes="1,2,3"))


def test_lists_from_a_file(tmp_path):
    content = {"train": [[5, 1], [2, 0, 7]], "test": [[3], [1, 0]]}
    settings = from_file(tmp_path, content, num_clients=2)
    dealt = partition.deal(settings, make_sets(), 0)
    assert [one.tolist() for one in dealt.train] == content["train"]
    assert [one.tolist() for one in dealt.test] == content["test"]
    assert partition.client_sizes(settings).tolist() == [2, 3]
    del content["test"]
    dealt = partition.deal(from_file(tmp_path, content, num_clients=2), make_sets(), 0)
    assert [one.size for one in dealt.test] == [50, 50]
    assert_disjoint(dealt.test, 1000)
    short = from_file(tmp_path, content, num_clients=2)
    with pytest.raises(InputError, match="ask for 100 test images, but the set has 99"):
        partition.deal(short, make_sets(4000, 99), 0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not readable as JSON"),
        ("[" * 100_000, "not readable as JSON"),
        ([[1], [2]], "must be"),
        ({"test": [[1], [2]]}, "must be"),
        ({"train": [[1], [2]], "extra": 1}, "must be"),
        ({"train": 3}, "has no lists, but num_clients is 2"),
        ({"train": [[1]]}, "has 1 lists, but num_clients is 2"),
        ({"train": [[1], [2]], "test": [[1]]}, "test of .* has 1 lists"),
        ({"train": [[1], []]}, "client 1 needs a list"),
        ({"train": [[1], 2]}, "client 1 needs a list"),
        ({"train": [[1], [2.0]]}, "client 1 lists something that is no whole number"),
        ({"train": [[True], [2]]}, "client 0 lists something"),
        (
            {"train": [[1], [4000]]},
            "client 1 lists images 4000 to 4000, but .* 0 to 3999",
        ),
        ({"train": [[-1], [2]]}, "client 0 lists images -1"),
        ({"train": [[1], [10**40]]}, "client 1 lists images"),
        ({"train": [[1, 1], [2]]}, "client 0 lists an image that is taken"),
        ({"train": [[1], [2, 1]]}, "client 1 lists an image that is taken"),
        ({"train": [[1], [2]], "test": [[0], [0]]}, "test of .* client 1 lists an"),
    ],
)
def test_bad_files_are_refused(tmp_path, content, message):
    with pytest.raises(InputError, match=message):
        partition.deal(from_file(tmp_path, content, num_clients=2), make_sets(), 0)


def test_a_missing_file_is_refused(tmp_path):
    settings = make_settings("file", partition_file=str(tmp_path / "none.json"))
    with pytest.raises(InputError, match=r"none.json is not readable"):
        partition.client_sizes(settings)


def test_label_counts():
    labels = np.array([0, 2, 2, 1])
    counts = partition.label_counts(labels, [np.array([0, 1, 2]), np.array([3])], 4)
    assert counts.tolist() == [[1, 0, 2, 0], [0, 1, 0, 0]]
