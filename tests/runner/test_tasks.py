"""Are a cohort's rows checked before anything is compiled?"""

import numpy as np
import pytest

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.runner import tasks
from tests import worlds


def test_rows_hold_what_was_asked():
    rows = worlds.make_tasks(worlds.make_world("logistic"), clip_norm=2.0)
    assert rows.client.tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(rows.clip_bound, 2 * np.sqrt([0.3, 0.5, 0.8, 1.0]))
    # Client i owns 30 - 2i examples and samples each with probability 4 / (30 - 2i).
    wanted = 4 / np.array([30, 28, 26, 24])
    np.testing.assert_allclose((rows.inclusion + 1.0) / 2**32, wanted, atol=2**-31)
    np.testing.assert_allclose((rows.keep + 1.0) / 2**32, [0.3, 0.5, 0.8, 1.0])
    assert rows.active.all()
    assert {leaf.shape for leaf in rows} == {(4,)}


def test_clip_bounds():
    assert tasks.clip_bound(3.0, 0.25) == np.float32(1.5)
    assert tasks.clip_bound(3.0, 0.25, "unadjusted") == np.float32(3.0)
    assert np.isinf(tasks.clip_bound(3.0, 0.25, "off"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"keep_rate": 0.0}, r"keep rate must be in \(0, 1\], but is 0.0"),
        ({"keep_rate": 1.5}, r"keep rate must be in \(0, 1\]"),
        ({"keep_rate": np.nan}, r"keep rate must be in \(0, 1\], but is nan"),
        ({"clip_norm": 0.0}, "clip norm must be positive"),
        ({"clip_norm": -1.0}, "clip norm must be positive"),
        ({"clip_norm": np.inf}, "clip norm must be positive"),
        ({"noise_multiplier": 0.0}, "noise multiplier must be positive"),
        ({"noise_multiplier": -0.5}, "noise multiplier must be positive"),
        ({"learning_rate": 0.0}, "learning rate must be positive"),
        ({"batch_size": 0}, "batch size must be positive"),
        ({"batch_size": 25}, "sampling rate above 1"),
        ({"batch_size": 10}, "overflows the padded size 12 with probability"),
        ({"client": [], "keep_rate": 0.5}, "give at least one row"),
        ({"client": [0, 1, 1, 2]}, "a client appears twice"),
        ({"client": [0, 1, 2, 6]}, r"client must be in 0..5, but is 6"),
        ({"run": 1}, r"run must be in 0..0, but is 1"),
        ({"clipping": "soft"}, "unknown clipping 'soft'"),
        ({"clipping": "off"}, "noise without clipping protects nothing"),
    ],
)
def test_bad_rows_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        worlds.make_tasks(worlds.make_world("logistic"), **changes)


def test_tasks_are_columns():
    with pytest.raises(InputError, match="columns of one common length"):
        worlds.make_tasks(worlds.make_world("logistic"), client=0, keep_rate=0.5)
