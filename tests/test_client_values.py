"""Do settings of clients come as numbers, lists, ranges and files?"""

import dataclasses

import numpy as np
import pytest

from dpsparfl_jax import config_values
from dpsparfl_jax.client_values import client_values
from dpsparfl_jax.config import PrivacyConfig, RunConfig, WirelessConfig
from dpsparfl_jax.errors import InputError


def values(text, clients=3, seed=0, name="cycles_per_sample", channels=0):
    radio = WirelessConfig(**{name: text})
    return client_values(radio, name, seed, clients, channels)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (2e6, [2e6] * 3),
        ("2e6", [2e6] * 3),
        ("1e6,2e6,3e6", [1e6, 2e6, 3e6]),
        ([1e6, 2e6, 3e6], [1e6, 2e6, 3e6]),
        ((1, 2, 3), [1, 2, 3]),
    ],
)
def test_numbers_and_lists(given, wanted):
    np.testing.assert_array_equal(values(given), wanted)


def test_ranges_are_drawn_from_the_seed_for_each_client():
    drawn = values("1e6..3e6", clients=400)
    assert np.all((drawn >= 1e6) & (drawn <= 3e6))
    assert len(np.unique(drawn)) == 400
    assert abs(np.mean(drawn) - 2e6) < 4 * 2e6 / np.sqrt(12 * 400)  # 6e-5 false alarms
    np.testing.assert_array_equal(drawn, values("1e6..3e6", clients=400))
    assert not np.any(drawn == values("1e6..3e6", clients=400, seed=1))


@pytest.mark.parametrize("name", ["each.npy", "each.txt", "each.csv"])
def test_files(tmp_path, name):
    path = tmp_path / name
    if path.suffix == ".npy":
        np.save(path, [1e6, 2e6, 3e6])
    else:
        path.write_text("1e6\n2e6\n3e6\n")
    np.testing.assert_array_equal(values(str(path)), [1e6, 2e6, 3e6])


def test_pairs(tmp_path):
    table = np.arange(6.0).reshape(3, 2)
    np.savetxt(tmp_path / "pairs.csv", table, delimiter=",")
    read = values(str(tmp_path / "pairs.csv"), name="interference_w", channels=2)
    np.testing.assert_array_equal(read, table)
    each = values("1,2,3", name="interference_w", channels=2)
    np.testing.assert_array_equal(each, [[1, 1], [2, 2], [3, 3]])
    assert values("0..1", name="interference_w", channels=2).shape == (3, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1e6,2e6", "2 numbers for 3 clients"),
        ("1e6,0,2e6", "above 0, but holds 0"),
        ("-1..2", "above 0, but holds -"),
        ("3..2", "ends below its start"),
        ("nothing.npy", "none of these"),
        ("plenty", "none of these"),
        ("~nobody-has-this-name/x", "none of these"),
        ("1..inf", "none of these"),
        ("1,nan,2", "holds nan"),
        (["a", "b"], "must be numbers"),
        ([[1, 2], [3]], "must be numbers"),
    ],
)
def test_refusals(text, message):
    with pytest.raises(InputError, match=message):
        values(text)


@pytest.mark.parametrize(
    "content", [np.zeros(0), np.zeros((1, 1, 1)), np.ones(3) * 1j, np.array(["a"])]
)
def test_files_without_numbers_are_refused(tmp_path, content):
    np.save(tmp_path / "each.npy", content)
    with pytest.raises(InputError, match="none of these"):
        values(str(tmp_path / "each.npy"))
    (tmp_path / "cut.npy").write_bytes(b"")
    with pytest.raises(InputError, match="none of these"):
        values(str(tmp_path / "cut.npy"))


def test_a_column_is_a_list_and_one_number_is_for_all(tmp_path):
    np.save(tmp_path / "column.npy", [[1.0], [2.0], [3.0]])
    np.testing.assert_array_equal(values(str(tmp_path / "column.npy")), [1, 2, 3])
    np.save(tmp_path / "one.npy", [5.0])
    np.testing.assert_array_equal(values(str(tmp_path / "one.npy")), [5, 5, 5])


def test_settings_hold_what_a_file_held(tmp_path):
    """Another content is another run, also if the file has the same name."""
    path = tmp_path / "each.txt"
    path.write_text("1\n2\n3")
    then = RunConfig(wireless=WirelessConfig(cycles_per_sample=str(path)))
    assert then.wireless.cycles_per_sample == (1.0, 2.0, 3.0)
    path.write_text("1\n2\n4")
    now = RunConfig(wireless=WirelessConfig(cycles_per_sample=str(path)))
    assert config_values.digest(then) != config_values.digest(now)


def test_a_number_is_checked_at_once():
    with pytest.raises(InputError, match="above 0"):
        PrivacyConfig(noise_multiplier="-0.5")


def test_lists_survive_a_manifest():
    settings = RunConfig(privacy=PrivacyConfig(noise_multiplier="0.5,0.7"))
    assert settings.privacy.noise_multiplier == (0.5, 0.7)
    plain = config_values.as_dict(settings)
    plain["privacy"]["noise_multiplier"] = [0.5, 0.7]  # as JSON has it
    again = config_values.from_dict(plain)
    assert again == settings
    assert config_values.digest(again) == config_values.digest(settings)
    other = dataclasses.replace(
        settings, privacy=PrivacyConfig(noise_multiplier=[0.5, 0.8])
    )
    assert config_values.digest(other) != config_values.digest(settings)
