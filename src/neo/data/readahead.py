"""Read ahead: a background thread that fills a bounded queue, and ends with its consumer."""

import threading
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class _Channel(Generic[T]):
    """What producer and consumer share: a bounded queue that either side can close."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.items: deque[T] = deque()
        self.changed = threading.Condition()
        self.closed = False
        self.done = False
        self.error: BaseException | None = None

    def put(self, item: T) -> bool:
        """Wait for room and add an item; False if the consumer is gone."""
        with self.changed:
            self.changed.wait_for(lambda: self.closed or len(self.items) < self.capacity)
            if not self.closed:
                self.items.append(item)
            self.changed.notify_all()
            return not self.closed

    def finish(self, error: BaseException | None) -> None:
        """Say that nothing more will come."""
        with self.changed:
            self.done, self.error = True, error
            self.changed.notify_all()

    def close(self) -> None:
        """Say that nobody will take anything any more."""
        with self.changed:
            self.closed = True
            self.items.clear()
            self.changed.notify_all()


class ReadAhead(Generic[T]):
    """Iterates over ``source``, which runs in a thread of its own and is up to ``depth`` items ahead.

    An exception of the source is raised here, after the items before it. The thread ends when the source does, when
    this iterator is closed, and when it is dropped.
    """

    def __init__(self, source: Iterable[T], *, depth: int, name: str) -> None:
        self._channel: _Channel[T] = _Channel(depth)
        self._thread = threading.Thread(target=_produce, args=(source, self._channel), name=name, daemon=True)
        self._finalizer = weakref.finalize(self, self._channel.close)
        self._thread.start()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        channel = self._channel
        with channel.changed:
            channel.changed.wait_for(lambda: channel.items or channel.done or channel.closed)
            if channel.items:
                item = channel.items.popleft()
                channel.changed.notify_all()
                return item
            error, channel.error = channel.error, None
        self.close()
        if error is not None:
            raise error
        raise StopIteration

    def close(self) -> None:
        """End the thread and wait for it."""
        self._finalizer()
        if self._thread is not threading.current_thread():
            self._thread.join()


def _produce(source: Iterable[T], channel: _Channel[T]) -> None:
    error: BaseException | None = None
    iterator = iter(source)
    try:
        for item in iterator:
            if not channel.put(item):
                break
    except BaseException as raised:
        error = raised
    finally:
        close = getattr(iterator, "close", None)
        if close is not None:
            close()
        channel.finish(error)
