"""Does `experiments.run` do what a user expects of it?"""

import jax
import numpy as np
import pytest

import dpsparfl_jax
from dpsparfl_jax import preflight, records
from dpsparfl_jax.storage import FolderLock
from tests.commands import assert_refused, call_program, run_program
from tests.experiments.small_runs import run


@pytest.fixture(scope="module")
def quick(tmp_path_factory, cache):
    """The four policies of the quickstart, in small."""
    out = tmp_path_factory.mktemp("quick") / "out"
    return out, run(out, cache, how=run_program)


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
        assert float(cells[1].rstrip("%")) / 100 == pytest.approx(
            found.rounds["accuracy"].iloc[-1], abs=6e-5
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


@pytest.mark.slow
def test_flags_from_a_file(tmp_path, cache):
    path = tmp_path / "flags.txt"
    path.write_text("--schedule.policy=random\n--length.rounds=1\n--seed=7\n")
    done = run(tmp_path / "o", cache, f"--flagfile={path}")
    assert done.returncode == 0, done.stderr
    found = records.load_run(tmp_path / "o")
    assert found.manifest["config"]["seed"] == 7
    assert len(found.rounds) == 1


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--preset=nothing", "unknown preset 'nothing': choose one of quickstart"),
        ("--schedule.policy=best", "What you registered in a file needs --plugin=FILE"),
        ("--schedule.policy=rando", "delay_min, round_robin, random; did you mean ran"),
        ("--preset=paper_mnits", "did you mean paper_mnist?"),
        ("--data.name=imagenet", "imagenet"),
        ("--data.dir=/nowhere", "/nowhere"),
        ("--data.dir=BROKEN", "is not readable as an npz of train_images"),
        ("--data.train_examples=5000", "30000"),
        ("--data.partition=striped", "unknown partition 'striped': choose one of iid"),
        ("--nonsection.field=1", "Unknown command line flag"),
        ("--privacy.delta=0", "--privacy.delta must be above 0 and below 1"),
        ("--privacy.epsilons=2,5", "2 epsilons are given for 6 clients"),
        ("--training.clipping=off", "noise without clipping protects nothing"),
        ("--training.batch_size=many", "could not convert string to float"),
        ("--model.name=vit", "unknown model 'vit'"),
        ("--out=/dev/null", "cannot be used as a folder"),
        ("--out=/proc/nothing", "cannot be used as a folder"),
        ("--schedule.round_limit_s=1e-4", "nobody can send in any of 6 planned rounds"),
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


def test_what_fails_all_runs_alike_is_said_once(tmp_path, cache):
    done = run(tmp_path / "o", cache, "--data.name=mnits")
    assert_refused(done, "has neither mnits.npz nor the four idx files")


def test_help_and_version_are_no_failures():
    for flag in ("--help", "--helpfull", "--helpshort", "-h"):
        done = call_program("experiments.run", flag)
        assert (done.returncode, done.stderr) == (0, "")
        assert "--schedule.policy" in done.stdout
    done = call_program("experiments.run", "--version")
    assert (done.returncode, done.stdout.strip()) == (0, dpsparfl_jax.__version__)


def test_flags_without_effect_are_told_and_recorded(tmp_path, cache):
    flags = ("--schedule.policy=random", "--schedule.solver=descent")
    idle = ("--data.dirichlet_alpha=0.5", "--data.group_sizes=30,60")
    done = run(tmp_path / "o", cache, *flags, *idle, "--length.rounds=1")
    assert done.returncode == 0, done.stderr
    told = records.load_run(tmp_path / "o").warnings
    assert [sentence.split()[0] for sentence in told] == [
        *("data.dirichlet_alpha", "data.group_sizes", "schedule.solver"),
    ]
    for sentence in told:
        assert done.stdout.count(sentence) == 1
    assert "schedule.solver has no effect with schedule.policy=random." in told


def test_a_folder_in_use_is_no_folder_to_resume(quick, cache):
    out, _ = quick
    folder = out / "policy=random"
    (folder / records.DONE).rename(folder / "kept")
    lock = FolderLock(folder / records.LOCK)
    try:
        for resume in ((), ("--resume",)):
            done = run(out, cache, *resume)
            assert "another process is writing to" in done.stderr
            assert "unfinished" not in done.stderr
            assert "--resume" not in done.stderr
    finally:
        lock.release()
        (folder / "kept").rename(folder / records.DONE)


def test_a_platform_that_is_not_there_is_named(monkeypatch, tmp_path, cache):
    def fail():
        raise AssertionError

    monkeypatch.setattr(jax, "devices", fail)
    done = run(tmp_path / "o", cache)
    assert_refused(done, "JAX cannot use the platform 'cpu' (it is not there)")
    done = call_program("experiments.schedule_only", "--plot=", "--length.rounds=1")
    assert_refused(done, "leave JAX_PLATFORMS empty")


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        (MemoryError("Unable to allocate 9 GiB"), "there is too little memory"),
        (OSError(36, "File name too long", "x"), "cannot use x (File name too long)"),
    ],
)
def test_what_a_system_refuses_is_one_sentence(monkeypatch, cache, raised, message):
    def fail(settings):
        raise raised

    monkeypatch.setattr(preflight, "check", fail)
    assert_refused(run("/tmp/nothing", cache), message)
