"""`AsyncFleet`: several daemons, each a node with a number."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Literal, TypeVar

from typing_extensions import Self, Unpack

from cofferdam import _results, v1
from cofferdam._async.approvals import State as ApprovalState
from cofferdam._async.mailbox import AsyncNodeCallback
from cofferdam._async.member import Member
from cofferdam._async.members import Members, resolved
from cofferdam._async.merge import BEGIN_TIMEOUT, Beginning, merged
from cofferdam._async.placing import Placing
from cofferdam._async.sandbox import AsyncSandbox
from cofferdam._async.transport import aside
from cofferdam._fleet import DnsName, FleetCreateOptions, Mark, Position, invalid, named
from cofferdam._node import node_of
from cofferdam._options import OnAwaitingApproval
from cofferdam.errors import DaemonUnreachable, Denied, InternalError
from cofferdam.types import (
    AlertInfo,
    ApprovalInfo,
    AuditEvent,
    FleetEvent,
    FleetNode,
    Gathered,
    NodeInfo,
    OfNode,
    RunInfo,
    RunState,
    Tls,
)

Item = TypeVar("Item")

# Of a list of one node, with a thousand runs or 500 alerts each.
MOST_PAGES = 1000
# The time of what has none.
NEVER = datetime.fromtimestamp(0, timezone.utc)


class AsyncFleet:
    """The nodes of a fleet, asked directly and side by side.

    ```python
    async with await AsyncFleet.open("fleet.yaml", tls="/etc/cofferdam/client") as fleet:
        sandbox = await fleet.create(profile="build", lease=60, keep_alive=True)
        runs = await fleet.list_runs()
        print([(one.node, one.item.run_id) for one in runs], "no answer:", [node.node for node in runs.missing])
    ```

    A node that does not answer, or cannot now, is a warning: it is in `missing` of a list, and `on_node` of a stream is
    told. A list waits for it for `node_timeout`. Only if no node answers, `DaemonUnreachable` is raised.
    """

    def __init__(
        self,
        nodes: Sequence[FleetNode],
        token: str | None,
        tls: str | Path | Tls | None,
        node_timeout: float,
        request_timeout: float,
        reconnect_timeout: float,
        resolve: Callable[[], Sequence[FleetNode]] | None = None,
    ) -> None:
        """For `open`."""
        self._patience = reconnect_timeout
        self._members = Members(nodes, token, tls, node_timeout, request_timeout, reconnect_timeout, resolve)
        self._placing = Placing(self._members, reconnect_timeout)

    @classmethod
    async def open(
        cls,
        fleet: str | Path | Sequence[FleetNode] | None = None,
        token: str | None = None,
        *,
        tls: str | Path | Tls | None = None,
        node_timeout: float = 2.0,
        request_timeout: float = 60.0,
        reconnect_timeout: float = 30.0,
    ) -> Self:
        """Reads the list of nodes. Each connection is made when it is needed.

        `fleet`: a file as `coffer fleet` reads it (`nodes: [{ id: 7, address: "node-7.example.org:7443" }]`; for YAML,
        install `cofferdam[fleet]`), `dns:fleet.example.org:7443` for all addresses of a name, or nodes; default:
        `COFFERDAM_FLEET`. The name is resolved again while one of its nodes does not answer, so that a node is found at
        another address; nodes that are new are not.
        `token`, `tls`: for all nodes, as in `AsyncClient`.
        `node_timeout`: seconds that a node has for an answer about itself, for each page of a list, and before a sandbox
        goes to another one. `request_timeout`, `reconnect_timeout`: of the sandboxes, as in `AsyncClient`.

        Raises `InvalidArgument` for a list that cannot be one, and `DaemonUnreachable` for a name without addresses.
        """
        if not node_timeout > 0:
            raise invalid("node_timeout: must be more than 0")
        nodes, resolve = await aside(named, fleet), None
        if isinstance(nodes, DnsName):
            resolve = partial(resolved, nodes)
            nodes = await aside(resolve)
        return cls(nodes, token, tls, node_timeout, request_timeout, reconnect_timeout, resolve)

    async def nodes(self) -> tuple[NodeInfo, ...]:
        """All nodes as they are now, also those that do not answer, in the order of the list."""

        return await self._members.look()

    async def list_runs(
        self, state: RunState | None = "ready", *, metadata: Mapping[str, str] | None = None
    ) -> Gathered[RunInfo]:
        """The runs that the caller may see, newest first: in this state (None: any), and with this metadata."""

        async def ask(member: Member) -> Sequence[RunInfo]:
            request = v1.ListRunsRequest(page_size=1000)
            if state is not None:
                request.state = v1.Run.State.Value(state.upper())
            runs: list[RunInfo] = []
            for _ in range(MOST_PAGES):
                page = await member.ask.runs.list_runs(request, timeout=member.timeout)
                runs.extend(_results.run_info(run) for run in page.runs if (metadata or {}).items() <= run.labels.items())
                if not page.next_page_token:
                    return runs
                request.page_token = page.next_page_token
            raise InternalError("the list of runs has no end")

        found = await self._members.gather(ask)
        items = sorted(found.items, key=lambda one: one.item.created_at or NEVER, reverse=True)
        return replace(found, items=tuple(items))

    async def approvals(self, state: ApprovalState | None = "pending") -> Gathered[ApprovalInfo]:
        """The approvals in this state (None: any), oldest first. Decide with `(await fleet.sandbox(run_id)).approvals`."""

        async def ask(member: Member) -> Sequence[ApprovalInfo]:
            request = v1.ListApprovalsRequest()
            if state is not None:
                request.state = v1.Approval.State.Value(state.upper())
            answer = await member.ask.approvals.list_approvals(request, timeout=member.timeout)
            return [_results.approval(one) for one in answer.approvals]

        found = await self._members.gather(ask)
        return replace(found, items=tuple(sorted(found.items, key=lambda one: one.item.created_at or NEVER)))

    async def alerts(self, state: Literal["open", "acknowledged"] | None = "open") -> Gathered[AlertInfo]:
        """The alerts in this state (None: any), newest first."""

        async def ask(member: Member) -> Sequence[AlertInfo]:
            request = v1.ListAlertsRequest(page_size=500)
            if state is not None:
                request.state = v1.Alert.State.Value(state.upper())
            alerts: list[AlertInfo] = []
            for _ in range(MOST_PAGES):
                page = await member.ask.alerts.list_alerts(request, timeout=member.timeout)
                alerts.extend(_results.alert(one) for one in page.alerts)
                if not page.next_page_token:
                    return alerts
                request.page_token = page.next_page_token
            raise InternalError("the list of alerts has no end")

        found = await self._members.gather(ask)
        items = sorted(found.items, key=lambda one: one.item.raised_at or NEVER, reverse=True)
        return replace(found, items=tuple(items))

    async def watch_events(
        self,
        position: str | None = None,
        *,
        follow: bool = True,
        kinds: Sequence[str] = (),
        on_node: AsyncNodeCallback | None = None,
    ) -> AsyncGenerator[FleetEvent, None]:
        """The records of all audit logs by time, none left out and none twice, also across a node that is lost and back.

        With `follow` a record waits 5 seconds at most for older ones of other nodes, so that no node hides those of others.
        The records of one node keep their order. Each comes with a `position`; the stream that is given it goes on after
        that record, and so does `coffer --fleet audit tail`. A log that is another one than before, or that ends before the
        position, is read from its first record.

        `position`: default: before all records. `follow`: go on with new ones instead of ending. `kinds`: only of these,
        such as `call_receipt`; at most 32. `on_node`: is told of each node that no longer answers (`unreachable`), and again
        when it is back. A stream that does not follow leaves such a node out; a later one with its last position goes on
        there.

        Takes the API role `operator` or `auditor`. Raises `DaemonUnreachable` when no node has answered for
        `reconnect_timeout`.
        """
        given = Position.read(position)
        read = Position(dict(given.of))

        async def begin(member: Member, info: NodeInfo) -> AsyncGenerator[tuple[datetime, tuple[Mark, AuditEvent]], None]:
            node, end = member.number or 0, await end_of(member)
            request = v1.StreamEventsRequest(
                after_sequence=read.after(node, end), follow=follow, filter=v1.EventFilter(kinds=kinds)
            )
            async with aclosing(member.ask.audit.stream_events(request)) as events:
                async for answer in events:
                    event = _results.event(answer.event)
                    mark = Mark.of(event)
                    yield event.time, (mark, event)
                    read.of[node] = mark
            # An end without an error alone does not prove that this is all.
            if not follow and not kinds and not read.reaches(node, end):
                raise DaemonUnreachable("the daemon ended the stream before the end of its log")

        items = merged(self._members.present, begin, on_node, follow=follow, patience=self._patience)
        async with aclosing(items) as passed:
            async for member, (mark, event) in passed:
                node = member.number or 0
                given.saw(node, mark, self._members.numbers)
                yield FleetEvent(node, event, given.written())

    async def watch_runs(self, *, on_node: AsyncNodeCallback | None = None) -> AsyncGenerator[OfNode[RunInfo], None]:
        """The runs as they are, then each change of state, without end. Those of a node that is back come again."""

        async def begin(member: Member, info: NodeInfo) -> AsyncGenerator[tuple[datetime, RunInfo], None]:
            async with aclosing(member.ask.runs.watch_runs(v1.WatchRunsRequest())) as changes:
                async for change in changes:
                    run = _results.run_info(change.run)
                    yield run.ended_at or run.ready_at or run.created_at or NEVER, run

        async with aclosing(self._watched(begin, on_node)) as items:
            async for item in items:
                yield item

    async def watch_approvals(
        self, *, on_node: AsyncNodeCallback | None = None
    ) -> AsyncGenerator[OfNode[ApprovalInfo], None]:
        """The pending approvals, then each change, without end. Those of a node that is back come again."""

        async def begin(member: Member, info: NodeInfo) -> AsyncGenerator[tuple[datetime, ApprovalInfo], None]:
            async with aclosing(member.ask.approvals.watch_approvals(v1.WatchApprovalsRequest())) as changes:
                async for change in changes:
                    one = change.approval
                    yield _results.when(one.decided_at) or _results.when(one.created_at) or NEVER, _results.approval(one)

        async with aclosing(self._watched(begin, on_node)) as items:
            async for item in items:
                yield item

    async def watch_alerts(self, *, on_node: AsyncNodeCallback | None = None) -> AsyncGenerator[OfNode[AlertInfo], None]:
        """The open alerts, then each that is new or changes, without end. Those of a node that is back come again."""

        async def begin(member: Member, info: NodeInfo) -> AsyncGenerator[tuple[datetime, AlertInfo], None]:
            async with aclosing(member.ask.alerts.watch_alerts(v1.WatchAlertsRequest())) as changes:
                async for change in changes:
                    alert = _results.alert(change.alert)
                    yield alert.last_at or NEVER, alert

        async with aclosing(self._watched(begin, on_node)) as items:
            async for item in items:
                yield item

    async def create(
        self, *, request_id: str | None = None, issue_token: bool = False, **options: Unpack[FleetCreateOptions]
    ) -> AsyncSandbox:
        """Makes a sandbox on the least loaded node that makes runs, and returns when it is ready.

        Arguments are those of `AsyncSandbox.create`. What begins with a base, a checkpoint or a kept workspace goes to the
        node that has it. A node that refuses because it is full or drained or lacks the image, or that cannot be reached, is
        passed over.

        A request whose answer was lost is repeated at the same node, for `reconnect_timeout`, and never made at another one:
        the node does it once. Then `NodeLostError` has the `request_id`; `create` with it, or `find`, has the sandbox when
        the node is back. Give a `lease`, so that one that nobody fetches ends by itself.

        `request_id`: a name of your own, at most 128 characters: in the whole fleet, the same request with the same name is
        the same sandbox, and the name decides on the node. All nodes are asked for it first. While one does not answer, a
        name that no other knows raises `NodeLostError`: that node may have it. `issue_token`: the sandbox gets a new
        `token`, also one that is found.
        """
        return await self._placing.create(request_id, issue_token, options)

    async def find(
        self,
        request_id: str,
        *,
        env: Mapping[str, str] | None = None,
        wait_for_approval: bool = False,
        on_awaiting_approval: OnAwaitingApproval = "wait",
    ) -> AsyncSandbox | None:
        """The sandbox that `create` was asked for by this name, on whichever node it is, also one that has ended.

        Raises `NodeLostError` if no node that answers has it, and one does not answer.
        """
        found = await self._members.holder(request_id)
        if found is None:
            return None
        return await AsyncSandbox.connect(
            found[1].run_id,
            env=env,
            wait_for_approval=wait_for_approval,
            on_awaiting_approval=on_awaiting_approval,
            client=found[0].client,
        )

    async def sandbox(
        self,
        run_id: str,
        *,
        env: Mapping[str, str] | None = None,
        wait_for_approval: bool = False,
        on_awaiting_approval: OnAwaitingApproval = "wait",
    ) -> AsyncSandbox:
        """A sandbox that is there already, on the node that its id names; see `AsyncSandbox.connect`.

        For an id that names no node, all nodes are asked. Raises `NotFound`, also for a node that the fleet does not have,
        and `DaemonUnreachable` if the node does not answer within `node_timeout`.
        """
        number = node_of(run_id)
        member = await self._members.keeper(run_id) if number is None else await self._members.at(number)
        with suppress(Denied):
            # A run's own token may not ask that.
            await member.look()
        return await AsyncSandbox.connect(
            run_id,
            env=env,
            wait_for_approval=wait_for_approval,
            on_awaiting_approval=on_awaiting_approval,
            client=member.client,
        )

    async def close(self) -> None:
        """Closes all connections. A later call opens others."""
        await self._members.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _watched(
        self, begin: Beginning[Item], on_node: AsyncNodeCallback | None
    ) -> AsyncGenerator[OfNode[Item], None]:
        async with aclosing(merged(self._members.present, begin, on_node, follow=True, patience=self._patience)) as items:
            async for member, item in items:
                yield OfNode(member.number or 0, item)


async def end_of(member: Member) -> Mark | None:
    """The place at the end of a node's log; None: it has no record."""
    request = v1.StreamEventsRequest(newest_only=True)
    async with aclosing(member.ask.audit.stream_events(request, timeout=BEGIN_TIMEOUT)) as newest:
        async for answer in newest:
            return Mark.of(_results.event(answer.event))
    return None
