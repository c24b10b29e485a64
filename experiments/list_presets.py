"""Says what every preset is, a line each.

dpsparfl presets
"""

from . import cli, presets, usage


def main() -> None:
    """Prints the list."""
    usage.show(presets.listing())


if __name__ == "__main__":
    cli.run(main)
