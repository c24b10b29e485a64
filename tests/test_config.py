"""Does every setting have a default, bounds and help, and is a bad one refused?"""

import dataclasses

import pytest

from dpsparfl_jax import config
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.registry import OPTIMIZERS, SPARSIFIERS
from dpsparfl_jax.runner import tasks
from dpsparfl_jax.training import clipping, cohort, noise


def settings():
    for name in config.SECTIONS:
        section = getattr(config.RunConfig(), name)
        for field in dataclasses.fields(section):
            yield name, section, field


def test_sections_and_help():
    assert config.SECTIONS == (
        *("data", "model", "training", "privacy", "server", "wireless"),
        *("schedule", "length", "records", "perf"),
    )
    assert all(field.metadata["help"] for _, _, field in settings())


def test_every_bound_is_enforced():
    checked = 0
    for _, section, field in settings():
        rule = field.metadata
        bad = []
        if rule["choices"]:
            bad.append("nonsense")
        if rule["low"] is not None:
            bad.append(rule["low"] - 1)
        if rule["above"] is not None:
            bad.append(rule["above"])
        if rule["high"] is not None:
            bad.append(rule["high"] * 2)
        if rule["below"] is not None:
            bad.append(rule["below"])
        if isinstance(field.default, float):
            bad.append(float("nan"))
        for value in bad:
            with pytest.raises(InputError, match=f"^{field.name} must be "):
                dataclasses.replace(section, **{field.name: value})
            checked += 1
    assert checked > 15


def test_choices_are_those_of_the_rooms_that_use_them():
    def rule(section, name):
        fields = {f.name: f for f in dataclasses.fields(section)}
        return fields[name].metadata

    def choices(section, name):
        return set(rule(section, name)["choices"])

    assert rule(config.TrainingConfig, "optimizer")["named"] is OPTIMIZERS
    assert rule(config.ServerConfig, "optimizer")["named"] is OPTIMIZERS
    assert rule(config.TrainingConfig, "sparsifier")["named"] is SPARSIFIERS
    assert choices(config.TrainingConfig, "clipping") == set(tasks.CLIPPINGS)
    assert choices(config.PrivacyConfig, "generator") == set(noise.GENERATORS)
    assert choices(config.PerfConfig, "execution") == set(cohort.EXECUTIONS)
    assert choices(config.PerfConfig, "clipping_method") == set(clipping.METHODS)


@pytest.mark.parametrize(
    "changes", [{"clip_norm": "abc"}, {"clip_norm": True}, {"local_steps": 2.5}]
)
def test_a_value_of_another_type_is_refused(changes):
    with pytest.raises(InputError, match="must be of type"):
        config.TrainingConfig(**changes)
    assert config.TrainingConfig(clip_norm=2).clip_norm == 2


def test_sections_must_fit_each_other():
    off = config.TrainingConfig(clipping="off")
    with pytest.raises(InputError, match="noise without clipping"):
        config.RunConfig(training=off)
    config.RunConfig(training=off, privacy=config.PrivacyConfig(noise=False))
    with pytest.raises(InputError, match="epsilon_lo must be at most epsilon_hi"):
        config.PrivacyConfig(epsilon_lo=5.0, epsilon_hi=2.0)
    with pytest.raises(InputError, match="cpu_low_hz must be at most cpu_high_hz"):
        config.WirelessConfig(cpu_low_hz=3e9)
    with pytest.raises(InputError, match="of no use without noise"):
        config.RunConfig(
            privacy=config.PrivacyConfig(noise=False, clip_calibration="private")
        )
    with pytest.raises(InputError, match="seed must be"):
        config.RunConfig(seed=-1)


def test_configurations_are_values():
    assert config.RunConfig() == config.RunConfig()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.RunConfig().seed = 1
