"""Flags that choose an engine; they are no settings, because they move no result."""

import pathlib
import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from absl import flags

from dpsparfl_jax.errors import InputError

from .. import distributed

if TYPE_CHECKING:
    from ..launch import Trainer
    from .watch import Engine

ENGINES = ("local", "ray", "slurm")


def define_flags() -> None:
    """Defines `--engine` and what goes with each of them."""
    flags.DEFINE_enum(
        "engine",
        "local",
        list(ENGINES),
        "where batches of runs train: in this process, as tasks of a Ray cluster, or "
        "as Slurm jobs",
    )
    flags.DEFINE_integer(
        "workers",
        0,
        "batches at the same time, by ray or slurm; 0: as many as there is room for "
        "(slurm: 8)",
        lower_bound=0,
    )
    flags.DEFINE_integer(
        "batch_runs", 0, "runs of a batch at the most; 0 is no limit", lower_bound=0
    )
    flags.DEFINE_integer("retries", 3, "of a batch whose worker is lost", lower_bound=0)
    flags.DEFINE_string(
        "ray.address",
        "",
        "of a running cluster, as in auto or HOST:PORT; empty: one is started on this "
        "machine, on loopback",
    )
    flags.DEFINE_integer("ray.cores", 1, "processor cores of a worker", lower_bound=1)
    flags.DEFINE_float("ray.gpus", 0.0, "GPUs of a worker", lower_bound=0.0)
    flags.DEFINE_string(
        "ray.resources", "", "other resources of a worker, as in TPU=4,big_memory=1"
    )
    flags.DEFINE_integer("slurm.cores", 1, "processor cores of a job", lower_bound=1)
    flags.DEFINE_integer("slurm.minutes", 60, "time limit of a job", lower_bound=1)
    flags.DEFINE_integer(
        "slurm.timeouts",
        10,
        "how often a job that reached its limit goes back into the queue",
        lower_bound=0,
    )
    flags.DEFINE_string(
        "slurm.options",
        "",
        "further parameters of submitit, as in 'slurm_partition=gpu gpus_per_node=1 "
        "mem_gb=16'",
    )
    flags.DEFINE_bool(
        "slurm.here", False, "processes of this machine instead of Slurm, to try it"
    )


def _flag(name: str) -> Any:
    return flags.FLAGS[name].value


def check() -> None:
    """Refuses flags that do not fit together, before anything is loaded."""
    engine = _flag("engine")
    if engine != "local" and distributed.wanted():
        raise InputError(
            f"--engine={engine} and --distributed.* are two ways to use many machines: "
            "choose one."
        )
    own = [n for n in flags.FLAGS if n.startswith(("ray.", "slurm."))]
    if engine == "local":
        own += ["workers", "batch_runs", "retries"]
    for name in own:
        if name.partition(".")[0] != engine and flags.FLAGS[name].present:
            raise InputError(
                f"--{name} means nothing to --engine={engine}: leave it out, or choose "
                "the engine that it belongs to."
            )
    _resources()
    _options()


def trainer(
    out: pathlib.Path, notes: Sequence[str], log: Sequence[str]
) -> "Trainer | None":
    """What trains the runs of a sweep; None leaves that to this process."""
    if _flag("engine") == "local":
        return None
    from . import watch

    plugins = tuple(
        str(pathlib.Path(name).absolute()) if name.endswith(".py") else name
        for name in _flag("plugin")
    )
    most, retries = _flag("batch_runs"), _flag("retries")
    plan = watch.Plan(out, tuple(notes), plugins, most, retries, tuple(log))
    makers: dict[str, Callable[[], Engine]] = {"ray": _ray, "slurm": _slurm}
    engine = makers[_flag("engine")]()

    def train(*what: Any) -> Any:
        try:
            return watch.train(engine, plan, *what)
        finally:
            engine.close()

    return train


def _ray() -> "Engine":
    from .ray_engine import RayEngine

    return RayEngine(
        address=_flag("ray.address"),
        workers=_flag("workers"),
        cores=_flag("ray.cores"),
        gpus=_flag("ray.gpus"),
        resources=_resources(),
    )


def _slurm() -> "Engine":
    from .slurm_engine import SlurmEngine

    return SlurmEngine(
        workers=_flag("workers"),
        cores=_flag("slurm.cores"),
        minutes=_flag("slurm.minutes"),
        timeouts=_flag("slurm.timeouts"),
        here=_flag("slurm.here"),
        options=_options(),
    )


def _pairs(flag: str, parts: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for part in parts:
        name, equals, value = part.partition("=")
        if not (name and equals and value):
            raise InputError(f"--{flag}: {part!r} is not of the form name=value.")
        pairs[name] = value
    return pairs


def _resources() -> dict[str, float]:
    given = _pairs(
        "ray.resources", list(filter(None, _flag("ray.resources").split(",")))
    )
    try:
        amounts = {name: float(value) for name, value in given.items()}
    except ValueError:
        raise InputError("--ray.resources: amounts are numbers, as in TPU=4.") from None
    if not all(0 < amount < 1e9 for amount in amounts.values()):
        raise InputError("--ray.resources: amounts are numbers above 0.")
    if {"CPU", "GPU"} & set(amounts):
        raise InputError("--ray.resources: use --ray.cores and --ray.gpus for these.")
    return amounts


def _options() -> dict[str, Any]:
    try:
        words = shlex.split(_flag("slurm.options"))
    except ValueError as reason:
        raise InputError(f"--slurm.options: {reason}.") from None
    given = _pairs("slurm.options", words)
    return {n: int(value) if value.isdecimal() else value for n, value in given.items()}
