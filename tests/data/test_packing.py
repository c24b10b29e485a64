"""Are tables exact, and bad ones refused?"""

import pytest

from dpsparfl_jax.data import packing
from dpsparfl_jax.errors import InputError


def test_tables_hold_each_clients_images_and_valid_padding():
    tables = packing.pack_clients([[[3, 1], [5, 2, 4]], [[0], [1, 2]]], 6)
    assert tables.indices.shape == (2, 2, 3)
    assert tables.sizes.tolist() == [[2, 3], [1, 2]]
    assert tables.indices[0, 0].tolist() == [3, 1, 3]
    assert tables.indices[1, 0].tolist() == [0, 0, 0]


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
