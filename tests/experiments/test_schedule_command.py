"""Does `experiments.schedule_only` plan all policies, and refuse what it cannot?"""

import numpy as np
import pytest

from dpsparfl_jax.planning import schedule
from tests import plugins
from tests.commands import assert_refused, call_program, run_program


def run(folder, *flags, how=call_program):
    settings = ("--perf.cache_dir=", f"--plot={folder / 's.png'}")
    return how("experiments.schedule_only", *settings, *flags)


def table(done):
    """The words of the table's heading, and the cells of its rows by policy."""
    lines = [line.split() for line in done.stdout.splitlines()]
    start = next(n for n, words in enumerate(lines) if words[0] == "policy")
    rows = [words for words in lines[start + 2 :] if words[0] != "figure:"]
    return lines[start], {words[0]: words[1:] for words in rows}


@pytest.mark.slow
def test_all_policies_and_solvers_of_the_papers_mnist_run(tmp_path):
    done = run(
        tmp_path,
        "--preset=paper_mnist",
        f"--out={tmp_path / 'plans'}",
        f"--plot_world={tmp_path / 'world.pdf'}",
        how=run_program,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    rows = {
        line.split()[0]: [float(cell) for cell in line.split()[1:]]
        for line in done.stdout.splitlines()
        if line.split()[0] in ("delay_min", "round_robin", "random")
        or line.startswith("dp_sparfl/")
    }
    assert len(rows) == 8
    rounds, busy, delay, _, _, keep, off, *_ = rows["dp_sparfl/joint"]
    assert delay == pytest.approx(120, rel=0.05)
    assert busy >= 0.95 * rounds
    assert off < 0.01
    assert 0.3 < keep < 0.7
    assert keep > rows["dp_sparfl/paper"][5]
    # Delay minimisation is the fastest baseline, and gets slower as clients retire.
    assert rows["delay_min"][3] < rows["delay_min"][4]
    assert rows["delay_min"][2] < rows["random"][2]
    assert (tmp_path / "s.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "world.pdf").read_bytes()[:4] == b"%PDF"
    plan = schedule.load(tmp_path / "plans" / "dp_sparfl_joint.npz")
    assert plan.num_rounds == rounds
    assert np.mean(plan.round_delay_s) == pytest.approx(delay, abs=0.05)


def test_an_unreachable_target_is_a_warning_not_an_error(tmp_path):
    done = run(
        tmp_path,
        "--schedule.delay_target_s=20",
        "--schedule.energy_budget_j=24",
        "--length.rounds=3",
        "--schedule.solver=descent",
        "--data.dirichlet_alpha=1",
    )
    assert done.returncode == 0
    *idle, warning = done.stderr.strip().splitlines()
    assert "The delay target of 20 s cannot be met" in warning
    assert idle == ["data.dirichlet_alpha has no effect with data.partition=iid."]
    _, rows = table(done)
    assert list(rows) == ["dp_sparfl/descent", "delay_min", "round_robin", "random"]


@pytest.mark.usefixtures("own_policies")
def test_plugins_are_planned_too_and_one_policy_alone_if_asked(tmp_path, cache):
    plugin = f"--plugin={plugins.write(tmp_path)}"
    short = ("--preset=quickstart", "--length.rounds=2", "--plot=", plugin, cache)
    done = run(tmp_path, *short, f"--out={tmp_path / 'plans'}")
    assert done.returncode == 0, done.stderr
    heads, rows = table(done)
    assert list(rows)[-4:] == ["delay_min", "round_robin", "random", "mine"]
    assert heads[-2:] == ["seconds", "planned"]  # of two rounds: no hours
    plan = schedule.load(tmp_path / "plans" / "mine.npz")
    assert float(rows["mine"][-2]) == pytest.approx(plan.round_delay_s.sum(), abs=0.006)
    flags = ("--schedule.policy=mine", "--schedule.solver=descent")
    done = run(tmp_path, *short, *flags)
    assert done.stderr == ""
    assert list(table(done)[1]) == ["mine"]
    plugins.write(tmp_path, plugins.POLICY.replace("rows = np", "rows = oops + np"))
    done = run(tmp_path, *short, *flags)
    assert_refused(done, "policy 'mine' failed in round 1: NameError: name 'oops'")
    assert done.stderr.endswith("shows the whole traceback.\n")


def test_nobody_can_send(tmp_path):
    done = run(tmp_path, "--schedule.energy_budget_j=0.2", "--length.rounds=3")
    assert done.returncode == 0
    assert "No client can send even at the least keep rate" in done.stderr
    assert "Warning" not in done.stderr
    assert done.stdout.count("nobody sends in 3 rounds: all rounds are done") == 8
    assert not (tmp_path / "s.png").exists()


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--preset=nothing", "unknown preset 'nothing': choose one of quickstart"),
        ("--schedule.solver=magic", "unknown solver 'magic': choose one of joint"),
        ("--schedule.keep_min=0", "--schedule.keep_min must be above 0"),
        ("--wireless.num_channels=0", "--wireless.num_channels must be at least 1"),
        ("--plot=/nowhere/s.png", "make its folder first"),
        ("--out=/dev/null", "--out=/dev/null cannot be used as a folder"),
        ("--model.name=vit", "unknown model 'vit'"),
        ("--schedule.policy=best", "unknown policy 'best'"),
        pytest.param(
            "--privacy.noise_multiplier=0.2 --privacy.accountant=rdp",
            "no client can take part even once",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_bad_input_gets_one_sentence_and_exit_code_2(tmp_path, flag, message):
    assert_refused(run(tmp_path, *flag.split()), message)
