"""From a status to an exception, without a daemon."""

import asyncio
import json
import pickle
import signal
import socket
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from cofferdam import Client, Sandbox, Session, _results, errors, v1
from cofferdam._async.caller import Outcome, check_kept
from cofferdam._async.commands import _judged
from cofferdam._node import names_node
from cofferdam._options import Options
from cofferdam._signals import parse
from cofferdam._status import DETAILS, UNCONNECTED, failed, made_of, refused
from cofferdam._sync import caller, forks
from cofferdam._sync.downloads import Download
from cofferdam._sync.handle import judged
from cofferdam._sync.uploads import Upload
from cofferdam.integrations._shell import said_of
from cofferdam.types import CommandResult


class Failed:
    def __init__(
        self, code: grpc.StatusCode, trailers: tuple[tuple[str, bytes], ...] | None = None, details: str = "told"
    ) -> None:
        self._code, self._trailers, self._details = code, trailers, details

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details

    def trailing_metadata(self) -> tuple[tuple[str, bytes], ...] | None:
        return self._trailers


def packed(*details: ErrorInfo | RetryInfo) -> tuple[tuple[str, bytes], ...]:
    status = Status()
    for detail in details:
        one = AnyMessage()
        one.Pack(detail)
        status.details.append(one)
    return (("date", b"now"), (DETAILS, status.SerializeToString()))


def info(reason: str, **metadata: str) -> ErrorInfo:
    return ErrorInfo(reason=reason, domain="cofferdam", metadata=metadata)


def test_a_token_that_has_ended_has_no_hint_about_the_policy() -> None:
    def hint(**metadata: str) -> str:
        return refused(Failed(grpc.StatusCode.PERMISSION_DENIED, packed(info("PERMISSION_DENIED", **metadata)))).hint

    assert "coffer policy explain" in hint(rule="r")
    assert hint(credential="token") == errors.AuthenticationFailed.HINT


def test_a_connection_that_ends_for_lack_of_a_certificate_names_it() -> None:
    start = "failed to connect to all addresses; last error: UNAVAILABLE: ipv4:127.0.0.1:7443: "
    told = refused(Failed(grpc.StatusCode.UNAVAILABLE, details=start + "Unwrap failed (TSI_DATA_CORRUPTED)"))
    assert type(told) is errors.CertificateRefused
    assert (isinstance(told, errors.InfrastructureError), told.fault) == (False, "caller")
    assert "it requires a client certificate" in told.message
    assert "COFFERDAM_TLS" in told.hint
    other = refused(Failed(grpc.StatusCode.UNAVAILABLE, details=start + "Connection refused"))
    assert "certificate" not in other.message


def test_a_refusal_has_all_that_the_daemon_tells() -> None:
    retry = RetryInfo(retry_delay=Duration(seconds=1, nanos=500_000_000))
    trailers = packed(info("RATE_LIMITED", rule="r", call_id="c"), retry)
    error = refused(Failed(grpc.StatusCode.RESOURCE_EXHAUSTED, trailers))
    assert type(error) is errors.RateLimited
    assert (error.reason, error.message, error.retry_after, error.call_id) == ("RATE_LIMITED", "told", 1.5, "c")
    assert error.details["rule"] == "r"
    assert str(error) == "told (RATE_LIMITED) [call c]"


@pytest.mark.parametrize(("reason", "kind"), list(errors.BY_REASON.items()))
def test_each_reason_has_its_class(reason: str, kind: type[errors.CofferdamError]) -> None:
    assert type(refused(Failed(grpc.StatusCode.INTERNAL, packed(info(reason))))) is kind


@pytest.mark.parametrize(("reason", "kind"), list(errors.BY_REASON.items()))
@pytest.mark.parametrize("fault", ["PROGRAM", "POLICY", "CALLER", "INFRASTRUCTURE"])
def test_an_error_is_of_the_infrastructure_exactly_where_the_daemon_says_so(
    reason: str, kind: type[errors.CofferdamError], fault: str
) -> None:
    told = info(reason, fault=fault, retry_safe="true", rule="r", **{"evidence.engine.exit_code": "137"})
    error = refused(Failed(grpc.StatusCode.INTERNAL, packed(told)))
    assert isinstance(error, errors.InfrastructureError) == (fault == "INFRASTRUCTURE")
    if fault == "INFRASTRUCTURE" and kind is not errors.CofferdamError:
        named = {"RUN_NOT_READY", "OVERLOADED", "MEMORY_LIMIT", "WRITE_LIMIT", "CANCELLED", "RUN_LOST", "INTERNAL"}
        assert isinstance(error, kind) or reason not in named
    assert (error.fault, error.retry_safe, dict(error.details)) == (fault.lower(), True, {"rule": "r"})
    assert dict(error.evidence) == {"engine.exit_code": "137"}


class Cut(grpc.RpcError):
    """An attempt that came to no answer."""

    def __init__(self, details: str) -> None:
        super().__init__(details)
        self._details = details

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return self._details

    def trailing_metadata(self) -> Any:
        return None


class Refusal(Cut):
    """An attempt that the daemon refused."""

    def __init__(self, reason: str, **metadata: str) -> None:
        super().__init__("told")
        self._trailers = packed(info(reason, **metadata))

    def trailing_metadata(self) -> Any:
        return self._trailers


class Method:
    """A method of the API that fails with these, from the last one on, and then answers."""

    def __init__(self, answer: object, *failures: Cut) -> None:
        self.answer, self.failures = answer, list(failures)
        self.asked: list[Any] = []

    def with_call(self, request: object, **_: object) -> tuple[object, Any]:
        self.asked.append(request)
        if self.failures:
            raise self.failures.pop()
        return self.answer, self

    def initial_metadata(self) -> tuple[()]:
        return ()


def lost_connection(place: Path, attempts: list[Cut], asked: list[v1.CreateRunRequest] | None = None) -> Client:
    """A client that had an answer, whose creates fail so, from the last one on, and then find no daemon."""

    class Create:
        @staticmethod
        def with_call(request: v1.CreateRunRequest, **_: object) -> None:
            if asked is not None:
                asked.append(request)
            raise attempts.pop() if attempts else Cut(UNCONNECTED)

    client = Client(f"unix:{place}/none.sock", reconnect_timeout=0.3)
    client._transport._connected = True
    client._transport._callables["/cofferdam.v1.RunService/CreateRun"] = Create
    return client


@pytest.mark.parametrize(("details", "retry_safe"), [("Socket closed", False), (UNCONNECTED, True)])
def test_a_request_is_safe_to_repeat_only_if_none_of_its_attempts_was_sent(
    tmp_path: Path, details: str, retry_safe: bool
) -> None:
    attempts = [Cut(details)]
    with lost_connection(tmp_path, attempts) as client, pytest.raises(errors.NodeLostError) as lost:
        client.runs.create_run(v1.CreateRunRequest(request_id="r"))
    assert not attempts
    assert (lost.value.request_id, lost.value.retry_safe) == ("r", retry_safe)


def test_a_sandbox_gets_its_id_from_the_daemon_and_is_asked_for_by_one_request_id(tmp_path: Path) -> None:
    asked: list[v1.CreateRunRequest] = []
    with lost_connection(tmp_path, [Cut("Socket closed")], asked) as client, pytest.raises(errors.NodeLostError):
        Sandbox.create(profile="open", client=client)
    assert len(asked) > 1
    assert {one.run_id for one in asked} == {""}
    (request_id,) = {one.request_id for one in asked}
    assert request_id.startswith("sdk-")


NO_LOG = Refusal("AUDIT_UNAVAILABLE", fault="INFRASTRUCTURE", retry_safe="true")


@pytest.mark.parametrize("is_sent", [True, False])
def test_a_refused_repetition_leaves_no_run_of_an_attempt_that_was_sent(tmp_path: Path, is_sent: bool) -> None:
    attempts = [NO_LOG, Cut("Socket closed" if is_sent else UNCONNECTED)]
    # Without a log the run cannot be ended at once, either.
    stop = Method(v1.StopRunResponse(), NO_LOG)
    with lost_connection(tmp_path, attempts) as client:
        known = client._transport._callables
        known["/cofferdam.v1.RunService/ListRuns"] = Method(v1.ListRunsResponse(runs=[v1.Run(run_id="made")]))
        known["/cofferdam.v1.RunService/StopRun"] = stop
        with pytest.raises(errors.Unavailable) as refusal:
            Sandbox.create(profile="open", client=client)
    assert not attempts
    assert refusal.value.retry_safe == (not is_sent)
    assert [one.run_id for one in stop.asked] == (["made", "made"] if is_sent else [])


def test_a_refused_repetition_leaves_no_forks_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []
    monkeypatch.setattr(forks, "_killed", lambda sandbox: ended.append(sandbox.run_id))
    made = v1.ForkRunResponse(forks=[v1.Fork(run=v1.Run(run_id="made"))])
    with lost_connection(tmp_path, []) as client:
        fork = Method(made, NO_LOG, NO_LOG, Cut("Socket closed"))
        client._transport._callables["/cofferdam.v1.CheckpointService/ForkRun"] = fork
        with pytest.raises(errors.Unavailable):
            client.fork("checkpoint", 1)
    assert ended == ["made"]
    assert len({one.request_id for one in fork.asked}) == 1


def test_a_client_that_is_not_let_in_says_nothing_about_its_sandbox(tmp_path: Path) -> None:
    closed = f"{UNCONNECTED}; last error: UNKNOWN: unix:{tmp_path}/none.sock: connect: Permission denied (13)"
    with lost_connection(tmp_path, []) as client:
        sandbox = Sandbox(client, "r", Options(), owns_client=False, delete_workspace=False)
        asked = Method(None, *[Cut(closed)] * 100)
        client._transport._callables["/cofferdam.v1.RunService/GetRun"] = asked
        with pytest.raises(errors.NotPermitted):
            sandbox.failed_by_infrastructure()
        # A daemon that starts may let it in a moment later.
        assert len(asked.asked) > 1
        asked.failures = [Cut(UNCONNECTED)] * 100
        assert sandbox.failed_by_infrastructure()


class Nowhere:
    """A sink that takes nothing."""

    def begin(self, mode: int) -> None:
        raise AssertionError

    def write(self, data: bytes) -> None:
        raise AssertionError


@pytest.mark.parametrize(
    ("state", "kind"), [({"approval": "pending"}, errors.ApprovalRequired), ({}, errors.ApprovalDenied)]
)
def test_a_denied_download_is_not_one_that_waits(
    tmp_path: Path, state: dict[str, str], kind: type[errors.CofferdamError]
) -> None:
    told = errors.ApprovalDenied("no", reason="APPROVAL_DENIED", call_id="c", details={"approval_id": "a", **state})
    with Client(f"unix:{tmp_path}/none.sock") as client:
        download = Download(caller.Caller(client, "r", Options()), "f", Nowhere())
        with pytest.raises(errors.CofferdamError) as caught, download._named():
            raise told
    assert type(caught.value) is kind


def test_an_upload_of_which_a_question_found_no_daemon_may_have_been_carried_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Upload, "_sent", lambda _: _raise(refused(Cut("Socket closed"))))
    (tmp_path / "f").write_bytes(b"x")
    with lost_connection(tmp_path, []) as client:
        client._transport._callables["/cofferdam.v1.FileService/GetUpload"] = Method(None, *[Cut(UNCONNECTED)] * 100)
        sandbox = Sandbox(client, "r", Options(), owns_client=False, delete_workspace=False)
        with pytest.raises(errors.NodeLostError) as lost:
            sandbox.files.upload(tmp_path / "f", "f")
    assert not lost.value.retry_safe
    assert lost.value.request_id


def _raise(error: Exception) -> None:
    raise error


def test_a_wait_for_a_reviewer_outlasts_rate_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    awaiting = errors.AwaitingApproval("waits", reason="AWAITING_APPROVAL")
    limited = errors.RateLimited("too many", reason="RATE_LIMITED", retry_after=40.0)
    overloaded = errors.Overloaded("too much", reason="OVERLOADED", retry_after=1.0)
    ends: list[errors.CofferdamError | caller.Outcome] = []
    pauses: list[float] = []

    class Call:
        telling = False

        def __init__(self, *_: object) -> None:
            pass

        def outcome(self) -> caller.Outcome:
            end = ends.pop(0)
            if isinstance(end, errors.CofferdamError):
                raise end
            return end

    monkeypatch.setattr(caller, "Call", Call)
    monkeypatch.setattr(caller, "sleep", pauses.append)
    write = v1.Operation(write=v1.WriteRequest(path="f"))
    with Client(f"unix:{tmp_path}/none.sock") as client:
        calls = caller.Caller(client, "r", Options(wait_for_approval=True))
        done = caller.Outcome(v1.CallResponse(call_id="c", status=v1.CallResponse.Status.SUCCEEDED), b"", b"")
        ends[:] = [awaiting, limited, awaiting, done]
        assert calls.call(write) is done
        assert pauses == [1.0, 40.0, 4.0]
        # Without a wait before, and of more than limits, it is an error like any other.
        ends[:] = [limited, done]
        with pytest.raises(errors.RateLimited):
            calls.call(write)
        ends[:] = [awaiting, overloaded, done]
        with pytest.raises(errors.Overloaded):
            calls.call(write)


def test_in_a_fleet_no_request_is_repeated_that_may_reach_another_node(tmp_path: Path) -> None:
    cut = Cut("Socket closed")
    vectors = json.loads((Path(__file__).parents[2] / "nodes.json").read_text())
    base = next(written for written, node in vectors["ids"].items() if node == 7)
    on_base = v1.Workspace(base=v1.BaseWorkspace(base_id=base))
    for workspace, in_fleet, left in ((None, True, 1), (on_base, True, 0), (None, False, 0)):
        attempts = [cut, cut]
        with lost_connection(tmp_path, attempts) as client:
            client._transport._is_in_fleet = in_fleet
            with pytest.raises(errors.NodeLostError) as lost:
                client.runs.create_run(v1.CreateRunRequest(request_id="r", workspace=workspace))
        assert (len(attempts), lost.value.request_id, lost.value.retry_safe) == (left, "r", False)
    assert names_node((("date", "now"), ("cofferdam-node", "7")))
    assert not names_node((("date", "now"),))


def test_a_failed_call_says_whose_failure_it_is() -> None:
    response = v1.CallResponse(call_id="c", status=v1.CallResponse.Status.FAILED)
    response.error.reason, response.error.message = "RUN_LOST", "killed"
    response.error.fault = v1.Fault.FAULT_INFRASTRUCTURE
    response.error.evidence.add(what="engine.exit_code", value="137")
    lost = failed(response)
    assert type(lost) is errors.RunLost
    assert isinstance(lost, errors.RunNotReady)
    assert (lost.fault, lost.retry_safe, lost.evidence["engine.exit_code"]) == ("infrastructure", False, "137")
    response.error.fault = v1.Fault.FAULT_PROGRAM
    own = failed(response)
    assert type(own) is errors.RunNotReady
    assert not isinstance(own, errors.InfrastructureError)
    response.error.fault = 99  # type: ignore[assignment]
    assert failed(response).fault == ""


def test_a_command_that_the_host_ended_is_no_result_of_the_program() -> None:
    response = v1.CallResponse(call_id="c", status=v1.CallResponse.Status.FAILED)
    result = response.result.exec
    result.ended_by, result.exit_code = v1.ExecResult.EndedBy.HOST_MEMORY, 137
    response.error.reason, response.error.message = "MEMORY_LIMIT", "no memory"
    response.error.fault = v1.Fault.FAULT_INFRASTRUCTURE
    with pytest.raises(errors.CommandLost) as lost:
        _judged(Outcome(response, b"out", b""))
    assert isinstance(lost.value, errors.InfrastructureError)
    assert isinstance(lost.value, errors.CommandStopped)
    assert lost.value.result.failed_by_infrastructure
    assert (lost.value.result.ended_by, lost.value.result.stdout, lost.value.result.ok) == ("host-memory", "out", False)
    result.ended_by = v1.ExecResult.EndedBy.MEMORY_LIMIT
    response.error.fault = v1.Fault.FAULT_PROGRAM
    with pytest.raises(errors.CommandStopped) as stopped:
        _judged(Outcome(response, b"out", b""))
    assert not isinstance(stopped.value, errors.InfrastructureError)
    assert stopped.value.fault == "program"


@pytest.mark.parametrize(
    ("failure", "told"), [("the node was drained", "the node was drained"), ("", "the sandbox has ended")]
)
def test_a_process_that_ends_with_its_run_says_why(failure: str, told: str) -> None:
    process = v1.Process(state=v1.Process.State.ENDED, ended_by=v1.ExecResult.EndedBy.RUN_ENDED, failure=failure)
    with pytest.raises(errors.CommandStopped) as stopped:
        judged(process, CommandResult("p", None, b"half", b"", ended_by="run-ended"), check=True)
    assert type(stopped.value) is errors.CommandStopped
    assert (stopped.value.message, stopped.value.result.stdout) == (told, "half")


@pytest.mark.parametrize(
    ("state", "ended_by", "failure"),
    [
        (v1.Process.State.ENDED, v1.ExecResult.EndedBy.RUN_ENDED, "the node was drained"),
        (v1.Process.State.INTERRUPTED, v1.ExecResult.EndedBy.INTERRUPTED, "the container was killed"),
        (v1.Process.State.INTERRUPTED, v1.ExecResult.EndedBy.INTERRUPTED, ""),
    ],
)
def test_a_process_that_the_host_ended_with_its_run_is_no_result_of_the_program(
    state: v1.Process.State.ValueType, ended_by: v1.ExecResult.EndedBy.ValueType, failure: str
) -> None:
    process = v1.Process(state=state, ended_by=ended_by, failure=failure)
    process.fault = v1.Fault.FAULT_INFRASTRUCTURE
    process.evidence.add(what="run.end_cause", value="node_drained")
    with pytest.raises(errors.CommandLost) as lost:
        judged(process, _results.process(process, b"half", b""), check=False)
    assert isinstance(lost.value, errors.InfrastructureError)
    assert (lost.value.message, lost.value.reason) == (failure or "the command was lost", "RUN_LOST")
    assert (lost.value.fault, lost.value.retry_safe) == ("infrastructure", False)
    assert (lost.value.evidence["run.end_cause"], lost.value.result.stdout) == ("node_drained", "half")
    info = _results.process_info(process)
    assert info.failed_by_infrastructure
    assert lost.value.result.failed_by_infrastructure
    process.fault = v1.Fault.FAULT_PROGRAM
    with pytest.raises(errors.CommandStopped) as own:
        judged(process, _results.process(process, b"half", b""), check=False)
    assert not isinstance(own.value, errors.InfrastructureError)
    assert own.value.fault == "program"


@pytest.mark.parametrize("use", ["run", "type", "interrupt"])
def test_a_session_that_the_host_ended_with_its_run_is_no_end_of_its_shell(use: str) -> None:
    process = v1.Process(state=v1.Process.State.INTERRUPTED, failure="the container was killed")
    process.fault = v1.Fault.FAULT_INFRASTRUCTURE
    process.evidence.add(what="engine.exit_code", value="137")
    shown = v1.SessionResult(state=v1.SessionResult.State.ENDED, output="half")

    def wait_process(*_: object, **__: object) -> v1.WaitProcessResponse:
        if deleted:
            raise errors.NotFound("no such run", reason="NOT_FOUND")
        return v1.WaitProcessResponse(process=process)

    client = SimpleNamespace(
        processes=SimpleNamespace(wait_process=wait_process),
        sessions=SimpleNamespace(interrupt_session=lambda *_, **__: v1.InterruptSessionResponse(result=shown)),
    )
    made = SimpleNamespace(client=client, run_id="r", result=lambda _: SimpleNamespace(session=shown))
    session, deleted = Session(cast(Any, made), "s"), False
    given = () if use == "interrupt" else ("make",)
    with pytest.raises(errors.CommandLost, match="the container was killed") as lost:
        getattr(session, use)(*given)
    assert isinstance(lost.value, errors.InfrastructureError)
    assert (lost.value.result.stdout, lost.value.evidence["engine.exit_code"]) == ("half", "137")
    process.fault = v1.Fault.FAULT_PROGRAM
    ended = getattr(session, use)(*given)
    assert (ended.state, ended.output) == ("ended", "half")
    process.fault, deleted = v1.Fault.FAULT_INFRASTRUCTURE, True
    assert getattr(session, use)(*given) == ended


def test_a_check_that_was_lost_with_its_run_has_no_result() -> None:
    result = CommandResult("c", None, b"half", b"", ended_by="run-ended", fault="infrastructure")

    def outcome(error: errors.CofferdamError) -> CommandResult | None:
        def run(check: str, timeout: float | None) -> CommandResult:
            raise error

        sandbox = cast(Sandbox, SimpleNamespace(commands=SimpleNamespace(run=run)))
        return forks._checked(sandbox, "make test", None)

    assert outcome(errors.CommandLost("the node was drained", result, reason="RUN_LOST")) is None
    assert outcome(errors.RunLost("the node was drained", reason="RUN_LOST")) is None
    assert outcome(errors.CommandTimedOut("too long", result, reason="TIMED_OUT")) is result


def test_a_model_is_not_shown_a_failure_of_the_infrastructure() -> None:
    result = CommandResult("c", 137, b"", b"", ended_by="host-memory", fault="infrastructure")
    lost = errors.CommandLost("no memory", result, reason="MEMORY_LIMIT")
    with pytest.raises(errors.CommandLost):
        said_of(lost)
    own = errors.CommandStopped("no memory", CommandResult("c", 137, b"", b"", fault="program"), reason="MEMORY_LIMIT")
    assert said_of(own).exit_code == 137


def test_errors_are_pickled_by_frameworks_that_use_several_processes() -> None:
    lost = errors.RunLost("gone", reason="RUN_LOST", fault="infrastructure", evidence={"engine.exit_code": "137"})
    again = pickle.loads(pickle.dumps(lost))
    assert type(again) is errors.RunLost
    assert (again.message, again.fault, dict(again.evidence)) == ("gone", "infrastructure", {"engine.exit_code": "137"})
    assert str(again) == str(lost)
    result = CommandResult("c", 137, b"out", b"", ended_by="host-memory", fault="infrastructure", evidence={"a": "1"})
    command = pickle.loads(pickle.dumps(errors.CommandLost("lost", result, reason="MEMORY_LIMIT")))
    assert (type(command), command.result, command.evidence["a"]) == (errors.CommandLost, result, "1")
    unreachable = pickle.loads(pickle.dumps(errors.NodeLostError("gone", retry_safe=True)))
    assert (type(unreachable), unreachable.retry_safe) == (errors.NodeLostError, True)


def test_a_reason_of_a_later_daemon_is_an_error_like_any_other() -> None:
    error = refused(Failed(grpc.StatusCode.INTERNAL, packed(info("NEW_REASON"))))
    assert (type(error), error.reason) == (errors.CofferdamError, "NEW_REASON")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, errors.DaemonUnreachable),
        (grpc.StatusCode.UNAUTHENTICATED, errors.AuthenticationFailed),
        (grpc.StatusCode.DEADLINE_EXCEEDED, errors.DaemonTimedOut),
        (grpc.StatusCode.DATA_LOSS, errors.InternalError),
        (grpc.StatusCode.UNIMPLEMENTED, errors.CofferdamError),
    ],
)
@pytest.mark.parametrize(
    "trailers",
    [None, (), ((DETAILS, b"\xff\xff\xff"),), packed(ErrorInfo(reason="NOT_FOUND", domain="example.org"))],
)
def test_a_status_without_a_reason_is_mapped_by_its_code(
    code: grpc.StatusCode, kind: type[errors.CofferdamError], trailers: tuple[tuple[str, bytes], ...] | None
) -> None:
    error = refused(Failed(code, trailers))
    assert (type(error), error.reason) == (kind, "")
    assert isinstance(error, errors.InfrastructureError) == (error.fault == "infrastructure")


async def written_to_a_call_that_ended() -> grpc.aio.AioRpcError:
    """What grpc.aio says of it: a server that refuses at once, and a client that goes on writing."""
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        method: grpc.aio.StreamUnaryMultiCallable[bytes, bytes] = channel.stream_unary("/a/b")
        while True:
            call = method()
            with suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):
                while True:
                    await call.write(b"x" * 100_000)
            try:
                await call
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.INTERNAL:
                    await server.stop(None)
                    return error


def test_a_message_that_could_not_be_sent_is_a_lost_connection() -> None:
    error = asyncio.run(asyncio.wait_for(written_to_a_call_that_ended(), 60))
    assert type(refused(error)) is errors.DaemonUnreachable
    told = Failed(grpc.StatusCode.INTERNAL, details="another")
    assert type(refused(told)) is errors.InternalError


def test_a_deadline_that_is_over_at_the_daemon_first_is_one() -> None:
    told = Failed(grpc.StatusCode.CANCELLED, details="Timeout expired")
    assert type(refused(told)) is errors.DaemonTimedOut


def test_errors_are_of_the_kind_that_python_has() -> None:
    for reason, kind in [
        ("COMMAND_NOT_ALLOWED", PermissionError),
        ("NOT_FOUND", LookupError),
        ("INVALID_ARGUMENT", ValueError),
        ("TIMED_OUT", TimeoutError),
    ]:
        assert isinstance(made_of(reason, "m", {}, None, None), kind)
    assert isinstance(made_of("NOT_FOUND", "m", {}, None, None, of_file=True), FileNotFoundError)
    assert isinstance(made_of("CANCELLED", "m", {"interrupted": "true"}, None, None), errors.Interrupted)


def test_a_build_that_failed_shows_the_end_of_its_log() -> None:
    error = errors.BuildFailed("no", log="line", reason="PRECONDITION_FAILED")
    assert (str(error), error.log) == ("no (PRECONDITION_FAILED)\nline", "line")
    assert str(errors.BuildFailed("no", log="")) == "no"


def test_dropped_result_is_an_error() -> None:
    check_kept(v1.CallResponse(call_id="c1"))
    with pytest.raises(errors.NotFound, match="no longer stored") as caught:
        check_kept(v1.CallResponse(call_id="c1", result_dropped=True))
    assert caught.value.call_id == "c1"


@pytest.mark.parametrize(
    ("spelling", "number"),
    [("TERM", 15), ("SIGTERM", 15), ("term", 15), ("sigterm", 15), ("15", 15), (15, 15), (signal.SIGTERM, 15), ("9", 9)],
)
def test_every_spelling_of_a_signal_is_one(spelling: str | int, number: int) -> None:
    assert parse(spelling) == number


@pytest.mark.parametrize("spelling", ["", "SIG", 0, "0", -15, "SIGSIGTERM", "TERMINATE", 64, "15.0", "SIGNAL_UNSPECIFIED"])
def test_unknown_signal_is_refused_with_the_known_ones(spelling: str | int) -> None:
    with pytest.raises(errors.InvalidArgument, match="HUP, INT"):
        parse(spelling)


async def _refused(target: str) -> errors.CofferdamError:
    async with grpc.aio.insecure_channel(target) as channel:
        try:
            await channel.unary_unary("/x", request_serializer=bytes)(b"", timeout=20)
        except grpc.aio.AioRpcError as error:
            return refused(error)
    raise AssertionError("it answered")


def test_missing_silent_and_forbidden_sockets_are_distinguished(tmp_path: Path) -> None:
    gone = asyncio.run(_refused(f"unix:{tmp_path}/gone.sock"))
    assert type(gone) is errors.DaemonUnreachable
    assert gone.message == f"there is no daemon: {tmp_path}/gone.sock does not exist"
    left = tmp_path / "left.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(left))
    silent = asyncio.run(_refused(f"unix:{left}"))
    assert type(silent) is errors.DaemonUnreachable
    assert "no process listens on" in silent.message
    told = f"failed to connect to all addresses; last error: UNKNOWN: unix:{left}: connect: Permission denied (13)"
    denied = refused(Failed(grpc.StatusCode.UNAVAILABLE, details=told))
    assert type(denied) is errors.NotPermitted
    assert isinstance(denied, PermissionError)
    assert (isinstance(denied, errors.InfrastructureError), denied.fault) == (False, "caller")
    assert denied.message.startswith(f"you may not use the daemon's socket {left} ({left} is for user ")
