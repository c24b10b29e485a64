"""Files of one's own for `--plugin`, written by tests."""

POLICY = """
import numpy as np
import dpsparfl_jax as fl
from dpsparfl_jax.scheduling.baselines import FullRate

FIRST = 0


@fl.register_policy("mine")
class Mine:
    def __init__(self, settings):
        pass

    def init(self, num_clients, num_channels):
        return FIRST

    def plan(self, turn, observation, random):
        rows = np.array([turn % len(observation.client)])
        return FullRate(observation.problem).quickest(rows), turn + 1
"""


def write(folder, text=POLICY, name="mine.py"):
    """A plugin's file."""
    path = folder / name
    path.write_text(text)
    return path
