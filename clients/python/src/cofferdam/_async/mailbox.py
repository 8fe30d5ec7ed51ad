"""Items on their way from one piece of work to another. Written by hand, like its twin in `_sync`."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeAlias, TypeVar

from cofferdam.types import NodeInfo

#: Takes a node that no longer answers, or does so again; may be asynchronous.
AsyncNodeCallback: TypeAlias = Callable[[NodeInfo], Awaitable[None] | None]

Item = TypeVar("Item")


class Mailbox(Generic[Item]):
    """So many items at most: `put` waits for room."""

    def __init__(self, most: int) -> None:
        self._queue: asyncio.Queue[Item] = asyncio.Queue(most)

    async def put(self, item: Item) -> None:
        await self._queue.put(item)

    async def get(self, timeout: float | None) -> Item | None:
        """The next one; None: there was none for so many seconds."""
        if not self._queue.empty():
            return self._queue.get_nowait()
        if timeout is not None and timeout <= 0:
            return None
        try:
            return await asyncio.wait_for(self._queue.get(), timeout)
        except asyncio.TimeoutError:
            return None

    def close(self) -> None:
        """Nobody takes items any more. Here the work that puts them is cancelled; not so in the twin."""
