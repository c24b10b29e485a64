"""Is it told how far training is, where there is no terminal?"""

import pytest

from dpsparfl_jax.runner.progress import Progress, in_words


def follow(times, *, shown=True, clock=True):
    """Lines said while rounds end at these times, 2 of 10 being behind already."""
    said, now = [], [0.0]
    progress = Progress(
        "4 runs",
        10,
        2,
        say=said.append,
        clock=(lambda: now[0]) if clock else None,
        shown=shown,
    )
    with progress:
        for number, now[0] in enumerate(times):
            progress.note({"accuracy": 0.5 if number else None})
            progress.update(1)
    return said


def test_a_line_now_and_then_says_how_far_it_is():
    assert follow([10.0, 20.0]) == []
    assert follow([31.0, 32.0]) == ["4 runs: 3 of 10 rounds, about 4 min left."]
    (line,) = follow([15.0, 31.0])
    assert line.startswith("4 runs: 4 of 10 rounds, accuracy 0.500, about")


@pytest.mark.parametrize("silent", [{"shown": False}, {"clock": False}])
def test_whoever_wants_no_progress_hears_none(silent):
    assert follow([40.0, 80.0], **silent) == []


def test_times_are_quickly_read():
    assert [in_words(s) for s in (59, 600, 7200)] == ["59 s", "10 min", "2.0 h"]
