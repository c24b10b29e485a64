"""Are pictures of plans drawn and written as publishers want them?"""

import numpy as np
import pytest
from matplotlib import rc_context
from matplotlib.figure import Figure
from PIL import Image

import dpsparfl_jax as fl
from dpsparfl_jax.report import picture_style, plan_pictures
from tests import toy


def test_pdf_files_have_fonts_that_publishers_take(tmp_path):
    figure = plan_pictures.epsilon_figure({"pld": np.arange(9.0)}, [4.0], 1e-3, "a")
    picture_style.save(figure, tmp_path / "a.pdf")
    content = (tmp_path / "a.pdf").read_bytes()
    assert b"/Type3" not in content
    assert b"/TrueType" in content or b"/CIDFontType2" in content


def test_panels_have_letters_and_curves_differ_without_colours():
    settings = toy.settings()
    schedules = {name: fl.plan(settings) for name in ("one", "another")}
    figure = plan_pictures.schedule_figure(schedules, 1.0)
    letters = [axes.get_title(loc="left") for axes in figure.axes]
    assert letters == ["(a)", "(b)", "(c)", "(d)"]
    assert figure.axes[3].get_xlabel() == "participation rate β"
    first, second, _ = figure.axes[0].lines
    assert first.get_marker() != second.get_marker()
    assert first.is_dashed() != second.is_dashed()
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["one", "another", "as asked"]
    assert not any(axes.get_legend() for axes in figure.axes)


def test_large_numbers_are_told_in_the_label_not_in_a_corner(tmp_path):
    figure = Figure()
    axes = figure.add_subplot(xlabel="cycles")
    axes.plot([0, 1e8], [0.715, 0.74])
    picture_style.in_millions(axes.xaxis)
    picture_style.in_percent(axes.yaxis)
    with rc_context(picture_style.LOOKS):
        picture_style.write(figure, tmp_path / "a.png", "a table")
    assert axes.get_xlabel() == "cycles (millions)"
    assert axes.xaxis.get_offset_text().get_text() == ""
    assert axes.xaxis.get_major_formatter()(2e7, 0) == "20"
    assert axes.yaxis.get_major_formatter()(0.715, 0) == "71.5%"
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.info["Description"] == "a table"
        assert picture.info["dpi"] == pytest.approx((300, 300), abs=0.1)
