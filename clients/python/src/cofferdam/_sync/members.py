# Generated from the asynchronous half by tools/unasync.py: change that half.
"""All nodes of a fleet, and questions to them side by side."""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from cofferdam import v1
from cofferdam._fleet import DnsName, checked, is_away
from cofferdam._status import lost
from cofferdam._sync.member import Member
from cofferdam._sync.moving import Moving
from cofferdam._sync.transport import together
from cofferdam.errors import CofferdamError, DaemonUnreachable, Denied, NotFound, RateLimited
from cofferdam.types import FleetNode, Gathered, NodeInfo, OfNode, Tls

Item = TypeVar("Item")
Found = TypeVar("Found", covariant=True)


class Question(Protocol[Found]):
    """Asks one node."""

    def __call__(self, member: Member) -> Sequence[Found]: ...


class Members:
    """The nodes in the order of their list."""

    def __init__(
        self,
        nodes: Sequence[FleetNode],
        token: str | None,
        tls: str | Path | Tls | None,
        node_timeout: float,
        request_timeout: float,
        reconnect_timeout: float,
        resolve: Callable[[], Sequence[FleetNode]] | None,
    ) -> None:
        """`resolve`: the addresses of the name that the fleet is, as they are now; None: it is none."""

        def member(numbers: dict[int, Member], node: FleetNode) -> Member:
            return Member(node, numbers, token, tls, node_timeout, request_timeout, reconnect_timeout)

        self._numbers: dict[int, Member] = {}
        self._all = [member(self._numbers, node) for node in checked(nodes)]
        if resolve is not None:
            moving = Moving(resolve, lambda node: member({}, node), self._all)
            for one in self._all:
                one.when_away = moving.begin

    @property
    def present(self) -> list[Member]:
        return [member for member in self._all if not member.is_twin]

    @property
    def numbers(self) -> Collection[int]:
        """Those that are known."""
        return self._numbers

    def at(self, number: int) -> Member:
        """The node of this number. Raises `NotFound`."""
        if not any(member.number == number for member in self.present):
            # One whose number is not known yet may be it.
            self.look()
        for member in self.present:
            if member.number == number:
                return member
        raise NotFound(f"node {number} is not one of this fleet, or does not answer", reason="NOT_FOUND")

    def look(self) -> tuple[NodeInfo, ...]:
        """All of them as they are now."""

        def look(member: Member) -> NodeInfo:
            try:
                return member.look()
            except CofferdamError as error:
                if not is_away(error):
                    raise
                return member.unreachable(error)

        members = self.present
        found = together([partial(look, member) for member in members])
        return tuple(info for info, member in zip(found, members, strict=True) if not member.is_twin)

    def gather(self, question: Question[Item]) -> Gathered[Item]:
        """The answers of all nodes, and the nodes without one."""
        limited: list[RateLimited] = []

        def ask(member: Member) -> Sequence[Item] | NodeInfo:
            try:
                if member.number is None:
                    member.look()
                return [] if member.is_twin else question(member)
            except Exception as error:
                judged = member.judged(error)
                if not is_away(judged):
                    raise judged from None
                if isinstance(judged, RateLimited):
                    limited.append(judged)
                member.failed(judged)
                return member.unreachable(judged)

        members = self.present
        answers = together([partial(ask, member) for member in members])
        missing = tuple(answer for answer in answers if isinstance(answer, NodeInfo))
        if len(missing) == len(members):
            # A refusal says more than a node that is away.
            raise limited[0] if limited else none_answers([one.failure for one in missing])
        items = [
            OfNode(member.number or 0, item)
            for member, answer in zip(members, answers, strict=True)
            if not isinstance(answer, NodeInfo)
            for item in answer
        ]
        return Gathered(tuple(items), missing)

    def holder(self, request_id: str) -> tuple[Member, v1.Run] | None:
        """The node with the run of this request, and the run. Raises `NodeLostError` where it cannot be known.

        A node on which the making of the run failed shows that, too. It comes last: the next node was asked then.
        """

        def ask(member: Member) -> Sequence[tuple[Member, v1.Run]]:
            request = v1.ListRunsRequest(request_id=request_id, page_size=1)
            page = member.ask.runs.list_runs(request, timeout=member.timeout)
            return [(member, run) for run in page.runs]

        found = self.gather(ask)
        held = sorted((one.item for one in found.items), key=lambda one: not was_made(one[1]))
        if held and was_made(held[0][1]):
            return held[0]
        if found.missing:
            told = "; ".join(node.failure for node in found.missing[:5])
            raise lost(
                DaemonUnreachable(f"a node that does not answer may have the sandbox {request_id!r}: {told}"),
                request_id,
                retry_safe=True,
            )
        return held[0] if held else None

    def keeper(self, run_id: str) -> Member:
        """The node with a run whose id names none."""

        def ask(member: Member) -> Sequence[Member]:
            try:
                member.ask.runs.get_run(v1.GetRunRequest(run_id=run_id), timeout=member.timeout)
            except (NotFound, Denied):
                return []
            return [member]

        found = self.gather(ask)
        if found.items:
            return found.items[0].item
        told = "; ".join(node.failure for node in found.missing[:5])
        message = f"no node that answers has the run {run_id!r}" + (f": {told}" if told else "")
        raise DaemonUnreachable(message, retry_safe=True) if told else NotFound(message, reason="NOT_FOUND")

    def close(self) -> None:
        for member in self._all:
            member.close()


def was_made(run: v1.Run) -> bool:
    """False for a run whose node failed to make it."""
    return run.state != v1.Run.State.FAILED or run.HasField("ready_at")


def none_answers(told: Sequence[str]) -> DaemonUnreachable:
    listed = "; ".join(told[:5]) + ("; …" if len(told) > 5 else "")
    return DaemonUnreachable(f"no node of the fleet answers: {listed}", fault="infrastructure", retry_safe=True)


def resolved(name: DnsName) -> tuple[FleetNode, ...]:
    """A node for each address of a name. Their certificates have that name."""
    try:
        found = socket.getaddrinfo(name.host, name.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise DaemonUnreachable(f"fleet: {name.host} has no address: {error.strerror or error}") from None
    addresses = sorted({str(address[4][0]) for address in found})
    shown = [f"[{address}]" if ":" in address else address for address in addresses]
    return tuple(FleetNode(None, f"https://{address}:{name.port}", name.host) for address in shown)
