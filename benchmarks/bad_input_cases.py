"""Bad input of every kind: flags, files, folders, and values given from Python.

A case is a program and its arguments, with `{root}` for a folder of its own in which
`prepare` has put files. What it must get is one sentence and exit code 2.
"""

import dataclasses
import functools
import gzip
import io
import json
import math
import pathlib
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from dpsparfl_jax import config

Prepare = Callable[[pathlib.Path], None]
_WORLD = (
    "--data.name=toy",
    "--data.num_clients=4",
    "--data.train_examples=20",
    "--data.test_examples=5",
    "--model.name=logistic",
    "--training.local_steps=2",
    "--training.batch_size=4",
    "--privacy.noise_multiplier=2",
    "--wireless.num_channels=2",
    "--length.rounds=1",
    "--perf.devices=1",
    "--schedule.policy=random",
    "--perf.cache_dir={shared}",
)
SMALL = (*_WORLD, "--data.dir={shared}")  # where `write_toy` has put its file
_FROM_FILE = (*SMALL, "--out={root}/out", "--data.partition=file")
OWN = (*_WORLD, "--data.dir={root}")


class Case(NamedTuple):
    """One bad input."""

    name: str
    program: str  # "python" calls `python` of the module that runs cases
    arguments: tuple[str, ...]
    prepare: Prepare | None = None
    needs_run: bool = False  # a finished run in {root}/run


def write_toy(folder: pathlib.Path, **changes: Any) -> None:
    """`toy.npz`, a small good image set, with some of its arrays changed."""
    np.savez(folder / "toy.npz", **_toy(changes))


def _toy(changes: Mapping[str, Any]) -> dict[str, Any]:
    draw = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        "train_images": draw.integers(0, 256, (120, 4, 4, 1), np.uint8),
        "train_labels": np.arange(120) % 10,
        "test_images": draw.integers(0, 256, (40, 4, 4, 1), np.uint8),
        "test_labels": np.arange(40) % 10,
    }
    arrays.update(changes)
    return {name: array for name, array in arrays.items() if array is not None}


def all_cases() -> list[Case]:
    """Every case; names are unique."""
    cases = [
        *_values_of_settings(),
        *_flags(),
        *_images(),
        *_idx_files(),
        *_partitions(),
        *_client_files(),
        *_plugins(),
        *_folders(),
        *_grids(),
        *_searches(),
        *_budgets(),
        *_other_programs(),
    ]
    names = [case.name for case in cases]
    twice = {name for name in names if names.count(name) > 1}
    assert not twice, twice
    return cases


def _run(name: str, *flags: str, prepare: Prepare | None = None) -> Case:
    where = OWN if prepare is not None else SMALL
    return Case(name, "run", (*where, "--out={root}/out", *flags), prepare)


def _values_of_settings() -> Iterator[Case]:
    """What every single setting must refuse, from its declaration."""
    for section in config.SECTIONS:
        for field in dataclasses.fields(getattr(config.RunConfig(), section)):
            for text in _bad_texts(field):
                flag = f"--{section}.{field.name}={text}"
                yield _run(f"setting {flag}", flag)


def _bad_texts(field: dataclasses.Field[Any]) -> Iterator[str]:
    default: Any = field.default
    rule, kind = field.metadata, type(default)
    if kind is bool:
        yield "perhaps"
    elif kind is str:
        if rule["choices"] or rule["named"]:
            yield "nonsense"
            yield ""
        return
    else:
        yield "many"
        yield str(2**31) if kind is int else "nan"
        yield "1.5" if kind is int else "inf"
        if kind is float:
            yield "1e300"
            yield "-1e-300"
    if rule["low"] is not None:
        yield f"{rule['low'] - 1:g}"
    if rule["above"] is not None:
        yield f"{rule['above']:g}"
    if rule["high"] is not None:
        yield f"{rule['high'] * 2 + 1:g}"
    if rule["below"] is not None:
        yield f"{rule['below']:g}"


def _flags() -> Iterator[Case]:
    for text in ("a,b", "-3,5", "0", "", "3,,5", "1e3", "3 5", "9" * 5000):
        for partition in ("iid", "imbalanced", "dirichlet"):
            chosen = f"--data.partition={partition}"
            name = f"group sizes {text[:9]!r} with {partition}"
            yield _run(name, f"--data.group_sizes={text}", chosen)
    for text in ("a", "2,x", "-1,2", "nan", "0,1,2,3", "inf", "1,,2", "1e300"):
        yield _run(f"epsilons {text}", f"--privacy.epsilons={text}")
        yield _run(
            f"idle epsilons {text}", f"--privacy.epsilons={text}", "--noprivacy.noise"
        )
    for number, flags in enumerate(
        (
            ("--nonsection.field=1",),
            ("--data.nmae=mnist",),
            ("stray",),
            ("--seed=-1",),
            ("--seed=1.5",),
            (f"--seed={2**63}",),
            ("--preset=nothing",),
            ("--preset=",),
            ("--resume=perhaps",),
            ("--data.name=",),
            ("--data.name=imagenet_of_mine",),
            ("--data.name=a/b",),
            ("--data.name=with space",),
            ("--data.name=two\nlines",),
            ("--data.dir=/nowhere",),
            ("--data.dir=/dev/null",),
            ("--data.dir=", "--data.name=mnist", "--data.tfds_dir=/nowhere"),
            ("--data.num_clients=100000000",),
            ("--data.num_clients=7", "--data.partition=imbalanced"),
            ("--data.num_clients=7", "--data.train_examples=18"),
            ("--data.train_examples=31",),
            ("--data.test_examples=11",),
            ("--data.train_examples=30", "--length.eval_on=validation"),
            ("--data.train_examples=1000000000",),
            ("--data.partition=file",),
            ("--data.partition_file=x.json",),
            ("--data.dir=", "--data.name=glyphs", "--data.num_clients=100000"),
            ("--wireless.num_channels=1000000000",),
            ("--wireless.cpu_low_hz=3e9",),
            ("--wireless.max_power_dbm=1e5",),
            ("--wireless.noise_dbm=-1e9",),
            ("--training.batch_size=21",),
            ("--training.batch_size=1e-12",),
            ("--training.batch_size=1e-3", "--length.rounds=0"),
            ("--noprivacy.noise", "--length.rounds=0"),
            ("--training.clipping=off",),
            ("--training.optimizer=plain",),
            ("--privacy.epsilon_lo=11",),
            ("--privacy.epsilon_hi=1e9",),
            ("--privacy.noise_multiplier=1e-5",),
            ("--privacy.noise_multiplier=1e7",),
            ("--privacy.noise_multiplier=0.3",),
            ("--privacy.delta=1e-39",),
            ("--privacy.clip_calibration=private", "--noprivacy.noise"),
            ("--server.weights=inverse_noise", "--noprivacy.noise"),
            ("--server.learning_rate=0.5",),
            ("--server.rate_schedule=cosine",),
            ("--schedule.clients=worthwhile", "--schedule.solver=paper"),
            ("--schedule.margin_db=3", "--schedule.late_probability=0.1"),
            ("--perf.devices=1000",),
            ("--model.name=cifar_cnn",),
            ("--model.name=mnist_cnn_tanh", "--data.features=scattering"),
            ("--flagfile=/nowhere/flags.txt",),
        )
    ):
        yield _run(f"flags {number}: {' '.join(flags)}", *flags)


def _bytes(name: str, content: bytes) -> Prepare:
    def prepare(root: pathlib.Path) -> None:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    return prepare


def _toy_bytes(**changes: Any) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **_toy(changes))
    return file.getvalue()


def _images() -> Iterator[Case]:
    byte, whole = np.uint8, np.zeros((120, 4, 4, 1), np.uint8)
    changes: dict[str, dict[str, Any]] = {
        "no test labels": {"test_labels": None},
        "no train images": {"train_images": None},
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
        yield _run(f"npz: {name}", prepare=functools.partial(write_toy, **change))
    objects = {"train_labels": np.array([None] * 120, object)}
    yield _run("npz: objects", prepare=lambda root: write_toy(root, **objects))
    good = _toy_bytes()
    for share in (0.0, 0.1, 0.5, 0.9, 0.99):
        part = good[: int(share * len(good))]
        yield _run(f"npz: first {share:.0%}", prepare=_bytes("toy.npz", part))
    for number, position in enumerate(np.linspace(100, len(good) - 400, 8, dtype=int)):
        flipped = bytearray(good)
        flipped[position : position + 8] = b"\xff" * 8
        yield _run(f"npz: damaged {number}", prepare=_bytes("toy.npz", bytes(flipped)))
    yield _run("npz: text", prepare=_bytes("toy.npz", b"not a zip file"))
    yield _run("npz: a folder", prepare=lambda root: (root / "toy.npz").mkdir())
    yield _run("npz: a giant", prepare=_giant)
    tiny = np.zeros((120, 1, 1, 1), byte)
    small = {"train_images": tiny, "test_images": tiny[:40]}
    for model in ("mnist_cnn", "small_cnn", "norm_cnn"):
        yield _run(
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
        for name, array in _toy({}).items():
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
            yield _run(f"idx: {name} {what}", prepare=prepare)


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
        (*_FROM_FILE, "--data.partition_file={root}/nothing.json"),
    )


def _partition(name: str, content: bytes) -> Case:
    return Case(
        f"partition file: {name}",
        "run",
        (*_FROM_FILE, "--data.partition_file={root}/split.json"),
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
            yield _run(f"{setting} {text}", f"--{setting}={text}")


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
        yield _run(f"plugin {name!r}", f"--plugin={name}")


def _folders() -> Iterator[Case]:
    def run(name: str, *flags: str, prepare: Prepare | None = None) -> Case:
        return Case(name, "run", (*SMALL, *flags), prepare, needs_run=True)

    again = "--out={root}/run"
    yield _run("out: a device", "--out=/dev/null")
    yield _run("out: a process", "--out=/proc/nothing")
    yield _run("out: a long name", f"--out=/tmp/{'x' * 300}")
    yield _run("out: a long path", "--out=/tmp/" + "/".join(["x" * 200] * 25))
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
    report = ("report", ("{root}",))
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
        prepare = changed(file, damage)
        yield Case(f"report: {name}", *report, prepare, needs_run=True)


def _grids() -> Iterator[Case]:
    many = ",".join(map(str, range(1, 1001)))
    grids = (
        *("", ";", "seed", "seed=", "seed=,", "=1", "sead=0,1", "seed=0,1;seed=2"),
        *("seed=0,0", "seed=x", "seed=0..9", "seed=-1", "seed=1.5", "data=1"),
        *("data.=1", ".name=1", "data.name.x=1", "schedule.policy=random,best"),
        *("schedule.solver=joint,exact", "data.partition=iid,striped"),
        *("model.name=logistic,vit", "privacy.accountant=pld,zcdp"),
        *("server.optimizer=plain,lamb", "training.sparsifier=bernoulli,top"),
        *("training.clipping=adjusted,maybe", "data.name=toy,imagenet_of_mine"),
        *("privacy.delta=0,1e-3", "privacy.delta=nan", "wireless.fading=perhaps"),
        *("training.local_steps=1.5", "data.num_clients=0,4", "perf.devices=99"),
        *("wireless.num_channels=2,1000000000", "data.group_sizes=x"),
        *("training.clip_norm=1,inf", f"seed={many};schedule.tradeoff={many}"),
        f"seed={many};schedule.tradeoff={many};training.clip_norm={many}",
    )
    for grid in grids:
        axes = [f"--{part.partition('=')[0]}=" for part in grid.split(";")]
        yield Case(
            f"grid {grid[:60]} ({len(grid)})",
            "sweep",
            (
                *(flag for flag in SMALL if not flag.startswith(tuple(axes))),
                "--preset=paper_mnist",
                "--out={root}/out",
                f"--grid={grid}",
            ),
        )
    for shard in ("0/2", "3/2", "1", "a/b", "1/2/3", "-1/2", "1/0", "5/9", "1.5/2"):
        flags = ("--grid=seed=0,1", f"--shard={shard}", "--out={root}/out")
        yield Case(f"shard {shard}", "sweep", (*SMALL, *flags))
    yield Case("sweep: no folder", "sweep", (*SMALL, "--grid=seed=0,1"))
    yield Case(
        "sweep: flag and axis",
        "sweep",
        (*SMALL, "--out={root}/out", "--grid=schedule.policy=random"),
    )


def _searches() -> Iterator[Case]:
    searches = (
        *("", "training.clip_norm", "training.clip_norm=", "clip=1..2", "seed=1..2"),
        *("training.clip_norm=2..1", "training.clip_norm=0..1", "data.name=a..b"),
        *("schedule.policy=best", "training.clip_norm=1..2;training.clip_norm=3"),
        *("training.local_steps=1.5..2.5", "training.clip_norm=1..1e300"),
    )
    for search in searches:
        flags = ("--out={root}/out", f"--search={search}")
        yield Case(f"search {search}", "tune", (*_no_length(), *flags))
    good = ("--search=training.clip_norm=1..2", "--out={root}/out")
    for flag in (
        *("--rounds=x", "--rounds=", "--rounds=4,2", "--rounds=2,2", "--rounds=0,2"),
        *("--trials=0", "--trials=1000000", "--kept=2", "--kept=-1", "--kept=nan"),
        *("--search_seed=-1", "--length.rounds=3", "--length.eval_on=test", "--out="),
    ):
        yield Case(f"tune {flag}", "tune", (*_no_length(), *good, flag))


def _no_length() -> tuple[str, ...]:
    return tuple(flag for flag in SMALL if "length" not in flag)


def _budgets() -> Iterator[Case]:
    for flag in (
        *("--sigma=0", "--sigma=-1", "--sigma=nan", "--sigma=inf", "--sigma=1e300"),
        *("--sigma=1e-300", "--sigma=x", "--batch=0", "--batch=-1", "--batch=nan"),
        *("--batch=1e9", "--batch=1e-30", "--examples=0", "--examples=x"),
        *(f"--examples={10**30}", "--steps=0", "--steps=-1", f"--steps={10**30}"),
        *("--steps=1.5", "--delta=0", "--delta=1", "--delta=nan", "--delta=-1"),
        *("--overflow=-1", "--overflow=1", "--overflow=nan", "--epsilon=", "--limit=0"),
        *("--epsilon=x", "--epsilon=0", "--epsilon=-1", "--epsilon=nan"),
        *("--epsilon=inf", "--epsilon=1e300", "--epsilon=2..10", "--epsilon=1,,2"),
        *("--participations=0", f"--participations={10**30}", f"--limit={10**30}"),
        *("--clients=3", "--most_rounds=3", "--json=/nowhere/a.json", "--json=/tmp"),
        *("--plot=/nowhere/a.png", "--plot=/tmp", "--plot=a.exe", "--plot=a", "more"),
        *(f"--json=/tmp/{'x' * 300}", f"--plot=/tmp/{'x' * 300}.png"),
    ):
        name = f"budget {flag[:60]} ({len(flag)})"
        plot = () if "plot" in flag else ("--plot=",)
        yield Case(name, "budget", (*plot, "--cache_dir={shared}", flag))
    for flags in (
        ("--epsilon=10..2",),
        ("--epsilon=x..2",),
        ("--epsilon=0..2",),
        ("--sigma=1e300",),
        ("--participations=3",),
        ("--clients=0",),
        ("--channels=0",),
        ("--most_examples=-1",),
        ("--most_rounds=-1",),
        ("--most_batch=0",),
        ("--most_batch=nan",),
        ("--most_examples=nan",),
    ):
        arguments = ("--plot=", "--cache_dir={shared}", "--advise", *flags)
        yield Case(f"advice {' '.join(flags)}", "budget", arguments)


def _other_programs() -> Iterator[Case]:
    plan = ("--length.rounds=1", "--perf.cache_dir={shared}")
    for flags in (
        ("--plot=a.exe",),
        ("--plot=/nowhere/a.png",),
        ("--plot=", "--plot_queues=/nowhere/a.png"),
        ("--plot=", "--plot_world=a.txt"),
        ("--plot=", "--out=/dev/null"),
        ("--plot=", "--preset=nothing"),
        ("--plot=", "--data.num_clients=100000000"),
        ("--plot=", "--wireless.num_channels=1000000000"),
        ("--plot=", "--training.batch_size=1e-3", "--length.rounds=0"),
        ("--plot=", "--data.group_sizes=x"),
        ("--plot=", "--schedule.policy=best"),
    ):
        yield Case(f"plan {' '.join(flags)}", "schedule_only", (*plan, *flags))
    for arguments in ((), ("/nowhere",), ("/dev/null",), ("{root}",), ("--nonsense",)):
        yield Case(f"report {arguments}", "report", arguments)
    for flags in (("--results=/nowhere",), ("--results={root}",), ("more",)):
        yield Case(f"claims {flags}", "claims", flags)
    for flags in (
        ("--figure=nothing",),
        ("--scale=huge",),
        ("--out=/dev/null",),
        ("--perf.devices=-1",),
    ):
        yield Case(f"figures {flags}", "figures", flags)
    yield Case(
        "figures: nothing to draw from",
        "figures",
        ("--draw_only", "--figure=tradeoff", "--out={root}/out"),
    )
    preparations: tuple[tuple[str, ...], ...] = (
        (),
        ("--from={shared}",),
        ("--to={root}/out",),
        ("--from=/nowhere", "--to={root}/out"),
        ("--from={root}", "--to={root}/out"),
        ("--from={shared}", "--to=/nowhere/below/out"),
        ("--from={shared}", "--to=/dev/null"),
        ("--from={shared}", "--to={root}/out", "--name=Toy"),
        ("--from={shared}", "--to={root}/out", "--name=other"),
        ("--from={shared}", "--to={root}/out", "--name=../toy"),
    )
    for given in preparations:
        yield Case(f"prepare_data {' '.join(given)}", "prepare_data", given)
