"""One node of a fleet, with its connections."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from cofferdam import _results, v1
from cofferdam._async.client import AsyncClient
from cofferdam._fleet import Standing, is_away
from cofferdam.errors import CofferdamError, DaemonUnreachable, InternalError, TimedOut, WrongNodeError
from cofferdam.types import FleetNode, NodeInfo, Tls


class Member:
    """A node. Questions about it have a short time, and sandboxes on it have the patience of any client."""

    def __init__(
        self,
        node: FleetNode,
        numbers: dict[int, Member],
        token: str | None,
        tls: str | Path | Tls | None,
        node_timeout: float,
        request_timeout: float,
        reconnect_timeout: float,
    ) -> None:
        """`numbers`: all nodes whose numbers are known; this one enters itself."""
        self.endpoint = node.endpoint
        self.number = node.id
        #: Identity of the daemon that has answered last; empty: none has.
        self.instance = ""
        self.timeout = node_timeout
        self.standing = Standing(node.weight)
        #: It is a second address of a node that the fleet has already.
        self.is_twin = False
        #: Why it did not answer when it was asked last; None: it did.
        self.failure: CofferdamError | None = None
        #: Called when it is missed.
        self.when_away: Callable[[Member], None] | None = None
        self._numbers = numbers
        tls = tls if node.endpoint.startswith("https://") else None
        name = node.server_name
        #: For questions: a node that went away is not waited for.
        self.ask = AsyncClient(node.endpoint, token, tls=tls, server_name=name, reconnect_timeout=0.0)
        #: For sandboxes.
        self.client = AsyncClient(
            node.endpoint,
            token,
            tls=tls,
            server_name=name,
            request_timeout=request_timeout,
            reconnect_timeout=reconnect_timeout,
        )
        if node.id is not None:
            numbers[node.id] = self
            self._name(node.id)

    @property
    def label(self) -> str:
        """As a message names it."""
        return f"node {self.number} ({self.endpoint})" if self.number is not None else f"the node at {self.endpoint}"

    @property
    def is_missed(self) -> bool:
        """It may be at another address. A node that refuses by itself is at its own."""
        error = self.failure
        return error is not None and (not error.reason or isinstance(error, WrongNodeError))

    async def look(self, timeout: float | None = None) -> NodeInfo:
        """The node as it is now. Raises `DaemonUnreachable` if it does not answer in time, or is another one.

        Raises `InternalError` for an answer that cannot be read.
        """
        try:
            response = await self.ask.node.get_node(v1.GetNodeRequest(), timeout=timeout or self.timeout)
            await self._meet(response.node.node_id, timeout)
            self._check(response.node.node_id, response.node.instance)
            info = _results.node_info(response.node, self.endpoint)
        except Exception as error:
            judged = self.judged(error, timeout)
            if is_away(judged):
                self.failed(judged)
            raise judged from None
        self.standing.answered(info)
        self.failure = None
        return info

    def failed(self, error: CofferdamError) -> None:
        """It has not answered, or cannot work now."""
        self.standing.failed()
        self.failure = error
        if self.is_missed and self.when_away is not None:
            self.when_away(self)

    async def move(self, to: Member, info: NodeInfo) -> None:
        """Goes on at the address of another object for the same node, which has just answered this."""
        self.endpoint, self.instance = to.endpoint, to.instance
        await self.ask._transport.move(to.ask._transport.settings)
        await self.client._transport.move(to.client._transport.settings)
        self.standing.answered(replace(info, endpoint=to.endpoint))
        self.failure = None

    def judged(self, error: Exception, timeout: float | None = None) -> CofferdamError:
        """The error, or the better one for a node that takes too long, or whose answer cannot be read."""
        if not isinstance(error, CofferdamError):
            told = f"{self.label} gave an answer that cannot be read: {type(error).__name__}"
            return InternalError(told, fault="infrastructure")
        if not isinstance(error, TimedOut):
            return error
        seconds = timeout or self.timeout
        return DaemonUnreachable(f"{self.label} does not answer within {seconds:g} seconds", fault="infrastructure")

    def unreachable(self, error: CofferdamError) -> NodeInfo:
        """What is known of it while it does not answer."""
        return NodeInfo(self.number, self.endpoint, "unreachable", failure=error.message)

    async def _meet(self, number: int, timeout: float | None) -> None:
        """Has the node that the list gives this number answer first: this one may be a second address of it."""
        first = self._numbers.get(number)
        if self.number is None and first is not None and not first.instance:
            with suppress(CofferdamError):
                await first.look(timeout)

    def _check(self, number: int, instance: str) -> None:
        if number == 0:
            raise DaemonUnreachable(f"{self.label} has no number: its configuration needs `node.id`")
        if self.number not in (None, number):
            raise DaemonUnreachable(f"{self.label} says that it is node {number}")
        # Before others can see this node: a second address of it is compared with it.
        self.instance = instance
        if self.number is None:
            first = self._numbers.setdefault(number, self)
            if first is not self and first.instance != instance:
                told = f"as another daemon at {first.endpoint} does"
                if not first.instance:
                    told = f"which the list says of {first.endpoint}, and that has not answered"
                raise DaemonUnreachable(f"{self.label} says that it is node {number}, {told}")
            self.is_twin = first is not self
            self.number = number
            self._name(number)

    def _name(self, number: int) -> None:
        """Has each request name the node, so that no other daemon does it."""
        for client in (self.ask, self.client):
            client._transport.settings = replace(client._transport.settings, node=number)

    async def close(self) -> None:
        await self.ask.close()
        await self.client.close()
