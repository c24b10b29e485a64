"""Bad images, partitions, plugins and folders."""

import functools
import gzip
import io
import json
import math
import pathlib
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from benchmarks.bad_case import (
    FROM_FILE,
    SMALL,
    Case,
    Prepare,
    run_case,
    toy_arrays,
    write_toy,
)


def _bytes(name: str, content: bytes) -> Prepare:
    def prepare(root: pathlib.Path) -> None:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    return prepare


def _toy_bytes(**changes: Any) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **toy_arrays(changes))
    return file.getvalue()


def _images() -> Iterator[Case]:
    byte, whole = np.uint8, np.zeros((120, 4, 4, 1), np.uint8)
    changes: dict[str, dict[str, Any]] = {
        "no test labels": {"test_labels": None},
        "no train images": {"train_images": None},
        "names of two kinds": {"train_images": None, "x_train": whole},
        "float images": {"train_images": whole.astype(np.float32)},
        "nan images": {"train_images": np.full(whole.shape, math.nan)},
        "signed images": {"train_images": whole.astype(np.int16)},
        "flat images": {"train_images": whole[..., 0]},
        "no images": {"train_images": whole[:0], "train_labels": np.arange(0)},
        "no pixels": {"train_images": np.zeros((120, 0, 4, 1), byte)},
        "no channels": {"train_images": np.zeros((120, 4, 4, 0), byte)},
        "no test images": {
            "test_images": np.zeros((0, 4, 4, 1), byte),
            "test_labels": np.arange(0),
        },
        "fewer labels": {"train_labels": np.arange(119) % 10},
        "labels in two axes": {"train_labels": np.zeros((120, 1), int)},
        "float labels": {"train_labels": np.zeros(120)},
        "text labels": {"train_labels": np.full(120, "cat")},
        "negative labels": {"train_labels": np.arange(120) - 1},
        "labels up to 10^9": {"train_labels": np.arange(120) * 10**7},
        "labels beyond 32 bits": {"train_labels": np.arange(120) * 10**12},
        "classes that tests alone have": {"test_labels": np.full(40, 11)},
        "test labels up to 10^9": {"test_labels": np.full(40, 10**9)},
        "other test shape": {"test_images": np.zeros((40, 5, 5, 1), byte)},
        "other test channels": {"test_images": np.zeros((40, 4, 4, 3), byte)},
    }
    for name, change in changes.items():
        yield run_case(f"npz: {name}", prepare=functools.partial(write_toy, **change))
    old: dict[str, Any] = dict.fromkeys(toy_arrays({}))
    keras: dict[str, dict[str, Any]] = {
        "x_train alone": {"x_train": whole},
        "float images": {
            "x_train": whole[..., 0] / 255,
            "y_train": np.arange(120) % 10,
            "x_test": whole[:40, ..., 0],
            "y_test": np.arange(40) % 10,
        },
    }
    for name, change in keras.items():
        prepare = functools.partial(write_toy, **old, **change)
        yield run_case(f"npz as Keras has it: {name}", prepare=prepare)
    objects = {"train_labels": np.array([None] * 120, object)}
    yield run_case("npz: objects", prepare=lambda root: write_toy(root, **objects))
    good = _toy_bytes()
    for share in (0.0, 0.1, 0.5, 0.9, 0.99):
        part = good[: int(share * len(good))]
        yield run_case(f"npz: first {share:.0%}", prepare=_bytes("toy.npz", part))
    for number, position in enumerate(np.linspace(100, len(good) - 400, 8, dtype=int)):
        flipped = bytearray(good)
        flipped[position : position + 8] = b"\xff" * 8
        yield run_case(
            f"npz: damaged {number}", prepare=_bytes("toy.npz", bytes(flipped))
        )
    yield run_case("npz: text", prepare=_bytes("toy.npz", b"not a zip file"))
    yield run_case("npz: a folder", prepare=lambda root: (root / "toy.npz").mkdir())
    yield run_case("npz: a giant", prepare=_giant)
    tiny = np.zeros((120, 1, 1, 1), byte)
    small = {"train_images": tiny, "test_images": tiny[:40]}
    for model in ("mnist_cnn", "small_cnn", "norm_cnn"):
        yield run_case(
            f"1x1 images for {model}",
            f"--model.name={model}",
            prepare=lambda root: write_toy(root, **small),
        )


def _giant(root: pathlib.Path) -> None:
    """An array whose header promises far more than is there."""
    header = io.BytesIO()
    shape = (10**9, 1000, 1000, 1)
    facts = {"descr": "|u1", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, facts)
    with zipfile.ZipFile(root / "toy.npz", "w") as archive:
        for name, array in toy_arrays({}).items():
            content = io.BytesIO()
            np.save(content, array)
            giant = name == "train_images"
            text = header.getvalue() if giant else content.getvalue()
            archive.writestr(f"{name}.npy", text)


def _idx(array: np.ndarray) -> bytes:
    sizes = np.array(array.shape, ">u4").tobytes()
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


def _idx_files() -> Iterator[Case]:
    images, labels = np.zeros((120, 4, 4)), np.arange(120) % 10
    good = {
        "train-images-idx3-ubyte": _idx(images),
        "train-labels-idx1-ubyte": _idx(labels),
        "t10k-images-idx3-ubyte": _idx(images[:40]),
        "t10k-labels-idx1-ubyte": _idx(labels[:40]),
    }
    for name, content in good.items():
        packed = gzip.compress(content, mtime=0)
        damages = {
            "missing": None,
            "empty": b"",
            "cut": content[:-1],
            "longer": content + b"x",
            "of floats": b"\0\0\x0d" + content[3:],
            "of other axes": b"\0\0\x08\x02" + content[4:],
            "of giant sizes": content[:4] + b"\xff" * (len(content) - 4),
            "half a gzip": packed[: len(packed) // 2],
            "a damaged gzip": packed[:12] + b"junk" + packed[16:],
        }
        for what, damage in damages.items():
            files = {**good, name: damage}
            prepare = functools.partial(_write_all, files=files)
            yield run_case(f"idx: {name} {what}", prepare=prepare)


def _write_all(root: pathlib.Path, files: Mapping[str, bytes | None]) -> None:
    for name, content in files.items():
        if content is not None:
            (root / name).write_bytes(content)


def _partitions() -> Iterator[Case]:
    def listed(**changes: Any) -> str:
        train: Any = [list(range(4 * n, 4 * n + 4)) for n in range(4)]
        return json.dumps({"train": train, **changes})

    four = [[0], [1], [2], [3]]
    contents = {
        "empty": "",
        "no JSON": "{",
        "a list": "[]",
        "a number": "3",
        "null": "null",
        "deep": "[" * 100_000,
        "without train": json.dumps({"test": four}),
        "with more": listed(more=[]),
        "too few clients": listed(train=four[:3]),
        "too many clients": listed(train=[*four, [5]]),
        "a client without images": listed(train=[*four[:3], []]),
        "a client that is a number": listed(train=[*four[:3], 3]),
        "no lists": listed(train=4),
        "an object": listed(train={"0": [1]}),
        "fractions": listed(train=[*four[:3], [1.5]]),
        "texts": listed(train=[*four[:3], ["1"]]),
        "truths": listed(train=[*four[:3], [True]]),
        "nulls": listed(train=[*four[:3], [None]]),
        "negative": listed(train=[*four[:3], [-1]]),
        "out of range": listed(train=[*four[:3], [120]]),
        "far out of range": listed(train=[*four[:3], [10**30]]),
        "an image of two clients": listed(train=[*four[:3], [0]]),
        "an image twice": listed(train=[*four[:3], [3, 3]]),
        "empty tests": listed(test=[[], [], [], []]),
        "too few tests": listed(test=[[0], [1]]),
        "tests out of range": listed(test=[[0], [1], [2], [40]]),
        "batches larger than clients": listed(train=four),
    }
    for name, text in contents.items():
        yield _partition(name, text.encode())
    yield _partition("other encoding", "{é}".encode("utf-16"))
    yield Case(
        "partition file: missing",
        "run",
        (*FROM_FILE, "--data.partition_file={root}/nothing.json"),
    )


def _partition(name: str, content: bytes) -> Case:
    return Case(
        f"partition file: {name}",
        "run",
        (*FROM_FILE, "--data.partition_file={root}/split.json"),
        _bytes("split.json", content),
    )


def _client_files() -> Iterator[Case]:
    def npy(array: Any) -> bytes:
        file = io.BytesIO()
        np.save(file, array)
        return file.getvalue()

    contents = {
        "words.txt": b"one two three four",
        "empty.txt": b"",
        "ragged.txt": b"1 2\n3\n4 5\n6 7\n",
        "three.txt": b"1 2 3",
        "nan.txt": b"1\nnan\n1\n1\n",
        "negative.txt": b"1\n-1\n1\n1\n",
        "huge.txt": b"1\n1e300\n1\n1\n",
        "binary.txt": bytes(range(256)),
        "text.npy": npy(np.full(4, "x")),
        "complex.npy": npy(np.ones(4, complex)),
        "cube.npy": npy(np.ones((2, 2, 2))),
        "empty.npy": npy(np.ones(0)),
        "inf.npy": npy(np.full(4, math.inf)),
        "cut.npy": npy(np.ones(4))[:-5],
        "junk.npy": b"junk",
    }
    for setting in ("privacy.noise_multiplier", "wireless.cycles_per_sample"):
        for name, content in contents.items():
            yield Case(
                f"{setting} from {name}",
                "run",
                (*SMALL, "--out={root}/out", f"--{setting}={{root}}/{name}"),
                _bytes(name, content),
            )
        for text in ("3..1", "0..1", "1,2,3", "1,2,3,x", "1..inf", "1..", "/nowhere"):
            yield run_case(f"{setting} {text}", f"--{setting}={text}")


_POLICY = """
import numpy as np
import dpsparfl_jax as fl

@fl.register_policy("mine")
class Mine:
    def __init__(self, settings):
        pass

    def init(self, num_clients, num_channels):
        return 0

    def plan(self, state, observation, random):
        good = fl.FullRate(observation.problem).quickest(np.arange(2))
        return RETURNED
"""


def _plugins() -> Iterator[Case]:
    contents = {
        "not python": b"def (",
        "that fails": b"1 / 0",
        "that exits": b"import sys; sys.exit(0)",
        "without its module": b"import nothing_like_this",
        "with a taken name": b"import dpsparfl_jax as fl\n"
        b"@fl.register_policy('random')\nclass Mine: pass\n",
        "binary": bytes(range(256)),
    }
    for name, content in contents.items():
        yield Case(
            f"plugin {name}",
            "run",
            (*SMALL, "--out={root}/out", "--plugin={root}/mine.py"),
            _bytes("mine.py", content),
        )
    for name in ("/nowhere/mine.py", "nothing.like.this", "", "a b"):
        yield run_case(f"plugin {name!r}", f"--plugin={name}")
    yield from _policies()


def _policies() -> Iterator[Case]:
    """Policies of one's own that return what no cell can do."""
    returned = {
        "nothing": "None",
        "no state": "good",
        "no allocation": "(3, state)",
        "client numbers": "(good._replace(client=good.client + 99), state)",
        "a client twice": "(good._replace(client=good.client * 0), state)",
        "a channel twice": "(good._replace(channel=good.channel * 0), state)",
        "too much power": "(good._replace(power_w=good.power_w * 100), state)",
        "too short a delay": "(good._replace(delay_s=good.delay_s / 100), state)",
        "nan": "(good._replace(delay_s=good.delay_s * float('nan')), state)",
        "lists": "(good._replace(keep_rate=[1.0, 1.0]), state)",
    }
    for name, value in returned.items():
        for program in ("run", "schedule_only"):
            out = "--out={root}/out" if program == "run" else "--plot="
            plugin = ("--plugin={root}/mine.py", "--schedule.policy=mine")
            yield Case(
                f"{program}: a policy that returns {name}",
                program,
                (*SMALL, out, *plugin),
                _bytes("mine.py", _POLICY.replace("RETURNED", value).encode()),
            )


def _settings_files() -> Iterator[Case]:
    """Bad files of settings; flags beside them are good."""
    contents = {
        "no TOML": b"[data\nname = 3",
        "a list": b"[]",
        "text": b"schedule.policy=random",
        "twice": b"seed = 1\nseed = 2",
        "binary": bytes(range(256)),
        "other encoding": "seed = 1".encode("utf-16"),
        "deep": b"seed = " + b"[" * 100_000,
        "long number": b"seed = " + b"9" * 5000,
        "text as seed": b'seed = "one"',
        "truth as seed": b"seed = true",
        "negative seed": b"seed = -1",
        "unknown section": b"[dada]\nname = 'toy'",
        "unknown setting": b"[privacy]\nepsilon_high = 3",
        "without section": b"policy = 'random'",
        "section as value": b"data = 'toy'",
        "sections as list": b"[[data]]\nname = 'toy'",
        "section in section": b"[data.name]\nx = 3",
        "number as text": b"[data]\nnum_clients = '4'",
        "fraction": b"[data]\nnum_clients = 4.5",
        "truth": b"[data]\nnum_clients = true",
        "date": b"[data]\nname = 2024-01-01",
        "nan": b"[training]\nclip_norm = nan",
        "inf": b"[training]\nclip_norm = inf",
        "too small": b"[training]\nclip_norm = 0",
        "unknown policy": b"[schedule]\npolicy = 'best'",
        "several lines": b'[data]\ndir = """a\nb"""',
        "ragged": b"[privacy]\nnoise_multiplier = [[1, 2], [3]]",
        "giant": b"[privacy]\nnoise_multiplier = [1" + b"0" * 400 + b"]",
        "words": b"[privacy]\nnoise_multiplier = ['a', 'b']",
        "against itself": b"[privacy]\nepsilon_lo = 20",
        "unknown preset": b"preset = 'nothing'",
        "preset of a number": b"preset = 3",
        "preset of a list": b"preset = [3]",
    }
    for name, content in contents.items():
        yield Case(
            f"settings file: {name}",
            "run",
            (*SMALL, "--out={root}/out", "--config={root}/mine.toml"),
            _bytes("mine.toml", content),
        )
    for name, content in {
        "empty": b"",
        "a list": b"[]",
        "no settings": b"{}",
        "other settings": b'{"config": {"data": 3, "seed": 0}}',
    }.items():
        yield Case(
            f"settings of a manifest: {name}",
            "sweep",
            (*SMALL, "--config={root}/manifest.json", "--print_config"),
            _bytes("manifest.json", content),
        )


def _folders() -> Iterator[Case]:
    def run(name: str, *flags: str, prepare: Prepare | None = None) -> Case:
        return Case(name, "run", (*SMALL, *flags), prepare, needs_run=True)

    again = "--out={root}/run"
    yield run_case("out: a device", "--out=/dev/null")
    yield run_case("out: a process", "--out=/proc/nothing")
    yield run_case("out: a long name", f"--out=/tmp/{'x' * 300}")
    yield run_case("out: a long path", "--out=/tmp/" + "/".join(["x" * 200] * 25))
    yield Case(
        "out: a file",
        "run",
        (*SMALL, "--out={root}/file"),
        _bytes("file", b"precious"),
    )
    yield Case(
        "out: other files",
        "run",
        (*SMALL, "--out={root}/there"),
        _bytes("there/precious.txt", b"precious"),
    )
    yield run("out: another seed", again, "--seed=3")
    yield run("out: another clip norm", again, "--training.clip_norm=3")
    yield run("out: within a run", "--out={root}/run/below")
    yield run("out: above a run", "--out={root}")

    def changed(name: str, content: bytes | None) -> Prepare:
        def prepare(root: pathlib.Path) -> None:
            path = root / "run" / name
            path.unlink()
            if content is not None:
                path.write_bytes(content)

        return prepare

    ways: tuple[tuple[str, ...], ...] = ((again,), (again, "--resume"))
    for flags in ways:
        how = "resumed" if "--resume" in flags else "again"
        for name, content in {
            "no manifest": None,
            "an empty manifest": b"",
            "half a manifest": b'{"name": "run", "config": {"data"',
            "a list as manifest": b"[]",
            "a manifest without settings": b'{"name": "run"}',
            "a manifest of other settings": b'{"config": {"data": 3, "seed": 0}}',
            "a manifest in another encoding": b"\xff\xfe\x00",
        }.items():
            yield run(
                f"{how}: {name}", *flags, prepare=changed("manifest.json", content)
            )
    yield run("again: DONE is gone", again, prepare=changed("DONE", None))
    for name, file, damage in (
        ("DONE is damaged", "DONE", b"{"),
        ("DONE says little", "DONE", b"{}"),
        ("no manifest", "manifest.json", None),
        ("half a manifest", "manifest.json", b'{"config'),
        ("clients are gone", "clients.csv", None),
        ("clients are damaged", "clients.csv", b"\x00\xff,,,\n1"),
        ("rounds are gone", "rounds.jsonl", None),
        ("rounds are damaged", "rounds.jsonl", b"{}\n"),
    ):
        for program, words in (
            ("report", "report"),
            ("list_runs", "list"),
            ("show", "show"),
            ("compare", "compare"),
        ):
            prepare = changed(file, damage)
            where = "{root}/run" if program == "show" else "{root}"
            yield Case(f"{words}: {name}", program, (where,), prepare, needs_run=True)


def _styles() -> Iterator[Case]:
    """Looks of pictures for papers, given for a good run."""
    report = ("{root}/run", "--paper")
    for name, content in {
        "a word": b"large",
        "an unknown name": b"font.largeness: 8\n",
        "a bad number": b"font.size: very\n",
        "a bad truth": b"axes.grid: perhaps\n",
        "binary": bytes(range(256)),
    }.items():
        arguments = (*report, "--style={root}/mine.mplstyle")
        prepare = _bytes("mine.mplstyle", content)
        yield Case(f"style: {name}", "report", arguments, prepare, needs_run=True)
    folder = (*report, "--style={root}")
    yield Case("style: a folder", "report", folder, needs_run=True)


def _indexes() -> Iterator[Case]:
    """A damaged index is of no use, and changes nothing about a damaged run."""

    def prepare(root: pathlib.Path) -> None:
        (root / "index.jsonl").write_bytes(b'{"check":"00000000",\n\x00\xff')
        (root / "run" / "manifest.json").unlink()
        (root / "run" / "manifest.json").write_bytes(b"{")

    for program in ("report", "list_runs"):
        name = f"{program}: a damaged index and a damaged run"
        yield Case(name, program, ("{root}",), prepare, needs_run=True)
    flags = tuple(flag for flag in SMALL if "policy" not in flag)
    point = ("--grid=schedule.policy=random", "--out={root}")

    def prepare_point(root: pathlib.Path) -> None:
        (root / "run").rename(root / "policy=random")
        (root / "index.jsonl").write_bytes(b"junk\n" * 3)

    other = (*flags, *point, "--preset=paper_mnist", "--seed=3")
    yield Case(
        "sweep: a damaged index and another run",
        *("sweep", other, prepare_point),
        needs_run=True,
    )


def cases() -> Iterator[Case]:
    """All of them."""
    yield from _images()
    yield from _idx_files()
    yield from _partitions()
    yield from _client_files()
    yield from _plugins()
    yield from _settings_files()
    yield from _folders()
    yield from _styles()
    yield from _indexes()
