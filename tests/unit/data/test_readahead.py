import gc
import threading
import time
from collections.abc import Iterator

import pytest

from neo.data.readahead import ReadAhead


def thread_named(name: str) -> threading.Thread | None:
    return next((thread for thread in threading.enumerate() if thread.name == name), None)


def test_gives_every_item_in_order() -> None:
    assert list(ReadAhead(range(100), depth=3, name="order")) == list(range(100))
    assert thread_named("order") is None


def test_is_bounded() -> None:
    made: list[int] = []

    def source() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            yield number

    ahead = ReadAhead(source(), depth=2, name="bounded")
    assert next(ahead) == 0
    time.sleep(0.1)
    assert len(made) <= 4  # one taken, two waiting, one that found no room
    ahead.close()
    assert thread_named("bounded") is None
    assert list(ahead) == []


def test_raises_the_error_after_the_items_before_it() -> None:
    def source() -> Iterator[int]:
        yield 1
        raise KeyError("broken")

    ahead = ReadAhead(source(), depth=2, name="error")
    assert next(ahead) == 1
    with pytest.raises(KeyError, match="broken"):
        next(ahead)
    assert list(ahead) == []
    assert thread_named("error") is None


def test_ends_when_dropped_and_closes_its_source() -> None:
    closed = threading.Event()

    def source() -> Iterator[int]:
        try:
            yield from range(1000)
        finally:
            closed.set()

    ahead = ReadAhead(source(), depth=2, name="dropped")
    thread = thread_named("dropped")
    assert thread is not None
    next(ahead)
    del ahead
    gc.collect()
    thread.join(timeout=10)
    assert not thread.is_alive()
    assert closed.is_set()
