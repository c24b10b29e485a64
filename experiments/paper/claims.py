"""The claims of the paper's experiments (and two of ours), held against our runs."""

import pathlib
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from dpsparfl_jax.storage import write_whole

from . import claim_data, claim_tests, verdicts
from .claim_data import Tables
from .verdicts import Part, Verdict, as_json, as_markdown, as_text

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
    parts: Callable[[Tables], list[Part]]


def evaluate(folder: str | pathlib.Path) -> list[Verdict]:
    """The verdict on every claim from the tables in a folder of results.

    Raises:
        InputError: The folder or one of its tables cannot be used.
    """
    figures = tuple(dict.fromkeys(setting.figure for setting in claim_tests.SETTINGS))
    tables = claim_data.read(pathlib.Path(folder), figures)
    return [judge(claim, tables) for claim in CLAIMS]


def judge(claim: Claim, tables: Tables) -> Verdict:
    """The verdict on one claim."""
    parts = claim.parts(tables)
    comparisons = [each for part in parts for each in part.comparisons]
    return Verdict(*claim[:4], comparisons, verdicts.judge(parts))


def write(folder: pathlib.Path, judged: list[Verdict]) -> None:
    """Writes claims.json into the folder."""
    write_whole(folder / "claims.json", as_json(judged))


def _of_clipping(sweep: str, images: str) -> Claim:
    return Claim(
        f"clipping:{sweep.removeprefix('clipping_')}",
        f"Adjusted clipping beats unadjusted at every keep rate, {images}",
        "Fig. 2",
        "last accuracy, adjusted minus unadjusted",
        partial(claim_tests.clipping, sweep),
    )


def _of_accuracy(setting: claim_tests.Setting) -> Claim:
    return Claim(
        f"policies_accuracy:{setting.key}",
        f"DP-SparFL is more accurate than each baseline, {setting.name}",
        setting.accuracy_in_paper,
        "accuracy minus baseline's, after the last common evaluated round, at the "
        "largest common simulated time (linear between evaluations), and when each has "
        "come to its own end",
        partial(claim_tests.accuracy_of_policies, setting),
    )


def _of_delay(setting: claim_tests.Setting) -> Claim:
    return Claim(
        f"policies_delay:{setting.key}",
        f"DP-SparFL has the lowest cumulative delay, {setting.name}",
        setting.delay_in_paper,
        "delay over the rounds that all four reach, relative to baseline's",
        partial(claim_tests.delay_of_policies, setting),
    )


def _of_late_delay(setting: claim_tests.Setting) -> Claim:
    return Claim(
        f"delay_minimization:{setting.key}",
        f"Delay minimization starts quick and gets slow, {setting.name}",
        setting.delay_in_paper,
        "mean delay of its first tenth of rounds relative to that of others; of its "
        "last tenth relative to its first",
        partial(claim_tests.late_delay, setting),
    )


CLAIMS: tuple[Claim, ...] = (
    _of_clipping("clipping_fashion", "Fashion-MNIST"),
    _of_clipping("clipping_cifar", "CIFAR-10"),
    Claim(
        "lambda_optimum",
        "Some lambda between the extremes gives the best accuracy",
        "Fig. 3 (a)",
        "last accuracy of the inner lambda that is best on average minus that of the "
        "better end of each seed",
        claim_tests.interior_optimum,
    ),
    Claim(
        "lambda_delay",
        "Delay grows with lambda",
        "Fig. 3 (b)",
        "slope of mean delay over log10 lambda",
        claim_tests.delay_over_lambda,
    ),
    Claim(
        "privacy_accuracy",
        "Accuracy grows with the privacy level",
        "Fig. 4 (a)",
        "last accuracy, wider minus narrower range of epsilon",
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
    *map(_of_late_delay, claim_tests.IID),
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
        f"mean delay relative to target, below +{claim_tests.DELAY_TOLERANCE:g}%",
        claim_tests.delay_target,
    ),
    Claim(
        "constraints:participation",
        "Every client of DP-SparFL takes part as often as its share",
        "Section V-B, C7",
        "halfway to the end of budgets, share of rounds that the client furthest "
        f"behind lacks, below {claim_tests.SHARE_TOLERANCE:g}",
        claim_tests.share,
    ),
    Claim(
        "solver",
        "The joint solver keeps more of the gradients than the paper's procedure, at "
        "no more delay",
        "ours",
        "mean keep rate, joint minus paper's; mean delay relative to paper's, below "
        f"+{claim_tests.DELAY_TOLERANCE:g}%",
        claim_tests.solver,
    ),
    Claim(
        "accountant",
        "PLD accounting affords more rounds than RDP for the same epsilon",
        "ours",
        "rounds until budgets end, PLD minus RDP",
        claim_tests.accountant,
    ),
)
