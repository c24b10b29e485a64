"""Does `experiments.sweep` run what is possible, skip what is done, and say why not?"""

import json
import shutil

import pytest

from benchmarks import run_facts
from dpsparfl_jax import records
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.report import sections
from dpsparfl_jax.runner import own_folder
from tests import plugins, toy
from tests.commands import assert_refused, call_program, run_program
from tests.experiments.small_runs import run

SWEEP = "experiments.sweep"


@pytest.fixture(scope="module")
def swept(tmp_path_factory, cache):
    out = tmp_path_factory.mktemp("sweep") / "out"
    grid = "--grid=schedule.tradeoff=5,50;privacy.epsilon_hi=1,6;seed=0,1"
    flags = (grid, cache, "--length.rounds=3")
    return out, flags, run(out, *flags, program=SWEEP, how=run_program)


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
    done = run(out, *flags, program=SWEEP)
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
            program=SWEEP,
        )
        assert done.returncode == 0, done.stderr
        made = sorted(run.name for run in records.find_runs([tmp_path]))
        assert made == (
            ["seed=0", "seed=2"] if number == 1 else [f"seed={i}" for i in range(3)]
        )


def test_the_index_is_enough_to_skip_what_is_finished(swept, tmp_path):
    out, flags, _ = swept
    names = {path.parent.name for path in out.glob(f"*/{records.DONE}")}
    index = records.Index(out)
    assert {name for name in names if index.find(name)} == names
    copy = shutil.copytree(out, tmp_path / "copy")
    for name in names:
        (copy / name / records.MANIFEST).unlink()
    done = run(copy, *flags, program=SWEEP)
    assert all(name in done.stdout for name in names)
    assert done.stderr.count("FAILED") == 4  # those that cannot be
    (copy / records.INDEX).unlink()
    done = run(copy, *flags, program=SWEEP)
    assert "without its manifest.json" in done.stderr


def test_other_settings_are_refused_with_an_index_as_without(swept, tmp_path):
    out, flags, _ = swept
    copy = shutil.copytree(out, tmp_path / "copy")
    (copy / records.INDEX).write_text("damaged\n")
    told = []
    for folder in (out, copy):
        done = run(folder, *flags[:2], "--length.rounds=2", program=SWEEP)
        assert done.returncode == 2
        told.append(done.stderr.replace(str(folder), "OUT"))
    assert told[0] == told[1]
    assert "holds another run (length.rounds was 3, is 2)" in told[0]


def test_a_run_whose_end_was_deleted_is_finished_again(swept, tmp_path):
    out, flags, _ = swept
    copy = shutil.copytree(out, tmp_path / "copy")
    name = "tradeoff=5,epsilon_hi=6,seed=1"
    (copy / name / records.DONE).unlink()
    done = run(copy, *flags, program=SWEEP)
    (skipped,) = [line for line in done.stdout.splitlines() if "before" in line]
    assert name not in skipped
    assert "tradeoff=50,epsilon_hi=6,seed=1" in skipped
    assert run_facts.facts(copy / name) == run_facts.facts(out / name)
    assert records.Index(copy).find(name) is not None


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
    assert_refused(run(tmp_path / "o", *flags, program=SWEEP), message)


def test_names_that_nobody_knows_are_refused_before_any_run(tmp_path):
    """One bad value among good ones: nothing is trained."""
    many = ",".join(map(str, range(1, 500)))
    for axis, message in (
        ("schedule.policy=random,best", "unknown policy 'best'"),
        ("data.name=toy,mnits", "has neither mnits.npz"),
        ("training.clipping=adjusted,maybe", "clipping must be one of adjusted"),
        ("privacy.delta=1e-3,2", "delta must be above 0 and below 1"),
        (f"schedule.tradeoff={many}", "one command takes 10,000 at most"),
    ):
        grid = f"--grid=seed={many if many in axis else '0,1'};{axis}"
        flags = (f"--out={tmp_path}/o", f"--data.dir={toy.folder()}", grid)
        assert_refused(call_program(SWEEP, *flags), message)
    assert not list(tmp_path.rglob("*"))


@pytest.mark.usefixtures("own_policies")
def test_edited_plugins_refuse_their_own_runs_and_no_others(tmp_path, cache):
    path, out = plugins.write(tmp_path), tmp_path / "o"
    whole = "--shard=1/1"  # of one part: no report is written
    flags = (cache, f"--plugin={path}", "--length.rounds=1", whole)
    grid = "--grid=schedule.policy=random,mine"
    done = run(out, *flags, grid, program=SWEEP)
    assert done.returncode == 0, done.stderr
    folder = out / "policy=mine"
    manifest = records.read_manifest(folder)
    (told,) = manifest[records.OWN_CODE]
    assert told["plugin"] == "mine.py"
    assert records.read_manifest(out / "policy=random")[records.OWN_CODE] == []
    assert records.Index(out).find("policy=mine").manifest[records.OWN_CODE] == [told]
    for found in (records.find_runs([out]), records.FoundRuns([out]).read()):
        page = sections.made_section(found)
        assert "(RUN is its folder, as in policy=mine)" in page
        short = told["file_sha256"][:12]
        assert f"policy &#x27;mine&#x27; of mine.py (SHA-256 {short}).</li>" in page
    assert "--plugin" not in sections.made_section(found[1:])
    done = run(out, *flags, grid, program=SWEEP)
    assert "Finished before: policy=random, policy=mine." in done.stdout

    path.write_text(plugins.POLICY.replace("FIRST = 0", "FIRST = 1"))
    sentence = (
        f"{folder} holds a run with other code of policy 'mine' of mine.py: choose "
        "another folder, or remove that one to train it anew."
    )
    done = run(out, *flags, grid, program=SWEEP)
    assert done.returncode == 1
    assert done.stderr == f"FAILED policy=mine: {sentence}\n"
    assert "Finished before: policy=random." in done.stdout
    settings = records.load_run(folder).settings
    with pytest.raises(InputError, match="other code of policy 'mine'"):
        own_folder.refuse_other_run(folder, settings)
    (folder / records.DONE).unlink()  # an unfinished run is refused alike
    with pytest.raises(InputError, match="other code of policy 'mine'"):
        own_folder.look(folder, settings, resume=True)
    del manifest[records.OWN_CODE]  # as versions before 0.3 wrote it
    (folder / records.MANIFEST).write_text(json.dumps(manifest))
    assert own_folder.look(folder, settings, resume=True) == (False, False)
