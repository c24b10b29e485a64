"""A run as tables and files, and frames read back from them (host only)."""

from dpsparfl_jax.records.folder import (
    CHECKPOINTS,
    CLIENTS,
    DONE,
    LOCK,
    MANIFEST,
    OWN_CODE,
    ROUNDS,
    SCHEDULE,
    RecordedRun,
    RunFolder,
    find_runs,
    load_run,
    privacy_words,
    read_manifest,
    read_rounds,
)
from dpsparfl_jax.records.index import INDEX, FoundRuns, Index, IndexedRun

__all__ = [
    "CHECKPOINTS",
    "CLIENTS",
    "DONE",
    "INDEX",
    "LOCK",
    "MANIFEST",
    "OWN_CODE",
    "ROUNDS",
    "SCHEDULE",
    "FoundRuns",
    "Index",
    "IndexedRun",
    "RecordedRun",
    "RunFolder",
    "find_runs",
    "load_run",
    "privacy_words",
    "read_manifest",
    "read_rounds",
]
