"""Items on their way from one piece of work to another. Written by hand, like its twin in `_async`."""

import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeAlias, TypeVar

from cofferdam.errors import Cancelled
from cofferdam.types import NodeInfo

#: Takes a node that no longer answers, or does so again.
NodeCallback: TypeAlias = Callable[[NodeInfo], None]

Item = TypeVar("Item")

# Seconds after which somebody who waits for room looks if the box is closed.
LOOK = 0.1


class Mailbox(Generic[Item]):
    """So many items at most: `put` waits for room."""

    def __init__(self, most: int) -> None:
        self._queue: queue.Queue[Item] = queue.Queue(most)
        self._closed = threading.Event()

    def put(self, item: Item) -> None:
        while not self._closed.is_set():
            try:
                return self._queue.put(item, timeout=LOOK)
            except queue.Full:
                continue
        raise Cancelled("nobody takes it any more")

    def get(self, timeout: float | None) -> Item | None:
        """The next one; None: there was none for so many seconds."""
        try:
            return self._queue.get(timeout is None or timeout > 0, timeout)
        except queue.Empty:
            return None

    def close(self) -> None:
        """Nobody takes items any more."""
        self._closed.set()
