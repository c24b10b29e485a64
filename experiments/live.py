"""The flag of the report while runs train; loads nothing that start-up waits for."""

from absl import flags


def define_flags() -> None:
    """Defines `--live`."""
    flags.DEFINE_integer(
        "live",
        0,
        "seconds between two versions of the report's page while runs train, which an "
        "open browser follows; 0 writes it at the end only",
        lower_bound=0,
        upper_bound=86_400,
    )


def every_s() -> int:
    """What the flag says."""
    return int(flags.FLAGS["live"].value or 0)
