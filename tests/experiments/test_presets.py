"""Do presets hold what they promise, and do grids mean the right runs?"""

import dataclasses

import pytest

from dpsparfl_jax import config_values
from dpsparfl_jax.config import RunConfig
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.runner.run import outline
from experiments import grid, presets

PAPER = [name for name in presets.PRESETS if name.startswith("paper_")]


@pytest.mark.parametrize("name", presets.PRESETS)
def test_every_preset_has_known_shapes_and_a_good_grid(name):
    preset = presets.get_preset(name)
    known = outline(preset.settings)
    assert known.model.parameters > 0
    assert len(known.sizes) == preset.settings.data.num_clients
    points = grid.expand(preset.settings, grid.parse(preset.grid))
    assert points.settings
    assert not points.problems


@pytest.mark.parametrize("name", PAPER)
def test_paper_presets_have_the_values_of_its_setup_section(name):
    settings = presets.PRESETS[name].settings
    noise, model, size = {
        "mnist": (0.6, "mnist_cnn", 1_663_370),
        "fashion_mnist": (0.5, "mnist_cnn", 1_663_370),
        "cifar10": (0.4, "cifar_cnn", 930_826),
    }[settings.data.name]
    assert settings.privacy.noise_multiplier == noise
    assert settings.model.name == model
    assert outline(settings).model.parameters == size
    assert settings.data.num_clients == 20
    assert settings.data.test_examples == 500
    assert settings.data.train_examples == 1000
    assert settings.data.dirichlet_alpha == 0.2
    assert settings.training.learning_rate == 0.002
    assert settings.training.local_steps == 60
    assert settings.privacy.delta == 1e-3
    assert (settings.privacy.epsilon_lo, settings.privacy.epsilon_hi) == (2, 10)
    assert settings.schedule.tradeoff == 50
    radio = settings.wireless
    assert (radio.num_channels, radio.area_m, radio.bandwidth_hz) == (5, 100, 15e3)
    assert (radio.ap_power_dbm, radio.max_power_dbm, radio.noise_dbm) == (23, 30, -107)
    assert radio.cpu_high_hz == 2.4e9


def test_there_is_a_preset_for_every_figure():
    figures = {name.split("_")[1] for name in PAPER if "fig" in name.split("_")[1]}
    assert figures >= {"fig2", "fig3", "fig4", "fig5", "fig7", "fig8"}
    imbalanced = outline(presets.PRESETS["paper_fig8"].settings).sizes
    assert sorted(set(imbalanced.tolist())) == [300, 600, 1800, 2100]


def test_an_unknown_preset_is_refused():
    with pytest.raises(InputError, match="unknown preset 'x': choose one of quick"):
        presets.get_preset("x")


def test_a_grid_is_all_combinations():
    axes = grid.parse("schedule.tradeoff=1,10; privacy.noise=true,false;seed=3")
    points = grid.expand(RunConfig(), axes)
    assert list(points.settings) == [
        "tradeoff=1,noise=true,seed=3",
        "tradeoff=1,noise=false,seed=3",
        "tradeoff=10,noise=true,seed=3",
        "tradeoff=10,noise=false,seed=3",
    ]
    last = points.settings["tradeoff=10,noise=false,seed=3"]
    assert (last.schedule.tradeoff, last.privacy.noise, last.seed) == (10.0, False, 3)
    assert dataclasses.replace(last.schedule, tradeoff=50.0) == RunConfig().schedule


def test_ranges_are_whole_numbers_with_both_ends():
    (axis,) = grid.parse("seed=0..9")
    assert axis.values == tuple(map(str, range(10)))
    (axis,) = grid.parse("training.local_steps=5, 7..9 ,20")
    assert axis.values == ("5", "7", "8", "9", "20")
    (axis,) = grid.parse("seed=3..3")
    assert list(grid.expand(RunConfig(), [axis]).settings) == ["seed=3"]


def test_ranges_over_clients_stay_one_value():
    axes = grid.parse("wireless.cycles_per_sample=1..2,[1e6,2e6];seed=1..2")
    points = grid.expand(RunConfig(), axes)
    first, *_, last = points.settings.values()
    assert len(points) == 4
    assert first.wireless.cycles_per_sample == "1..2"
    assert last.wireless.cycles_per_sample == (1e6, 2e6)


@pytest.mark.parametrize("text", ["[300,600],[ 100,900 ]", "'300,600' , \"100,900\""])
def test_values_in_brackets_or_quotes_may_have_commas(text):
    axes = grid.parse(f"data.group_sizes={text}; seed=1,2")
    points = grid.expand(RunConfig(), axes)
    assert list(points.settings) == [
        f"group_sizes={sizes},seed={seed}"
        for sizes in ("300%2C600", "100%2C900")
        for seed in (1, 2)
    ]
    sizes = [each.data.group_sizes for each in points.settings.values()]
    assert sizes == ["300,600", "300,600", "100,900", "100,900"]


def test_brackets_within_a_value_are_part_of_it():
    axes = grid.parse("data.dir=it's,b[1,2];data.tfds_dir='a;b',\"\"")
    assert axes[0].values == ("it's", "b[1", "2]")
    assert axes[1].values == ("a;b", "")


def test_settings_of_a_section_change_together():
    axes = grid.parse("privacy.epsilon_lo=12;privacy.epsilon_hi=5,20")
    points = grid.expand(RunConfig(), axes)
    (problem,) = points.problems.values()
    assert problem.startswith("privacy.epsilon_lo must be at most epsilon_hi")
    assert list(points.problems) == ["epsilon_lo=12,epsilon_hi=5"]
    assert list(points.settings) == ["epsilon_lo=12,epsilon_hi=20"]
    assert points.settings["epsilon_lo=12,epsilon_hi=20"].privacy.epsilon_lo == 12


def test_names_are_fit_for_folders_and_tell_points_apart():
    axes = grid.parse("data.name=a/b,c d;model.name=logistic")
    points = grid.expand(RunConfig(), axes)
    assert list(points.settings) == [
        "data.name=a%2Fb,model.name=logistic",
        "data.name=c%20d,model.name=logistic",
    ]


def test_long_names_are_cut_and_still_differ():
    text = "data.tfds_dir=" + ",".join(f"{'x' * 300}{i}" for i in range(3))
    names = set(grid.expand(RunConfig(), grid.parse(text)).settings)
    assert len(names) == 3
    assert max(map(len, names)) < 200


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tradeoff=1", "unknown setting 'tradeoff'"),
        ("schedule.lambda=1", "unknown setting 'schedule.lambda'"),
        ("seed", "is not of the form setting=value,value"),
        ("seed=1,,2", "is not of the form"),
        ("seed=1;seed=2", "seed is given, or has a value, twice"),
        ("seed=1,1", "seed is given, or has a value, twice"),
        ("seed=1,many", "--grid: 'many' is no int, as seed needs"),
        ("seed=0-4", r"'0-4' is no int, as seed needs \(a range is written 0\.\.4\)\."),
        ("seed=9..0", "seed=9..0 must go up, by 100,000 numbers at most"),
        ("seed=0..999999999", "must go up, by 100,000 numbers"),
        ("sead=0..3", "--grid: unknown setting 'sead'"),
        ("seed=0..3,2", "seed is given, or has a value, twice"),
        ("schedule.tradeoff=1..5", "'1..5' is no float"),
        ("data.group_sizes=[300,600", "group_sizes must be whole positive numbers"),
        ("seed=[0,1]", "'0,1' is no int"),
        ("privacy.noise=maybe", "'maybe' is no bool"),
    ],
)
def test_bad_grids_are_refused(text, message):
    with pytest.raises(InputError, match=message):
        grid.parse(text)


def test_shards_are_a_partition():
    axes = grid.parse("seed=0,1,2,3,4,5,6")
    points = grid.expand(RunConfig(), axes)
    shards = [grid.expand(RunConfig(), axes, f"{i}/3") for i in (1, 2, 3)]
    names = [name for part in shards for name in part.settings]
    assert sorted(names) == sorted(points.settings)
    for text in ("0/3", "4/3", "1", "a/b", "1/0"):
        with pytest.raises(InputError, match="is not of the form i/n"):
            grid.expand(RunConfig(), axes, text)


@pytest.mark.parametrize("name", ["training.clip_norm", "training.batch_size"])
def test_a_setting_given_again_changes_nothing(name):
    """Presets say 20, flags and grids read 20.0: the same run, with the same noise."""
    settings = presets.get_preset("paper_mnist").settings
    section, field = name.split(".")
    value = getattr(getattr(settings, section), field)
    again = grid.change(settings, {name: f"{value:.1f}"})
    assert config_values.digest(again) == config_values.digest(settings)
    assert config_values.noise_seed(again) == config_values.noise_seed(settings)
    other = grid.change(settings, {name: f"{value + 1:.1f}"})
    assert config_values.noise_seed(other) != config_values.noise_seed(settings)
