"""Are settings written and read back whole, and compared by what they move?"""

import dataclasses
import json

import pytest

from dpsparfl_jax import config, config_values
from dpsparfl_jax.errors import InputError
from tests import toy
from tests.commands import call_program


def test_settings_survive_json():
    settings = toy.settings(seed=3, schedule={"keep_rate": 0.3})
    text = json.dumps(config_values.as_dict(settings))
    assert config_values.from_dict(json.loads(text)) == settings


def test_names_of_the_version_before_are_read():
    values = config_values.as_dict(config.RunConfig())
    del values["length"]
    values["run"] = {"rounds": 7, "eval_every": 1}
    values["training"]["mask"] = "fixed_count"
    del values["training"]["sparsifier"], values["server"]
    read = config_values.from_dict(values)
    assert read.length.rounds == 7
    assert read.training.sparsifier == "fixed_count"
    assert read.server == config.ServerConfig()


@pytest.mark.parametrize(
    "values", [{"nothing": {}}, {"training": {"unknown": 1}}, {"training": 3}]
)
def test_what_is_no_configuration_is_refused(values):
    with pytest.raises(InputError, match="no configuration of ours"):
        config_values.from_dict(values)


def test_every_setting_moves_one_thing():
    settings = config.RunConfig()
    for section in config.SECTIONS:
        names = {field.name for field in dataclasses.fields(getattr(settings, section))}
        moving = [
            set(config_values.moving(settings, what)[section])
            for what in ("results", "rounding", "nothing")
        ]
        assert set.union(*moving) == names
        assert sum(map(len, moving)) == len(names)


def test_digests_and_differences_follow_what_moves_results():
    base, faster = toy.settings(), toy.settings(perf={"eval_batch_size": 7})
    other = toy.settings(training={"clip_norm": 3.0})
    assert config_values.digest(base) == config_values.digest(faster)
    assert config_values.digest(base) != config_values.digest(other)
    then, now = (config_values.moving(each, "results") for each in (base, other))
    assert config_values.differences(then, now) == [
        "training.clip_norm was 2.0, is 3.0"
    ]
    seeds = (config_values.as_dict(toy.settings(seed)) for seed in (1, 2))
    assert config_values.differences(*seeds) == ["seed was 1, is 2"]


def test_a_flag_of_the_version_before_is_taken_with_a_hint(tmp_path):
    done = call_program(
        "experiments.schedule_only",
        "--perf.cache_dir=",
        "--plot=",
        "--privacy.accountant=rdp",
        "--run.rounds=2",
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == "run.rounds is called length.rounds now: use that.\n"


def test_noise_depends_on_all_that_moves_results_unless_it_is_paired():
    own = {"noise_key": "own"}
    base = toy.settings(3, privacy=own)
    seed = config_values.noise_seed(base)
    assert 0 <= seed < 2**63
    for same in ({"perf": {"devices": 1}}, {"length": {"rounds": 99}}):
        assert seed == config_values.noise_seed(toy.settings(3, privacy=own, **same))
    others = [
        toy.settings(4, privacy=own),
        toy.settings(3, privacy=own, training={"clip_norm": 3.0}),
        toy.settings(3, privacy=own, training={"batch_size": 7.0}),
        toy.settings(3, privacy={"noise_multiplier": 1.25, **own}),
        toy.settings(3, privacy=own, server={"averaging": "ema"}),
        toy.settings(3, privacy=own, length={"rounds": 99, "eval_every": 2}),
        toy.settings(3, privacy=own, data={"train_examples": 59}),
    ]
    assert len({seed, *map(config_values.noise_seed, others)}) == 1 + len(others)
    for each in others:
        privacy = dataclasses.replace(each.privacy, noise_key="paired")
        paired = dataclasses.replace(each, privacy=privacy)
        assert config_values.noise_seed(paired) == each.seed


def test_a_setting_that_comes_later_moves_no_noise(monkeypatch):
    """At its default, a new option leaves a run what it was."""
    settings = toy.settings(3, privacy={"noise_key": "own"})
    seed = config_values.noise_seed(settings)
    plain = config_values.moving

    def with_more(settings, what):
        return {**plain(settings, what), "later": {"option": 1}}

    monkeypatch.setattr(config_values, "moving", with_more)
    assert config_values.noise_seed(settings) == seed


def test_settings_without_effect_are_named():
    plain, given = config.RunConfig(), ("data.group_sizes", "schedule.solver", "seed")
    assert config_values.without_effect(plain, given) == [
        "data.group_sizes has no effect with data.partition=iid."
    ]
    assert config_values.without_effect(plain, ()) == []
    groups = config.RunConfig(data=config.DataConfig(partition="imbalanced"))
    assert config_values.without_effect(groups, ("data.train_examples", *given)) == [
        "data.train_examples has no effect with data.partition=imbalanced."
    ]
