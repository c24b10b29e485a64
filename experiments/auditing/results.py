"""What an audit found: as numbers, as tables, as a picture and as one page."""

import dataclasses
import json
import math
import pathlib
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from dpsparfl_jax import storage

from ..tables import markdown
from .generator import FALSE_ALARM, Statistic
from .one_run import Guess
from .sensitivity import TOLERANCE, Finding
from .white_box import Audit


@dataclasses.dataclass
class Results:
    """All that was found; parts that were not asked for stay empty."""

    delta: float
    one_run_delta: float
    significance: float
    white_box: list[Audit] = dataclasses.field(default_factory=list)
    sensitivity: list[Finding] = dataclasses.field(default_factory=list)
    generator: dict[str, list[Statistic]] = dataclasses.field(default_factory=dict)
    one_run: list[Guess] = dataclasses.field(default_factory=list)

    def faults(self) -> list[str]:
        """A sentence for everything that a good mechanism would not do."""
        sentences = [
            f"{each.name}: epsilon is at least {each.bounds.clopper_pearson:.3f}, but "
            f"{min(each.claims.values()):.3f} is claimed."
            for each in self.white_box
            if each.is_broken
        ]
        sentences += [
            f"{_place(each)}: a record ({each.family}) moves a sum by "
            f"{_number(each.worst)} times the bound."
            for each in self.sensitivity
            if each.is_broken
        ]
        sentences += [
            f"{name}: {each.name} is {each.found:.4g} instead of {each.expected} "
            f"(p = {each.p_value:.1e})."
            for name, tests in self.generator.items()
            for each in tests
            if each.is_broken
        ]
        return sentences + [
            f"{each.who}: epsilon is at least {each.one_run:.3f}, but "
            f"{min(each.claims.values()):.3f} is claimed."
            for each in self.one_run
            if each.is_broken
        ]


def _place(each: Finding) -> str:
    setting = each.setting
    return f"{setting.model}, {setting.method}, batch {setting.batch_size:g}"


def _number(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "thousands of"


def _plain(value: Any) -> Any:
    """Dataclasses as dicts; numbers that JSON does not have as words."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain(dataclasses.asdict(value))
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else str(value)
    return value


def white_box_table(audits: Sequence[Audit]) -> str:
    """Lower bounds beside claims, a row a setting."""
    rows = []
    for each in audits:
        setting, pld = each.setting, each.claims["pld"]
        proved, fitted = each.bounds.clopper_pearson, each.bounds.gaussian_fit
        rows.append(
            [
                each.name,
                f"{setting.noise_multiplier:g}",
                f"{setting.sampling_rate:g}",
                f"{setting.rounds} x {setting.steps}",
                f"{setting.keep_rate:g}",
                f"{each.claims['rdp']:.2f}",
                f"{pld:.2f}",
                f"{proved:.2f} ({proved / pld:.0%})",
                f"{fitted:.2f} ({fitted / pld:.0%})",
            ]
        )
    heads = "setting|noise|q|rounds x steps|keep|RDP|PLD|Clopper-Pearson|fit"
    return markdown(heads.split("|"), rows)


def sensitivity_table(findings: Sequence[Finding]) -> str:
    """The worst difference over the bound: a row a family, a column a program."""
    places = sorted({(f.setting.model, f.setting.method) for f in findings})
    worst: dict[tuple[str, str, str], float] = {}
    for each in findings:
        key = (each.family, each.setting.model, each.setting.method)
        worst[key] = max(worst.get(key, 0.0), each.worst)
    rows = [
        [family, *(_number_of_bounds(worst[family, *place]) for place in places)]
        for family in dict.fromkeys(each.family for each in findings)
    ]
    return markdown(["records", *(f"{m}, {method}" for m, method in places)], rows)


def _number_of_bounds(value: float) -> str:
    if value <= 1 + TOLERANCE:
        return f"{min(value, 1.0):.4f}"
    return f"**{value:.4g}**" if math.isfinite(value) else "**thousands**"


def generator_table(checked: dict[str, list[Statistic]]) -> str:
    """Every statistic with its p-value, a column a generator."""
    names = [each.name for each in next(iter(checked.values()))]
    rows = []
    for number, name in enumerate(names):
        row = [name, next(iter(checked.values()))[number].expected]
        for tests in checked.values():
            one = tests[number]
            text = f"{one.found:.4g} (p {one.p_value:.2g})"
            row.append(f"**{text}**" if one.is_broken else text)
        rows.append(row)
    return markdown(["statistic", "expected", *checked], rows)


def one_run_table(guesses: Sequence[Guess]) -> str:
    """Bounds of clients and of all together."""
    heads = "whose canaries|canaries|participations|RDP|PLD|one run|one run, f-DP|AUROC"
    rows = [
        [
            each.who,
            str(each.canaries),
            str(each.participations),
            f"{each.claims['rdp']:.2f}",
            f"{each.claims['pld']:.2f}",
            f"{each.one_run:.2f}",
            f"{each.one_run_fdp:.2f}",
            f"{each.auroc:.3f}",
        ]
        for each in guesses
    ]
    return markdown(heads.split("|"), rows)


def picture(results: Results) -> Figure:
    """Lower bounds as bars, claims as marks; settings from top to bottom."""
    rows = [
        (
            each.name,
            each.bounds.clopper_pearson,
            each.bounds.gaussian_fit,
            each.claims,
        )
        for each in results.white_box
    ] + [
        (f"one run: {each.who}", each.one_run, each.one_run_fdp, each.claims)
        for each in results.one_run[-1:]
    ]
    figure = Figure(figsize=(8, 1.3 + 0.45 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    for place, (_, proved, fitted, claims) in enumerate(rows):
        first = place == 0
        axes.barh(
            *(place - 0.18, proved, 0.34),
            color="tab:blue",
            label="proved" if first else None,
        )
        axes.barh(
            *(place + 0.18, fitted, 0.34),
            color="tab:cyan",
            label="proved if Gaussian" if first else None,
        )
        for name, mark in (("pld", "|"), ("rdp", "x")):
            axes.plot(
                *(claims[name], place),
                marker=mark,
                color="black",
                markersize=14 if mark == "|" else 6,
                linestyle="",
                label=f"claimed ({name.upper()})" if first else None,
            )
    axes.set_yticks(range(len(rows)), [row[0] for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel("epsilon")
    axes.set_xlim(left=0)
    axes.legend(fontsize="small")
    return figure


def page(results: Results) -> str:
    """All tables as one Markdown page."""
    faults = results.faults()
    parts = ["# Privacy audit", "", *(faults or ["No fault was found."])]
    if results.white_box:
        parts += [
            "",
            "## White-box audit",
            "",
            f"Delta {results.delta:g}, {results.white_box[0].trials} runs with the "
            "canary and as many without. All Clopper-Pearson bounds hold together with "
            f"{1 - results.significance:.0%} confidence.",
            "",
            white_box_table(results.white_box),
        ]
    if results.white_box or results.one_run:
        parts += ["", "![lower bounds beside claims](audit.png)"]
    if results.sensitivity:
        parts += [
            "",
            "## Sensitivity check",
            "",
            f"{results.sensitivity[0].canaries} canaries of every kind in each of two "
            "settings: the largest difference that one makes, over the bound.",
            "",
            sensitivity_table(results.sensitivity),
        ]
    if results.one_run:
        parts += [
            "",
            "## One-run audit",
            "",
            f"Delta {results.one_run_delta:g}; all bounds hold together with "
            f"{1 - results.significance:.0%} confidence.",
            "",
            one_run_table(results.one_run),
        ]
    if results.generator:
        parts += [
            "",
            "## Generator check",
            "",
            f"A good generator fails with a probability below {FALSE_ALARM:g}.",
            "",
            generator_table(results.generator),
        ]
    return "\n".join(parts) + "\n"


def write(results: Results, folder: pathlib.Path) -> pathlib.Path:
    """Writes audit.md, audit.json and, with bounds to show, audit.png."""
    numbers = {**_plain(results), "faults": results.faults()}
    storage.write_whole(folder / "audit.json", json.dumps(numbers, indent=1) + "\n")
    if results.white_box or results.one_run:
        path = folder / "audit.png"
        with storage.writing(path):
            picture(results).savefig(path, dpi=130)
    storage.write_whole(folder / "audit.md", page(results))
    return folder / "audit.md"
