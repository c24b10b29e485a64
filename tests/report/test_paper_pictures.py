"""Are pictures for papers of the right width and fonts, and is a bad style refused?"""

import matplotlib as mpl
import pytest
from PIL import Image

from dpsparfl_jax import records
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.report import (
    chart_pictures,
    charts,
    group_charts,
    heat_maps,
    palette,
    paper_pictures,
    picture_style,
)
from tests.commands import assert_refused, call_program
from tests.report.test_report import write_run

REPORT = "experiments.report"
WIDE = {"delay", "queues"}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Pictures of two runs."""
    root = tmp_path_factory.mktemp("drawn")
    for seed, policy in enumerate(("dp_sparfl", "random")):
        write_run(root / policy, seed=seed, schedule={"policy": policy})
    before = dict(mpl.rcParams)
    folder = draw(root)
    assert dict(mpl.rcParams) == before
    return folder


def draw(root, **more):
    whole = records.find_runs([root])
    runs = [records.index.read_run(run.path, run.name) for run in whole]
    style = paper_pictures.read_style()
    return paper_pictures.write_pictures(runs, whole, root, style, **more)


def stems(folder, ending):
    return {path.stem for path in folder.glob(f"*{ending}")}


def assert_fonts(path):
    content = path.read_bytes()
    assert b"/Type3" not in content
    assert b"/FontFile2" in content  # TrueType, embedded


def test_every_main_chart_is_there_in_both_formats(drawn):
    expected = {*chart_pictures.FIGURES, "labels"}
    assert stems(drawn, ".pdf") == stems(drawn, ".png") == expected
    captions = (drawn / "captions.txt").read_text().splitlines()
    assert {line.partition(":")[0] for line in captions} == expected
    assert "queues: (a) Delay queue. (b) Fairness queue." in "\n".join(captions)


def test_fonts_are_embedded_as_truetype(drawn):
    for path in drawn.glob("*.pdf"):
        assert_fonts(path)


def test_pictures_have_the_width_of_one_column_or_two(drawn):
    for path in drawn.glob("*.png"):
        with Image.open(path) as picture:
            width = 7.0 if path.stem in WIDE else 3.4
            assert picture.width == round(300 * width)
            assert picture.info["dpi"] == pytest.approx((300, 300), abs=0.1)
    wide = (drawn / "queues.pdf").read_bytes()
    assert b"/MediaBox [ 0 0 504 " in wide


def figure(tmp_path, name, count=2, style=None):
    for number in range(count):
        write_run(tmp_path / f"run{number}", seed=number)
    runs = records.find_runs([tmp_path])
    shown = [
        charts.show(number, run, palette.look(number))
        for number, run in enumerate(runs)
    ]
    panels = [charts.CHARTS[key] for key in chart_pictures.FIGURES[name]]
    with mpl.rc_context((style or paper_pictures.read_style()).values):
        return paper_pictures._figure(shown, panels, dots=False)


def test_words_are_letters_and_symbols_without_titles(tmp_path):
    queues = figure(tmp_path / "1", "queues")
    assert [axes.get_title(loc="left") for axes in queues.axes] == ["(a)", "(b)"]
    assert [axes.get_title() for axes in queues.axes] == ["", ""]
    (axes,) = figure(tmp_path / "2", "participation").axes
    assert axes.get_xlabel() == "share of rounds that it should have (β)"
    assert axes.get_title(loc="left") == ""
    assert picture_style.symbols("Epsilon of epsilon_hi") == "ε of epsilon_hi"


def test_letters_are_legible_and_curves_differ_without_colours(tmp_path):
    made = figure(tmp_path, "accuracy_rounds", count=8)
    (axes,) = made.axes
    texts = [*axes.get_xticklabels(), axes.xaxis.label, *made.legends[0].get_texts()]
    assert min(text.get_fontsize() for text in texts) >= 7
    looks = {(line._unscaled_dash_pattern, line.get_marker()) for line in axes.lines}
    assert len(looks) == 8
    assert len({line.get_color() for line in axes.lines}) == len(palette.COLOURS)


def test_runs_that_differ_in_their_seed_are_one_curve_with_a_band(
    tmp_path, monkeypatch
):
    for number in range(8):
        write_run(
            tmp_path / f"run{number}",
            seed=number % 2,
            num_rounds=3,
            schedule={"tradeoff": 1.0 + number // 2 % 2},
            training={"clip_norm": 1.0 + number // 4},
        )
    monkeypatch.setattr(heat_maps, "METRICS", ("epsilon_max",))
    monkeypatch.delitem(group_charts.FIGURES, "accuracy_delay")
    monkeypatch.delitem(group_charts.FIGURES, "energy")
    folder = draw(tmp_path, band="interval")
    assert stems(folder, ".pdf") == {*group_charts.FIGURES, "heat_epsilon_max"}
    for path in folder.glob("*.pdf"):
        assert_fonts(path)
    captions = (folder / "captions.txt").read_text()
    told = "Means over 2 seeds; bands: 95% interval of the mean (Student's t)."
    assert captions.count(told) == len(group_charts.FIGURES)
    with Image.open(folder / "accuracy_epsilon.png") as picture:
        assert picture.text["Description"].endswith(told)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"font.size 8\n", "line 1: 'font.size 8'"),
        (b"\nfont.sise: 8\n", "line 2: 'font.sise: 8'"),
        (b"font.size: large enough\n", "large enough"),
        (b"axes.grid: perhaps\n", "perhaps"),
        (b"\xff\xfe\x00", "can't decode"),
        (None, "No such file"),
    ],
)
def test_bad_styles_are_refused(tmp_path, content, words):
    file = tmp_path / "mine.mplstyle"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InputError, match="is no style file of matplotlib") as refused:
        paper_pictures.read_style(file)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_style_changes_what_it_says_alone(tmp_path):
    file = tmp_path / "mine.mplstyle"
    file.write_text("# mine\nfigure.figsize: 3, 2  # in\naxes.edgecolor: 0072B2\n")
    style = paper_pictures.read_style(file)
    assert style.values["pdf.fonttype"] == 42
    made = figure(tmp_path / "runs", "queues", style=style)
    assert made.get_size_inches()[0] == pytest.approx(6.2)


def test_the_command(tmp_path, monkeypatch):
    one = {"queues": chart_pictures.FIGURES["queues"]}
    monkeypatch.setattr(chart_pictures, "FIGURES", one)
    write_run(tmp_path / "runs" / "run")
    (tmp_path / "mine").write_text("savefig.dpi: 100\n")
    flags = ("--paper", f"--style={tmp_path / 'mine'}", f"--out={tmp_path / 'out'}")
    done = call_program(REPORT, tmp_path / "runs", *flags)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"pictures for a paper: {tmp_path / 'out' / 'paper'}" in done.stdout
    with Image.open(tmp_path / "out" / "paper" / "queues.png") as picture:
        assert picture.width == 700


def test_refusals_of_the_command(tmp_path):
    run, file = write_run(tmp_path / "run"), tmp_path / "mine.mplstyle"
    file.write_text("text.usetex: True\n")
    alone = call_program(REPORT, run, f"--style={file}")
    assert_refused(alone, "--style is for the pictures of --paper")
    missing = call_program(REPORT, run, "--paper", "--style=/nowhere")
    assert_refused(missing, "is no style file of matplotlib")
    assert not (run / "report.html").exists()


def test_what_fails_in_a_style_is_told_in_a_sentence(tmp_path):
    style = paper_pictures.Style({}, tmp_path / "mine")
    with pytest.raises(InputError, match="nothing can be drawn with the style file"):
        with paper_pictures._applied(style):
            raise RuntimeError("latex could not be found\nmore")
