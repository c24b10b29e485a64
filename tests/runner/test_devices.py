"""Does a CPU give one device a core, unless the user chose otherwise?"""

import subprocess
import sys

import jax
import pytest

from dpsparfl_jax.runner import devices
from tests import toy

FRESH = """
import jax
from dpsparfl_jax.runner.devices import start_devices
{before}
start_devices({wanted})
print(len(jax.devices()))
"""


@pytest.mark.parametrize(
    ("before", "wanted", "count"),
    [
        ("", 5, max(5, devices.available_cores())),
        ("jax.devices()", 5, 1),  # JAX is in use already
    ],
)
def test_a_process_starts_with_as_many_devices(before, wanted, count):
    program = FRESH.format(before=before, wanted=wanted)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == count


def test_a_run_takes_no_more_devices_than_channels_unless_told():
    def count(channels, wanted):
        settings = toy.settings(
            wireless={"num_channels": channels}, perf={"devices": wanted}
        )
        return len(devices.chosen_devices(settings))

    assert len(jax.devices()) == 8
    assert count(channels=3, wanted=0) == 3
    assert count(channels=20, wanted=0) == 8
    assert count(channels=3, wanted=6) == 6
