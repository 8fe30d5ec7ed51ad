"""All errors, by kind.

The daemon gives a stable reason to each refusal and failure (`NOT_FOUND`, `COMMAND_NOT_ALLOWED` …). Each reason has one
class here, and the `hint` of each class says how to go on. An `InfrastructureError` is a failure of the host, its engine or
the daemon. It says nothing about the programs of the sandbox: do not count it as a score of theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from cofferdam.types import CommandResult, Fault


class CofferdamError(Exception):
    """Everything that this package raises by itself."""

    HINT: ClassVar[str] = ""

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        call_id: str | None = None,
        hint: str | None = None,
        details: Mapping[str, str] | None = None,
        retry_after: float | None = None,
        fault: Fault = "",
        retry_safe: bool = False,
        evidence: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        #: Stable reason such as `COMMAND_NOT_ALLOWED`; empty where the daemon gave none.
        self.reason = reason
        #: The call in the audit log; None where there is none, or the daemon does not tell: of a read that it refused.
        self.call_id = call_id
        #: How to go on.
        self.hint = self.HINT if hint is None else hint
        #: Facts to act on, such as `rule` or `field`.
        self.details: Mapping[str, str] = MappingProxyType(dict(details or {}))
        #: Seconds after which it goes through, if nothing else comes before; None where time mends nothing.
        self.retry_after = retry_after
        #: Whose failure it is: `program`, `policy`, `caller` or `infrastructure`; empty where the daemon does not say.
        self.fault: Fault = fault
        #: Nothing was done and nothing can have been done, so that a repetition does it once.
        self.retry_safe = retry_safe
        #: Facts that show whose failure it is, such as `engine.exit_code` or `cgroup.limit_hits`.
        self.evidence: Mapping[str, str] = MappingProxyType(dict(evidence or {}))
        # An attempt before this one was sent, and its answer was lost: it may have been carried out.
        self._follows_lost_attempt = False

    def __reduce__(self) -> tuple[object, ...]:
        """For frameworks that hand errors from one process to another."""
        state = {name: dict(value) if isinstance(value, MappingProxyType) else value for name, value in vars(self).items()}
        return _remade, (type(self), self.args, state)

    def __str__(self) -> str:
        told = self.message
        if self.reason:
            told += f" ({self.reason})"
        if self.hint:
            told += f". {self.hint}"
        if self.call_id:
            told += f" [call {self.call_id}]"
        return told


def _remade(kind: type[CofferdamError], args: tuple[object, ...], state: Mapping[str, object]) -> CofferdamError:
    made = kind.__new__(kind, *args)
    vars(made).update({name: MappingProxyType(value) if isinstance(value, dict) else value for name, value in state.items()})
    return made


class InfrastructureError(CofferdamError):
    """The host, its engine or the daemon failed, and not the programs of the sandbox, its policy or the caller.

    A sample, a rollout or a test that ends with it has no result: count it as an error, and not as a score of 0.
    `retry_safe` says whether the same may be done again without a look at what has happened.
    """

    HINT = "It says nothing about the program: make another sandbox and begin again."


class NoConnection(CofferdamError):
    """There is no connection to a daemon: it is a `DaemonUnreachable`, `NotPermitted` or `CertificateRefused`."""


class DaemonUnreachable(NoConnection, InfrastructureError, ConnectionError):
    """No daemon answers, or the connection to it was lost and it did not come back."""

    HINT = "See `systemctl status cofferd`, or name its endpoint with COFFERDAM_ENDPOINT."


class NodeLostError(DaemonUnreachable):
    """A daemon that answered before does so no longer, and it did not come back within `reconnect_timeout`.

    The request may have been carried out unless `retry_safe`. A request that had a `request_id` is found by it once the node
    is there again: the same request with the same id is done once.
    """

    HINT = "Ask the node again later, or begin again in another sandbox."
    #: Id of the request, for a repetition at the same node; None: it had none.
    request_id: str | None = None


class NotPermitted(NoConnection, PermissionError):
    """This user may not open the daemon's socket. The message says who may. It is no `InfrastructureError`."""

    HINT = (
        "Become a member of its group, and log in again. `access` in the daemon's configuration says what a member may do."
    )


class CertificateRefused(NoConnection, PermissionError):
    """The daemon ended the TLS handshake for lack of a certificate that it accepts. It is no `InfrastructureError`."""

    HINT = "`tls` or COFFERDAM_TLS names the directory of a client's certificate; `coffer tls init` makes one."


class AuthenticationFailed(CofferdamError):
    """There is no token or certificate, or the token is unknown."""

    HINT = "A run's token works until the run ends, an API token until it expires or is revoked; check COFFERDAM_TOKEN."


class Denied(CofferdamError, PermissionError):
    """Policy, role or API role do not allow it. Repeating changes nothing."""

    HINT = "Try something else, or ask an operator to change the profile; `coffer policy explain` shows which rule decides."


class CommandNotAllowed(Denied):
    """The command is on the deny list, or not on the allow list."""

    HINT = "Use another program, or another profile."


class SandboxViolation(Denied):
    """A path or name that leaves the run's own places."""

    HINT = "Paths must be beneath /workspace, /state or /pkg."


class ApprovalDenied(Denied):
    """A reviewer said no, or nobody decided in time (`APPROVAL_EXPIRED`)."""

    HINT = "The message says why, if the reviewer did. Do not repeat the same call."


class ApprovalRequired(CofferdamError):
    """A person has to consent first. Nothing has been done yet; the call goes on by itself once it is approved."""

    def __init__(self, message: str, *, approval_id: str, call_id: str) -> None:
        hint = (
            f"Decide with `coffer approval approve {approval_id}` or `sandbox.approvals.approve`, then get the result with "
            "`sandbox.calls.wait(call_id)`; or make calls with `wait_for_approval=True`."
        )
        super().__init__(message, reason="PENDING_APPROVAL", call_id=call_id, hint=hint)
        #: See `sandbox.approvals`.
        self.approval_id = approval_id


class NotFound(CofferdamError, LookupError):
    """No such run, call, approval, profile, image or program."""


class WrongNodeError(CofferdamError):
    """The request is for another node of the fleet than the daemon that got it. Nothing was done."""

    HINT = "Connect to the node that the message names, or to the one address of the fleet."

    @property
    def node(self) -> int | None:
        """The node that refused; None for a daemon that is no node."""
        return _number(self.details.get("node"))

    @property
    def asked(self) -> int | None:
        """The node that the request is for."""
        return _number(self.details.get("asked"))


class FileNotFound(NotFound, FileNotFoundError):
    """No such file or directory."""


class AlreadyExists(CofferdamError):
    """It exists already, with other content."""


class PreconditionFailed(CofferdamError):
    """The state is not as the call demands: a hash differs, a file exists, text is not unique."""

    HINT = "Read again, and make the call from the present state."


class InvalidArgument(CofferdamError, ValueError):
    """The call itself is malformed; the message names the field."""


class AwaitingApproval(CofferdamError):
    """The run waits for a reviewer of another call, and this call did not wait, or no longer. Nothing was done.

    `details` has `approval_id`, who decides (`level_needed`, `approvals_needed`) and until when (`expires_at`).
    """

    HINT = "Wait for the approval that the message names, then make the call again; files can be read meanwhile."


class RunNotReady(CofferdamError):
    """The run takes no calls now: it is paused or has ended."""

    HINT = "`sandbox.info()` says why."


class LimitExceeded(CofferdamError):
    """More would have to be read or written than the profile allows."""


class RateLimited(CofferdamError):
    """Too many calls; nothing was done. `retry_after` says when it goes through."""


class Overloaded(RateLimited):
    """Too much at once; nothing was done."""


class NodeFull(Overloaded, InfrastructureError):
    """The node has no capacity left for the sandbox; nothing was done."""

    HINT = "Try another node, or this one when others have ended."


class HostExhausted(LimitExceeded, InfrastructureError):
    """The host had no memory or no disk left, although the sandbox was within its own limits."""

    HINT = "Have an operator look at the host, and begin again in another sandbox."


class TimedOut(CofferdamError, TimeoutError):
    """The time was over."""


class DaemonTimedOut(TimedOut, InfrastructureError):
    """The daemon did not answer within the time of the request, which may have been carried out."""

    HINT = "Check the present state before you repeat it. `coffer doctor` says if the daemon works."


class Cancelled(CofferdamError):
    """Somebody cancelled the call, or its run ended."""


class Interrupted(Cancelled):
    """The call was broken off. It may have had an effect."""

    HINT = "Check the present state before you repeat it."


class CallLost(Interrupted, InfrastructureError):
    """The daemon ended during the call. It may have had an effect."""

    HINT = "Check the present state before you repeat it."


class RunLost(RunNotReady, InfrastructureError):
    """The sandbox was lost: the host, its engine or the daemon has ended it. It does not come back under this handle."""

    HINT = "Make another sandbox. `evidence` says how this one ended."


class Unavailable(InfrastructureError):
    """The audit log or the container engine does not work, or the daemon stops."""

    HINT = "Run `coffer doctor`."


class UpstreamFailed(CofferdamError):
    """An upstream MCP server failed, or its tool did: perhaps for its arguments."""


class ProgramError(CofferdamError):
    """A failure that the programs of the sandbox can cause, or that only a worker beside them reports.

    The sandbox's worker was ended by one of its commands, or gave an answer that cannot be.
    """


class InternalError(InfrastructureError):
    """A fault of the daemon or of its host."""

    HINT = "See the daemon's log."


class BuildFailed(CofferdamError):
    """An image could not be built. `log` has the end of what the build printed."""

    def __init__(self, message: str, *, log: str, reason: str = "", hint: str | None = None) -> None:
        super().__init__(message, reason=reason, hint=hint)
        #: The last lines, from programs that nobody has checked.
        self.log = log

    def __str__(self) -> str:
        return f"{super().__str__()}\n{self.log}" if self.log else super().__str__()


class CommandError(CofferdamError):
    """A command did not end as it should. `result` has its output."""

    def __init__(self, message: str, result: CommandResult, *, reason: str = "", hint: str | None = None) -> None:
        super().__init__(
            message,
            reason=reason,
            call_id=result.call_id,
            hint=hint,
            fault=result.fault,
            retry_safe=result.retry_safe,
            evidence=result.evidence,
        )
        #: Its output, and how it ended.
        self.result = result


class CommandFailed(CommandError):
    """The exit code is not 0, and `check=True` was given."""


class CommandTimedOut(CommandError, TimedOut):
    """Its time was over: it and everything that it had started was ended."""

    HINT = "Give a longer `timeout`, up to the profile's `exec.max_timeout_s`."


class CommandStopped(CommandError, Cancelled):
    """It was ended before it was done: cancelled, or over a limit such as that of output (`result.ended_by`)."""


class CommandInterrupted(CommandStopped, Interrupted):
    """It was lost while it ran. Output after the last piece is lost."""


class CommandLost(CommandInterrupted, InfrastructureError):
    """The host, its engine or the daemon ended it: `ended_by` and `evidence` of the result say how."""


def _number(written: str | None) -> int | None:
    """A node's number, of 1 to 5 digits."""
    digits = written is not None and written.isascii() and written.isdecimal() and len(written) <= 5
    return int(written) if written is not None and digits else None


BY_REASON: Mapping[str, type[CofferdamError]] = MappingProxyType(
    {
        "SANDBOX_VIOLATION": SandboxViolation,
        "PERMISSION_DENIED": Denied,
        "COMMAND_NOT_ALLOWED": CommandNotAllowed,
        "RATE_LIMITED": RateLimited,
        "APPROVAL_DENIED": ApprovalDenied,
        "APPROVAL_EXPIRED": ApprovalDenied,
        "READ_LIMIT": LimitExceeded,
        "WRITE_LIMIT": LimitExceeded,
        "MEMORY_LIMIT": LimitExceeded,
        "TENANT_LIMIT": LimitExceeded,
        "PRECONDITION_FAILED": PreconditionFailed,
        "INVALID_FRONTMATTER": InvalidArgument,
        "INVALID_ARGUMENT": InvalidArgument,
        "NOT_FOUND": NotFound,
        "WRONG_NODE": WrongNodeError,
        "ALREADY_EXISTS": AlreadyExists,
        "IMAGE_MISSING": NotFound,
        "IMAGE_NOT_ALLOWED": Denied,
        "IMAGE_UNUSABLE": InvalidArgument,
        "TIMED_OUT": TimedOut,
        "CANCELLED": Cancelled,
        "AWAITING_APPROVAL": AwaitingApproval,
        "RUN_NOT_READY": RunNotReady,
        "RUN_LOST": RunLost,
        "OVERLOADED": Overloaded,
        "DAEMON_STOPPING": Unavailable,
        "NODE_DRAINED": Unavailable,
        "AUDIT_UNAVAILABLE": Unavailable,
        "ENGINE_UNAVAILABLE": Unavailable,
        "UPSTREAM_FAILED": UpstreamFailed,
        "INTERNAL": InternalError,
    }
)

#: Reasons with another class where the daemon puts the failure down to the infrastructure.
_OF_INFRASTRUCTURE: Mapping[str, type[InfrastructureError]] = MappingProxyType(
    {
        "OVERLOADED": NodeFull,
        "MEMORY_LIMIT": HostExhausted,
        "WRITE_LIMIT": HostExhausted,
        "CANCELLED": CallLost,
        "RUN_NOT_READY": RunLost,
    }
)


def kind_of(reason: str, fault: Fault) -> type[CofferdamError]:
    """Returns the class of a failure. It is an `InfrastructureError` exactly where the daemon says that, if it says it."""
    kind = BY_REASON.get(reason, CofferdamError)
    if fault == "infrastructure" and not issubclass(kind, InfrastructureError):
        return _OF_INFRASTRUCTURE.get(reason, InfrastructureError)
    if fault not in ("", "infrastructure") and issubclass(kind, InfrastructureError):
        return RunNotReady if kind is RunLost else ProgramError
    return kind
