"""How pictures look: panel letters, Greek letters, dashes, markers, legends and files.

`paper.mplstyle` has fonts and lines. All figures of plans, of budgets and of the study
are drawn with it, so that they can stand side by side.
"""

import io
import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter
from PIL import Image, PngImagePlugin

from dpsparfl_jax.report import palette
from dpsparfl_jax.storage import replacing, writing

STYLE = pathlib.Path(__file__).with_name("paper.mplstyle")
_LEGEND_KEY_IN, _LETTER_IN = 0.6, 0.055  # what an entry of a legend needs
HANDLE_LETTERS = 4.0  # that a sample in a legend is long
_PALE = 0.35  # opacity between dashes
_MARKS = 8  # on a curve of many points
_MILLION = 1e6
_PNG_COLOURS = 256  # curves and their edges need no more, and files are a third
_SYMBOLS = {
    "beta": "\N{GREEK SMALL LETTER BETA}",
    "delta": "\N{GREEK SMALL LETTER DELTA}",
    "epsilon": "\N{GREEK SMALL LETTER EPSILON}",
    "lambda": "\N{GREEK SMALL LETTER LAMDA}",
    "sigma": "\N{GREEK SMALL LETTER SIGMA}",
}
# A dict for `rc_context`: matplotlib has a type of its own for names.
LOOKS: Any = dict(mpl.rc_params_from_file(STYLE, use_default_template=False))


def symbols(text: str) -> str:
    """Words with Greek letters in the place of their names."""
    names = "|".join(_SYMBOLS)
    return re.sub(
        rf"\b({names})\b", lambda found: _SYMBOLS[found[1].lower()], text, flags=re.I
    )


def letter(number: int, panels: int) -> str:
    """What tells a panel from its neighbours: "(a)"; nothing if it has none."""
    return f"({chr(ord('a') + number)})" if panels > 1 else ""


def name_panels(panels: Sequence[Axes], titles: Sequence[str] = ()) -> None:
    """Writes letters, and titles where there are some, at the left over panels."""
    for number, axes in enumerate(panels):
        title = symbols(titles[number]) if titles else ""
        axes.set_title(f"{letter(number, len(panels))} {title}".strip(), loc="left")


def look(number: int) -> dict[str, Any]:
    """Colour, dashes and marker of a curve, all unlike those of its neighbours."""
    return _style(palette.look(number))


def _style(one: palette.Look) -> dict[str, Any]:
    return {**stroke(one.colour, one.dashes), "marker": one.marker[1]}


def looks(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Those of curves with these names; built-in policies have their own.

    What follows a slash (the solver of a policy) does not count.

    Examples:
        >>> looks(["mine", "dp_sparfl"])["dp_sparfl"] == look(0)
        True
    """
    told = list(names)
    found = palette.looks([name.partition("/")[0] for name in told])
    return {name: _style(one) for name, one in zip(told, found, strict=True)}


def stroke(colour: str, dashes: Sequence[float]) -> dict[str, Any]:
    """A line; gaps between dashes are pale, so that jumps do not break it."""
    if not dashes:
        return {"color": colour, "ls": "-"}
    return {"color": colour, "ls": (0, dashes), "gapcolor": to_rgba(colour, _PALE)}


def key(style: dict[str, Any], font_size: Any = None) -> Line2D:
    """A legend's sample of a curve, whose dashes are not cut off at its end.

    Args:
        style: how the curve looks.
        font_size: that of the legend; None is that of the style sheet.
    """
    sample = Line2D([], [], **style)
    if isinstance(style.get("ls"), tuple):
        letters = FontProperties(size=font_size or mpl.rcParams["legend.fontsize"])
        points = HANDLE_LETTERS * letters.get_size_in_points()
        dashes = palette.fitted(style["ls"][1], points / sample.get_linewidth())
        sample.set_linestyle((0, dashes))
    return sample


def spread_marks(line: Line2D, number: int) -> None:
    """Some eight markers on a curve, at other places than those of its neighbours."""
    step = max(1, np.size(line.get_xdata(orig=True)) // _MARKS)
    line.set_markevery((number % step, step))


def legend_columns(names: Sequence[str], width_in: float, most: int = 4) -> int:
    """How many entries of a legend stand side by side in a picture so wide."""
    room = _LEGEND_KEY_IN + _LETTER_IN * max(map(len, names), default=0)
    return max(1, min(len(names), int(width_in // room), most))


def legend_below(figure: Figure, keys: dict[str, Line2D]) -> None:
    """One legend for all panels, below them, where it hides no data."""
    columns = legend_columns(list(keys), figure.get_figwidth())
    names = [symbols(name) for name in keys]
    figure.legend(
        *(list(keys.values()), names),
        loc="outside lower center",
        ncols=columns,
        handlelength=HANDLE_LETTERS,
    )


def in_percent(axis: Axis) -> None:
    """Shares as percentages, with the digits that they need and no more."""
    axis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.6g}%"))


def in_millions(axis: Axis) -> None:
    """Very large numbers as millions, said in the label, not in a corner."""
    if max(map(abs, axis.get_view_interval())) >= _MILLION:
        axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x / _MILLION:g}"))
        axis.set_label_text(f"{axis.get_label_text()} (millions)")


def save(figure: Figure, file: str | pathlib.Path, dpi: int = 300) -> None:
    """Writes a picture as PNG, PDF or SVG, as the file's name says."""
    with mpl.rc_context(LOOKS | {"savefig.dpi": dpi}):
        write(figure, pathlib.Path(file))


def write(figure: Figure, path: pathlib.Path, origin: str = "") -> None:
    """Writes a picture with the style that is set, whole or not at all.

    Args:
        figure: what is drawn.
        path: its ending says the format.
        origin: what it shows or was drawn from, which PNG and PDF files carry.
    """
    ending = path.suffix.lower()
    facts: dict[str, Any] = {"CreationDate": None} if ending == ".pdf" else {}
    if ending == ".pdf" and origin:
        facts["Subject"] = origin
    with writing(path), replacing(path) as part:
        if ending == ".png":
            part.write_bytes(_png(figure, origin))
        else:
            figure.savefig(part, format=ending[1:], metadata=facts)


def _png(figure: Figure, origin: str) -> bytes:
    """A small file: few colours, so that 300 dpi can be afforded."""
    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png")
    facts = PngImagePlugin.PngInfo()
    if origin:
        facts.add_text("Description", origin)
    with Image.open(drawn) as picture:
        few = _few_colours(picture)
        few.save(small, "png", optimize=True, pnginfo=facts, dpi=picture.info["dpi"])
    return small.getvalue()


def _few_colours(picture: Image.Image) -> Image.Image:
    """The commonest colours as they are, those of lines and bands; others nearly so."""
    pixels = np.asarray(picture.convert("RGB"))
    codes = pixels.astype(np.int64) @ np.array([1 << 16, 1 << 8, 1], np.int64)
    found, where, counts = np.unique(codes, return_inverse=True, return_counts=True)
    colours = np.stack([found >> 16, found >> 8 & 255, found & 255], axis=1)
    kept = colours[np.argsort(-counts, kind="stable")[:_PNG_COLOURS]]
    apart = [np.abs(kept - colour).sum(axis=1).argmin() for colour in colours]
    numbers = np.array(apart, np.uint8)[where].reshape(codes.shape)
    few = Image.fromarray(numbers)
    few.putpalette(kept.astype(np.uint8).tobytes())
    return few
