"""Do runs that are stopped, killed or out of disk leave what goes on later?"""

import os
import signal
import subprocess
import sys
import time

import pytest

from benchmarks import disturbances
from dpsparfl_jax import records
from tests.commands import ROOT, assert_refused
from tests.experiments.small_runs import SMALL, run


@pytest.mark.slow
def test_killed_runs_go_on_to_the_same_bits(cache):
    """One kill here; `python -m benchmarks.faults` does fifty, and much else."""
    settings = (*SMALL, cache, "--schedule.policy=random", "--length.rounds=24")
    (trial,) = disturbances.measure(1, seed=1, run=settings, faults=False)["trials"]
    assert trial["ending"] == "equal", trial


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.parametrize(
    "start",
    [
        ["-m", "experiments.run"],
        ["-m", "experiments"],
        # As the installed command is started.
        [
            "-c",
            "import sys; sys.argv[0] = '/bin/dpsparfl'; import experiments.__main__",
        ],
    ],
)
def test_ctrl_c_while_the_program_is_loaded_is_one_word(tmp_path, start):
    """A NumPy that never ends to load stands in for the first second."""
    (tmp_path / "numpy.py").write_text(
        "import time\nprint('loading', flush=True)\ntime.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, *start],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "loading\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, "Interrupted.\n")


def test_whoever_imports_the_programs_keeps_ctrl_c():
    code = "import signal, experiments; print(signal.getsignal(signal.SIGINT).__name__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True)
    assert done.stdout.decode().strip() == "default_int_handler"


@pytest.mark.slow
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
