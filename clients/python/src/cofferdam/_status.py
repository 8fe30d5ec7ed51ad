"""From a gRPC status or a failed call to an exception. The one place that knows both."""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, cast

import grpc
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from cofferdam import errors, v1
from cofferdam.types import Fault

DETAILS = "grpc-status-details-bin"
DOMAIN = "cofferdam"
# The beginning of the names of facts that show whose failure it is.
EVIDENCE = "evidence."
_FAULTS: Mapping[int, Fault] = {
    v1.Fault.FAULT_PROGRAM: "program",
    v1.Fault.FAULT_POLICY: "policy",
    v1.Fault.FAULT_CALLER: "caller",
    v1.Fault.FAULT_INFRASTRUCTURE: "infrastructure",
}
# What grpc.aio says, with INTERNAL, of a message that it could not send because the connection broke or the call had ended,
# even where it knows the call's own status (github.com/grpc/grpc/issues/36066);
# some versions with a full stop.
UNSENT = "Internal error from Core"
# What the daemon's gRPC says, with CANCELLED, where the deadline of the client is over there first.
EXPIRED = "Timeout expired"
# How gRPC's message begins where no connection came about: nothing of the request has left this process.
UNCONNECTED = "failed to connect to all addresses"
# What gRPC makes of TLS's alert about a client's certificate: with TLS 1.3 it arrives after the client's handshake.
UNWRAPPED = "TSI_DATA_CORRUPTED"
# A Unix socket in such a message.
_SOCKET = re.compile(r"unix:(?://)?(/[^:;]+):")


class _Failed(Protocol):
    """The common part of gRPC's two kinds of errors."""

    def code(self) -> Any: ...
    def details(self) -> str | None: ...
    def trailing_metadata(self) -> Any: ...


# Codes of which the daemon's own refusals always come with a reason.
_WITHOUT_REASON: Mapping[grpc.StatusCode, type[errors.CofferdamError]] = {
    grpc.StatusCode.UNAVAILABLE: errors.DaemonUnreachable,
    # gRPC's code for a stream whose connection broke in the middle.
    grpc.StatusCode.UNKNOWN: errors.DaemonUnreachable,
    grpc.StatusCode.UNAUTHENTICATED: errors.AuthenticationFailed,
    grpc.StatusCode.PERMISSION_DENIED: errors.Denied,
    grpc.StatusCode.DEADLINE_EXCEEDED: errors.DaemonTimedOut,
    grpc.StatusCode.CANCELLED: errors.Cancelled,
    grpc.StatusCode.RESOURCE_EXHAUSTED: errors.LimitExceeded,
    grpc.StatusCode.NOT_FOUND: errors.NotFound,
    grpc.StatusCode.INVALID_ARGUMENT: errors.InvalidArgument,
}


def refused(error: _Failed, call_id: str | None = None) -> errors.CofferdamError:
    """The error for a status."""
    info, retry_after = _facts(error)
    message = error.details() or str(error.code())
    if info is None:
        code = error.code()
        if code is grpc.StatusCode.UNIMPLEMENTED:
            return errors.CofferdamError(message, hint="The daemon is older than this client; update it.")
        made = _WITHOUT_REASON.get(code, errors.InternalError)
        fault: Fault
        if code is grpc.StatusCode.INTERNAL and message.rstrip(".") == UNSENT:
            made = errors.DaemonUnreachable
        if code is grpc.StatusCode.CANCELLED and message == EXPIRED:
            made = errors.DaemonTimedOut
        if made is errors.DaemonUnreachable:
            kind, message = unreachable(message)
            fault = "infrastructure" if issubclass(kind, errors.InfrastructureError) else "caller"
            return kind(message, call_id=call_id, fault=fault, retry_safe=never_left(error))
        fault = "infrastructure" if issubclass(made, errors.InfrastructureError) else ""
        return made(message, call_id=call_id, fault=fault)
    details, blame = _told_apart(dict(info.metadata))
    return made_of(info.reason, message, details, call_id or details.get("call_id"), retry_after, blame)


def unreachable(message: str) -> tuple[type[errors.NoConnection], str]:
    """Why there is no connection: no socket, nothing that listens, a socket closed to this user, or no certificate."""
    socket = _SOCKET.search(message)
    path = socket.group(1) if socket else ""
    if path and "Permission denied" in message:
        who = who_may_open(path)
        return errors.NotPermitted, f"you may not use the daemon's socket {path}{who and f' ({who})'}"
    if path and "No such file or directory" in message:
        return errors.DaemonUnreachable, f"there is no daemon: {path} does not exist"
    if path and "Connection refused" in message:
        return errors.DaemonUnreachable, f"there is no daemon: the socket {path} exists, but no process listens on it"
    if UNWRAPPED in message:
        return errors.CertificateRefused, (
            "the daemon closed the connection after the TLS handshake: it requires a client certificate, or does not accept "
            "this client's"
        )
    return errors.DaemonUnreachable, f"the daemon does not answer: {message}"


def who_may_open(path: str) -> str:
    """The owner and group of a socket, or of the directory that is closed before it. Empty where that cannot be seen."""
    try:
        # There are none where there are no such sockets.
        import grp
        import pwd
    except ImportError:
        return ""
    for place in (Path(path), *Path(path).parents):
        try:
            seen = place.stat()
        except OSError:
            continue
        user, group = str(seen.st_uid), str(seen.st_gid)
        with suppress(KeyError):
            user = pwd.getpwuid(seen.st_uid).pw_name
        with suppress(KeyError):
            group = grp.getgrgid(seen.st_gid).gr_name
        return f"{place} is for user {user} " + (f"and members of group {group}" if seen.st_mode & 0o070 else "alone")
    return ""


def never_left(error: _Failed) -> bool:
    """Whether the request has not even been sent. It is so until a connection has come about, also after a daemon that was
    restarted listens again: gRPC makes its attempts up to a second apart."""
    return error.code() is grpc.StatusCode.UNAVAILABLE and (error.details() or "").startswith(UNCONNECTED)


def failed(response: v1.CallResponse, *, of_file: bool = False) -> errors.CofferdamError:
    """The error for a call that ran and failed."""
    error = response.error
    details, call_id = dict(error.details), response.call_id or None
    return made_of(error.reason, error.message, details, call_id, None, blame_of(error), of_file=of_file)


class Blame(NamedTuple):
    """Whose failure it is, whether a repetition is safe, and what shows it."""

    fault: Fault = ""
    retry_safe: bool = False
    evidence: Mapping[str, str] = MappingProxyType({})


NO_BLAME = Blame()


def fault_of(number: v1.Fault.ValueType) -> Fault:
    """A party in words of this package; empty for one that this release does not know."""
    return _FAULTS.get(number, "")


def evidence_of(evidence: Iterable[v1.Evidence]) -> Mapping[str, str]:
    return {fact.what: fact.value for fact in evidence}


def blame_of(error: v1.ToolFailure) -> Blame:
    return Blame(fault_of(error.fault), error.retry_safe, evidence_of(error.evidence))


def _told_apart(metadata: dict[str, str]) -> tuple[dict[str, str], Blame]:
    """The facts of a status: those to act on, and those about whose failure it is."""
    fault = metadata.pop("fault", "").lower()
    retry_safe = metadata.pop("retry_safe", "") == "true"
    shown = {name.removeprefix(EVIDENCE): value for name, value in metadata.items() if name.startswith(EVIDENCE)}
    details = {name: value for name, value in metadata.items() if not name.startswith(EVIDENCE)}
    known = cast(Fault, fault if fault in _FAULTS.values() else "")
    return details, Blame(known, retry_safe, shown)


def made_of(
    reason: str,
    message: str,
    details: Mapping[str, str],
    call_id: str | None,
    retry_after: float | None,
    blame: Blame = NO_BLAME,
    *,
    of_file: bool = False,
) -> errors.CofferdamError:
    made = errors.kind_of(reason, blame.fault)
    if made is errors.Cancelled and details.get("interrupted") == "true":
        made = errors.Interrupted
    if made is errors.NotFound and of_file:
        made = errors.FileNotFound
    # A token or certificate is the reason, and not the policy.
    hint = errors.AuthenticationFailed.HINT if made is errors.Denied and "credential" in details else None
    return made(
        message,
        reason=reason,
        call_id=call_id,
        details=details,
        retry_after=retry_after,
        hint=hint,
        fault=blame.fault,
        retry_safe=blame.retry_safe,
        evidence=blame.evidence,
    )


def lost(error: errors.DaemonUnreachable, request_id: str, *, retry_safe: bool) -> errors.NodeLostError:
    """The error for a daemon that answered before and did not come back.

    `error` is that of the last attempt, whose `retry_safe` says nothing about those before it.
    """
    made = errors.NodeLostError(error.message, call_id=error.call_id, fault="infrastructure", retry_safe=retry_safe)
    made.request_id = request_id or None
    return made


def after_lost_attempt(error: errors.CofferdamError, *, repeatable: bool) -> errors.CofferdamError:
    """Marks the error of a request of which an earlier attempt may have been carried out, its answer lost.

    It says nothing about that attempt, also where it refuses the last one.
    """
    error._follows_lost_attempt = True
    error.retry_safe = error.retry_safe and repeatable
    return error


def left_nothing(error: BaseException) -> bool:
    """Whether a request was refused, and no attempt of it may have been carried out: then it has made nothing."""
    return isinstance(error, errors.CofferdamError) and bool(error.reason) and not error._follows_lost_attempt


def may_pass(error: errors.CofferdamError) -> bool:
    """True if the daemon is away, busy or broken for now, so that it may carry out the same request later."""
    if isinstance(error, errors.RunLost):
        return False
    is_cut = isinstance(error, errors.Cancelled) and not error.reason
    return is_cut or isinstance(
        error, errors.InfrastructureError | errors.NoConnection | errors.RateLimited | errors.TimedOut
    )


def is_void(details: Mapping[str, str]) -> bool:
    """Whether the files that a reviewer saw have changed since. Nothing was done; another consent has to be asked for."""
    return details.get("approval") == "void"


def _facts(error: _Failed) -> tuple[ErrorInfo | None, float | None]:
    info: ErrorInfo | None = None
    retry_after: float | None = None
    for key, value in error.trailing_metadata() or ():
        if key != DETAILS:
            continue
        try:
            for detail in Status.FromString(value).details:
                if detail.TypeName() == "google.rpc.ErrorInfo":
                    found = ErrorInfo.FromString(detail.value)
                    info = found if found.domain == DOMAIN else info
                elif detail.TypeName() == "google.rpc.RetryInfo":
                    delay = RetryInfo.FromString(detail.value).retry_delay
                    retry_after = delay.ToTimedelta().total_seconds()
        except DecodeError:
            # This daemon sends no such bytes.
            continue
    return info, retry_after


def ended_connection(closed: v1.ForwardClosed) -> None:
    """Raises unless a forwarded connection ended as its two sides wanted."""
    ends: Mapping[int, tuple[type[errors.CofferdamError], str]] = {
        v1.ForwardClosed.RESET: (errors.Cancelled, "the server closed the connection early"),
        v1.ForwardClosed.RUN_ENDED: (errors.RunNotReady, "the sandbox has ended"),
        v1.ForwardClosed.RUN_PAUSED: (errors.RunNotReady, "the sandbox was paused"),
        v1.ForwardClosed.NOT_ALLOWED: (errors.Denied, "the policy no longer allows the connection"),
        v1.ForwardClosed.STOPPING: (errors.DaemonUnreachable, "the daemon is stopping"),
    }
    if closed.reason in ends:
        kind, message = ends[closed.reason]
        raise kind(message, reason=v1.ForwardClosed.Reason.Name(closed.reason))
