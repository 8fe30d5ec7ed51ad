"""Items on their way from one piece of work to another. Written by hand, like its twin in `_sync`."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeAlias, TypeVar

from cofferdam.errors import Cancelled
from cofferdam.types import NodeInfo

#: Takes a node that no longer answers, or does so again; may be asynchronous.
AsyncNodeCallback: TypeAlias = Callable[[NodeInfo], Awaitable[None] | None]

Item = TypeVar("Item")

# Seconds after which somebody who waits for an item looks if the box is closed.
LOOK = 0.1


class Mailbox(Generic[Item]):
    """So many items at most: `put` waits for room."""

    def __init__(self, most: int) -> None:
        self._queue: asyncio.Queue[Item] = asyncio.Queue(most)
        self._is_closed = False

    async def put(self, item: Item) -> None:
        await self._queue.put(item)

    async def get(self, timeout: float | None) -> Item | None:
        """The next one; None: there was none for so many seconds. Raises `Cancelled` when it is closed and empty."""
        until = None if timeout is None else time.monotonic() + timeout
        while self._queue.empty():
            if self._is_closed:
                raise Cancelled("the stream was closed")
            left = LOOK if until is None else min(LOOK, until - time.monotonic())
            if left <= 0:
                return None
            try:
                return await asyncio.wait_for(self._queue.get(), left)
            except asyncio.TimeoutError:
                continue
        return self._queue.get_nowait()

    def close(self) -> None:
        """Ends it, from either side. Here the work that puts items is cancelled; not so in the twin."""
        self._is_closed = True
