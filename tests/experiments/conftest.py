"""A folder of epsilon curves that all commands of a session share."""

import pytest


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    return f"--perf.cache_dir={tmp_path_factory.mktemp('cache')}"
