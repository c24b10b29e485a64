"""Three runs that all tests of this folder compare with."""

import pytest

from tests.runner.runs import RUNS, run


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """Three runs in one batch, never interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    outcome, _ = run(folder, *RUNS)
    assert outcome.finished == ["p0", "p1", "p2"]
    return folder
