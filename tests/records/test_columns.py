"""Is every recorded column declared once, and do all that show it agree?"""

import numpy as np
import pytest

import dpsparfl_jax as fl
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.records import columns, rows
from dpsparfl_jax.training.diagnostics import Diagnostics
from tests import toy


@pytest.fixture
def result():
    return fl.simulate(toy.settings(length={"rounds": 4, "eval_every": 3}))


def test_a_row_has_every_column_in_order(result):
    assert list(result.rounds) == list(columns.COLUMNS)
    assert set(columns.CLIENT_COLUMNS) <= set(result.clients)


def test_every_column_has_words_and_a_format(result):
    tags = [column.tag for column in columns.COLUMNS.values() if column.tag]
    assert len(tags) == len(set(tags))
    row = result.rounds.iloc[-1]
    for name, column in columns.COLUMNS.items():
        assert column.about.endswith(".")
        assert column.name == name
        if not isinstance(row[name], list) and row[name] is not None:
            assert column.format.format(row[name])
        for part in column.summary:
            assert part.reducer in columns.REDUCERS


def test_raw_columns_say_so_and_can_be_left_out(tmp_path):
    raw = {name for name, column in columns.COLUMNS.items() if column.raw}
    assert raw == {
        *("train_loss", "clipped_fraction", "median_norm", "gradient_to_noise"),
        "nonfinite_examples",
    }
    for name, column in columns.COLUMNS.items():
        assert ("raw records" in column.about) == (name in raw)
    short = toy.settings(
        length={"rounds": 2},
        records={"private_only": True},
        perf={"tensorboard": True},
    )
    told = fl.simulate(short, tmp_path / "run", progress=False)
    assert set(told.rounds) == set(columns.COLUMNS) - raw
    assert set(told.clients) == set(columns.CLIENT_COLUMNS)
    text = (tmp_path / "run" / "rounds.jsonl").read_text()
    assert not any(name in text for name in raw)
    assert "label_" not in (tmp_path / "run" / "clients.csv").read_text()
    events = b"".join(p.read_bytes() for p in (tmp_path / "run").glob("events*"))
    assert b"test/accuracy" in events
    assert b"train/" not in events
    everything = fl.simulate(toy.settings(length={"rounds": 2}), progress=False)
    shared = everything.rounds[list(told.rounds)].drop(columns=["host_s", "device_s"])
    assert shared.equals(told.rounds.drop(columns=["host_s", "device_s"]))


def test_every_diagnostic_is_in_a_column():
    recorded = {"loss", "clipped_fraction", "median_norm", "gradient_to_noise"}
    recorded |= {"examples", "overflow", "nonfinite_examples", "kept", "diverged"}
    assert set(Diagnostics._fields) == recorded


def test_labels_have_the_unit_once():
    assert columns.label("round_delay_s") == "round delay (s)"
    assert columns.label("cumulative_energy_j", "energy") == "energy (J)"
    assert columns.label("delay_queue") == "delay queue"


def test_the_best_accuracy_is_right_when_rounds_are_not_evaluated(result):
    """Whether rows come from memory (None) or from a frame (nan)."""
    evaluated = result.rounds["accuracy"].dropna()
    assert len(evaluated) < len(result.rounds)
    assert result.rounds["accuracy"].isna().any()
    again = rows.summarise(
        result.rounds.to_dict("records"), result.clients.to_dict("records")
    )
    for summary in (result.summary, again):
        assert summary["best_accuracy"] == evaluated.max()
        assert summary["accuracy"] == evaluated.iloc[-1]
    assert again == result.summary


def test_a_column_of_ones_own_is_recorded(monkeypatch, tmp_path):
    monkeypatch.setattr(columns, "COLUMNS", columns.COLUMNS)
    before = dict(columns.COLUMNS)
    part = columns.InSummary("busiest", "busiest round", "max")

    try:

        @fl.register_column(
            "busy", unit="channels", about="Channels in use.", summary=[part]
        )
        def busy(view):
            return int(np.sum(view.sends))

        result = fl.simulate(toy.settings(), tmp_path / "run", progress=False)
        assert result.rounds["busy"].tolist() == [2] * len(result.rounds)
        assert result.summary["busiest"] == 2
        assert columns.label("busy") == "busy (channels)"
        with pytest.raises(InputError, match="already a column named 'busy'"):
            fl.register_column("busy", unit="", about="Again.")(busy)
    finally:
        columns.COLUMNS.clear()
        columns.COLUMNS.update(before)
