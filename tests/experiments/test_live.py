"""Is there a page to follow while runs train, and does it end with them?"""

import contextlib
import time

import pytest

from dpsparfl_jax.report import following, writing
from experiments.live_writer import LivePage
from tests.commands import assert_refused, call_program
from tests.report.test_report import write_run

RELOADS = "location.reload()"


def wait_for(page, words):
    """The page, once it has these words."""
    for _ in range(3000):
        if page.is_file() and words in page.read_text():
            return page.read_text()
        time.sleep(0.01)
    raise AssertionError(f"the page never says {words!r}")


class Ended(Exception):
    """Whatever ends a command."""


def test_the_page_follows_runs_and_ends_with_them(tmp_path, capsys):
    page = tmp_path / writing.PAGE
    folders = {"one": tmp_path / "one", "two": tmp_path / "two"}
    with contextlib.suppress(Ended), LivePage(folders, tmp_path, 1):
        assert RELOADS in wait_for(page, "No round is recorded yet")
        write_run(tmp_path / "one", done=False)
        text = wait_for(page, "unfinished, 99 planned")
        assert text.count(RELOADS) == 1
        assert text.startswith("<!DOCTYPE html>")
        assert text.endswith("</html>\n")
        raise Ended
    assert page.as_uri() in capsys.readouterr().out
    text = page.read_text()
    assert "unfinished, 99 planned" in text
    assert RELOADS not in text
    assert {path.name for path in tmp_path.iterdir()} == {"one", writing.PAGE}


def test_without_any_round_there_is_no_page_in_the_end(tmp_path):
    with LivePage({"one": tmp_path / "one"}, tmp_path, 1):
        wait_for(tmp_path / writing.PAGE, "No round is recorded yet")
    assert list(tmp_path.iterdir()) == []


def test_a_page_that_cannot_be_written_does_not_stop_training(
    tmp_path, capsys, monkeypatch
):
    def fail(*_, **__):
        raise ValueError("a chart is broken")

    write_run(tmp_path / "one")
    monkeypatch.setattr(writing, "write_report", fail)
    with LivePage({"one": tmp_path / "one"}, tmp_path, 1) as live:
        live._thread.join()
    told = capsys.readouterr().out
    assert "The live page is not written any more (ValueError('a chart is" in told


def test_only_pages_that_are_followed_reload():
    page = "<html><head></head><body></head></body></html>"
    assert following.reloading(page, 0) == page
    followed = following.reloading(page, 7)
    assert "}, 7000);\n</script></head><body></head>" in followed
    assert following.still(followed) == following.still(page) == page


@pytest.mark.parametrize(
    ("program", "flags", "message"),
    [
        ("run", ("--live=-1",), "flag --live=-1"),
        ("run", ("--live=soon",), "flag --live=soon"),
        ("sweep", ("--live=5", "--shard=1/2", "--out=x"), "--live shows all runs"),
    ],
)
def test_bad_flags_are_refused(program, flags, message):
    assert_refused(call_program(f"experiments.{program}", *flags), message)
