"""Does a browser draw every chart of a report, without an error?"""

import html.parser
import shutil
import subprocess

import matplotlib.image
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from dpsparfl_jax import records
from dpsparfl_jax.report import charts, group_charts, group_page
from dpsparfl_jax.report import writing as report
from tests.report.test_report import write_run

NAMES = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next((path for path in map(shutil.which, NAMES) if path), None)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--window-size=1400,2600",
    "--virtual-time-budget=6000",
)
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason=f"needs a browser: one of {', '.join(NAMES)}"
)
# Three runs have rounds, two of them clients, one of these noise and budgets.
CURVES = {
    **dict.fromkeys(charts.CHARTS, 3),
    "delay": 4,  # and the target
    "mean_delay": 4,
    "fairness_queue": 6,  # bands too
    "clients": 6,  # live and sending
    "epsilon": 2,  # spent and budgets
    "participation": 3,  # and the diagonal
    "labels": 10,  # classes
}


class Drawn(html.parser.HTMLParser):
    """Curves of every chart in a page after its scripts ran, and what they noted."""

    def __init__(self, text):
        super().__init__()
        self.curves, self.paths, self.chart = {}, {}, None
        self.errors = self.count = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        own = dict(attrs)
        kinds = (own.get("class") or "").split()
        if tag == "html":
            self.errors = own.get("data-errors")
        if tag == "body":
            self.count = own.get("data-drawn")
        if tag == "div" and "chart" in kinds:
            self.chart = own["id"]
            self.curves[self.chart] = self.paths[self.chart] = 0
        if tag == "g" and "trace" in kinds:
            self.curves[self.chart] += 1
        if tag == "path" and self.chart and len(own.get("d") or "") > 20:
            self.paths[self.chart] += 1


def browse(page, folder, *flags):
    """Opens a page as a user does who has never done so before."""
    done = subprocess.run(
        [BROWSER, *FLAGS, f"--user-data-dir={folder}", *flags, page.as_uri()],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    root = tmp_path_factory.mktemp("browser")
    write_run(root / "<whole> & $1")
    write_run(root / "half", num_rounds=20, done=False, eval_every=3, seed=2)
    write_run(root / "new", num_rounds=0, done=False)
    write_run(root / "open", seed=1, privacy={"noise": False})
    return report.write_report(records.find_runs([root]), root)


def test_every_chart_is_drawn_without_an_error(page, tmp_path):
    drawn = Drawn(browse(page, tmp_path, "--dump-dom").stdout)
    assert drawn.errors == ""
    assert drawn.curves == CURVES
    assert drawn.count == str(len(CURVES))
    assert min(drawn.paths.values()) > 0


def test_the_legend_switches_a_run_off_everywhere(page, tmp_path):
    text = page.read_text(encoding="utf-8")
    click = "<script>document.querySelector('[data-run=\"1\"]').click();</script>"
    copy = tmp_path / "clicked.html"
    copy.write_text(text.replace("</body>", f"{click}</body>"), encoding="utf-8")
    drawn = Drawn(browse(copy, tmp_path / "new", "--dump-dom").stdout)
    assert drawn.errors == ""
    assert drawn.curves["accuracy_rounds"] == CURVES["accuracy_rounds"] - 1
    assert drawn.curves["clients"] == CURVES["clients"] - 2
    assert drawn.curves["epsilon"] == CURVES["epsilon"]  # it was not in there
    assert drawn.curves["labels"] == CURVES["labels"]


def test_the_picture_shows_curves_in_their_colours(page, tmp_path):
    picture = tmp_path / "page.png"
    browse(page, tmp_path / "new", f"--screenshot={picture}")
    pixels = matplotlib.image.imread(picture)[..., :3]
    assert pixels.shape == (2600, 1400, 3)
    for number in (0, 1, 3):
        colour = to_rgb(charts.COLOURS[number])
        near = np.abs(pixels - np.array(colour, pixels.dtype)).max(axis=-1) < 0.03
        rows = np.flatnonzero(near.any(axis=1))
        assert near.sum() > 3000
        assert np.ptp(rows) > 1000  # over the whole page, not in a legend only


def test_a_page_of_many_runs_is_drawn_and_its_table_filled(tmp_path):
    for number in range(40):
        write_run(
            tmp_path / "runs" / f"run{number}",
            seed=number % 2,
            num_rounds=8 + number % 2,
            schedule={"tradeoff": 1.0 + number // 2 % 5},
            training={"clip_norm": 1.0 + number // 10},
        )
    runs = records.FoundRuns([tmp_path / "runs"]).read()
    page = group_page.write_report(runs, tmp_path)
    text = browse(page, tmp_path / "new", "--dump-dom").stdout
    drawn = Drawn(text)
    maps = 4  # accuracy, best accuracy, delay, epsilon
    assert drawn.errors == ""
    assert drawn.count == str(len(group_charts.CHARTS) - 1 + maps)
    # Six of twenty settings are switched on, each with a band.
    assert drawn.curves["accuracy_rounds"] == 2 * charts.FEW
    assert text.count("<tr>") > 20
    assert "1 to 20 of 20" in text
    assert text.count('class="heatmaplayer') == maps
