"""The report while runs train: `--live` has its page written anew every few seconds.

A thread reads the folders of the runs, as `dpsparfl report` would, and writes the page
alone. It takes a tenth of a core at most, however many runs there are, and what it
fails at never concerns the training.
"""

import contextlib
import pathlib
import threading
import time
from collections.abc import Mapping
from types import TracebackType

from tqdm import tqdm

from dpsparfl_jax import records
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.records import index
from dpsparfl_jax.report import following
from dpsparfl_jax.storage import write_whole

from . import ending

_SHARE = 0.1  # of a core, at most


class LivePage:
    """Writes the page of some runs now and then; use it in a `with` block."""

    def __init__(
        self, folders: Mapping[str, pathlib.Path], out: pathlib.Path, every_s: int
    ) -> None:
        """Follows runs by name in their folders; 0 seconds do nothing."""
        self._folders, self._out, self._every_s = dict(folders), out, every_s
        self._path = out / "report.html"
        self._finished: dict[str, records.RecordedRun] = {}
        self._is_empty = False  # so far it says that there is nothing to say
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="live", daemon=True)

    def __enter__(self) -> "LivePage":
        """Begins."""
        if self._every_s:
            self._thread.start()
            where = self._path.absolute().as_uri()
            print(f"Live page, anew every {self._every_s} s: {where}", flush=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends; a page that nobody will write again stops reloading itself."""
        if not self._every_s:
            return
        self._over.set()
        self._thread.join()
        with contextlib.suppress(InputError, OSError):
            if self._is_empty:
                self._path.unlink()
            elif kind is not None:
                text = self._path.read_text(encoding="utf-8")
                write_whole(self._path, following.still(text))

    def _follow(self) -> None:
        """Until the end; rests the longer, the longer it took."""
        rest = 0.0
        while not self._over.wait(rest):
            began = time.thread_time()
            try:
                self.write()
            except InputError:  # a full disk, which training will tell of
                pass
            except Exception as reason:  # of whatever kind: training goes on
                tqdm.write(f"The live page is not written any more ({reason!r}).")
                return
            rest = max(self._every_s, (time.thread_time() - began) / _SHARE)

    def write(self) -> None:
        """Writes the page of what is recorded by now."""
        if len(self._folders) > index.FEW:
            many = ending.read_many(self._folders, {})
            many = [run for run in many if run.summary["rounds"]]
            self._is_empty = not many
            if many:
                from dpsparfl_jax.report import group_page  # loads plotly

                group_page.write_report(many, self._out, reload_s=self._every_s)
        else:
            few = self._read_few()
            self._is_empty = not few
            if few:
                from dpsparfl_jax.report import writing  # loads plotly

                writing.write_report(few, self._out, reload_s=self._every_s)
        if self._is_empty:
            write_whole(self._path, following.empty_page(self._every_s))

    def _read_few(self) -> list[records.RecordedRun]:
        """Runs that have rounds; finished ones are read once."""
        runs = []
        for name, folder in self._folders.items():
            run = self._finished.get(name)
            # One that is just being finished is read the next time.
            with contextlib.suppress(InputError):
                if run is None and (folder / records.MANIFEST).is_file():
                    run = records.load_run(folder, name)
            if run is not None and len(run.rounds):
                runs.append(run)
                if run.done:
                    self._finished[name] = run
        return runs
