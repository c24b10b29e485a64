r"""How do time and memory of a round grow?

    python -m benchmarks.scaling --json results.json --picture scaling.png [--quick]

measures rounds of the engine against the batch size, local steps, clients of a round,
parameters (the dense layer of the MNIST network gets wider), devices, and runs in one
batch (of a small network); everything else stays as it is. For every quantity the
growth exponent is fitted over the upper half of the points: 1 is proportional. What
grows faster is named at the end.

seconds          fastest of the timed rounds, which points take by turns: a machine's
                 slow moments must not look like growth
examples_per_s   expected examples of a round over this time
megabytes        what XLA plans on one device: arguments, results, and what is between
peak_rss_mb      most that the process ever held, compilation and smaller points too

With `--quick` a few points of small programs (batches padded to one size) take a minute
or two.
"""

import json
import pathlib
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from absl import flags
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator
from tqdm import tqdm

from benchmarks import growth, timing
from dpsparfl_jax.errors import InputError
from experiments import cli

_JSON = flags.DEFINE_string("json", "", "write the results to this file")
_PICTURE = flags.DEFINE_string("picture", "", "draw time and memory into this file")
_QUICK = flags.DEFINE_bool("quick", False, "few points of small programs")
_ONLY = flags.DEFINE_multi_string("only", None, "only these quantities")
_REPEATS = flags.DEFINE_integer("repeats", 5, "timed rounds of a point", 1)

ROOT = pathlib.Path(__file__).parent.parent
AXES = {
    "batch": "examples of a batch, b",
    "steps": "local steps, tau",
    "clients": "clients of a round",
    "parameters": "parameters",
    "devices": "devices",
    "runs": "runs in a batch",
}
LABELS = {"seconds": "seconds of a round", "megabytes": "megabytes planned"}


class Sweep(NamedTuple):
    """The points of a quantity, and the flags of `scaling_points` that stay."""

    values: tuple[int, ...]
    fixed: tuple[str, ...] = ()


FULL = {
    "batch": Sweep((2, 4, 8, 16, 32, 64, 128, 256)),
    "steps": Sweep((1, 2, 5, 10, 20, 40, 60)),
    "clients": Sweep((1, 2, 4, 8, 16, 32)),
    "parameters": Sweep((16, 64, 256, 512, 1024, 2560, 6400)),  # 0.1 to 20 million
    "devices": Sweep((1, 2), ("--clients=4", "--steps=20")),
    "runs": Sweep((1, 2, 4, 8, 16, 32, 64), ("--model=small_cnn",)),
}
_SMALL = ("--model=logistic", "--padded_sizes=1")  # quickly compiled
QUICK = {
    "batch": Sweep((16, 64, 256), ("--model=small_cnn", "--padded_sizes=1")),
    "steps": Sweep((10, 60), _SMALL),
    "clients": Sweep((4, 32), _SMALL),
    "parameters": Sweep((512, 2048), ("--padded_sizes=1", "--steps=2", "--clients=1")),
    "devices": Sweep((1, 2), (*_SMALL, "--clients=8", "--steps=20")),
    "runs": Sweep((8, 64), _SMALL),
}


def measure(name: str, sweep: Sweep, repeats: int) -> Iterator[dict[str, Any]]:
    """Rows of a quantity, from processes of their own: one for each device count."""
    alone = name == "devices"
    groups = [(value,) for value in sweep.values] if alone else [sweep.values]
    for values in groups:
        command = (
            *(sys.executable, "-m", "benchmarks.scaling_points"),
            *(f"--quantity={name}", f"--values={','.join(map(str, values))}"),
            *(f"--repeats={repeats}", *sweep.fixed),
        )
        with subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            yield from map(json.loads, process.stdout)
        if process.returncode:
            raise InputError(f"{name} could not be measured: its message is above.")


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows and exponents for a terminal."""
    columns = ("value", "seconds", "examples_per_s", "megabytes", "peak_rss_mb")
    lines = [f"{'quantity':<12}" + "".join(f"{name:>16}" for name in columns)]
    lines += [
        f"{row['quantity']:<12}" + "".join(f"{row[name]:>16,.6g}" for name in columns)
        for row in rows
    ]
    lines += ["", f"{'exponents':<12}" + "".join(f"{c:>16}" for c in growth.COSTS)]
    lines += [
        f"{name:<12}" + "".join(f"{powers[cost]:>16.2f}" for cost in growth.COSTS)
        for name, powers in growth.exponents(rows).items()
    ]
    found = growth.superlinear(rows) or ["nothing"]
    return "\n".join([*lines, "", f"faster than linear: {'; '.join(found)}."])


def picture(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """A column a quantity: time of a round above, planned memory below.

    Dotted is growth in proportion, through the last point.
    """
    names = list(dict.fromkeys(row["quantity"] for row in rows))
    powers = growth.exponents(rows)
    figure = Figure(figsize=(0.8 + 2.6 * len(names), 5.4), layout="constrained")
    axes = figure.subplots(2, len(names), squeeze=False)
    for column, name in enumerate(names):
        mine = [row for row in rows if row["quantity"] == name]
        values = [row["value"] for row in mine]
        for panel, cost in zip(axes[:, column], growth.COSTS, strict=True):
            _draw(panel, values, [row[cost] for row in mine])
            panel.set_xlabel(AXES[name])
            if name in powers:
                title = f"exponent {powers[name][cost]:.2f}"
                panel.set_title(title, fontsize="medium")
    for panel, cost in zip(axes[:, 0], growth.COSTS, strict=True):
        panel.set_ylabel(LABELS[cost])
    return figure


def _draw(panel: Any, values: Sequence[float], costs: Sequence[float]) -> None:
    """Points on axes whose numbers are written out, over at least a factor of ten."""
    panel.loglog(values, costs, "o-", ms=4)
    panel.set_ylim(min(*costs, max(costs) / 9) / 1.2, max(costs) * 1.4)
    limits = panel.get_ylim()
    ends = (values[0], values[-1])
    line = [costs[-1] * value / values[-1] for value in ends]
    panel.plot(ends, line, ":", color="0.6", lw=1, zorder=0)
    panel.set_ylim(limits)
    shown = values[:: -(1 + len(values) // 4)]
    panel.set_xticks(shown, [_short(value) for value in shown])
    panel.set_xticks([], minor=True)
    panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.yaxis.set_major_formatter("{x:g}")
    panel.yaxis.set_minor_formatter("")
    panel.grid(color="0.9")


def _short(value: float) -> str:
    return f"{value / 1e6:.2g}M" if value >= 1e5 else f"{value:g}"


def chosen() -> dict[str, Sweep]:
    """The sweeps that the flags ask for."""
    sweeps = QUICK if _QUICK.value else FULL
    unknown = set(_ONLY.value or ()) - set(sweeps)
    if unknown:
        raise InputError(f"--only is one of {', '.join(sweeps)}, not {min(unknown)}.")
    return {
        name: sweep
        for name, sweep in sweeps.items()
        if not _ONLY.value or name in _ONLY.value
    }


def main() -> None:
    """Measures, prints the table, and writes JSON and picture."""
    cli.check_output("json", _JSON.value)
    cli.check_output("picture", _PICTURE.value)
    if _PICTURE.value:
        cli.check_picture(_PICTURE.value)
    sweeps = chosen()
    rows: list[dict[str, Any]] = []
    total = sum(len(sweep.values) for sweep in sweeps.values())
    with tqdm(total=total, desc="points", disable=None) as bar:
        for name, sweep in sweeps.items():
            for row in measure(name, sweep, _REPEATS.value):
                rows.append(row)
                bar.update()
    results = {
        "machine": timing.machine(),  # last: a device may be lent to one process only
        "repeats": _REPEATS.value,
        "quick": _QUICK.value,
        "exponents": growth.exponents(rows),
        "superlinear": growth.superlinear(rows),
        "rows": rows,
    }
    print(table(rows))
    if _JSON.value:
        text = json.dumps(results, indent=1)
        pathlib.Path(_JSON.value).write_text(text + "\n")
    if _PICTURE.value:
        picture(rows).savefig(_PICTURE.value, dpi=150)


if __name__ == "__main__":
    cli.run(main)
