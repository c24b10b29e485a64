"""Are settings printed as they are used, and read back exactly?"""

import dataclasses
import json
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import run_facts
from dpsparfl_jax import config, config_values, records
from dpsparfl_jax.errors import InputError
from experiments import presets, settings_file
from tests.commands import assert_refused, call_program
from tests.experiments.small_runs import run

OTHER = config.RunConfig(  # whatever a whole file lacked would be seen
    model=config.ModelConfig(name="logistic"), seed=99
)


def read_back(folder, values):
    path = folder / "settings.toml"
    path.write_text(settings_file.as_toml(values), encoding="utf-8")
    return settings_file.read(str(path), OTHER)


@pytest.mark.parametrize("name", presets.PRESETS)
def test_presets_survive(name, tmp_path):
    values = presets.PRESETS[name].settings
    read = read_back(tmp_path, values)
    assert read == values
    assert config_values.digest(read) == config_values.digest(values)
    assert config_values.noise_seed(read) == config_values.noise_seed(values)


numbers = st.floats(1e-30, 1e17)
words = st.text(st.characters(codec="utf-8"), max_size=20).filter(str.isprintable)
many = st.lists(numbers, min_size=2, max_size=4)


@settings(max_examples=30, deadline=None)
@given(
    numbers,
    words.filter(bool) | st.sampled_from(['a"b', "a\\nb", "'", '"""', "#", "é\\u00e9"]),
    numbers | many | st.sampled_from(["1e6..2e6", "1,2.5"]),
    st.integers(0, 2**63 - 1),
    st.booleans(),
)
def test_changed_values_survive(tmp_path_factory, number, word, each, seed, switch):
    values = config.RunConfig(
        data=config.DataConfig(name=word, dir=word),
        training=config.TrainingConfig(clip_norm=number, batch_size=number),
        wireless=config.WirelessConfig(cycles_per_sample=each, fading=switch),
        seed=seed,
    )
    read = read_back(tmp_path_factory.getbasetemp(), values)
    assert read == values
    assert config_values.digest(read) == config_values.digest(values)


@pytest.mark.parametrize("program", ["run", "sweep", "tune", "schedule_only"])
def test_what_is_printed_is_what_flags_say(program, tmp_path):
    flags = ("--preset=paper_fig3", "--data.dir=a\"b'c", "--schedule.keep_rate=0.3")
    done = call_program(f"experiments.{program}", "--print_config", *flags, "--seed=7")
    assert (done.returncode, done.stderr) == (0, "")
    (tmp_path / "mine.toml").write_text(done.stdout)
    base = presets.PRESETS["paper_fig3"].settings
    assert settings_file.read(
        str(tmp_path / "mine.toml"), OTHER
    ) == dataclasses.replace(
        base,
        data=dataclasses.replace(base.data, dir="a\"b'c"),
        schedule=dataclasses.replace(base.schedule, keep_rate=0.3),
        seed=7,
    )
    assert "[wireless]" in done.stdout
    assert "bandwidth_hz = 15000.0  # bandwidth of one uplink channel (Hz)" in (
        done.stdout
    )
    assert "# A grid varies schedule.tradeoff." in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 88


def printed(*flags, program="run"):
    done = call_program(f"experiments.{program}", "--print_config", *flags)
    assert done.returncode == 0, done.stderr
    return tomllib.loads(done.stdout)


def test_a_part_is_enough_and_flags_win(tmp_path):
    path = tmp_path / "part.toml"
    path.write_text("seed = 5\n[run]\nrounds = 7\n[privacy]\nepsilon_hi = 6\n")
    values = printed(f"--config={path}", "--privacy.epsilon_hi=4")
    assert (values["seed"], values["length"]["rounds"]) == (5, 7)
    assert values["privacy"]["epsilon_hi"] == 4.0
    assert values["model"]["name"] == "small_cnn"  # as in quickstart
    assert printed(f"--config={path}", program="schedule_only")["model"]["name"] == (
        "mnist_cnn"  # as in paper_mnist
    )
    path.write_text('preset = "paper_cifar"\nseed = 5\n')
    values = printed(f"--config={path}")
    assert (values["seed"], values["model"]["name"]) == (5, "cifar_cnn")


def test_a_manifest_is_a_file_of_settings(tmp_path):
    values = presets.PRESETS["paper_fig3"].settings
    path = tmp_path / "mine" / records.MANIFEST
    path.parent.mkdir()
    path.write_text(json.dumps({"config": config_values.as_dict(values)}))
    assert settings_file.read(str(path), OTHER) == values
    path.write_text('{"config": {"data": 3}}')
    with pytest.raises(InputError, match=r"mine/manifest\.json is no manifest"):
        settings_file.read(str(path), OTHER)


@pytest.mark.slow
def test_a_recorded_run_is_repeated_to_the_bit(tmp_path, cache):
    flags = ("--schedule.policy=random", "--length.rounds=2", "--seed=3")
    first = run(tmp_path / "a", cache, *flags)
    assert first.returncode == 0, first.stderr
    manifest = tmp_path / "a" / records.MANIFEST
    told = call_program("experiments.run", f"--config={manifest}", "--print_config")
    (tmp_path / "b.toml").write_text(told.stdout)
    for number, file in enumerate((manifest, tmp_path / "b.toml")):
        out = tmp_path / f"again{number}"
        done = call_program("experiments.run", f"--config={file}", f"--out={out}")
        assert done.returncode == 0, done.stderr
        assert run_facts.facts(out) == run_facts.facts(tmp_path / "a")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed = ", r"mine\.toml cannot be read as TOML \(Invalid value"),
        ("[privacy]\nepsilon_high = 3", "did you mean privacy.epsilon_hi?"),
        ("policy = 'random'", "setting 'policy': did you mean schedule.policy?"),
        ("[dada]\nname = 'x'", "unknown setting 'dada': did you mean data?"),
        ("data = 3", "data is a section"),
        ("seed = true", "seed must be of type int, but is True"),
        ("[privacy]\ndelta = 2", "privacy.delta must be above 0 and below 1"),
        ("[data]\nnum_clients = '4'", "data.num_clients must be of type int"),
        ("[schedule]\npolicy = 'best'", "unknown policy 'best'"),
        ("preset = 'x'", "unknown preset 'x'"),
        ("preset = []", "unknown preset"),
    ],
)
def test_bad_files_are_refused_by_name(text, message, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=r"mine\.toml") as refused:
        settings_file.read(str(path), OTHER)
    assert refused.match(message.replace("?", r"\?"))


def test_two_places_to_start_from_are_refused(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("seed = 5")
    flags = (f"--config={path}", "--preset=quickstart")
    for program in ("run", "sweep"):
        done = call_program(f"experiments.{program}", *flags)
        assert_refused(done, "are two places to start from")
    done = call_program("experiments.sweep", f"--config={path}", "--out=x")
    assert_refused(done, "there is no grid")
    assert_refused(call_program("experiments.run", "--config=x"), "--config=x is no")


def test_presets_are_listed():
    told = [
        call_program("experiments.run", "--list_presets"),
        call_program("experiments.sweep", "--list_presets"),
        call_program("experiments.list_presets"),
    ]
    assert {done.returncode for done in told} == {0}
    (text,) = {done.stdout for done in told}
    lines = text.splitlines()
    assert [line.split()[0] for line in lines] == list(presets.PRESETS)
    (figure,) = [line for line in lines if line.startswith("paper_fig8 ")]
    assert figure.endswith("Fig. 8: policies, imbalanced Fashion-MNIST (4 runs)")
