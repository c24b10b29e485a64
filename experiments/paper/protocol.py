"""What PROTOCOL.md fixes: seeds of every setting, images, rounds, margins, levels.

Code that runs, tabulates or judges the full-scale study takes these numbers from here.
"""

import types
from collections.abc import Mapping
from typing import NamedTuple


class Worlds(NamedTuple):
    """Seeds of one setting: those that are trained, and those that are planned."""

    trained: tuple[int, ...]
    planned: tuple[int, ...]


def _from(first: int, trained: int = 5, planned: int = 10) -> Worlds:
    return Worlds(
        tuple(range(first, first + trained)), tuple(range(first, first + planned))
    )


FASHION = _from(10)
MNIST = _from(100)
CIFAR = _from(200)
DIRICHLET = _from(300)
UNEQUAL = _from(400)
CLIPPING_FASHION = _from(500, planned=5)
CLIPPING_CIFAR = _from(600, planned=5)
PAPER_CIFAR = _from(700, 1, 1)  # shown, not judged
GRADIENTS = _from(10, 3, 3)  # Fashion-MNIST's first ones, where Theorem 1 is measured
CLIP_NORMS = _from(1000, 2, 2)  # by which clip norms are chosen
LEFT_OPEN = _from(1000)  # planned over what else the paper leaves open

TRAINED_SEEDS, PLANNED_SEEDS, GRADIENT_SEEDS = 5, 10, 3

# Of every trained run of the full scale.
EVALUATIONS: Mapping[str, str] = types.MappingProxyType(
    {"length.eval_every": "2", "data.test_examples": "250"}
)
CLIPPING_ROUNDS = types.MappingProxyType({"fashion": "30", "cifar": "20"})

# Clip norms that validation images chose in the place of a preset's, by preset; the
# others keep theirs. `clip_norms.choose` says which they are.
CHOSEN_CLIP_NORMS: Mapping[str, str] = types.MappingProxyType(
    {
        "paper_fashion": "40",
        "paper_fashion_noniid": "40",
        "paper_fashion_imbalanced": "40",
    }
)
PRESETS_OWN_IS_KEPT = 0.005  # of accuracy: a preset's clip norm stays if so near

# DP-SparFL's mean keep rate, which baselines have in the comparison of ours.
KEEP_RATES = types.MappingProxyType(
    {"mnist": "0.46", "cifar": "0.50", "noniid": "0.43", "imbalance": "0.43"}
)

# Accuracies until which simulated time is told, by images or partition.
REACHED = types.MappingProxyType(
    {"mnist": 0.85, "fashion_mnist": 0.70, "dirichlet": 0.50, "cifar10": 0.25}
)

LEVEL = 0.05  # of tests, after Holm's correction
ACCURACY_MARGIN, UNLIKE_MARGIN = 1.0, 2.0  # points: IID clients, and other clients
DELAY_MARGIN = 2.0  # per cent
KEEP_MARGIN = 1.0  # points
DELAY_TOLERANCE = 1.0  # per cent
SHARE_TOLERANCE = 0.05  # of rounds
