"""The claims of the paper's experiments and some of ours, held against our runs."""

import pathlib
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from dpsparfl_jax.storage import write_whole

from . import claim_data, claim_tests, protocol, statistics, verdicts
from .claim_data import Tables
from .claim_tests import Family
from .verdicts import Verdict, as_json, as_markdown, as_text

__all__ = [
    "CLAIMS",
    "Claim",
    "Verdict",
    "as_json",
    "as_markdown",
    "as_text",
    "evaluate",
    "judge",
    "write",
]


class Claim(NamedTuple):
    """A claim, where the paper makes it, and the comparisons it implies."""

    name: str
    words: str
    paper: str
    statistic: str
    family: Callable[[Tables], Family]


def evaluate(folder: str | pathlib.Path) -> list[Verdict]:
    """The verdict on every claim from the tables in a folder of results.

    Raises:
        InputError: The folder or one of its tables cannot be used.
    """
    tables = claim_data.read(pathlib.Path(folder))
    return [judge(claim, tables) for claim in CLAIMS]


def judge(claim: Claim, tables: Tables) -> Verdict:
    """The verdict on one claim."""
    comparisons = statistics.judge(claim.family(tables))
    return Verdict(*claim[:4], comparisons, verdicts.in_words(comparisons))


def write(folder: pathlib.Path, judged: list[Verdict]) -> None:
    """Writes claims.json and claims.md into the folder."""
    write_whole(folder / "claims.json", as_json(judged))
    write_whole(folder / "claims.md", as_markdown(judged))


def _of_clipping(sweep: str, images: str) -> Claim:
    return Claim(
        f"clipping:{sweep.removeprefix('clipping_')}",
        f"Adjusted clipping is more accurate than unadjusted, {images}",
        "Fig. 2",
        "settled accuracy, adjusted minus unadjusted at the same C",
        partial(claim_tests.clipping, sweep),
    )


def _of_accuracy(setting: claim_tests.Setting) -> Claim:
    return Claim(
        f"policies_accuracy:{setting.key}",
        f"DP-SparFL is more accurate than each baseline, {setting.name}",
        setting.accuracy_in_paper,
        "settled accuracy minus baseline's; told: accuracies at the largest common "
        "simulated time, the best ones and the last ones, and time to reach "
        "an accuracy relative to baseline's",
        partial(claim_tests.accuracy_of_policies, setting),
    )


def _of_delay(setting: claim_tests.Setting) -> Claim:
    return Claim(
        f"policies_delay:{setting.key}",
        f"DP-SparFL has the least delay, {setting.name}",
        setting.delay_in_paper,
        "delay over the rounds that all four reach, relative to baseline's; baselines "
        "send all",
        partial(claim_tests.delay_of_policies, setting),
    )


def _of_sparse_delay(setting: claim_tests.Setting) -> Claim:
    return Claim(
        f"sparse_delay:{setting.key}",
        "DP-SparFL has less delay than baselines that keep as much, " + setting.name,
        "ours",
        "delay over the rounds that all four reach, relative to baseline's; baselines "
        "keep DP-SparFL's mean rate",
        partial(claim_tests.delay_of_policies, setting, sparse=True),
    )


_PAPERS: tuple[Claim, ...] = (
    _of_clipping("clipping_fashion", "Fashion-MNIST"),
    _of_clipping("clipping_cifar", "CIFAR-10"),
    Claim(
        "lambda_optimum",
        "A lambda between the extremes is the most accurate",
        "Fig. 3 (a)",
        "settled accuracy of lambda* minus that of an extreme; lambda* is, for every "
        "seed, the best of 10, 50 and 100 on average over the other seeds",
        claim_tests.interior_optimum,
    ),
    Claim(
        "lambda_delay",
        "Delay grows with lambda",
        "Fig. 3 (b)",
        "slope of mean delay over log10 lambda, relative to a seed's mean delay",
        claim_tests.delay_over_lambda,
    ),
    Claim(
        "privacy_accuracy",
        "Accuracy grows with the privacy level",
        "Fig. 4 (a)",
        "settled accuracy, wider minus next narrower range of epsilon",
        claim_tests.accuracy_over_epsilon,
    ),
    Claim(
        "privacy_delay",
        "Cumulative delay falls as the average privacy level grows",
        "Fig. 4 (b)",
        "delay of the widest range relative to the narrowest, over the rounds that all "
        "reach; the whole delay is told, not judged",
        claim_tests.delay_over_epsilon,
    ),
    *map(_of_accuracy, claim_tests.SETTINGS),
    *map(_of_delay, claim_tests.SETTINGS),
    Claim(
        "delay_minimization",
        "Delay minimization is quick at first and slow later",
        "Fig. 6",
        "mean delay of its first tenth of rounds relative to that of others; of its "
        "last tenth relative to its first",
        claim_tests.late_delay,
    ),
    Claim(
        "epsilon",
        "Every client ends within its epsilon",
        "Section III-D",
        "least epsilon left over all clients, rounds and runs with noise (exact)",
        claim_tests.within_epsilon,
    ),
    Claim(
        "constraints:delay",
        "DP-SparFL's average delay meets its target",
        "Section V-B, C8",
        f"mean delay relative to target, below +{protocol.DELAY_TOLERANCE:g}%",
        claim_tests.delay_target,
    ),
    Claim(
        "constraints:participation",
        "Every client of DP-SparFL takes part as often as its share",
        "Section V-B, C7",
        "halfway to the end of budgets, share of rounds that the client furthest "
        f"behind lacks, below {protocol.SHARE_TOLERANCE:g}",
        claim_tests.share,
    ),
    Claim(
        "theorem1",
        "The convergence bound is kept",
        "Theorem 1",
        "measured mean squared gradient norm over its bound, at its largest, where "
        "the step size is small enough (exact)",
        claim_tests.convergence_bound,
    ),
    Claim(
        "theorem3",
        "The bound on all queues is kept where delays can meet their target",
        "Theorem 3",
        "norm of all queues over its bound, at its largest over rounds, lambda and "
        "both starts of the delay queue (exact)",
        claim_tests.queue_bound,
    ),
)
_OURS: tuple[Claim, ...] = (
    *map(_of_sparse_delay, claim_tests.SETTINGS),
    Claim(
        "sparse_accuracy",
        "DP-SparFL is more accurate than baselines that keep as much, "
        + claim_tests.NONIID.name,
        "ours",
        "settled accuracy minus baseline's; told as for Fig. 7",
        partial(claim_tests.accuracy_of_policies, claim_tests.NONIID, sparse=True),
    ),
    Claim(
        "solver",
        "The joint solver keeps more of the gradients than the paper's procedure, at "
        "no more delay",
        "ours",
        "mean keep rate, joint minus paper's; mean delay relative to paper's, below "
        f"+{protocol.DELAY_TOLERANCE:g}%",
        claim_tests.solver,
    ),
    Claim(
        "solver_accuracy",
        "The joint solver is no less accurate than the paper's procedure",
        "ours",
        "settled accuracy, joint minus paper's",
        claim_tests.solver_accuracy,
    ),
    Claim(
        "accountant",
        "PLD accounting affords more rounds than RDP for the same epsilon, and more "
        "accuracy",
        "ours",
        "rounds until budgets end, and settled accuracy, PLD minus RDP",
        claim_tests.accountant,
    ),
    Claim(
        "noise_aware",
        "Noise-aware keep rates are more accurate",
        "ours",
        "settled accuracy, noise-aware minus not",
        claim_tests.noise_aware,
    ),
    Claim(
        "robustness",
        "A margin of 2 dB mends gains that are known to 1 dB",
        "ours",
        "epsilon spent for nothing, and settled accuracy, with the margin minus "
        "without",
        claim_tests.robustness,
    ),
    Claim(
        "delay_choice",
        "DP-SparFL's lower delay is a choice of target, IID MNIST",
        "ours",
        "mean delay relative to delay minimization's, and mean keep rate",
        claim_tests.delay_choice,
    ),
)
CLAIMS: tuple[Claim, ...] = (*_PAPERS, *_OURS)
