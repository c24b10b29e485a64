"""Are tables exact, and bad ones refused?"""

import pytest

from dpsparfl_jax.data import packing
from dpsparfl_jax.errors import InputError


def test_tables_hold_each_clients_images_client_after_client():
    runs = [[[3, 1], [5, 2, 4]], [[0], [1, 2]]]
    tables = packing.pack_clients(runs, 6)
    assert tables.rows.shape == (2, 5)
    assert tables.sizes.tolist() == [[2, 3], [1, 2]]
    assert tables.first.tolist() == [[0, 2], [0, 1]]
    for run, lists in enumerate(runs):
        for client, images in enumerate(lists):
            assert tables.of(run, client).tolist() == images


@pytest.mark.parametrize(
    ("sizes", "lengths"),
    [
        ([[30, 30]], (30,)),
        ([[500, 1000, 1500]], (1500,)),
        ([[20, 96, 20_000], [96, 100, 4]], (100, 20_000)),
        ([[4**n for n in range(9)]], tuple(4**n for n in range(4, 9))),
    ],
)
def test_shorter_tables_are_for_clients_with_much_less(sizes, lengths):
    assert packing.table_lengths(sizes) == lengths


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ([], "same number"),
        ([[]], "same number"),
        ([[[0]], [[0], [1]]], "same number"),
        ([[[0], []]], "client 1 of run 0 has no data"),
        ([[[0], [9]]], "refers to images 9 to 9, but the set has 0 to 5"),
        ([[[-1]]], "refers to images -1 to -1"),
        ([[[2, 2]]], "run 0 lists an image twice"),
        ([[[0, 1], [1, 2]]], "run 0 lists an image twice"),
        ([[[0.2, 1.7]]], "lists float64 numbers"),
    ],
)
def test_bad_tables_are_refused(runs, message):
    with pytest.raises(InputError, match=message):
        packing.pack_clients(runs, 6)
