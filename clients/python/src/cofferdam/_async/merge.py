"""Streams of all nodes as one, by time.

```text
node 1 ── stream ──▶ box ─┐
node 2 ── stream ──▶ box ─┼─▶ the oldest first item ──▶
node 3 ── lost, again … ──┘
```

Boxes are bounded, so that a node is read no faster than the items are taken. An item is held for `HOLD` seconds from its
own time on unless each other node shows a later one, is lost, or has an end. So items come in the order of their times,
except those that a node sends later than that.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Generic, Protocol, TypeVar

from cofferdam._async.mailbox import AsyncNodeCallback, Mailbox
from cofferdam._async.member import Member
from cofferdam._async.transport import sleep, tell
from cofferdam._fleet import is_away
from cofferdam._settings import Patience
from cofferdam.errors import CofferdamError, DaemonUnreachable
from cofferdam.types import NodeInfo

Item = TypeVar("Item")
Begun = TypeVar("Begun", covariant=True)

# Seconds.
HOLD = 0.25
STEP = 0.02
FIRST_PAUSE = 0.25
LONGEST_PAUSE = 5.0
# For the facts of a node before its stream: nobody waits for them but the stream itself.
BEGIN_TIMEOUT = 5.0
# Items of a node that wait.
WAITING = 64


class Beginning(Protocol[Begun]):
    """Begins the stream of a node, from where it was lost: each item with its time."""

    def __call__(self, member: Member, info: NodeInfo) -> AsyncGenerator[tuple[datetime, Begun], None]: ...


@dataclass
class Passed(Generic[Item]):
    """An item with its time, or a change of the node. Neither: the end."""

    time: datetime | None = None
    item: Item | None = None
    begun: NodeInfo | None = None
    lost: NodeInfo | None = None
    error: Exception | None = None


class Feed(Generic[Item]):
    """The stream of one node, which goes on when the node is back."""

    def __init__(self, member: Member, begin: Beginning[Item], follow: bool, patience: float) -> None:
        self.member = member
        self._begin = begin
        self._follow = follow
        self._patience = patience
        self._box: Mailbox[Passed[Item]] = Mailbox(WAITING)
        #: The next item.
        self.head: tuple[datetime, Item] | None = None
        self.is_lost = False
        self.has_ended = False
        #: Since when it has had no item to show; None: it has one, or its stream has not begun.
        self._silent_since: float | None = None
        self._work = member.ask._transport.background(self._read)

    async def show(self, timeout: float | None, on_node: AsyncNodeCallback | None) -> None:
        """Waits for the next item, as long as the node is not lost.

        Raises the error of a node that refuses, and `Cancelled` if the fleet is closed.
        """
        while self.head is None and not self.has_ended:
            passed = await self._box.get(0.0 if self.is_lost else timeout)
            if passed is None:
                return
            await self._take(passed, on_node)

    async def _take(self, passed: Passed[Item], on_node: AsyncNodeCallback | None) -> None:
        if passed.error is not None:
            raise passed.error
        if passed.begun is not None:
            self._silent_since = time.monotonic()
        changed = passed.begun if self.is_lost else passed.lost
        if changed is not None:
            self.is_lost = passed.lost is not None
            if on_node is not None:
                await tell(on_node, changed)
        elif passed.time is not None and passed.item is not None:
            self.head = (passed.time, passed.item)
        elif passed.begun is None and passed.lost is None:
            self.has_ended = True

    def taken(self) -> None:
        """Its item is."""
        self.head, self._silent_since = None, time.monotonic()

    @property
    def may_show_earlier(self) -> bool:
        """An item that is older than those of others may still come."""
        if self.head is not None or self.is_lost or self.has_ended:
            return False
        return self._silent_since is None or time.monotonic() < self._silent_since + HOLD

    def close(self) -> None:
        """Has it end, without waiting for that."""
        self._box.close()
        self._work.cancel()

    async def end(self) -> None:
        await self._work.end()

    async def _read(self) -> None:
        try:
            await self._pass()
        finally:
            # Work that was ended has passed no end.
            self._box.close()

    async def _pass(self) -> None:
        pause, answered, is_lost = FIRST_PAUSE, False, False
        patience = Patience(self._patience)
        while True:
            try:
                info = await self.member.look(max(self.member.timeout, BEGIN_TIMEOUT))
                if self.member.is_twin:
                    return await self._box.put(Passed())
                is_lost = False
                await self._box.put(Passed(begun=info))
                async with aclosing(self._begin(self.member, info)) as items:
                    async for moment, item in items:
                        pause, answered = FIRST_PAUSE, True
                        patience.restore()
                        await self._box.put(Passed(moment, item))
                if not self._follow:
                    return await self._box.put(Passed())
                raise DaemonUnreachable("the daemon ended the stream")
            except CofferdamError as error:
                if not is_away(error):
                    return await self._box.put(Passed(error=error))
                if not is_lost:
                    is_lost = True
                    await self._box.put(Passed(lost=self.member.unreachable(error)))
                if not self._follow and (not answered or patience.pause() is None):
                    return await self._box.put(Passed())
            except Exception as error:
                # An answer that cannot be read.
                return await self._box.put(Passed(error=error))
            await sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


async def merged(
    members: Sequence[Member],
    begin: Beginning[Item],
    on_node: AsyncNodeCallback | None,
    *,
    follow: bool,
    patience: float,
) -> AsyncGenerator[tuple[Member, Item], None]:
    """The items of all nodes, the oldest first. Raises `DaemonUnreachable` when all are lost for `patience` seconds."""
    feeds: list[Feed[Item]] = []
    missed = Patience(patience)
    try:
        feeds.extend(Feed(member, begin, follow, patience) for member in members)
        while not all(feed.has_ended for feed in feeds):
            for feed in feeds:
                await feed.show(0.0 if follow else None, on_node)
            ready = [(feed.head[0], at) for at, feed in enumerate(feeds) if feed.head is not None]
            if ready:
                moment, at = min(ready)
                head = feeds[at].head
                if head is not None and not (follow and is_held(moment, feeds)):
                    missed.restore()
                    feeds[at].taken()
                    yield feeds[at].member, head[1]
                    continue
            elif follow and all(feed.is_lost or feed.has_ended for feed in feeds):
                if missed.pause() is None:
                    raise DaemonUnreachable("no node of the fleet answers")
            else:
                missed.restore()
            await sleep(STEP)
        if all(feed.is_lost for feed in feeds):
            raise DaemonUnreachable("no node of the fleet answers")
    finally:
        for feed in feeds:
            feed.close()
        for feed in feeds:
            await feed.end()


def is_held(moment: datetime, feeds: Sequence[Feed[Item]]) -> bool:
    """True if an item of this time has to wait for the next items of other nodes."""
    silent = [feed for feed in feeds if feed.head is None and not feed.is_lost and not feed.has_ended]
    # The clock of a node may be ahead of that of others: such an item waits no longer than others.
    age = (datetime.now(timezone.utc) - moment).total_seconds()
    return any(feed.may_show_earlier for feed in silent) or (bool(silent) and 0 <= age < HOLD)
