"""Nodes of a fleet that is a DNS name: one that is away is looked for at all addresses that the name has now.

```text
no answer ──▶ resolve again ──▶ ask each address where no node answers ──▶ the number of the node: it goes on there
```

Nodes that are new to the fleet are not added.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from cofferdam._async.member import Member
from cofferdam._async.transport import Lock, aside, together
from cofferdam.errors import CofferdamError
from cofferdam.types import FleetNode

# Seconds between two looks.
REST = 5.0


class Moving:
    """The looks for nodes at other addresses, one for all nodes that are away."""

    def __init__(
        self,
        resolve: Callable[[], Sequence[FleetNode]],
        make: Callable[[FleetNode], Member],
        members: Sequence[Member],
    ) -> None:
        """`resolve`: the addresses of the name. `make`: connects to one of them."""
        self._resolve = resolve
        self._make = make
        self._members = members
        self._next = float("-inf")
        self._choosing = Lock()

    def begin(self, member: Member) -> None:
        """Begins to look, unless that was a short time ago. For a node that has not answered; it does not wait."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + REST
            member.ask._transport.background(self._look)

    async def _look(self) -> None:
        # A name without addresses: perhaps later.
        with suppress(CofferdamError):
            nodes = await aside(self._resolve)
            answer = {member.endpoint for member in self._members if not (member.is_twin or member.is_missed)}
            addresses = {node.endpoint for node in nodes}
            asked = [node for node in nodes if node.endpoint not in answer]
            await together([partial(self._ask, node, addresses) for node in asked])

    async def _ask(self, node: FleetNode, addresses: set[str]) -> None:
        """Asks an address which node it is."""
        found = self._make(node)
        try:
            with suppress(CofferdamError):
                info = await found.look()
                async with self._choosing:
                    member = self._missed(found, addresses)
                    if member is not None:
                        await member.move(found, info)
        finally:
            await found.close()

    def _missed(self, found: Member, addresses: set[str]) -> Member | None:
        """The node that is away and was found. One without a known number is it if its own address is no longer there."""
        known = [member for member in self._members if not member.is_twin]
        same = [member for member in known if member.number == found.number]
        missed = same or [member for member in known if member.number is None and member.endpoint not in addresses]
        away = (member for member in missed if member.is_missed and member.endpoint != found.endpoint)
        return next(away, None)
