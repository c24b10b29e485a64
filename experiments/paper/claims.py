"""The claims of the paper's experiments (and two of ours), held against our runs."""

import pathlib
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from dpsparfl_jax import records
from experiments.paper import claim_parts as parts
from experiments.paper import claim_tables, verdicts
from experiments.paper.claim_tables import Tables
from experiments.paper.verdicts import Part, Verdict, as_json, as_markdown

__all__ = [
    "CLAIMS",
    "Claim",
    "Verdict",
    "as_json",
    "as_markdown",
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
    figures = tuple(dict.fromkeys(setting.figure for setting in parts.SETTINGS))
    tables = claim_tables.read(pathlib.Path(folder), figures)
    return [judge(claim, tables) for claim in CLAIMS]


def judge(claim: Claim, tables: Tables) -> Verdict:
    """The verdict on one claim."""
    found = claim.parts(tables)
    comparisons = [each for part in found for each in part.comparisons]
    return Verdict(*claim[:4], comparisons, verdicts.judge(found))


def write(folder: pathlib.Path, found: list[Verdict]) -> None:
    """Writes claims.json into the folder."""
    records.write_whole(folder / "claims.json", as_json(found))


def _of_clipping(sweep: str, images: str) -> Claim:
    return Claim(
        f"clipping:{sweep.removeprefix('clipping_')}",
        f"Adjusted clipping beats unadjusted at every keep rate, {images}",
        "Fig. 2",
        "last accuracy, adjusted minus unadjusted",
        partial(parts.clipping, sweep),
    )


def _of_accuracy(setting: parts.Setting) -> Claim:
    return Claim(
        f"policies_accuracy:{setting.key}",
        f"DP-SparFL is more accurate than each baseline, {setting.name}",
        setting.accuracy_in_paper,
        "accuracy minus baseline's, after the last common evaluated round, at the "
        "largest common simulated time (linear between evaluations), and when each has "
        "come to its own end",
        partial(parts.accuracy_of_policies, setting),
    )


def _of_delay(setting: parts.Setting) -> Claim:
    return Claim(
        f"policies_delay:{setting.key}",
        f"DP-SparFL has the lowest cumulative delay, {setting.name}",
        setting.delay_in_paper,
        "delay over the rounds that all four reach, relative to baseline's",
        partial(parts.delay_of_policies, setting),
    )


def _of_late_delay(setting: parts.Setting) -> Claim:
    return Claim(
        f"delay_minimization:{setting.key}",
        f"Delay minimization starts quick and gets slow, {setting.name}",
        setting.delay_in_paper,
        "mean delay of its first tenth of rounds relative to that of others; of its "
        "last tenth relative to its first",
        partial(parts.late_delay, setting),
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
        parts.interior_optimum,
    ),
    Claim(
        "lambda_delay",
        "Delay grows with lambda",
        "Fig. 3 (b)",
        "slope of mean delay over log10 lambda",
        parts.delay_over_lambda,
    ),
    Claim(
        "privacy_accuracy",
        "Accuracy grows with the privacy level",
        "Fig. 4 (a)",
        "last accuracy, wider minus narrower range of epsilon",
        parts.accuracy_over_epsilon,
    ),
    Claim(
        "privacy_delay",
        "Cumulative delay falls as the average privacy level grows",
        "Fig. 4 (b)",
        "delay of the widest range relative to the narrowest, over the rounds that all "
        "reach; the whole delay is told, not judged",
        parts.delay_over_epsilon,
    ),
    *map(_of_accuracy, parts.SETTINGS),
    *map(_of_delay, parts.SETTINGS),
    *map(_of_late_delay, parts.IID),
    Claim(
        "epsilon",
        "Every client ends within its epsilon",
        "Section III-D",
        "least epsilon left over all clients, rounds and runs with noise (exact)",
        parts.within_epsilon,
    ),
    Claim(
        "constraints:delay",
        "DP-SparFL's average delay meets its target",
        "Section V-B, C8",
        f"mean delay relative to target, below +{parts.DELAY_TOLERANCE:g}%",
        parts.delay_target,
    ),
    Claim(
        "constraints:participation",
        "Every client of DP-SparFL takes part as often as its share",
        "Section V-B, C7",
        "halfway to the end of budgets, share of rounds that the client furthest "
        f"behind lacks, below {parts.SHARE_TOLERANCE:g}",
        parts.share,
    ),
    Claim(
        "solver",
        "The joint solver keeps more of the gradients than the paper's procedure, at "
        "no more delay",
        "ours",
        "mean keep rate, joint minus paper's; mean delay relative to paper's, below "
        f"+{parts.DELAY_TOLERANCE:g}%",
        parts.solver,
    ),
    Claim(
        "accountant",
        "PLD accounting affords more rounds than RDP for the same epsilon",
        "ours",
        "rounds until budgets end, PLD minus RDP",
        parts.accountant,
    ),
)
