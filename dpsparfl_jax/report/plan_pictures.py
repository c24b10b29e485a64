"""Figures, as functions of numbers; they open no window and keep no state."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from dpsparfl_jax.planning.schedule import Schedule
from dpsparfl_jax.planning.theory import QueueBounds
from dpsparfl_jax.privacy.advise import Spending
from dpsparfl_jax.units import ratio_to_db
from dpsparfl_jax.wireless.world import World

TRUETYPE: Any = {"pdf.fonttype": 42, "ps.fonttype": 42}  # publishers refuse Type 3


def save(figure: Figure, path: str) -> None:
    """Writes a figure in the format that the file's name says."""
    with rc_context(TRUETYPE):
        figure.savefig(path, dpi=200)


def epsilon_figure(
    curves: Mapping[str, NDArray[np.float64]],
    budgets: Sequence[float],
    delta: float,
    title: str,
) -> Figure:
    """Epsilon over participations, a line an accountant, a dotted line a budget."""
    figure = Figure(figsize=(5.5, 3.8), layout="constrained")
    axes = figure.add_subplot(
        xlabel="participations", ylabel=f"epsilon at delta = {delta:g}"
    )
    axes.set_title(title, fontsize="medium")
    top = max(budgets) * 1.15
    longest = 1
    for name, curve in curves.items():
        shown = curve[: int(np.searchsorted(curve, top, side="right")) + 1]
        longest = max(longest, len(shown) - 1)
        marker = "o" if len(shown) < 15 else ""
        axes.plot(np.arange(len(shown)), shown, marker=marker, ms=3, label=name.upper())
    for budget in budgets:
        axes.axhline(budget, color="0.6", lw=0.8, ls=":")
    axes.set_xlim(0, longest)
    axes.set_ylim(0, top)
    axes.legend(frameon=False, loc="lower right")
    return figure


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
    figure = Figure(figsize=(6.5, 4.2), layout="constrained")
    axes = figure.add_subplot(
        xscale="log", xlabel="examples that all clients train on", ylabel="signal"
    )
    axes.set_title(title, fontsize="medium")
    examples = [row.examples for row in frontier]
    axes.plot(examples, [row.signal for row in frontier], "o-", ms=3, label="frontier")
    for row in frontier:
        axes.annotate(
            f"{row.setting.noise_multiplier:g}",
            (row.examples, row.signal),
            xytext=(0, -10),
            textcoords="offset points",
            fontsize="x-small",
        )
    if best is not None:
        name = "best within the limit" if np.isfinite(most_examples) else "best"
        axes.plot(best.examples, best.signal, "*", ms=13, label=name)
    if present.signal > 0:  # a logarithm has no place for nobody taking part
        axes.plot(present.examples, present.signal, "X", ms=8, label="present settings")
    if np.isfinite(most_examples):
        axes.axvline(most_examples, color="0.6", lw=0.8, ls=":")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, loc="lower right")
    return figure


def schedule_figure(schedules: Mapping[str, Schedule], delay_target_s: float) -> Figure:
    """Delay, kept fraction, queue and participation of schedules, side by side."""
    figure = Figure(figsize=(10, 6.5), layout="constrained")
    axes = figure.subplots(2, 2)
    for name, schedule in schedules.items():
        rounds = np.arange(1, schedule.num_rounds + 1)
        used = np.maximum(schedule.sends.sum(axis=1), 1)
        kept = schedule.keep_rate.sum(axis=1) / used
        mean_delay = np.cumsum(schedule.round_delay_s) / rounds
        axes[0, 0].plot(rounds, mean_delay, label=name)
        axes[0, 1].plot(rounds, np.cumsum(kept) / rounds, label=name)
        axes[1, 0].plot(rounds, schedule.sends.sum(axis=1), label=name)
        share = schedule.participations / max(schedule.num_rounds, 1)
        axes[1, 1].plot(schedule.rate, share, ".", label=name)
    axes[0, 0].axhline(delay_target_s, color="0.5", ls=":", lw=1)
    axes[0, 0].set(xlabel="round", ylabel="mean delay so far (s)")
    axes[0, 1].set(xlabel="round", ylabel="mean keep rate so far", ylim=(0, 1.05))
    axes[1, 0].set(xlabel="round", ylabel="channels in use")
    top = max([float(np.max(one.rate, initial=0.1)) for one in schedules.values()])
    axes[1, 1].plot([0, top], [0, top], color="0.5", ls=":", lw=1)
    axes[1, 1].set(
        xlabel="participation rate beta", ylabel="share of rounds taken part"
    )
    axes[1, 0].yaxis.set_major_locator(MaxNLocator(integer=True))
    names = axes[0, 0].get_legend_handles_labels()
    figure.legend(*names, loc="outside lower center", ncols=4, frameon=False)
    return figure


def queue_figure(bounds: Mapping[str, QueueBounds]) -> Figure:
    """Queues, fairness and delay of schedules beside what Theorem 3 allows (dotted)."""
    figure = Figure(figsize=(10, 6.5), layout="constrained")
    axes = figure.subplots(2, 2)
    drift, norm, fairness, delay = axes.flat
    for name, one in bounds.items():
        rounds = np.arange(1, len(one.norm) + 1)
        (line,) = norm.plot(rounds, one.norm, label=name)
        colour = line.get_color()
        norm.plot(rounds, one.norm_bound, color=colour, ls=":", lw=1)
        drift.plot(one.drift_bound, one.drift, ".", color=colour, ms=3)
        fairness.plot(rounds[1:], one.fairness_gap[1:], color=colour)
        fairness.plot(rounds[1:], one.fairness_bound[1:], color=colour, ls=":", lw=1)
        delay.plot(rounds[1:], one.delay_excess_s[1:], color=colour)
        delay.plot(rounds[1:], one.delay_bound_s[1:], color=colour, ls=":", lw=1)
    drift.axline((0, 0), slope=1, color="0.5", ls=":", lw=1)
    drift.set(xlabel="bound of a round's drift", ylabel="drift")
    norm.set(xlabel="round", ylabel="norm of all queues", yscale="log")
    fairness.set(xlabel="round", ylabel="largest |share - beta| so far", yscale="log")
    delay.set(xlabel="round", ylabel="mean delay above the target (s)")
    delay.set_yscale("symlog", linthresh=1.0)
    names = norm.get_legend_handles_labels()
    figure.legend(*names, loc="outside lower center", ncols=4, frameon=False)
    return figure


def world_figure(world: World) -> Figure:
    """Where clients and channels are, and how well they hear each other."""
    figure = Figure(figsize=(9.5, 4), layout="constrained")
    place, gains = figure.subplots(1, 2)
    place.plot(*world.clients_m.T, "o", label="clients")
    place.plot(*world.channels_m.T, "^", label="channels")
    place.plot(*world.centre_m, "s", label="access point")
    for number, (x, y) in enumerate(world.clients_m):
        place.annotate(str(number), (x, y), fontsize="x-small")
    place.set(xlabel="x (m)", ylabel="y (m)", aspect="equal")
    place.legend(frameon=False, fontsize="small", loc="upper right")
    picture = gains.imshow(ratio_to_db(world.uplink_gain), aspect="auto")
    gains.set(xlabel="channel", ylabel="client")
    gains.yaxis.set_major_locator(MaxNLocator(integer=True))
    figure.colorbar(picture, ax=gains, label="mean gain (dB)")
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
