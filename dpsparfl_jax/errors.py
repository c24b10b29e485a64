"""The exceptions a user is meant to read, and words that they share."""

import difflib
from collections.abc import Iterable, Sequence

_ALIKE = 0.75  # of 1: from here on a word counts as misspelt


def first_line(reason: BaseException, otherwise: str) -> str:
    """The first line of what another library says, or something else if it is empty."""
    return (str(reason).strip().splitlines() or [otherwise])[0]


def closest(word: str, known: Iterable[str]) -> list[str]:
    """The known word that a misspelt one is most like, if there is one."""
    return difflib.get_close_matches(word, list(known), n=1, cutoff=_ALIKE)


def unknown(kind: str, name: object, known: Sequence[object]) -> str:
    """A sentence on a name that is not there: which ones are, and which was meant.

    Examples:
        >>> from dpsparfl_jax.errors import unknown
        >>> unknown("policy", "rando", ["random", "delay_min"])
        "unknown policy 'rando': choose one of random, delay_min; did you mean random?"
        >>> unknown("policy", "best", ["random", "delay_min"])
        "unknown policy 'best': choose one of random, delay_min."
    """
    words = [str(each) for each in known]
    meant = closest(str(name), words)
    end = f"; did you mean {meant[0]}?" if meant else "."
    return f"unknown {kind} {name!r}: choose one of {', '.join(words)}{end}"


class InputError(ValueError):
    """Bad input: its message is one sentence that says what to do.

    Command-line programs print the message alone and leave with exit code 2.
    """


class UnregisteredError(InputError):
    """A name that nobody registered: whoever did may not have been loaded."""


class StorageError(InputError):
    """A file cannot be written: no other run of a grid would fare better."""


class UnfinishedRunError(InputError):
    """A folder holds the beginning of this very run, and nobody asked to go on."""


class OwnCodeError(InputError):
    """What users registered has failed, or returned what cannot be: no flag helps.

    The exception of their code, if there was one, is its cause.
    """


class LostProcessError(RuntimeError):
    """One of several processes cannot go on with the others: all have to end."""


class DivergedError(InputError):
    """All updates of several rounds had diverged; going on would waste budgets."""
