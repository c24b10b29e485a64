"""Does a report show what was recorded, all of it, and nothing from elsewhere?"""

import csv
import dataclasses
import html.parser
import json

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from dpsparfl_jax import config, config_values, records, storage
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.planning import schedule as schedule_lib
from dpsparfl_jax.planning.schedule import IDLE, Schedule
from dpsparfl_jax.records import rows
from dpsparfl_jax.report import (
    chart_pictures,
    charts,
    palette,
    sections,
    seeds,
    traces,
)
from dpsparfl_jax.report import writing as report
from dpsparfl_jax.training.diagnostics import Diagnostics
from dpsparfl_jax.types import RoundOutput
from tests.commands import assert_refused, call_program, run_program

FILES = {f"{name}.png" for name in chart_pictures.FIGURES}
FILES |= {"report.html", "runs.csv", "rounds.csv", "labels.png"}


def make_schedule(seed, num_rounds, users=8, channels=3, private=True):
    """A plan with numbers of the right shapes and sizes."""
    rng = np.random.default_rng(seed)
    shape = (num_rounds, channels)
    client = np.stack([rng.permutation(users)[:channels] for _ in range(num_rounds)])
    client = np.where(rng.random(shape) < 0.1, IDLE, client).astype(int)
    sends = client != IDLE
    delay = np.where(sends, rng.uniform(60, 160, shape), 0.0)
    per_round = np.where(sends, 1.0, 0.0)
    curve = 0.2 * np.arange(num_rounds + 1) ** 0.6
    if not private:
        curve[1:] = np.inf
    budget = np.random.default_rng(1).uniform(2, 10, users)
    return Schedule(
        client=client,
        keep_rate=per_round * rng.uniform(0.1, 1, shape),
        power_w=per_round * 0.2,
        delay_s=delay,
        training_s=delay * 0.3,
        upload_s=delay * 0.6,
        upload_j=per_round * 2.0,
        training_j=per_round * 0.7,
        bits=per_round * 1e6,
        late=np.zeros(shape, bool),
        arrived=sends,
        round_delay_s=delay.max(axis=1),
        planned_delay_s=delay.max(axis=1),
        delay_queue=rng.uniform(0, 3, num_rounds),
        value=rng.normal(size=num_rounds),
        lower_bound=np.full(num_rounds, -np.inf),
        last_delay_queue=np.array(1.0),
        affordable=np.full(users, 90),
        budget=budget,
        rate=np.linspace(0.2, 0.5, users),
        fairness="signed",
        epsilon_curve=curve[None],
        group=np.zeros(users, int),
        reason="the rounds asked for are over",
    )


def diagnostics(channels):
    ones = np.ones(channels)
    whole = np.ones(channels, int)
    return Diagnostics(
        loss=ones,
        clipped_fraction=ones * 0.5,
        median_norm=ones,
        gradient_to_noise=ones * 0.2,
        examples=whole * 480,
        overflow=whole * 0,
        nonfinite_examples=whole * 0,
        kept=whole * 1000,
        diverged=np.zeros(channels, bool),
    )


def output(t, seed, eval_every, num_rounds, channels=3):
    told = (t + 1) % eval_every == 0 or t + 1 == num_rounds
    accuracy = 0.1 + (0.85 - 0.02 * (seed % 9)) * (1 - np.exp(-t / 15))
    return RoundOutput(
        run=0,
        round_index=t,
        diagnostics=diagnostics(channels),
        accuracy=accuracy if told else None,
        loss=2.3 - 2 * accuracy if told else None,
        right=None,
        state=None,
        host_s=0.1,
        device_s=0.2,
    )


def make_settings(seed=0, **changes):
    """Default settings, but for some of some sections."""
    settings = config.RunConfig(seed=seed)
    for section, values in changes.items():
        new = dataclasses.replace(getattr(settings, section), **values)
        settings = dataclasses.replace(settings, **{section: new})
    return settings


def write_run(
    folder,
    *,
    seed=0,
    num_rounds=12,
    done=True,
    eval_every=1,
    plan=None,
    manifest=(),
    **changes,
):
    """A run's folder as the recorder writes it.

    `changes` are sections' settings; a `plan` of one's own is recorded too, and has as
    many rounds as the run; `manifest` is what the manifest has beside the settings.
    """
    settings = make_settings(seed, **changes)
    kept = plan
    if plan is None:
        plan = make_schedule(seed, max(num_rounds, 1), private=settings.privacy.noise)
    else:
        num_rounds = plan.num_rounds
    table = rows.RoundRows(plan)
    shape = (eval_every, num_rounds, plan.client.shape[1])
    lines = [table.row(output(t, seed, *shape)) for t in range(num_rounds)]
    folder.mkdir(parents=True)
    manifest = {
        "config": config_values.as_dict(settings),
        "planned_rounds": 99,
        "clip_norm": {"private": settings.privacy.clip_calibration != "median"},
        **dict(manifest),
    }
    if kept is not None:
        schedule_lib.save(kept, folder / records.SCHEDULE)
    storage.write_whole(folder / records.MANIFEST, json.dumps(manifest))
    text = "".join(json.dumps(line) + "\n" for line in lines)
    storage.write_whole(folder / records.ROUNDS, text)
    if done:
        users = len(plan.budget)
        rng = np.random.default_rng(seed % 2)
        shares = rng.dirichlet(np.full(10, 0.3 if seed % 2 else 5.0), users)
        labels = np.round(600 * shares).astype(int)
        right = np.arange(users * 50) % 5 > 0
        clients = pd.DataFrame(rows.client_rows(plan, labels, [50] * users, right))
        clients.to_csv(folder / records.CLIENTS, index=False)
        facts = json.dumps({"rounds": num_rounds})
        storage.write_whole(folder / records.DONE, facts)
    return folder


class Loaded(html.parser.HTMLParser):
    """What a page fetches, and its text."""

    def __init__(self, text):
        super().__init__()
        self.fetched, self.words, self.inside = [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.inside = tag
        self.fetched += [v for k, v in attrs if k in ("src", "href", "data", "poster")]

    def handle_data(self, data):
        if self.inside not in ("script", "style"):
            self.words.append(data)


def read_csv(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write(tmp_path, *names, **settings):
    for number, name in enumerate(names):
        write_run(tmp_path / "runs" / name, seed=number, **settings)
    runs = records.find_runs([tmp_path / "runs"])
    page = report.write_report(runs, tmp_path / "out", "A & B")
    return runs, page.read_text(encoding="utf-8"), tmp_path / "out"


def test_all_files_are_there_and_hold_the_records(tmp_path):
    runs, text, out = write(tmp_path, "one", "two", eval_every=3)
    assert {file.name for file in out.iterdir()} == FILES
    for name in chart_pictures.FIGURES:
        assert (out / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    table = read_csv(out / "rounds.csv")
    assert [row["run"] for row in table] == ["one"] * 12 + ["two"] * 12
    raw = [row for run in runs for row in records.read_rounds(run.path)]
    for told, row in zip(table, raw, strict=True):
        for name, value in row.items():
            if value is None:
                assert told[name] == ""
            else:
                assert json.loads(told[name]) == value
    for told, run in zip(read_csv(out / "runs.csv"), runs, strict=True):
        clients = run.clients.to_dict("records")
        for name, value in rows.summarise(
            records.read_rounds(run.path), clients
        ).items():
            assert told[name] == "" if value is None else float(told[name]) == value
        assert (told["run"], told["done"], told["private"]) == (
            run.name,
            "True",
            "True",
        )
    assert [row["seed"] for row in read_csv(out / "runs.csv")] == ["0", "1"]
    assert "A &amp; B" in text


def test_the_page_fetches_nothing_and_escapes_names(tmp_path):
    name = "<b>$x$ & 'y'</script>_"  # a folder's name cannot hold the slash
    runs, text, out = write(tmp_path, name.replace("/", "|"), "_other")
    runs = [dataclasses.replace(run, name=f"{run.name}</script>") for run in runs]
    text = report.write_report(runs, out).read_text(encoding="utf-8")
    page = Loaded(text)
    assert page.fetched == []
    assert "default-src 'none'" in text
    for run in runs:
        assert run.name in page.words
        assert run.name not in text
    assert text.count("</script>") == text.count("<script") == 4


def test_no_folder_of_this_machine_is_named(tmp_path):
    data = {"dir": f"{tmp_path}/sets/mnist"}
    _, text, out = write(tmp_path, "one", data=data)
    assert str(tmp_path) not in text + (out / "runs.csv").read_text()
    assert "…/mnist" in text
    assert "~/" not in text


def test_unfinished_empty_and_not_private_runs(tmp_path):
    root = tmp_path / "runs"
    write_run(root / "whole")
    write_run(root / "half", num_rounds=5, done=False)
    write_run(root / "new", num_rounds=0, done=False)
    write_run(root / "open", privacy={"noise": False})
    runs = records.find_runs([root])
    text = report.write_report(runs, tmp_path).read_text(encoding="utf-8")
    told = {row["run"]: row for row in read_csv(tmp_path / "runs.csv")}
    assert told["half"]["done"] == "False"
    assert told["half"]["rounds"] == "5"
    assert told["half"]["fairness"] == ""
    assert told["new"]["rounds"] == "0"
    assert told["new"]["accuracy"] == ""
    assert told["open"]["private"] == "False"
    assert told["open"]["epsilon_max"] == ""
    assert text.count('<span class="tag">unfinished, 99 planned') == 2
    assert text.count("<td>not private</td>") == 3
    assert "delta = 0.001, pld accountant" in text
    assert "not private: no noise is added" in text
    lines = count_curves(runs)
    assert lines["accuracy_rounds"] == 3  # nothing of the run without rounds
    assert lines["delay"] == 4  # and the target
    assert lines["epsilon"] == 2  # of the private one that is finished, and budgets
    assert lines["participation"] == 3  # of the finished ones, and the diagonal


def test_a_median_of_raw_gradients_is_never_shown_as_private(tmp_path):
    write_run(tmp_path / "runs" / "median", privacy={"clip_calibration": "median"})
    runs = records.find_runs([tmp_path / "runs"])
    text = report.write_report(runs, tmp_path).read_text(encoding="utf-8")
    (told,) = read_csv(tmp_path / "runs.csv")
    assert told["private"] == "False"
    assert text.count("<td>not private</td>") == 3
    assert "not private: the clip norm is a median of raw gradients" in text


def test_runs_that_share_noise_are_named(tmp_path):
    root = tmp_path / "runs"
    for name, seed, key in (
        ("one", 0, "paired"),
        ("two", 0, "paired"),
        ("alone", 1, "paired"),
        ("own", 0, "own"),
    ):
        write_run(root / name, seed=seed, privacy={"noise_key": key})
    write_run(root / "open", seed=0, privacy={"noise_key": "paired", "noise": False})
    text = report.write_report(records.find_runs([root]), tmp_path).read_text()
    assert "paired noise (one, two) must not be released together" in text
    alone = records.find_runs([root / "one", root / "alone", root / "own"])
    text = report.write_report(alone, tmp_path).read_text()
    assert "released together" not in text


def test_the_page_says_which_images_models_are_judged_by(tmp_path):
    root = tmp_path / "runs"
    write_run(root / "tested", seed=0)
    write_run(root / "chosen", seed=1, length={"eval_on": "validation"})
    validated = "training images that no client owns (length.eval_on=validation)"
    for names, words in (
        (["tested"], "test images"),
        (["chosen"], validated),
        (["tested", "chosen"], f"test images, or on {validated}"),
    ):
        runs = records.find_runs([root / name for name in names])
        assert sections.judged_on(runs) == words


def test_a_run_without_any_round_alone(tmp_path):
    write_run(tmp_path / "new", num_rounds=0, done=False)
    runs = records.find_runs([tmp_path])
    report.write_report(runs, tmp_path)
    assert count_curves(runs) == {}
    assert len(read_csv(tmp_path / "runs.csv")) == 1


def count_curves(runs):
    shown = [entry.shown for entry in seeds.show_runs(runs)]
    return {key: len(one["data"]) for key, one in traces.charts(shown).items()}


def test_charts_are_valid_and_connect_rounds_without_evaluation(tmp_path):
    write_run(tmp_path / "one", num_rounds=10, eval_every=4)
    write_run(tmp_path / "two", num_rounds=5000)
    shown = [
        charts.show(number, run, palette.look(number))
        for number, run in enumerate(records.find_runs([tmp_path]))
    ]
    drawn = traces.charts(shown)
    assert set(drawn) == {*charts.CHARTS, "labels"}
    for chart in drawn.values():
        go.Figure(chart)  # refuses unknown names and bad values
    short, long = drawn["accuracy_rounds"]["data"]
    assert short["x"] == [4, 8, 10]
    assert None not in short["y"]
    assert len(long["x"]) == 1000
    assert (long["x"][0], long["x"][-1]) == (1, 5000)
    assert short["line"]["color"] != long["line"]["color"]
    colours = {drawn[key]["data"][0]["line"]["color"] for key in ("loss", "energy")}
    assert colours == {short["line"]["color"]}


def test_sixty_runs_look_different():
    assert len({palette.look(number) for number in range(60)}) == 60
    assert len(palette.COLOURS) == 7
    assert len(palette.MARKERS) == len(palette.DASHES)


def test_the_report_is_a_function_of_the_records(tmp_path):
    _, _, out = write(tmp_path, "one")
    before = {name: (out / name).read_bytes() for name in FILES}
    report.write_report(records.find_runs([tmp_path / "runs"]), out, "A & B")
    assert {name: (out / name).read_bytes() for name in FILES} == before


def test_the_command(tmp_path):
    write_run(tmp_path / "a" / "one")
    write_run(tmp_path / "b" / "two", seed=1)
    folders = (str(tmp_path / "a"), str(tmp_path / "b"))
    done = run_program("experiments.report", *folders, "--title=Mine")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "report of 2 run(s)" in done.stdout
    assert "<h1>Mine</h1>" in (tmp_path / "a" / "report.html").read_text()
    assert FILES <= {file.name for file in (tmp_path / "a").iterdir()}


def test_refusals(tmp_path):
    with pytest.raises(InputError, match="at least one recorded run"):
        report.write_report([], tmp_path)
    program = "experiments.report"
    assert_refused(call_program(program), "name at least one folder")
    empty = str(tmp_path)
    assert_refused(call_program(program, empty), "there is no recorded run in")
    write_run(tmp_path / "one")
    (tmp_path / "file").write_text("")
    out = f"--out={tmp_path / 'file' / 'below'}"
    assert_refused(call_program(program, empty, out), "cannot write")
