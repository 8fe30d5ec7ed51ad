"""A node of a fleet that is no daemon: what the packages ask of it, from memory."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from proxy import Proxy

from cofferdam import FleetNode, v1
from cofferdam._node import node_of
from cofferdam._requests import new_id
from cofferdam._status import DETAILS


def stamp(seconds: float) -> Timestamp:
    return Timestamp(seconds=int(seconds), nanos=round(seconds % 1 * 1_000_000) * 1000)


def id_of(number: int, at: int) -> str:
    """An id that names this node: the same layout as in the README of the crate `node-id`."""
    from binascii import crc_hqx

    data = bytearray(bytes.fromhex(new_id().replace("-", "")))
    data[6], data[7] = 0x70 | number >> 12, number >> 4 & 0xFF
    data[8] = 0x80 | number & 0xF
    data[11:13] = crc_hqx(bytes(data[:6]) + number.to_bytes(2, "big"), 0xFFFF).to_bytes(2, "big")
    data[13:16] = at.to_bytes(3, "big")
    text = data.hex()
    made = f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
    assert node_of(made) == number
    return made


class Node:
    """Its runs stay when it is killed."""

    def __init__(self, place: Path, number: int) -> None:
        self.number = number
        self.socket = f"unix:{place}/{number}.sock"
        self.instance = f"instance-{number}"
        self.log = f"{number:032x}"
        self.state = v1.Node.State.SERVING
        self.used_runs = 0
        self.says: int = number
        #: By request id.
        self.runs: dict[str, v1.Run] = {}
        self.stopped: list[str] = []
        self.created = 0
        #: A reason with which creates are refused.
        self.refuses = ""
        #: It failed to make the runs that it has.
        self.refuses_again = False
        self.refuses_tokens = False
        #: Called after a run was made and before the answer.
        self.before_answer: Callable[[], None] = lambda: None
        #: Watches of runs that end because their client is too slow.
        self.lags = 0
        #: A reason with which questions about it are refused.
        self.refuses_looks = ""
        #: A reason with which lists are refused.
        self.refuses_lists = ""
        #: Streams of events that end after one of them, as those of a daemon that stops, and the reason that it gives.
        self.cuts = 0
        self.cut_reason = ""
        #: Its log never ends, and each record is older than those of others.
        self.floods = False
        #: Its log never ends, and has no record.
        self.hangs = False
        #: Its log is for others.
        self.denies = False
        #: Its lists have no last page.
        self.goes_on = False
        #: Its lists are no messages.
        self.garbles = False
        #: Seconds for which it says nothing, unless it is killed before.
        self.silent_for = 0.0
        #: Questions about it, also those that it does not answer.
        self.looks = 0
        #: Streams of its log that began.
        self.streams = 0
        self.events: list[v1.AuditEvent] = []
        self.approvals: list[v1.Approval] = []
        self.alerts: list[v1.Alert] = []
        self.tokens = 0
        #: Runs whose leases were to be renewed.
        self.renewed: list[str] = []
        #: Reasons with which the next renewals of leases are refused.
        self.refused_renewals: list[str] = []
        #: Requests come on many threads.
        self._creating = threading.Lock()
        self._ended = threading.Event()
        self._place = place
        self._server = grpc.server(ThreadPoolExecutor(32))
        self._server.add_generic_rpc_handlers((Handler(self),))
        self._server.add_insecure_port(f"unix:{place}/{number}.inner")
        self._server.start()
        self._proxy: Proxy | None = None
        self.start()

    @property
    def listed(self) -> FleetNode:
        return FleetNode(self.number, self.socket)

    def start(self) -> None:
        self._ended = threading.Event()
        self._proxy = self.at(self._path)

    @property
    def renewals(self) -> int:
        return len(self.renewed)

    @property
    def _path(self) -> Path:
        return Path(self.socket.removeprefix("unix:"))

    def at(self, path: Path) -> Proxy:
        """Another address of it."""
        return Proxy(path, f"unix:{self._place}/{self.number}.inner")

    def kill(self) -> None:
        """Breaks all connections, and takes no others. From a handler, too."""
        self._ended.set()
        if self._proxy is not None:
            self._proxy.close()
            self._proxy = None

    def mute(self) -> None:
        """Has it hang: the connections that there are carry nothing from it."""
        if self._proxy is not None:
            self._proxy.mute()

    def remove(self) -> None:
        self.kill()
        self._server.stop(0).wait()

    def record(self, second: float, kind: str = "call_receipt") -> None:
        sequence = len(self.events) + 1
        event = v1.AuditEvent(
            sequence=sequence, time=stamp(second), kind=kind, record_json=f'{{"log":"{self.log}"}}', hash=f"{sequence}"
        )
        self.events.append(event)

    # The methods that the packages use.

    def get_node(self, request: v1.GetNodeRequest) -> v1.GetNodeResponse:
        if self.refuses_looks:
            raise Refused(self.refuses_looks, grpc.StatusCode.RESOURCE_EXHAUSTED)
        capacity = v1.NodeAmounts(runs=100, memory_mib=1000, cpu_millis=8000, disk_mib=1000)
        used = v1.NodeAmounts(runs=self.used_runs + len(self.runs), memory_mib=0, cpu_millis=0, disk_mib=0)
        node = v1.Node(node_id=self.says, instance=self.instance, state=self.state, capacity=capacity, used=used)
        return v1.GetNodeResponse(node=node)

    def list_runs(self, request: v1.ListRunsRequest) -> v1.ListRunsResponse:
        if self.refuses_lists:
            raise Refused(self.refuses_lists, grpc.StatusCode.INTERNAL)
        if self.garbles:
            return GARBAGE
        runs = [run for name, run in list(self.runs.items()) if request.request_id in ("", name)]
        if request.page_size == 1:
            return v1.ListRunsResponse(runs=runs[:1])
        if self.goes_on:
            return v1.ListRunsResponse(runs=runs, next_page_token="more")
        # Pages of two.
        at = int(request.page_token or 0)
        more = str(at + 2) if at + 2 < len(runs) else ""
        return v1.ListRunsResponse(runs=runs[at : at + 2], next_page_token=more)

    def get_run(self, request: v1.GetRunRequest) -> v1.GetRunResponse:
        for run in list(self.runs.values()):
            if run.run_id == request.run_id:
                return v1.GetRunResponse(run=run)
        raise Refused("NOT_FOUND", grpc.StatusCode.NOT_FOUND)

    def create_run(self, request: v1.CreateRunRequest) -> v1.CreateRunResponse:
        with self._creating:
            run = self._created(request.request_id)
        self.before_answer()
        return v1.CreateRunResponse(run=run)

    def _created(self, name: str) -> v1.Run:
        run = self.runs.get(name)
        if run is None:
            if self.refuses:
                raise Refused(self.refuses, grpc.StatusCode.UNAVAILABLE)
            self.created += 1
            run = v1.Run(run_id=id_of(self.number, self.created), state=v1.Run.State.READY, created_at=stamp(time.time()))
            self.runs[name] = run
        elif self.refuses_again:
            blame = {"fault": "INFRASTRUCTURE", "retry_safe": "true"}
            raise Refused("RUN_NOT_READY", grpc.StatusCode.FAILED_PRECONDITION, blame)
        return run

    def fork_run(self, request: v1.ForkRunRequest) -> v1.ForkRunResponse:
        runs = [v1.Run(run_id=id_of(self.number, at), lease=Duration(seconds=3600)) for at in range(request.count)]
        return v1.ForkRunResponse(checkpoint=v1.RunCheckpoint(checkpoint_id="c"), forks=[v1.Fork(run=run) for run in runs])

    def stop_run(self, request: v1.StopRunRequest) -> v1.StopRunResponse:
        self.stopped.append(request.run_id)
        return v1.StopRunResponse()

    def keep_alive_run(self, request: v1.KeepAliveRunRequest) -> v1.KeepAliveRunResponse:
        self.renewed.append(request.run_id)
        if self.refused_renewals:
            raise Refused(self.refused_renewals.pop(0), grpc.StatusCode.UNAVAILABLE)
        return v1.KeepAliveRunResponse()

    def issue_run_token(self, request: v1.IssueRunTokenRequest) -> v1.IssueRunTokenResponse:
        if self.refuses_tokens:
            raise Refused("AUDIT_UNAVAILABLE", grpc.StatusCode.UNAVAILABLE)
        self.tokens += 1
        return v1.IssueRunTokenResponse(token=f"token-{self.tokens}")

    def list_approvals(self, request: v1.ListApprovalsRequest) -> v1.ListApprovalsResponse:
        return v1.ListApprovalsResponse(approvals=self.approvals)

    def list_alerts(self, request: v1.ListAlertsRequest) -> v1.ListAlertsResponse:
        return v1.ListAlertsResponse(alerts=self.alerts)

    def watch_runs(self, request: v1.WatchRunsRequest) -> Iterator[v1.WatchRunsResponse]:
        if self.lags:
            self.lags -= 1
            raise Refused("OVERLOADED", grpc.StatusCode.RESOURCE_EXHAUSTED)
        for run in list(self.runs.values()):
            yield v1.WatchRunsResponse(run=run)
        self._ended.wait()

    def watch_approvals(self, request: v1.WatchApprovalsRequest) -> Iterator[v1.WatchApprovalsResponse]:
        for approval in list(self.approvals):
            yield v1.WatchApprovalsResponse(approval=approval)
        self._ended.wait()

    def watch_alerts(self, request: v1.WatchAlertsRequest) -> Iterator[v1.WatchAlertsResponse]:
        for alert in list(self.alerts):
            yield v1.WatchAlertsResponse(alert=alert)
        self._ended.wait()

    def stream_events(self, request: v1.StreamEventsRequest) -> Iterator[v1.StreamEventsResponse]:
        if self.denies:
            raise Refused("PERMISSION_DENIED", grpc.StatusCode.PERMISSION_DENIED)
        if request.newest_only:
            yield from (v1.StreamEventsResponse(event=event) for event in self.events[-1:])
            return
        self.streams += 1
        at = request.after_sequence
        while self.floods and not self._ended.is_set():
            at += 1
            record = f'{{"log":"{self.log}"}}'
            yield v1.StreamEventsResponse(event=v1.AuditEvent(sequence=at, time=stamp(1), record_json=record))
        if self.hangs:
            self._ended.wait()
            return
        if self.cuts:
            self.cuts -= 1
            yield v1.StreamEventsResponse(event=self.events[at])
            if self.cut_reason:
                raise Refused(self.cut_reason, grpc.StatusCode.UNAVAILABLE)
            return
        while not self._ended.is_set():
            while at < len(self.events):
                at += 1
                yield v1.StreamEventsResponse(event=self.events[at - 1])
            if not request.follow:
                return
            self._ended.wait(0.01)


class Refused(Exception):
    def __init__(self, reason: str, code: grpc.StatusCode, details: dict[str, str] | None = None) -> None:
        super().__init__(reason)
        self.details = details or {}
        self.reason = reason
        self.code = code

    def end(self, context: grpc.ServicerContext) -> None:
        detail = AnyMessage()
        detail.Pack(ErrorInfo(reason=self.reason, domain="cofferdam", metadata=self.details))
        status = Status(code=self.code.value[0], message=self.reason, details=[detail])
        context.set_trailing_metadata(((DETAILS, status.SerializeToString()),))
        context.abort(self.code, f"refused: {self.reason}")


METHODS = {
    "GetNode": "get_node",
    "ListRuns": "list_runs",
    "GetRun": "get_run",
    "CreateRun": "create_run",
    "ForkRun": "fork_run",
    "StopRun": "stop_run",
    "IssueRunToken": "issue_run_token",
    "KeepAliveRun": "keep_alive_run",
    "ListApprovals": "list_approvals",
    "ListAlerts": "list_alerts",
    "WatchRuns": "watch_runs",
    "WatchApprovals": "watch_approvals",
    "WatchAlerts": "watch_alerts",
    "StreamEvents": "stream_events",
}


GARBAGE = v1.ListRunsResponse(next_page_token="not a message")


def serialized(message: Message) -> bytes:
    return b"\xff\xff\xff" if message is GARBAGE else message.SerializeToString()


class Handler(grpc.GenericRpcHandler):
    def __init__(self, node: Node) -> None:
        self._node = node

    def service(self, handler_call_details: Any) -> Any:
        name = str(handler_call_details.method).rpartition("/")[2]
        if name not in METHODS:
            return None
        act = getattr(self._node, METHODS[name])
        request: type[Message] = getattr(v1, f"{name}Request")

        node = dict(handler_call_details.invocation_metadata).get("cofferdam-node")

        def check() -> None:
            if node is not None and int(node) != self._node.says:
                raise Refused("WRONG_NODE", grpc.StatusCode.FAILED_PRECONDITION, {"node": str(self._node.says)})

        def answer(asked: Any, context: grpc.ServicerContext) -> Any:
            self._node.looks += name == "GetNode"
            self._node._ended.wait(self._node.silent_for)
            try:
                check()
                return act(asked)
            except Refused as refusal:
                return refusal.end(context)

        def answers(asked: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            try:
                check()
                yield from act(asked)
            except Refused as refusal:
                refusal.end(context)

        streams = name.startswith(("Watch", "Stream"))
        make: Any = grpc.unary_stream_rpc_method_handler if streams else grpc.unary_unary_rpc_method_handler
        act_on = answers if streams else answer
        return make(act_on, request_deserializer=request.FromString, response_serializer=serialized)
