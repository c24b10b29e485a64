"""The `dpsparfl` command: `dpsparfl run ...` is `python -m experiments.run ...`."""

import importlib
import sys

from dpsparfl_jax import __version__
from dpsparfl_jax.errors import unknown

from . import cli

COMMANDS = {
    "run": ("run", "train a run, or a few side by side, and record everything"),
    "sweep": ("sweep", "train a grid of runs, as many as possible in one program"),
    "presets": ("list_presets", "what every preset is, a line each"),
    "tune": ("tune", "search settings on validation images"),
    "list": ("list_runs", "recorded runs as a table, one line a setting"),
    "show": ("show", "one recorded run on one screen"),
    "compare": ("compare", "how recorded runs differ, with intervals over seeds"),
    "report": ("report", "recorded runs as one page with charts, and as tables"),
    "plan": ("schedule_only", "schedules of every policy, without training"),
    "budget": ("budget", "how often an epsilon lets a client take part"),
    "audit": ("audit", "lower bounds on epsilon, from attacks on the real program"),
    "figures": (
        "figures",
        "the paper's figures; trains the runs that are missing",
    ),
    "claims": ("claims", "the paper's claims held against the tables of figures"),
    "prepare_data": ("prepare_data", "make TensorFlow Datasets from npz or idx files"),
}
_USAGE = "\n".join(
    [
        f"dpsparfl {__version__}: dpsparfl COMMAND [--flag=value ...]",
        "",
        *(f"  {name:<14}{about}" for name, (_, about) in COMMANDS.items()),
        "",
        "dpsparfl COMMAND --help lists the flags of a command.",
    ]
)


def main() -> None:
    """Runs the command that is named first."""
    words = sys.argv[1:]
    if words and words[0] in COMMANDS:
        module, _ = COMMANDS[words[0]]
        sys.argv = [f"dpsparfl {words[0]}", *words[1:]]
        cli.run(importlib.import_module(f".{module}", __package__).main)
    elif words in (["--version"], ["version"]):
        print(__version__)
    elif not words or words[0] in ("--help", "-h", "help"):
        print(_USAGE)
    else:
        cli.refuse(unknown("command", words[0], list(COMMANDS)))


if __name__ == "__main__":
    main()
