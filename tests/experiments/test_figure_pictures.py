"""Do pictures of the study show every seed to its end, and means where they are?"""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dpsparfl_jax.errors import InputError
from experiments.paper import catalogue, figure_curves, figure_pictures
from experiments.paper.catalogue import Figure, Panel

ENDS = {0: 6, 1: 10, 2: 8}  # last rounds of seeds


def curves(panel, series=("DP-SparFL", "random"), start=0.1):
    """Three seeds that end at different rounds."""
    rows = [
        (panel, name, seed, x, start * (1 + place) + 0.01 * x + 0.02 * seed)
        for place, name in enumerate(series)
        for seed, end in ENDS.items()
        for x in range(2, end + 1, 2)
    ]
    return pd.DataFrame(rows, columns=figure_curves.COLUMNS)


def picture_of(table, *panels):
    return figure_pictures.draw(Figure("", "", panels, ()), table)


def panel(draw, **more):
    return Panel("noniid", draw, draw, "round", "what", **more)


def drawn(axes):
    """Lines of axes: those with a label, and the others."""
    lines = [line for line in axes.get_lines() if len(line.get_xdata())]
    return [one for one in lines if not one.get_label().startswith("_")], [
        one for one in lines if one.get_label().startswith("_")
    ]


def test_every_seed_is_drawn_to_its_end_and_the_mean_where_all_are():
    table = curves("accuracy", ["random"])
    (axes,) = picture_of(table, panel("accuracy")).axes
    (mean,), others = drawn(axes)
    np.testing.assert_array_equal(mean.get_xdata(), [2, 4, 6])
    np.testing.assert_allclose(mean.get_ydata(), [0.14, 0.16, 0.18])
    seeds = [line for line in others if len(line.get_xdata()) > 1]
    assert sorted(max(line.get_xdata()) for line in seeds) == [6, 8, 10]
    dots = sorted(line.get_xdata()[0] for line in others if len(line.get_xdata()) == 1)
    assert dots == [6, 6, 8, 10]  # the seeds' ends, and the mean's
    assert not axes.collections  # no band that could reach below zero


def test_the_legend_says_what_thin_lines_are():
    picture = picture_of(curves("accuracy"), panel("accuracy"))
    (legend,) = picture.legends
    words = [text.get_text() for text in legend.get_texts()]
    assert words == [
        *("DP-SparFL", "random", "a seed, to its end", "mean, until a seed ends")
    ]
    one = curves("accuracy")[lambda rows: rows["seed"] == 0]
    (legend,) = picture_of(one, panel("accuracy")).legends
    assert len(legend.get_texts()) == 2


def test_legends_lie_within_the_picture():
    for name in ("bound", "queues", "noniid"):
        figure = catalogue.FIGURES[name]
        series = (
            "measured, mean so far",
            "its sparsification",
            "bound",
            "lambda = 200",
        )
        tables = [curves(each.name, series) for each in figure.panels]
        picture = figure_pictures.draw(figure, pd.concat(tables))
        picture.draw_without_rendering()
        (legend,) = picture.legends
        box, whole = legend.get_window_extent(), picture.bbox
        assert whole.x0 <= box.x0 < box.x1 <= whole.x1
        assert whole.y0 <= box.y0 < box.y1 <= whole.y1


def test_chosen_values_have_means_and_intervals():
    table = curves("kept", ["random"])
    (axes,) = picture_of(table, panel("kept")).axes
    own = table.pivot(index="x", columns="seed", values="y").dropna()
    half = stats.t.ppf(0.975, 2) * own.std(axis=1) / np.sqrt(3)
    _, mean, low, high = figure_pictures.average(table)
    np.testing.assert_allclose(mean, own.mean(axis=1))
    np.testing.assert_allclose(low, mean - half)
    np.testing.assert_allclose(high, mean + half)
    (whiskers,) = axes.collections
    assert len(whiskers.get_segments()) == len(mean)


def settled():
    """Three seeds of two series, one number each."""
    rows = [
        ("settled", name, seed, 0.0, 0.5 + 0.1 * seed)
        for name in ("DP-SparFL", "random")
        for seed in range(3)
    ]
    return pd.DataFrame(rows, columns=figure_curves.COLUMNS)


def test_settled_accuracies_stand_in_rows():
    table = settled()
    (axes,) = picture_of(table, panel("settled")).axes
    assert [text.get_text() for text in axes.get_yticklabels()] == [
        *("DP-SparFL", "random")
    ]
    means, seeds = drawn(axes)
    assert [line.get_xdata()[0] for line in means] == pytest.approx([0.6, 0.6])
    assert [len(line.get_xdata()) for line in seeds] == [3, 3]
    assert len(axes.collections) == 2  # intervals


def test_rows_among_curves_have_their_names_inside():
    table = pd.concat([curves("accuracy"), settled()])
    _, axes = picture_of(table, panel("accuracy"), panel("settled")).axes
    assert not any(text.get_text() for text in axes.get_yticklabels())
    assert [text.get_text() for text in axes.texts] == ["DP-SparFL", "random"]
    first, second = (text.get_position()[1] for text in axes.texts)
    assert first < 0 < second < 1  # rows are at 0 and 1, and y grows downwards


def test_a_panel_may_leave_single_seeds_out():
    (axes,) = picture_of(curves("accuracy"), panel("accuracy", seeds=False)).axes
    means, others = drawn(axes)
    assert len(means) == 2
    assert not others


def test_small_multiples_have_one_series_each_and_the_same_axes():
    picture = picture_of(curves("accuracy"), panel("accuracy", multiples=True))
    first, second = picture.axes
    assert [axes.get_title(loc="left") for axes in picture.axes] == [
        *("(a) DP-SparFL", "(b) random")
    ]
    assert first.get_ylim() == second.get_ylim()
    assert first.get_xlim() == second.get_xlim()
    assert [len(drawn(axes)[0]) for axes in picture.axes] == [1, 1]


def test_panels_without_points_are_left_out():
    table = curves("accuracy")
    assert len(picture_of(table, panel("accuracy"), panel("delay")).axes) == 1
    with pytest.raises(InputError, match="no points"):
        picture_of(table[:0], panel("accuracy"))


def test_an_empty_table_makes_no_picture(tmp_path):
    path = tmp_path / "noniid.csv"
    curves("accuracy")[:0].to_csv(path, index=False)
    assert figure_pictures.save(catalogue.FIGURES["noniid"], path) == []
    assert [one.name for one in tmp_path.iterdir()] == ["noniid.csv"]


def test_a_bound_has_the_colour_of_what_it_bounds():
    table = curves("queue_norm", ["lambda = 1", "lambda = 50", "lambda = 50, bound"])
    (axes,) = picture_of(table, panel("queue_norm")).axes
    colours = {line.get_label(): line.get_color() for line in drawn(axes)[0]}
    assert colours["lambda = 50"] == colours["lambda = 50, bound"]
    assert colours["lambda = 1"] != colours["lambda = 50"]


def test_titles_are_said_once_in_a_row():
    def left_titles(name):
        figure = catalogue.FIGURES[name]
        table = pd.concat([curves(each.name) for each in figure.panels])
        picture = figure_pictures.draw(figure, table)
        return [axes.get_title(loc="left") for axes in picture.axes]

    assert left_titles("privacy_level")[:4] == [
        *("(a) Fashion-MNIST", "(b)", "(c) Fashion-MNIST", "(d)")
    ]
    assert left_titles("bound") == ["Fashion-MNIST"]
    assert left_titles("policies_accuracy")[::3] == [
        "(a) MNIST",
        "(d) CIFAR-10, \N{GREEK SMALL LETTER SIGMA} 0.4",
        "(g) CIFAR-10, \N{GREEK SMALL LETTER SIGMA} 0.6 (ours)",
    ]


def test_seeds_with_other_times_are_interpolated():
    rows = pd.DataFrame(
        {"seed": [0, 0, 1, 1], "x": [0.0, 2.0, 1.0, 4.0], "y": [0.0, 2.0, 11.0, 14.0]}
    )
    x, mean, *_ = figure_pictures.average(rows)
    assert (x[0], x[-1]) == (1.0, 2.0)
    np.testing.assert_allclose(mean, (x + x + 10) / 2)
