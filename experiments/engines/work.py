"""What a worker does: trains one batch as a sweep in one process would.

Nothing heavy is loaded before the number of cores is known, because JAX asks for it
once.
"""

import contextlib
import os
import pathlib
import time

from dpsparfl_jax import __version__, config_values
from dpsparfl_jax.errors import InputError

from .batches import Batch, Result

_loaded: set[str] = set()  # plugins: a process may be given several batches


def train_batch(batch: Batch) -> Result:
    """Trains a batch's runs to their ends, or goes on with those that were begun.

    Whatever fails is told, not raised: only a worker that is lost leaves no result.
    """
    try:
        _prepare(batch)
        return _train(batch)
    except Exception as reason:  # of whatever kind: the others go on
        from dpsparfl_jax.runner.drive import describe_failure

        problem = describe_failure(reason)
        return Result([], [], [], dict.fromkeys(batch.settings, problem))


def _prepare(batch: Batch) -> None:
    """Makes this process like the one that launched the sweep."""
    if batch.version != __version__:
        raise InputError(
            f"a worker has version {__version__} of dpsparfl_jax, but the sweep was "
            f"launched with {batch.version}: install the same version everywhere."
        )
    try:
        os.chdir(batch.at)
    except OSError as reason:
        raise InputError(
            f"a worker cannot enter {batch.at} ({reason.strerror}): launch the sweep "
            "from a folder that all machines share."
        ) from None
    if batch.cores:
        _use_cores(batch.cores)
    from .. import cli

    for plugin in batch.plugins:
        if plugin not in _loaded:
            cli.load_plugin(plugin)
            _loaded.add(plugin)


def python_path() -> str:
    """The `PYTHONPATH` by which workers find this package, also in a checkout."""
    root = str(pathlib.Path(__file__).resolve().parents[__name__.count(".")])
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(dict.fromkeys(filter(None, (root, *before))))


def _use_cores(cores: int) -> None:
    """Keeps JAX to so many cores: other workers share the machine."""
    os.environ["NPROC"] = str(cores)  # what XLA takes as the size of its pools
    import jax

    with contextlib.suppress(RuntimeError):  # set by an earlier batch of this process
        jax.config.update("jax_num_cpu_devices", cores)


def _train(batch: Batch) -> Result:
    from dpsparfl_jax.runner import drive

    from .. import launch
    from .status import Reporter

    reporter = Reporter(pathlib.Path(batch.launch), batch.number)
    settings = {
        name: config_values.from_dict(values) for name, values in batch.settings.items()
    }
    folders = {name: pathlib.Path(batch.out, name) for name in settings}
    hooks = drive.Hooks(
        reporter.say,
        reporter.warn,
        clock=time.time,
        stop=reporter.asked_to_stop,
        progress=False,
        row=reporter.row,
    )
    try:
        outcome = launch.train(
            settings,
            folders,
            hooks,
            resume=True,
            notes=batch.notes,
            sweep=pathlib.Path(batch.out),
            log=batch.log,
        )
    except Exception:
        reporter.end("failed", 0)
        raise
    done = [*outcome.finished, *outcome.skipped]
    reporter.end("finished" if len(done) == len(settings) else "ended", len(done))
    failed = {n: drive.describe_failure(why) for n, why in outcome.failed.items()}
    return Result(outcome.finished, outcome.skipped, outcome.stopped, failed)
