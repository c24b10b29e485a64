"""Do settings, grids, partitions, ledgers and schedules keep their promises for any
input that hypothesis thinks of? Its choices are the same every time."""

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpsparfl_jax import config, config_values
from dpsparfl_jax.config import DataConfig
from dpsparfl_jax.config_cell import FAIRNESS_RULES
from dpsparfl_jax.data import partition
from dpsparfl_jax.data.files import LabelledSets
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.options import LARGEST, LARGEST_COUNT, SMALLEST
from dpsparfl_jax.planning import schedule as schedule_lib
from dpsparfl_jax.planning.schedule import IDLE, Schedule
from dpsparfl_jax.privacy import budgets, curves
from dpsparfl_jax.privacy.ledger import open_ledger
from dpsparfl_jax.privacy.mechanism import client_groups
from dpsparfl_jax.types import ImageSet
from experiments import grid

quickly = settings(
    derandomize=True,
    deadline=None,
    max_examples=40,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def values_of(field):
    """What a setting may be, by its declaration."""
    rule, kind = field.metadata, type(field.default)
    if kind is bool:
        return st.booleans()
    if rule["choices"]:
        return st.sampled_from(rule["choices"])
    if rule["named"]:
        return st.sampled_from(rule["named"].names())
    if kind is str:
        return st.just(field.default)
    low = max(
        (rule[key] for key in ("low", "above") if rule[key] is not None), default=None
    )
    high = min(
        (rule[key] for key in ("high", "below") if rule[key] is not None), default=None
    )
    if kind is int:
        least = -LARGEST_COUNT if low is None else int(low)
        return st.integers(least, LARGEST_COUNT if high is None else int(high))
    return st.floats(
        -LARGEST if low is None else low,
        LARGEST if high is None else high,
        exclude_min=rule["above"] is not None,
        exclude_max=rule["below"] is not None,
    ).filter(lambda number: number == 0 or abs(number) >= SMALLEST)


@st.composite
def configurations(draw):
    """Settings of all sections; those that do not fit each other are drawn again."""
    sections = {}
    for name in config.SECTIONS:
        kind = type(getattr(config.RunConfig(), name))
        fields = dataclasses.fields(kind)
        chosen = draw(st.sets(st.sampled_from([f.name for f in fields]), max_size=4))
        changes = {f.name: draw(values_of(f)) for f in fields if f.name in chosen}
        try:
            sections[name] = kind(**changes)
        except InputError:
            sections[name] = kind()
    seed = draw(st.integers(0, 2**63 - 1))
    try:
        return config.RunConfig(**sections, seed=seed)
    except InputError:
        return config.RunConfig(seed=seed)


@quickly
@given(configurations())
def test_settings_come_back_from_json(drawn):
    text = json.dumps(config_values.as_dict(drawn), allow_nan=False)
    back = config_values.from_dict(json.loads(text))
    assert back == drawn
    assert config_values.digest(back) == config_values.digest(drawn)
    assert not config_values.differences(
        config_values.as_dict(drawn), config_values.as_dict(back)
    )


@quickly
@given(configurations(), configurations())
def test_a_digest_changes_with_what_moves_results_only(one, other):
    same = config_values.moving(one, "results") == config_values.moving(
        other, "results"
    )
    assert same == (config_values.digest(one) == config_values.digest(other))


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*config.SECTIONS, "seed", "x"]), inner)
    ),
    max_leaves=9,
)


@quickly
@given(st.dictionaries(st.sampled_from([*config.SECTIONS, "seed", "x"]), JSON))
def test_anything_else_is_no_configuration(content):
    try:
        config_values.from_dict(content)
    except InputError:
        return
    assert set(content) <= {*config.SECTIONS, "seed"}


@quickly
@given(
    st.sampled_from(
        [
            f"{name}.{field.name}"
            for name in config.SECTIONS
            for field in dataclasses.fields(getattr(config.RunConfig(), name))
        ]
    ),
    st.one_of(st.floats().map(str), st.integers().map(str), st.text(max_size=12)),
)
def test_any_text_is_a_value_or_refused(name, text):
    try:
        changed = grid.change(config.RunConfig(), {name: text})
    except InputError as reason:
        if len(str(reason).splitlines()) != 1:
            raise
        return
    section, _, field = name.partition(".")
    value = getattr(getattr(changed, section), field)
    if isinstance(value, float):
        assert math.isfinite(value)


axes = st.dictionaries(
    st.sampled_from(
        ["seed", "schedule.tradeoff", "training.clip_norm", "privacy.epsilon_hi"]
    ),
    st.lists(st.integers(1, 99), min_size=1, max_size=4, unique=True),
    min_size=1,
)


@quickly
@given(axes, st.integers(1, 5))
def test_a_grid_has_every_combination_once_and_shards_share_them(chosen, shards):
    text = ";".join(f"{name}={','.join(map(str, v))}" for name, v in chosen.items())
    parsed = grid.parse(text)
    assert {axis.name: list(map(int, axis.values)) for axis in parsed} == chosen
    whole = grid.expand(config.RunConfig(), parsed)
    assert len(whole) == math.prod(map(len, chosen.values()))
    names = [*whole.settings, *whole.problems]
    assert len(set(names)) == len(names)
    assert not any("/" in name or len(name) > 200 for name in names)
    parts = [
        grid.expand(config.RunConfig(), parsed, f"{n + 1}/{shards}")
        for n in range(shards)
    ]
    joined = [name for part in parts for name in (*part.settings, *part.problems)]
    assert sorted(joined) == sorted(names)


@quickly
@given(st.text(max_size=40))
def test_any_text_is_a_grid_or_refused(text):
    try:
        parsed = grid.parse(text)
    except InputError:
        return
    assert all(axis.values for axis in parsed)


def image_sets(count, classes):
    images = np.zeros((count, 2, 2, 1), np.uint8)
    each = ImageSet(images, (np.arange(count) % classes).astype(np.int32))
    return LabelledSets(each, each, classes)


@quickly
@given(
    st.sampled_from(["iid", "dirichlet", "imbalanced"]),
    st.integers(1, 6),
    st.integers(1, 9),
    st.integers(1, 9),
    st.floats(1e-6, 1e6),
    st.integers(0, 2**63 - 1),
)
def test_partitions_give_everybody_its_own_images(
    kind, clients, train, test, alpha, seed
):
    chosen = DataConfig(
        partition=kind,
        num_clients=2 * clients,
        train_examples=train,
        test_examples=test,
        dirichlet_alpha=alpha,
        group_sizes=f"{train},{test}",
    )
    sets = image_sets(110, 7)
    dealt = partition.deal(chosen, sets, seed)
    sizes = partition.client_sizes(chosen)
    assert [len(client) for client in dealt.train] == sizes.tolist()
    assert [len(client) for client in dealt.test] == [test] * (2 * clients)
    for lists in dealt:
        owned = np.concatenate(lists)
        assert np.unique(owned).size == owned.size
        assert owned.min() >= 0
        assert owned.max() < 110
    again = partition.deal(chosen, sets, seed)
    assert all(map(np.array_equal, dealt.train, again.train))
    few = image_sets(int(sizes.sum()) - 1, 1) if sizes.sum() > 1 else None
    if few is not None:
        with pytest.raises(InputError, match="lower num_clients or the images"):
            partition.deal(chosen, few, seed)


class Straight:
    """An accountant whose epsilon is the number of participations."""

    name, version = "straight", "1"

    def epsilon(self, mechanism, participations):
        return participations * mechanism.participation.sampling_rate


@quickly
@given(
    st.lists(st.floats(0.01, 30.0), min_size=1, max_size=6),
    st.integers(0, 2**32 - 1),
    st.integers(1, 20),
)
def test_no_client_overspends_whoever_takes_part(epsilons, seed, limit):
    asked = budgets.given_budgets(epsilons, len(epsilons))
    sizes = np.full(len(epsilons), 10)
    groups = client_groups(
        sizes, batch_size=10, noise_multiplier=1.0, steps=1, delta=1e-3
    )
    ledger = open_ledger(asked, groups, curves.CurveStore(Straight()), limit=limit)
    chance = np.random.default_rng(seed)
    counts = np.zeros(len(epsilons), int)
    while ledger.live.any():
        live = np.flatnonzero(ledger.live)
        chosen = chance.permutation(live)[: chance.integers(1, live.size + 1)]
        ledger = ledger.charge(chosen)
        counts[chosen] += 1
        assert np.all(ledger.epsilon_spent <= asked)
    assert np.array_equal(counts, ledger.affordable)
    assert np.array_equal(counts, np.minimum(np.floor(asked), limit))
    for client in range(len(epsilons)):
        with pytest.raises(InputError):
            ledger.charge(np.array([client]))


numbers = st.floats(allow_nan=False, width=64)


@st.composite
def schedules(draw):
    rounds, channels = draw(st.integers(0, 4)), draw(st.integers(0, 4))
    clients = draw(st.integers(1, 4))
    chance = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    columns = {}
    for field in dataclasses.fields(Schedule):
        shape = (rounds, channels)
        if field.name in schedule_lib._SCALARS:
            shape = (rounds,)
        elif field.name == "epsilon_curve":
            shape = (2, rounds * channels + 1)
        elif field.name in ("affordable", "budget", "rate"):
            shape = (clients,)
        columns[field.name] = chance.normal(size=shape)
    if rounds:
        columns["lower_bound"][0] = draw(numbers)
    columns["client"] = chance.integers(IDLE, clients, (rounds, channels))
    columns["last_delay_queue"] = np.array(draw(numbers))
    columns["group"] = chance.integers(0, 2, clients)
    columns["fairness"] = draw(st.sampled_from(FAIRNESS_RULES))
    return Schedule(**columns | {"reason": draw(st.text(max_size=20)).strip("\0")})


@quickly
@given(schedules())
def test_schedules_come_back_from_their_files(tmp_path, drawn):
    schedule_lib.save(drawn, tmp_path / "plan.npz")
    back = schedule_lib.load(tmp_path / "plan.npz")
    for field in dataclasses.fields(Schedule):
        one, other = getattr(drawn, field.name), getattr(back, field.name)
        if field.name in ("fairness", "reason"):
            assert one == other
        else:
            np.testing.assert_array_equal(one, other)
            assert np.asarray(one).dtype == other.dtype
