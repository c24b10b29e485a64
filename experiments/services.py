"""Services that show curves of runs, Weights & Biases and MLflow, by their clients.

Where they are and who is logged in, their clients find out as always: `WANDB_MODE`,
`WANDB_PROJECT`, `MLFLOW_TRACKING_URI`, `MLFLOW_EXPERIMENT_NAME` and so on. Clients take
seconds to load, so nothing here loads one before it is used.
"""

import functools
import importlib.util
import itertools
import logging
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from absl import flags

from dpsparfl_jax.errors import InputError, first_line

if TYPE_CHECKING:  # reading records takes pandas, which takes a while to load
    from dpsparfl_jax.records.columns import Row

_PROJECT = "dpsparfl"  # unless the environment names another one
_OFFLINE = ("offline", "disabled", "dryrun")
_PARAMS_AT_ONCE = 100  # what MLflow takes in one call
_ROWS_AT_ONCE = 10  # of at most 100 numbers each: it takes 1000


class About(NamedTuple):
    """What a service is told of a run before its rounds."""

    name: str
    group: str  # the folder of its sweep; empty for a single run
    settings: dict[str, Any]  # by `section.name`
    id: str = ""  # by which the service knows it already; empty: it is new


class Opened(Protocol):
    """A run of a service."""

    id: str

    def send(self, rows: "Sequence[Row]") -> None:
        """Adds rounds."""

    def end(self, *, done: bool) -> None:
        """Lets go of it; it may go on later if it is not done."""


def numbers(row: "Row") -> dict[str, float]:
    """The columns of a round that a curve can show."""
    return {
        name: value
        for name, value in row.items()
        if name != "round" and isinstance(value, int | float)
    }


class WandbRun:
    """A run of Weights & Biases."""

    def __init__(self, about: About) -> None:
        """Starts it, or goes on with the one of that id."""
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", _PROJECT),
            name=about.name,
            group=about.group or None,
            id=about.id or None,
            resume="allow" if about.id else None,
            reinit="create_new",  # runs of a grid train side by side
            settings=wandb.Settings(silent=True, console="off"),
        )
        self._run.config.update(about.settings, allow_val_change=True)
        self._run.define_metric("round")
        self._run.define_metric("*", step_metric="round")
        self.id = str(self._run.id)

    def send(self, rows: "Sequence[Row]") -> None:
        """Adds rounds."""
        for row in rows:
            self._run.log({"round": row["round"], **numbers(row)})

    def end(self, *, done: bool) -> None:
        """Waits until all is written, or sent."""
        self._run.finish(exit_code=0 if done else 1)


@functools.cache
def _mlflow_client() -> Any:
    from mlflow.tracking import MlflowClient

    # They tell of every table that they make, and of every try.
    for name in ("mlflow", "alembic", "urllib3.connectionpool"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return MlflowClient()


class MlflowRun:
    """A run of MLflow."""

    def __init__(self, about: About) -> None:
        """Starts it, or goes on with the one of that id."""
        self._client = _mlflow_client()
        if about.id:
            self.id = about.id
            self._client.update_run(self.id, status="RUNNING")
            return
        tags = {"sweep": about.group} if about.group else {}
        made = self._client.create_run(_experiment(), run_name=about.name, tags=tags)
        self.id = str(made.info.run_id)
        from mlflow.entities import Param

        params = [Param(name, str(value)) for name, value in about.settings.items()]
        for some in _parts(params, _PARAMS_AT_ONCE):
            self._client.log_batch(self.id, params=some)

    def send(self, rows: "Sequence[Row]") -> None:
        """Adds rounds."""
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        for some in _parts(rows, _ROWS_AT_ONCE):
            metrics = [
                Metric(name, float(value), now, row["round"])
                for row in some
                for name, value in numbers(row).items()
            ]
            self._client.log_batch(self.id, metrics=metrics)

    def end(self, *, done: bool) -> None:
        """Says how it ended."""
        self._client.set_terminated(self.id, "FINISHED" if done else "KILLED")


def _experiment() -> str:
    """The id of the experiment that runs belong to, made if need be."""
    client = _mlflow_client()
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", _PROJECT)
    found = client.get_experiment_by_name(name)
    return str(found.experiment_id if found else client.create_experiment(name))


def _parts(items: Sequence[Any], size: int) -> list[list[Any]]:
    starts = range(0, len(items), size)
    return [list(itertools.islice(items, at, at + size)) for at in starts]


SERVICES: dict[str, Callable[[About], Opened]] = {
    "wandb": WandbRun,
    "mlflow": MlflowRun,
}


def define_flags() -> None:
    """Defines `--log`."""
    flags.DEFINE_list(
        "log",
        [],
        f"services that get the rounds too, while runs train: {', '.join(SERVICES)} "
        "(with commas between them)",
    )


def chosen() -> tuple[str, ...]:
    """What the flag says; refuses what is not there, or not installed."""
    names = tuple(dict.fromkeys(flags.FLAGS["log"].value or ()))
    for name in names:
        if name not in SERVICES:
            raise InputError(
                f"--log={name} is no service: choose from {', '.join(SERVICES)}."
            )
        if not _is_installed(name):
            raise InputError(
                f"--log={name} needs its client: pip install 'dpsparfl_jax[{name}]'."
            )
    return names


def _is_installed(client: str) -> bool:
    found = importlib.util.find_spec(client)
    return found is not None and found.origin is not None  # not just a folder


def log_in(names: Sequence[str]) -> None:
    """Lets clients ask who the user is, while there is no bar on the terminal yet."""
    if "wandb" in names and os.environ.get("WANDB_MODE") not in _OFFLINE:
        import wandb

        try:
            wandb.login()
        except wandb.errors.UsageError as reason:
            why = first_line(reason, "nobody is logged in")
            raise InputError(
                f"--log=wandb needs an account ({why}): run wandb login, or set "
                "WANDB_MODE=offline."
            ) from None
        except Exception:  # an outage, which is told of when rounds are sent
            return
