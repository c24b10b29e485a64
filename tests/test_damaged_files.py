"""Is a file that is cut, flipped or of another kind refused in words, or harmless?

Whatever the damage, readers raise `InputError` or give what was written.
"""

import contextlib
import dataclasses
import io
import json
import shutil
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dpsparfl_jax import config, config_values, records
from dpsparfl_jax.data import files
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.planning import schedule as schedule_lib
from dpsparfl_jax.planning.schedule import Schedule
from dpsparfl_jax.runner import checkpoint
from dpsparfl_jax.runner.run import Run
from dpsparfl_jax.types import ServerState
from tests import toy
from tests.data.test_files import write_idx

quickly = settings(
    derandomize=True,
    deadline=None,
    max_examples=60,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@st.composite
def damages(draw):
    """A function of bytes: cuts them, flips some bits, or puts others in between."""
    share, kind = draw(st.floats(0, 1)), draw(st.integers(0, 3))
    junk = draw(st.binary(min_size=1, max_size=8))

    def damage(content):
        at = min(int(share * len(content)), len(content) - 1)
        if kind == 0:
            return content[:at]
        if kind == 1:
            flipped = bytes([content[at] ^ (junk[0] or 1)])
            return content[:at] + flipped + content[at + 1 :]
        if kind == 2:
            return content[:at] + junk + content[at + len(junk) :]
        return content[:at] + junk + content[at:]

    return damage


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    toy.write(folder / "plain.npz", (2, 2, 1), train=40, test=20)
    with np.load(folder / "plain.npz") as content:
        np.savez_compressed(folder / "packed.npz", **content)
    for packed in (False, True):
        write_idx(folder / f"idx{packed}", packed=packed)
    return folder


@quickly
@given(st.sampled_from(["plain", "packed"]), damages())
def test_npz_files(tmp_path, images, name, damage):
    whole = (images / f"{name}.npz").read_bytes()
    (tmp_path / "toy.npz").write_bytes(damage(whole))
    expected = files.load_npz(name, images)
    with contextlib.suppress(InputError):
        found = files.load_npz("toy", tmp_path)
        np.testing.assert_array_equal(found.train.images, expected.train.images)
        np.testing.assert_array_equal(found.test.labels, expected.test.labels)
    with contextlib.suppress(InputError):
        assert files.count_folder("toy", tmp_path) == (40, 20)


ARRAYS = st.sampled_from(
    [
        *(np.zeros(shape) for shape in [(), (0,), (4,), (4, 2, 2, 1), (4, 2, 2)]),
        *(np.zeros(4, kind) for kind in (bool, complex, "U3", "S3", "M8[s]", "f2")),
        *(np.zeros((4, 2, 2, 1), kind) for kind in (np.int8, np.uint8, np.float64)),
        np.array([0, 1, 2, 2**62], np.uint64),
        np.array([2**64 - 1] * 4, np.uint64),
        np.zeros(4, [("a", int)]),
    ]
)


@quickly
@given(st.tuples(ARRAYS, ARRAYS, ARRAYS, ARRAYS))
def test_arrays_of_other_kinds(arrays):
    try:
        sets = files.join_sets(list(arrays), "toy", "toy.npz")
    except InputError as reason:
        if not str(reason).endswith("."):
            raise
        return
    assert sets.train.images.dtype == np.uint8
    assert sets.num_classes <= len(sets.train.labels)


@quickly
@given(
    st.booleans(),
    st.sampled_from(["train-images", "train-labels", "t10k-images", "t10k-labels"]),
    damages(),
)
def test_idx_files(tmp_path, images, packed, stem, damage):
    folder = tmp_path / "toy"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(images / f"idx{packed}", folder)
    (path,) = folder.glob(f"{stem}*")
    path.write_bytes(damage(path.read_bytes()))
    with contextlib.suppress(InputError):
        sets, _ = files.load_folder("toy", tmp_path)
        assert len(sets.train.labels) == len(sets.train.images)


@pytest.fixture(scope="module")
def plan():
    return Run("run", toy.settings(length={"rounds": 3})).outlined().planned().schedule


@quickly
@given(damages())
def test_schedules(tmp_path, plan, damage):
    path = tmp_path / "plan.npz"
    schedule_lib.save(plan, path)
    path.write_bytes(damage(path.read_bytes()))
    with contextlib.suppress(InputError):
        found = schedule_lib.load(path)
        for field in dataclasses.fields(Schedule):
            one, other = getattr(plan, field.name), getattr(found, field.name)
            np.testing.assert_array_equal(one, other)


@quickly
@given(
    st.sampled_from([field.name for field in dataclasses.fields(Schedule)]),
    st.none() | ARRAYS,
)
def test_schedules_with_a_column_of_another_kind(tmp_path, plan, name, column):
    columns = dataclasses.asdict(plan)
    columns = columns | {name: column} if column is not None else columns
    if column is None:
        del columns[name]
    np.savez(tmp_path / "plan.npz", **columns)
    if name == "reason" and column is not None:
        return
    if column is None and name in ("late", "arrived", "planned_delay_s"):
        schedule_lib.load(tmp_path / "plan.npz")  # an earlier version had none
        return
    if name == "last_delay_queue" and column is not None and column.shape == ():
        schedule_lib.load(tmp_path / "plan.npz")
        return
    with pytest.raises(InputError, match="is no schedule, or a damaged one"):
        schedule_lib.load(tmp_path / "plan.npz")


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["name", "config", "data", "seed"]), inner)
    ),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def manifest():
    facts = {"name": "run", "config": config_values.as_dict(config.RunConfig())}
    return json.dumps(facts)


@quickly
@given(damages())
def test_manifests(tmp_path, manifest, damage):
    (tmp_path / records.MANIFEST).write_bytes(damage(manifest.encode()))
    with contextlib.suppress(InputError):
        found = records.load_run(tmp_path)
        assert isinstance(found.settings, config.RunConfig)


@quickly
@given(JSON)
@example({"config": []})
@example({"config": {"data": 3}})
@example([[]])
def test_manifests_of_other_kinds(tmp_path, content):
    (tmp_path / records.MANIFEST).write_text(json.dumps(content))
    with pytest.raises(InputError, match="is no manifest of a run"):
        records.load_run(tmp_path)


@quickly
@given(st.sampled_from(["DONE", "rounds.jsonl", "clients.csv"]), JSON, damages())
def test_tables_of_a_run(tmp_path, manifest, name, content, damage):
    (tmp_path / records.MANIFEST).write_text(manifest)
    (tmp_path / name).write_bytes(damage(json.dumps(content).encode() + b"\n"))
    try:
        with contextlib.suppress(InputError):
            assert not records.load_run(tmp_path).done
    finally:
        (tmp_path / name).unlink()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Two checkpoints of a small model, and their files."""
    folder = tmp_path_factory.mktemp("saved")
    kept = checkpoint.Checkpoints(folder)
    for rounds in (1, 2):
        params = {"layer": {"kernel": np.full((3, 2), rounds, np.float32)}}
        kept.save(rounds, ServerState(params, (), params, ()))
    kept.close()
    below = folder / checkpoint.FOLDER
    return folder, sorted(f.relative_to(below) for f in below.rglob("*") if f.is_file())


@settings(quickly, max_examples=12)
@given(st.integers(0, 10**6), damages())
def test_checkpoints(tmp_path, saved, number, damage):
    """Damage to the newest is noticed; the one before it is whole."""
    source, paths = saved
    newest = [path for path in paths if path.parts[0] == "2"]
    shutil.rmtree(tmp_path / "run", ignore_errors=True)
    shutil.copytree(source, tmp_path / "run")
    file = tmp_path / "run" / checkpoint.FOLDER / newest[number % len(newest)]
    before = file.read_bytes()
    after = damage(before) if before else b"x"
    file.write_bytes(after)
    params = checkpoint.load_params(tmp_path / "run")
    expected = 1 if after != before else 2
    np.testing.assert_array_equal(params["layer"]["kernel"], np.full((3, 2), expected))


def test_a_folder_without_a_whole_checkpoint_is_refused(tmp_path, saved):
    source, _ = saved
    shutil.copytree(source, tmp_path / "run")
    for file in (tmp_path / "run" / checkpoint.FOLDER).rglob("*"):
        if file.is_file():
            file.write_bytes(b"")
    with pytest.raises(InputError, match=r"no checkpoint of .* can be used"):
        checkpoint.load_params(tmp_path / "run")


def test_an_npz_whose_header_promises_too_much_is_refused(tmp_path, images):
    header = io.BytesIO()
    facts = {"descr": "|u1", "fortran_order": False, "shape": (10**9, 10**9, 10**9, 1)}
    np.lib.format.write_array_header_1_0(header, facts)
    with np.load(images / "plain.npz") as content:
        np.savez(tmp_path / "toy.npz", **content)
    with zipfile.ZipFile(tmp_path / "toy.npz") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["train_images.npy"] = header.getvalue()
    with zipfile.ZipFile(tmp_path / "toy.npz", "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    with pytest.raises(InputError, match="is not readable as an npz"):
        files.load_npz("toy", tmp_path)
