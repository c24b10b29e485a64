"""Does a browser draw every chart of a report, without an error, at any width?"""

import dataclasses
import html
import html.parser
import re
import shutil
import subprocess

import matplotlib.image
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from dpsparfl_jax import records
from dpsparfl_jax.report import charts, group_charts, group_page, palette
from dpsparfl_jax.report import writing as report
from dpsparfl_jax.wireless import link
from dpsparfl_jax.wireless.world import make_world, observe
from tests.report.test_report import make_schedule, make_settings, write_run

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
OPEN, WHOLE, HALF = 0, 1, 2  # in the order of their settings, then of their names
PARAMETERS = 10_000
# Three runs have rounds, two of them noise, two clients, one of these both.
CURVES = {
    **dict.fromkeys(charts.CHARTS, 3),
    **dict.fromkeys(("accuracy_epsilon", "accuracy_epsilon_mean"), 2),
    "epsilon_rounds": 2,
    "keep_rate": 6,  # bands too
    **{f"keep_{run}": 3 for run in (OPEN, WHOLE, HALF)},  # two bands and a median
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
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done


def changed(page, folder, script):
    """A copy of a page with a script that runs once all charts are drawn."""
    text = page.read_text(encoding="utf-8")
    after = (
        "<script>const waiting = setInterval(() => { if (document.body.dataset.drawn) "
        f"{{ clearInterval(waiting); {script} }} }}, 20);</script></body>"
    )
    copy = folder / "changed.html"
    copy.write_text(text.replace("</body>", after), encoding="utf-8")
    return copy


def told(text, name):
    """What a script of a test left in the page."""
    found = re.search(rf'<body[^>]* data-{name}="([^"]*)"', text)
    assert found, name
    return html.unescape(found[1])


def plan_in_cell():
    """A plan whose downlinks are those of the cell that its settings make."""
    plan, settings = make_schedule(0, 12), make_settings()
    radio, users = settings.wireless, len(plan.budget)
    world = make_world(radio, users, settings.seed)
    down = np.stack(
        [
            link.downlink_delay(
                observe(world, radio, settings.seed, t).downlink_gain,
                world.downlink_noise_w,
                PARAMETERS,
                radio,
            )[plan.client[t]]
            for t in range(plan.num_rounds)
        ]
    )
    training = np.where(plan.sends, plan.delay_s - plan.upload_s - down, 0.0)
    return dataclasses.replace(plan, training_s=training)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    root = tmp_path_factory.mktemp("browser")
    known = {"num_parameters": PARAMETERS}
    write_run(root / "<whole> & $1", plan=plan_in_cell(), manifest=known)
    write_run(root / "half", num_rounds=20, done=False, eval_every=3, seed=2)
    write_run(root / "new", num_rounds=0, done=False)
    write_run(root / "open", seed=1, privacy={"noise": False})
    return report.write_report(records.find_runs([root]), root)


def test_every_chart_is_drawn_without_an_error(page, tmp_path):
    drawn = Drawn(browse(page, tmp_path, "--dump-dom").stdout)
    assert drawn.errors == ""
    assert drawn.curves == CURVES | {"timeline": 3, "cell": 5}
    assert drawn.count == str(len(CURVES))
    assert min(drawn.paths.values()) > 0


def test_legend_steps_menus_and_files_work(page, tmp_path):
    copy = changed(page, tmp_path, f"""
        const told = document.body.dataset, click = found =>
          document.querySelector(found).click();
        click('[data-run="{HALF}"]');
        for (let i = 0; i < 3; i++) click("#round_after");
        click("#round_before");
        told.words = part("round_words").textContent;
        told.ends = part("timeline").data.map(bar => bar.base[0] + bar.x[0]).join();
        told.csv = csvText(part("client_table"));
        whose_clients.value = 1;
        whose_clients.onchange();
        told.other = csvText(part("client_table"));
        told.bar = document.querySelector(".budget i")?.style.width ?? "none";
        which_run.value = 1;
        which_run.onchange();
        told.parts = part("timeline").data.length;
        told.back = getComputedStyle(document.body).backgroundColor;
        told.paper = part("loss").layout.paper_bgcolor;
    """)  # fmt: skip
    text = browse(copy, tmp_path / "new", "--dump-dom").stdout
    drawn = Drawn(text)
    assert drawn.errors == ""
    assert drawn.curves["accuracy_rounds"] == CURVES["accuracy_rounds"] - 1
    assert drawn.curves["clients"] == CURVES["clients"] - 2
    assert drawn.curves["epsilon"] == CURVES["epsilon"]  # it was not in there
    assert drawn.curves["labels"] == CURVES["labels"]
    assert f'<figure data-run="{HALF}" hidden' in text
    plan = plan_in_cell()
    assert told(text, "words").startswith("Round 3: ")
    first = np.flatnonzero(plan.sends[2])[0]
    ends = [float(end) for end in told(text, "ends").split(",")]
    parts = plan.delay_s - plan.training_s - plan.upload_s, plan.training_s
    wanted = np.cumsum([*(part[2, first] for part in parts), plan.upload_s[2, first]])
    assert ends == pytest.approx(wanted, rel=1e-3)
    lines = told(text, "csv").splitlines()
    assert lines[0].startswith("client,epsilon spent,epsilon asked,rounds taken part,")
    assert len(lines) == 1 + 8
    assert told(text, "other") != told(text, "csv")
    assert told(text, "bar") == "none"  # that run has no noise
    assert told(text, "parts") == "1"  # that run has no schedule of its own
    assert told(text, "back") == "rgb(250, 250, 250)"
    assert told(text, "paper") == "#fff"


def test_a_narrow_dark_page_has_dark_charts_and_no_overflow(page, tmp_path):
    """In a frame of 390 pixels: a browser's own window cannot be that narrow."""
    copy = changed(page, tmp_path, """
        const own = getComputedStyle(document.body).backgroundColor;
        parent.postMessage([own, part("loss").layout.paper_bgcolor, innerWidth,
          document.documentElement.scrollWidth,
          document.documentElement.dataset.errors].join("|"), "*");
    """)  # fmt: skip
    outside = tmp_path / "outside.html"
    outside.write_text(
        f'<body><iframe src="{copy.name}" style="width:390px;height:900px;border:0">'
        "</iframe><script>onmessage = sent => "
        "{ document.body.dataset.sent = sent.data }</script></body>"
    )
    dark = "--blink-settings=preferredColorScheme=0"
    text = browse(outside, tmp_path / "new", "--dump-dom", dark).stdout
    back, paper, width, scrolled, errors = told(text, "sent").split("|")
    assert (back, paper, errors) == ("rgb(18, 20, 23)", "#1b1e23", "")
    assert int(width) == 390
    assert int(scrolled) <= 390


def test_the_picture_shows_curves_in_their_colours(page, tmp_path):
    picture = tmp_path / "page.png"
    browse(page, tmp_path / "new", f"--screenshot={picture}")
    pixels = matplotlib.image.imread(picture)[..., :3]
    assert pixels.shape == (2600, 1400, 3)
    for number in (OPEN, WHOLE, HALF):
        colour = to_rgb(palette.COLOURS[number])
        near = np.abs(pixels - np.array(colour, pixels.dtype)).max(axis=-1) < 0.03
        rows = np.flatnonzero(near.any(axis=1))
        assert near.sum() > 1000
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
    page = changed(page, tmp_path, """
        const told = document.body.dataset;
        told.lines = part("where").textContent;
        told.curves = part("accuracy_rounds").data.filter(x => x.visible).length;
        const menu = document.querySelector("select[name=clip_norm]");
        menu.value = "2";
        menu.onchange();
        told.filtered = part("where").textContent;
        told.csv = csvText(part("groups")).split("\\n").length;
        told.on = keys.filter(isOn).length;
    """)  # fmt: skip
    text = browse(page, tmp_path / "new", "--dump-dom").stdout
    drawn = Drawn(text)
    maps = 4  # accuracy, best accuracy, delay, epsilon
    assert drawn.errors == ""
    assert drawn.count == str(len(group_charts.CHARTS) - 1 + maps)
    # Six of twenty settings are switched on, each with a band.
    assert told(text, "curves") == str(2 * charts.FEW)
    assert told(text, "lines") == "1 to 20 of 20"
    assert told(text, "filtered") == "1 to 5 of 5"
    assert told(text, "csv") == "7"  # with a heading, and what follows the last line
    assert told(text, "on") == "5"
    assert drawn.curves["accuracy_rounds"] == 2 * 5
    assert text.count('class="heatmaplayer') == maps
