"""Items on their way from one piece of work to another. Written by hand, like its twin in `_async`."""

import queue
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeAlias, TypeVar

from cofferdam._sync.transport import sleep
from cofferdam.errors import Cancelled
from cofferdam.types import NodeInfo

#: Takes a node that no longer answers, or does so again.
NodeCallback: TypeAlias = Callable[[NodeInfo], None]

Item = TypeVar("Item")

# Seconds after which somebody who waits for room or an item looks if the box is closed.
LOOK = 0.1


class Mailbox(Generic[Item]):
    """So many items at most: `put` waits for room."""

    def __init__(self, most: int) -> None:
        self._queue: queue.Queue[Item] = queue.Queue(most)
        self._closed = threading.Event()

    def put(self, item: Item) -> None:
        """Raises `Cancelled` when it is closed, or the work that puts the item is to end."""
        while not self._closed.is_set():
            try:
                return self._queue.put(item, timeout=LOOK)
            except queue.Full:
                sleep(0.0)
        raise Cancelled("nobody takes it any more")

    def get(self, timeout: float | None) -> Item | None:
        """The next one; None: there was none for so many seconds. Raises `Cancelled` when it is closed and empty."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            # Before the queue is read: items that were put before it was closed come first.
            is_closed = self._closed.is_set()
            left = LOOK if until is None else min(LOOK, until - time.monotonic())
            try:
                return self._queue.get(left > 0 and not is_closed, max(left, 0.0))
            except queue.Empty:
                if is_closed:
                    raise Cancelled("the stream was closed") from None
                if left <= 0:
                    return None

    def close(self) -> None:
        """Ends it, from either side."""
        self._closed.set()
