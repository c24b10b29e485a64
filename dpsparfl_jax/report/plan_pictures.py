"""Figures, as functions of numbers; they open no window and keep no state.

How they look is in `picture_style`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from dpsparfl_jax.planning.schedule import Schedule
from dpsparfl_jax.planning.theory import QueueBounds
from dpsparfl_jax.privacy.advise import Spending
from dpsparfl_jax.report import picture_style
from dpsparfl_jax.report.palette import COLOURS, GUIDE
from dpsparfl_jax.report.picture_style import LOOKS, symbols
from dpsparfl_jax.units import ratio_to_db
from dpsparfl_jax.wireless.world import World

_ALONE = (4.6, 3.2)  # inches, of a figure with one panel
_FOUR = (7.0, 5.0)  # and with two rows of two
_GUIDE: Any = {"color": GUIDE, "ls": ":", "lw": 0.8}


@rc_context(LOOKS)
def epsilon_figure(
    curves: Mapping[str, NDArray[np.float64]],
    budgets: Sequence[float],
    delta: float,
    title: str,
) -> Figure:
    """Epsilon over participations, a line an accountant, a dotted line a budget."""
    figure = Figure(figsize=_ALONE, layout="constrained")
    axes = figure.add_subplot(xlabel="participations", title=title)
    axes.set_ylabel(symbols(f"epsilon at delta = {delta:g}"))
    top = max(budgets) * 1.15
    longest = 1
    keys = {}
    for number, (name, curve) in enumerate(curves.items()):
        shown = curve[: int(np.searchsorted(curve, top, side="right")) + 1]
        longest = max(longest, len(shown) - 1)
        across, look = np.arange(len(shown)), picture_style.look(number)
        _line(axes, number, across, shown, look)
        keys[name.upper()] = picture_style.key(look)
    for budget in budgets:
        keys["budget"] = axes.axhline(budget, **_GUIDE)
    axes.set_xlim(0, longest)
    axes.set_ylim(0, top)
    picture_style.in_millions(axes.xaxis)
    picture_style.legend_below(figure, keys)
    return figure


def _line(axes: Axes, number: int, x: Any, y: Any, look: dict[str, Any]) -> None:
    """A curve that differs from its neighbours in more than its colour."""
    (line,) = axes.plot(x, y, **look)
    picture_style.spread_marks(line, number)


@rc_context(LOOKS)
def frontier_figure(
    frontier: Sequence[Spending],
    best: Spending | None,
    present: Spending,
    most_examples: float,
    title: str,
) -> Figure:
    """Signal over examples: the frontier, the best within the limit, what is set now.

    Every point says its noise multiplier; a dotted line is the limit, if there is one.
    """
    figure = Figure(figsize=_ALONE, layout="constrained")
    axes = figure.add_subplot(xscale="log", ylabel="signal", title=symbols(title))
    axes.set_xlabel("examples that all clients train on")
    examples = [row.examples for row in frontier]
    look = picture_style.look(0)
    _line(axes, 0, examples, [row.signal for row in frontier], look)
    keys = {"frontier": picture_style.key(look)}
    for number, row in enumerate(frontier):
        axes.annotate(
            f"{row.setting.noise_multiplier:g}",
            (row.examples, row.signal),
            xytext=(0, 5 if number % 2 else -11),  # neighbours may be close
            textcoords="offset points",
            fontsize="small",
            ha="center",
        )
    if best is not None:
        name = "best within the limit" if np.isfinite(most_examples) else "best"
        (keys[name],) = axes.plot(
            best.examples, best.signal, "*", ms=11, color=COLOURS[1]
        )
    if present.signal > 0:  # a logarithm has no place for nobody taking part
        (keys["present settings"],) = axes.plot(
            present.examples, present.signal, "X", ms=7, color=COLOURS[2]
        )
    if np.isfinite(most_examples):
        keys["limit"] = axes.axvline(most_examples, **_GUIDE)
    axes.set_ylim(bottom=0)
    picture_style.legend_below(figure, keys)
    return figure


@rc_context(LOOKS)
def schedule_figure(schedules: Mapping[str, Schedule], delay_target_s: float) -> Figure:
    """Delay, kept fraction, queue and participation of schedules, side by side."""
    figure = Figure(figsize=_FOUR, layout="constrained")
    delay, keep, channels, shares = panels = list(figure.subplots(2, 2).flat)
    keys, looks = {}, picture_style.looks(schedules)
    for number, (name, schedule) in enumerate(schedules.items()):
        look = looks[name]
        rounds = np.arange(1, schedule.num_rounds + 1)
        used = schedule.sends.sum(axis=1)
        kept = schedule.keep_rate.sum(axis=1) / np.maximum(used, 1)
        mean_delay = np.cumsum(schedule.round_delay_s) / rounds
        keys[name] = picture_style.key(look)
        _line(delay, number, rounds, mean_delay, look)
        _line(keep, number, rounds, np.cumsum(kept) / rounds, look)
        _line(channels, number, rounds, np.cumsum(used) / rounds, look)
        share = schedule.participations / max(schedule.num_rounds, 1)
        shares.plot(schedule.rate, share, **look | {"ls": ""})
    keys["as asked"] = delay.axhline(delay_target_s, **_GUIDE)
    delay.set(xlabel="round", ylabel="mean delay so far (s)")
    keep.set(xlabel="round", ylabel="mean keep rate so far", ylim=(0, 1.05))
    channels.set(xlabel="round", ylabel="mean channels in use so far")
    top = max([float(np.max(one.rate, initial=0.1)) for one in schedules.values()])
    shares.plot([0, top], [0, top], **_GUIDE)
    shares.set(xlabel=symbols("participation rate beta"), ylabel="share of rounds")
    picture_style.name_panels(panels)
    picture_style.legend_below(figure, keys)
    return figure


@rc_context(LOOKS)
def queue_figure(bounds: Mapping[str, QueueBounds]) -> Figure:
    """Queues, fairness and delay of schedules beside what Theorem 3 allows (dotted)."""
    figure = Figure(figsize=_FOUR, layout="constrained")
    drift, norm, fairness, delay = panels = list(figure.subplots(2, 2).flat)
    keys, looks = {}, picture_style.looks(bounds)
    for number, (name, one) in enumerate(bounds.items()):
        look = looks[name]
        rounds = np.arange(1, len(one.norm) + 1)
        keys[name] = picture_style.key(look)
        _line(norm, number, rounds, one.norm, look)
        colour = look["color"]
        bound: Any = _GUIDE | {"color": colour}
        norm.plot(rounds, one.norm_bound, **bound)
        drift.plot(one.drift_bound, one.drift, ".", color=colour)
        _line(fairness, number, rounds[1:], one.fairness_gap[1:], look)
        fairness.plot(rounds[1:], one.fairness_bound[1:], **bound)
        _line(delay, number, rounds[1:], one.delay_excess_s[1:], look)
        delay.plot(rounds[1:], one.delay_bound_s[1:], **bound)
    drift.axline((0, 0), slope=1, **_GUIDE)
    keys["bound"] = Line2D([], [], **_GUIDE)
    drift.set(xlabel="bound of a round's drift", ylabel="drift")
    norm.set(xlabel="round", ylabel="norm of all queues", yscale="log")
    gap = symbols("largest |share - beta| so far")
    fairness.set(xlabel="round", ylabel=gap, yscale="log")
    delay.set(xlabel="round", ylabel="mean delay above the target (s)")
    delay.set_yscale("symlog", linthresh=1.0)
    picture_style.name_panels(panels)
    picture_style.legend_below(figure, keys)
    return figure


@rc_context(LOOKS)
def world_figure(world: World) -> Figure:
    """Where clients and channels are, and how well they hear each other."""
    figure = Figure(figsize=(7.0, 3.2), layout="constrained")
    place, gains = panels = list(figure.subplots(1, 2))
    for colour, (name, marker, points) in zip(
        COLOURS,
        (
            ("clients", "o", world.clients_m.T),
            ("channels", "^", world.channels_m.T),
            ("access point", "s", world.centre_m),
        ),
        strict=False,
    ):
        place.plot(*points, marker, label=name, color=colour)
    for number, (x, y) in enumerate(world.clients_m):
        beside: Any = {"xytext": (3, 3), "textcoords": "offset points"}
        place.annotate(str(number), (x, y), fontsize="small", **beside)
    place.set(xlabel="x (m)", ylabel="y (m)", aspect="equal")
    picture = gains.imshow(ratio_to_db(world.uplink_gain), aspect="auto")
    gains.set(xlabel="channel", ylabel="client")
    gains.grid(False)
    for axis in (gains.xaxis, gains.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    figure.colorbar(picture, ax=gains, label="mean gain (dB)")
    picture_style.name_panels(panels)
    picture_style.legend_below(
        figure, dict(zip(*reversed(place.get_legend_handles_labels()), strict=True))
    )
    return figure


def label_figure(counts: NDArray[np.int64]) -> Figure:
    """How many images of each class each client owns, from counts [U, classes].

    One bar a client, with a colour for each class.
    """
    clients, classes = counts.shape
    height = min(2.0 + 0.16 * clients, 14.0)
    figure = Figure(figsize=(7, height), layout="constrained")
    axes = figure.add_subplot(
        xlabel="images", ylabel="client", ylim=(clients - 0.5, -0.5)
    )
    colours = colormaps["viridis"]
    ends = np.cumsum(counts, axis=1)
    for label in range(classes):
        shade = label / max(classes - 1, 1)
        axes.barh(
            np.arange(clients),
            counts[:, label],
            left=ends[:, label] - counts[:, label],
            height=0.85,
            color=colours(shade),
            label=str(label),
        )
    axes.set_xlim(0, max(int(ends[:, -1].max()), 1))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=20, integer=True))
    if classes <= 20:
        figure.legend(title="class", loc="outside right upper", frameon=False)
    return figure
