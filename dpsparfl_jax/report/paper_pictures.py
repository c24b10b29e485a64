"""Pictures for papers: main charts as PDF and PNG, in the width of a column.

`paper.mplstyle` says how they look; a file of the user's own is read after it. There
are no titles: `captions.txt` has words for each picture.
"""

import contextlib
import math
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.records import IndexedRun, RecordedRun, groups
from dpsparfl_jax.report import (
    chart_pictures,
    charts,
    group_charts,
    heat_maps,
    palette,
    plan_pictures,
)
from dpsparfl_jax.report.charts import Chart, Shown, note_of
from dpsparfl_jax.report.picture_style import (
    HANDLE_LETTERS,
    STYLE,
    legend_columns,
    letter,
    name_panels,
    spread_marks,
    symbols,
    write,
)
from dpsparfl_jax.report.seeds import policy_of
from dpsparfl_jax.storage import write_whole, writing

FOLDER = "paper"
MOST_DRAWN = 8  # settings that a picture of a column can tell apart
_GAP_IN = 0.2  # between two columns of a page
_LEGEND_LINE_IN = 0.15
_WIDE_MAP = 7  # columns of a heat map that fit into one of a page


class Style(NamedTuple):
    """What pictures look like: matplotlib's parameters, and whose they are."""

    values: Any  # a dict: matplotlib has a type of its own for names
    file: pathlib.Path | None  # the user's own


def read_style(file: pathlib.Path | None = None) -> Style:
    """The package's style, and on top of it that of a file; refuses a bad one."""
    values = _parse(STYLE)
    return Style(values | _parse(file) if file else values, file)


def _parse(file: pathlib.Path) -> Any:
    try:
        with open(file, encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                name, colon, _ = line.partition("#")[0].partition(":")
                if name.strip() and (not colon or name.strip() not in mpl.rcParams):
                    raise ValueError(f"line {number}: {line.strip()[:40]!r}")
        found = mpl.rc_params_from_file(file, True, use_default_template=False)
    except (OSError, ValueError, KeyError) as reason:
        words = getattr(reason, "strerror", None) or str(reason).partition("\n")[0]
        raise InputError(
            f"{file} is no style file of matplotlib ({words}): write lines as in "
            "font.size: 8."
        ) from None
    return {key: found[key] for key in found if key != "backend"}


@contextlib.contextmanager
def _applied(style: Style) -> Iterator[None]:
    """Draws with a style; refuses one that nothing can be drawn with."""
    try:
        with mpl.rc_context(style.values):
            yield
    except InputError:
        raise
    except (RuntimeError, TypeError, ValueError) as reason:
        if style.file is None:
            raise
        words = str(reason).partition("\n")[0]
        raise InputError(
            f"nothing can be drawn with the style file {style.file} ({words}): "
            "correct it."
        ) from None


def write_pictures(
    runs: Sequence[IndexedRun],
    whole: Sequence[RecordedRun],
    folder: pathlib.Path,
    style: Style,
    band: str = "range",
) -> pathlib.Path:
    """Writes all pictures and their captions to a folder below this one.

    Args:
        runs: what is drawn.
        whole: the same runs with all rounds; empty if these are too many.
        folder: that of the report.
        style: as `read_style` gives it.
        band: what is drawn around means over seeds, one of `groups.BANDS`.

    Returns:
        The folder of the pictures. They show settings, with bands over seeds, if some
        runs differ in their seed alone or `whole` is empty, and single runs otherwise.
    """
    target = folder / FOLDER
    with writing(target):
        target.mkdir(parents=True, exist_ok=True)
    told = [run for run in runs if run.done] or list(runs)
    made = groups.group_runs(told)
    with _applied(style):
        if whole and len(made) == len(told):
            captions = _of_runs(whole, target)
        else:
            captions = _of_groups(made, target, band)
    text = "".join(f"{name}: {words}\n" for name, words in captions.items())
    write_whole(target / "captions.txt", text)
    return target


def _of_runs(whole: Sequence[RecordedRun], folder: pathlib.Path) -> dict[str, str]:
    looks = palette.looks([policy_of(run) for run in whole])
    shown = [
        charts.show(number, run, look)
        for number, (run, look) in enumerate(zip(whole, looks, strict=True))
    ]
    captions = _line_charts(shown, chart_pictures.FIGURES, charts.CHARTS, folder)
    for one in shown:
        counts = one.clients.filter(regex=r"^label_\d+$")
        if counts.size:
            figure = plan_pictures.label_figure(counts.to_numpy())
            width, _ = _size()
            figure.set_size_inches(width, min(1.2 + 0.09 * len(counts), 8))
            captions["labels"] = f"Training images by client and class ({one.name})."
            _save(figure, folder / "labels", captions["labels"])
            break
    return captions


def _of_groups(
    made: Sequence[groups.Group], folder: pathlib.Path, band: str
) -> dict[str, str]:
    ranked = group_charts.rank(made)
    chosen = [ranked[n] for n in group_charts.choose(len(ranked), MOST_DRAWN)]
    drawn = [group for group in made if any(group is one for one in chosen)]
    shown = group_charts.show(drawn, range(len(drawn)), band)
    more = f" {_seeds_words(drawn, band)}"
    if len(drawn) < len(made):
        more += f" {len(drawn)} of {len(made):,} settings."
    table = group_charts.CHARTS
    captions = _line_charts(shown, group_charts.FIGURES, table, folder, more)
    for name, one in heat_maps.heat_maps(ranked).items():
        if not one.y_label:  # over one setting alone
            continue
        captions[name] = f"{one.title}. {one.note}"
        _save(_heat_figure(one), folder / name, captions[name])
    return captions


def _seeds_words(drawn: Sequence[groups.Group], band: str) -> str:
    """Of how many seeds curves are the means, and what their bands are."""
    counts = sorted({len(group.runs) for group in drawn})
    if counts == [1]:
        return "One seed."
    of = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    bands = f"; bands: {groups.BANDS[band]}" if len(drawn) <= charts.FEW else ""
    return f"Means over {of} seeds{bands}."


def _line_charts(
    shown: Sequence[Shown],
    figures: Mapping[str, Sequence[str]],
    table: Mapping[str, Chart],
    folder: pathlib.Path,
    more: str = "",
) -> dict[str, str]:
    """Those charts that have something to show; gives their captions, and `more`."""
    captions = {}
    for name, keys in figures.items():
        if any(table[key].curves(shown) for key in keys):
            dots = table is charts.CHARTS and name in chart_pictures.DOTTED
            letters = [letter(number, len(keys)) for number in range(len(keys))]
            panels = " ".join(
                f"{which} {table[key].title}. {note_of(table[key], shown)}".strip()
                for which, key in zip(letters, keys, strict=True)
            )
            captions[name] = f"{panels}{more}"
            figure = _figure(shown, [table[key] for key in keys], dots)
            _save(figure, folder / name, captions[name])
    return captions


def _size() -> tuple[float, float]:
    width, height = mpl.rcParams["figure.figsize"]
    return float(width), float(height)


def _figure(shown: Sequence[Shown], panels: Sequence[Chart], dots: bool) -> Figure:
    """Charts side by side, with one legend below them."""
    column, height = _size()
    width = len(panels) * column + (len(panels) - 1) * _GAP_IN
    names = [chart_pictures.short(one.name, 44) for one in shown]
    across = legend_columns(names, width)
    height += _LEGEND_LINE_IN * (math.ceil(len(names) / across) - 1)
    figure = Figure(figsize=(width, height), layout="constrained")
    row = figure.subplots(1, len(panels), squeeze=False)[0]
    name_panels(row)
    for axes, chart in zip(row, panels, strict=True):
        axes.set(xlabel=symbols(chart.x_label), ylabel=symbols(chart.y_label))
        for curve in chart.curves(shown):
            if curve.kind == "band" and len(shown) > charts.FEW:
                continue
            chart_pictures.draw(axes, curve, mpl.rcParams["lines.linewidth"])
            if curve.kind == "line" and curve.look:
                axes.lines[-1].set_marker(curve.look.marker[1])
                axes.lines[-1].set_markersize(mpl.rcParams["lines.markersize"])
                spread_marks(axes.lines[-1], curve.look.number)
        chart_pictures.finish_axes(axes, chart)
    handles = [chart_pictures.legend_key(one, dots) for one in shown]
    long = {"handlelength": HANDLE_LETTERS}
    figure.legend(handles, names, loc="outside lower center", ncols=across, **long)
    return figure


def _heat_figure(one: heat_maps.HeatMap) -> Figure:
    figure = heat_maps.heat_figure(one)
    column, _ = _size()
    wide = len(one.x_values) > _WIDE_MAP
    height = min(1.1 + 0.2 * len(one.y_values), 8)
    figure.set_size_inches(2 * column + _GAP_IN if wide else column, height)
    axes, bar = figure.axes
    axes.set_title("")
    axes.grid(False)
    bar.set_ylabel(symbols(bar.get_ylabel()))
    for text in axes.texts:
        text.set_fontsize(mpl.rcParams["xtick.labelsize"])
    return figure


def _save(figure: Figure, stem: pathlib.Path, caption: str) -> None:
    """Writes a picture as PDF and PNG, which carry their caption."""
    for ending in (".pdf", ".png"):
        write(figure, stem.with_name(f"{stem.name}{ending}"), caption)
