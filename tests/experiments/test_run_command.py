"""Do `experiments.run` and `experiments.sweep` do what a user expects of them?"""

import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from benchmarks import kill_resume, run_facts
from dpsparfl_jax import records
from tests import toy
from tests.commands import ROOT, assert_refused, run_program

SMALL = (
    f"--data.dir={toy.folder()}",
    "--data.name=toy",
    "--data.num_clients=6",
    "--data.train_examples=60",
    "--data.test_examples=20",
    "--model.name=logistic",
    "--training.local_steps=4",
    "--training.batch_size=6",
    "--privacy.noise_multiplier=1.5",
    "--perf.padded_sizes=1",
    "--perf.checkpoint_every=2",
    "--length.rounds=6",
    "--perf.devices=1",
)


def run(out, *flags, program="experiments.run"):
    return run_program(program, f"--out={out}", *SMALL, *flags)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return f"--perf.cache_dir={tmp_path_factory.mktemp('cache')}"


@pytest.fixture(scope="module")
def quick(tmp_path_factory, cache):
    """The four policies of the quickstart, in small."""
    out = tmp_path_factory.mktemp("quick") / "out"
    return out, run(out, cache)


def test_the_quickstart_ends_with_a_table_and_a_report(quick):
    out, done = quick
    assert done.returncode == 0, done.stderr
    assert "toy.npz" in done.stdout  # where the images came from
    assert "Accountant pld: 6 of 6 clients can take part" in done.stdout
    lines = done.stdout.splitlines()
    (start,) = [i for i, line in enumerate(lines) if line.startswith("run ")]
    assert lines[start].split()[1:4] == ["rounds", "accuracy", "delay"]
    table = {line.split()[0]: line.split()[1:] for line in lines[start + 1 : start + 5]}
    assert list(table) == [
        f"policy={name}" for name in ("dp_sparfl", "delay_min", "round_robin", "random")
    ]
    for name, cells in table.items():
        found = records.load_run(out / name)
        assert found.done
        assert int(cells[0]) == 6
        assert float(cells[1]) == pytest.approx(
            found.rounds["accuracy"].iloc[-1], abs=6e-4
        )
        assert (found.rounds["epsilon_margin"] >= 0).all()
    assert f"Report: {out / 'report.html'}" in done.stdout
    assert (out / "report.html").stat().st_size > 10_000


def test_a_second_call_has_nothing_to_do(quick, cache):
    out, first = quick
    again = run(out, cache)
    assert again.returncode == 0
    assert "Finished before: policy=dp_sparfl" in again.stdout
    assert again.stdout.split("run  ")[-1] == first.stdout.split("run  ")[-1]


def test_another_run_in_the_folder_is_refused(quick, cache):
    out, _ = quick
    done = run(out, cache, "--training.clip_norm=3")
    assert_refused(done, "holds another run (training.clip_norm was 4.0, is 3.0)")
    done = run(out, cache, "--schedule.policy=random", "--resume")
    assert_refused(done, "holds other runs in folders of their own")


def test_killed_runs_go_on_to_the_same_bits(cache):
    """Two kills here; `python -m benchmarks.kill_resume` does twenty."""
    settings = (*SMALL, cache, "--schedule.policy=random", "--length.rounds=40")
    found = kill_resume.measure(2, seed=1, settings=settings)
    assert found["equal"] == 2, found["rows"]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_asked_to_stop_a_run_saves_and_says_how_to_go_on(tmp_path, cache, number, code):
    flags = (cache, "--schedule.policy=random", "--length.rounds=2000", *SMALL[:-2])
    flags += ("--perf.devices=1", "--perf.checkpoint_every=0", "--privacy.noise=false")
    command = [sys.executable, "-m", "experiments.run", f"--out={tmp_path}", *flags]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while len(records.read_rounds(tmp_path)) < 3 and process.poll() is None:
        time.sleep(0.1)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code
    assert "Traceback" not in errors
    assert "with --resume goes on" in errors
    rows = records.read_rounds(tmp_path)
    folders = [p for p in (tmp_path / "checkpoints").iterdir() if p.is_dir()]
    saved = [int(p.name) for p in folders]
    assert saved == [len(rows)]  # nothing is lost


def test_a_full_disk_is_one_sentence(tmp_path, cache):
    """A limit on file size stands in for it: writes fail in the middle of the run."""
    command = [sys.executable, "-m", "experiments.run", f"--out={tmp_path}/o", *SMALL]
    flags = ["--schedule.policy=random", "--length.rounds=70", "--privacy.noise=false"]
    limited = ["bash", "-c", 'ulimit -f 64 && exec "$@"', "limited", *command]  # in kB
    done = subprocess.run(
        [*limited, *flags, "--perf.cache_dir="],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert_refused(done, "cannot write")
    assert "--resume continues" in done.stderr
    kept = len(records.read_rounds(tmp_path / "o"))
    assert kept > 10
    done = run(tmp_path / "o", *flags, cache, "--resume")
    assert done.returncode == 0, done.stderr
    assert "going on after round" in done.stdout
    assert records.load_run(tmp_path / "o").done


def test_flags_from_a_file(tmp_path, cache):
    path = tmp_path / "flags.txt"
    path.write_text("--schedule.policy=random\n--length.rounds=1\n--seed=7\n")
    done = run(tmp_path / "o", cache, f"--flagfile={path}")
    assert done.returncode == 0, done.stderr
    found = records.load_run(tmp_path / "o")
    assert found.manifest["config"]["seed"] == 7
    assert len(found.rounds) == 1


@pytest.fixture(scope="module")
def swept(tmp_path_factory, cache):
    out = tmp_path_factory.mktemp("sweep") / "out"
    grid = "--grid=schedule.tradeoff=5,50;privacy.epsilon_hi=1,6;seed=0,1"
    flags = (grid, cache, "--length.rounds=3")
    return out, flags, run(out, *flags, program="experiments.sweep")


def test_a_sweep_runs_what_is_possible_and_lists_the_rest(swept):
    out, _, done = swept
    assert done.returncode == 1
    assert done.stderr.count("FAILED") == 4
    assert "FAILED tradeoff=5,epsilon_hi=1,seed=0: privacy.epsilon_lo must" in (
        done.stderr
    )
    assert "Traceback" not in done.stderr
    names = {run.name for run in records.find_runs([out]) if run.done}
    assert names == {
        f"tradeoff={t},epsilon_hi=6,seed={s}" for t in (5, 50) for s in (0, 1)
    }
    assert "Planned 12 rounds of 4 run(s)" in done.stdout  # one batch
    assert (out / "report.html").is_file()


def test_a_swept_point_equals_a_single_run(swept, tmp_path, cache):
    out, _, _ = swept
    done = run(
        tmp_path / "o",
        cache,
        "--schedule.policy=dp_sparfl",
        "--schedule.tradeoff=5",
        "--privacy.epsilon_hi=6",
        "--seed=1",
        "--length.rounds=3",
    )
    assert done.returncode == 0, done.stderr
    point = out / "tradeoff=5,epsilon_hi=6,seed=1"
    assert run_facts.facts(tmp_path / "o") == run_facts.facts(point)


def test_a_second_sweep_skips_and_shards_share_the_work(swept, tmp_path):
    out, flags, _ = swept
    done = run(out, *flags, program="experiments.sweep")
    assert done.stdout.count("tradeoff=50,epsilon_hi=6,seed=1") >= 2
    assert "Finished before: tradeoff=5,epsilon_hi=6,seed=0" in done.stdout
    assert "Planned" not in done.stdout
    grid = "--grid=seed=0,1,2"
    for number in (1, 2):
        done = run(
            tmp_path,
            flags[1],
            grid,
            "--length.rounds=1",
            f"--shard={number}/2",
            program="experiments.sweep",
        )
        assert done.returncode == 0, done.stderr
        made = sorted(run.name for run in records.find_runs([tmp_path]))
        assert made == (
            ["seed=0", "seed=2"] if number == 1 else [f"seed={i}" for i in range(3)]
        )


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--preset=nothing", "unknown preset 'nothing': choose one of quickstart"),
        ("--schedule.policy=best", "unknown policy 'best'"),
        ("--data.name=imagenet", "imagenet"),
        ("--data.dir=/nowhere", "/nowhere"),
        ("--data.dir=BROKEN", "is not readable as an npz of train_images"),
        ("--data.train_examples=5000", "30000"),
        ("--data.partition=striped", "--data.partition must be one of iid"),
        ("--nonsection.field=1", "Unknown command line flag"),
        ("--privacy.delta=0", "--privacy.delta must be above 0 and below 1"),
        ("--privacy.epsilons=2,5", "2 epsilons are given for 6 clients"),
        ("--training.clipping=off", "noise without clipping protects nothing"),
        ("--training.batch_size=many", "could not convert string to float"),
        ("--model.name=vit", "unknown model 'vit'"),
        ("--out=/dev/null", "cannot be used as a folder"),
        ("--out=/proc/nothing", "cannot be used as a folder"),
        ("stray", "unexpected argument 'stray'"),
    ],
)
def test_bad_input_gets_one_sentence_and_exit_code_2(tmp_path, cache, flag, message):
    if "BROKEN" in flag:
        np.savez(tmp_path / "toy.npz", train_images=np.zeros(3))
        flag = f"--data.dir={tmp_path}"
    policy = [] if "policy" in flag else ["--schedule.policy=random"]
    assert_refused(run(tmp_path / "o", cache, *policy, flag), message)
    assert not list(tmp_path.rglob(records.MANIFEST))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--grid=seed=0,1", "--seed=3"), "seed is both a flag and an axis"),
        (("--grid=sead=0,1",), "unknown setting 'sead'"),
        (("--grid=seed=0,1", "--shard=3/2"), "is not of the form i/n"),
        (("--preset=paper_mnist",), "there is no grid"),
        (("--grid=seed=0,1", "--out="), "name a folder for the records"),
        (("--grid=privacy.delta=0",), "no run of the grid is possible"),
        (("--schedule.policy=random",), "an axis of the preset's grid: give --grid"),
    ],
)
def test_bad_sweeps_are_refused(tmp_path, flags, message):
    assert_refused(run(tmp_path / "o", *flags, program="experiments.sweep"), message)


def test_what_fails_all_runs_alike_is_said_once(tmp_path, cache):
    done = run(tmp_path / "o", cache, "--data.name=mnits")
    assert_refused(done, "has neither mnits.npz nor the four idx files")


def test_an_interrupted_start_has_no_traceback(tmp_path, cache):
    """Ctrl-C while images are loaded and programs compiled."""
    command = [sys.executable, "-m", "experiments.run", f"--out={tmp_path}", *SMALL]
    process = subprocess.Popen(
        [*command, cache, "--model.name=mnist_cnn"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in process.stdout:
        if line.startswith("Images"):
            break
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)  # at once
    _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT  # 130 in a shell
    assert "Traceback" not in errors
