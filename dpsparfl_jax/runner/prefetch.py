"""Items made ahead of time by a thread, for a consumer that should not wait."""

import queue
import threading
from collections.abc import Generator, Iterator
from typing import TypeVar, cast

Item = TypeVar("Item")


def prefetch(items: Iterator[Item], ahead: int = 8) -> Generator[Item, None, None]:
    """The same items, made ahead of time by a thread; its exceptions come through."""
    waiting: queue.Queue[tuple[str, object]] = queue.Queue(maxsize=ahead)
    gone = threading.Event()

    def put(kind: str, item: object) -> bool:
        while not gone.is_set():
            try:
                waiting.put((kind, item), timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        try:
            for item in items:
                if not put("item", item):
                    return
            put("end", None)
        except BaseException as error:
            put("error", error)

    thread = threading.Thread(target=work, daemon=True, name="prefetch")
    thread.start()
    try:
        while True:
            kind, item = waiting.get()
            if kind == "end":
                return
            if kind == "error":
                assert isinstance(item, BaseException)
                raise item
            yield cast(Item, item)
    finally:
        gone.set()
        thread.join()
