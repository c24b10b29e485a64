"""The exceptions a user is meant to read."""


def first_line(reason: BaseException, otherwise: str) -> str:
    """The first line of what another library says, or something else if it is empty."""
    return (str(reason).strip().splitlines() or [otherwise])[0]


class InputError(ValueError):
    """Bad input: its message is one sentence that says what to do.

    Command-line programs print the message alone and leave with exit code 2.
    """


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
