# Generated from the asynchronous half by tools/unasync.py: change that half.
"""Streams of all nodes as one, by time.

```text
node 1 ── stream ──▶ box ─┐
node 2 ── stream ──▶ box ─┼─▶ the oldest first item ──▶
node 3 ── lost, again … ──┘
```

Boxes are bounded, so that a node is read no faster than the items are taken. An item is held for `HOLD` seconds from its
own time on unless each other node shows a later one, is lost, or has an end. So items come in the order of their times,
except those that a node sends later than that.

A stream that goes on trusts no node with the others: an item that was here for `LONGEST_WAIT` seconds comes next, and with
it those of its box that were here as long. So a node that always sends earlier items does not hide those of others.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Generic, Protocol, TypeVar

from cofferdam._fleet import is_away
from cofferdam._settings import Patience
from cofferdam._sync.mailbox import Mailbox, NodeCallback
from cofferdam._sync.member import Member
from cofferdam._sync.members import none_answers
from cofferdam._sync.transport import sleep, tell
from cofferdam.errors import DaemonUnreachable
from cofferdam.types import NodeInfo

Item = TypeVar("Item")
Begun = TypeVar("Begun", covariant=True)

# Seconds.
HOLD = 0.25
STEP = 0.02
FIRST_PAUSE = 0.25
LONGEST_PAUSE = 5.0
# For which earlier items of other nodes come before one that is here. The time of its taker does not count.
LONGEST_WAIT = 5.0
# For the facts of a node before its stream: nobody waits for them but the stream itself.
BEGIN_TIMEOUT = 5.0
# Items of a node that wait.
WAITING = 64


class Beginning(Protocol[Begun]):
    """Begins the stream of a node, from where it was lost: each item with its time."""

    def __call__(self, member: Member, info: NodeInfo) -> Generator[tuple[datetime, Begun], None]: ...


@dataclass
class Passed(Generic[Item]):
    """An item with its time and when it came, or a change of the node. Neither: the end."""

    time: datetime | None = None
    came: float = 0.0
    item: Item | None = None
    begun: NodeInfo | None = None
    lost: NodeInfo | None = None
    error: Exception | None = None


@dataclass
class Head(Generic[Item]):
    """The next item of a node."""

    time: datetime
    came: float
    item: Item


class Clock:
    """Seconds that items have to wait. It stands still while their taker does something else."""

    def __init__(self) -> None:
        # Since when the taker is away, if it is, and for how long it was before: as one, for other threads.
        self._away: tuple[float | None, float] = (None, 0.0)

    def now(self) -> float:
        since, before = self._away
        return (time.monotonic() if since is None else since) - before

    def leave(self) -> None:
        """The taker goes."""
        self._away = (time.monotonic(), self._away[1])

    def back(self) -> None:
        """The taker asks for the next item."""
        since, before = self._away
        if since is not None:
            self._away = (None, before + time.monotonic() - since)


class Feed(Generic[Item]):
    """The stream of one node, which goes on when the node is back."""

    def __init__(self, member: Member, begin: Beginning[Item], follow: bool, patience: float, clock: Clock) -> None:
        self.member = member
        self._begin = begin
        self._follow = follow
        self._patience = patience
        self._clock = clock
        self._box: Mailbox[Passed[Item]] = Mailbox(WAITING)
        #: The next item.
        self.head: Head[Item] | None = None
        self.is_lost = False
        #: Why it is lost.
        self.failure = ""
        self.has_ended = False
        #: Since when it has had no item to show; None: it has one, or its stream has not begun.
        self._silent_since: float | None = None
        self._work = member.ask._transport.background(self._read)

    def show(self, timeout: float | None, on_node: NodeCallback | None) -> None:
        """Waits for the next item, as long as the node is not lost.

        Raises the error of a node that refuses, and `Cancelled` if the fleet is closed.
        """
        while self.head is None and not self.has_ended:
            passed = self._box.get(0.0 if self.is_lost else timeout)
            if passed is None:
                return
            self._take(passed, on_node)

    def _take(self, passed: Passed[Item], on_node: NodeCallback | None) -> None:
        if passed.error is not None:
            raise passed.error
        if passed.begun is not None:
            self._silent_since = time.monotonic()
        changed = passed.begun if self.is_lost else passed.lost
        if changed is not None:
            self.is_lost = passed.lost is not None
            self.failure = changed.failure
            if on_node is not None:
                tell(on_node, changed)
        elif passed.time is not None and passed.item is not None:
            self.head = Head(passed.time, passed.came, passed.item)
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

    def end(self) -> None:
        self._work.end()

    def _read(self) -> None:
        try:
            self._pass()
        finally:
            # Work that was ended has passed no end.
            self._box.close()

    def _pass(self) -> None:
        pause, answered, is_lost = FIRST_PAUSE, False, False
        patience = Patience(self._patience)
        while True:
            try:
                info = self.member.look(max(self.member.timeout, BEGIN_TIMEOUT))
                if self.member.is_twin:
                    return self._box.put(Passed())
                is_lost = False
                self._box.put(Passed(begun=info))
                with closing(self._begin(self.member, info)) as items:
                    for moment, item in items:
                        pause, answered = FIRST_PAUSE, True
                        patience.restore()
                        self._box.put(Passed(moment, self._clock.now(), item))
                if not self._follow:
                    return self._box.put(Passed())
                raise DaemonUnreachable("the daemon ended the stream")
            except Exception as error:
                judged = self.member.judged(error, BEGIN_TIMEOUT)
                if not is_away(judged):
                    return self._box.put(Passed(error=judged))
                if not is_lost:
                    is_lost = True
                    self._box.put(Passed(lost=self.member.unreachable(judged)))
                if not self._follow and (not answered or patience.pause() is None):
                    return self._box.put(Passed())
            sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


def merged(
    members: Sequence[Member],
    begin: Beginning[Item],
    on_node: NodeCallback | None,
    *,
    follow: bool,
    patience: float,
) -> Generator[tuple[Member, Item], None]:
    """The items of all nodes, the oldest first. Raises `DaemonUnreachable` when all are lost for `patience` seconds."""
    feeds: list[Feed[Item]] = []
    missed = Patience(patience)
    clock = Clock()
    try:
        feeds.extend(Feed(member, begin, follow, patience, clock) for member in members)
        while not all(feed.has_ended for feed in feeds):
            for feed in feeds:
                feed.show(0.0 if follow else None, on_node)
            ready = [(feed, feed.head) for feed in feeds if feed.head is not None]
            if ready:
                feed, head = min(ready, key=lambda one: one[1].time)
                longest = min(ready, key=lambda one: one[1].came)
                is_overdue = follow and clock.now() >= longest[1].came + LONGEST_WAIT
                if is_overdue:
                    feed, head = longest
                if is_overdue or not (follow and is_held(head.time, feeds)):
                    missed.restore()
                    feed.taken()
                    clock.leave()
                    yield feed.member, head.item
                    clock.back()
                    continue
            elif follow and all(feed.is_lost or feed.has_ended for feed in feeds):
                if missed.pause() is None:
                    raise none_answers([feed.failure for feed in feeds if feed.failure])
            else:
                missed.restore()
            sleep(STEP)
        if all(feed.is_lost for feed in feeds):
            raise none_answers([feed.failure for feed in feeds if feed.failure])
    finally:
        for feed in feeds:
            feed.close()
        for feed in feeds:
            feed.end()


def is_held(moment: datetime, feeds: Sequence[Feed[Item]]) -> bool:
    """True if an item of this time has to wait for the next items of other nodes."""
    silent = [feed for feed in feeds if feed.head is None and not feed.is_lost and not feed.has_ended]
    # The clock of a node may be ahead of that of others: such an item waits no longer than others.
    age = (datetime.now(timezone.utc) - moment).total_seconds()
    return any(feed.may_show_earlier for feed in silent) or (bool(silent) and 0 <= age < HOLD)
