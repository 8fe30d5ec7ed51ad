"""Errors of Ray's sandboxes, made from those of this package.

Each has its whole text in itself, because Ray hands an error from one process to another without its cause.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from ray.experimental.sandbox.exceptions import (
    SandboxCreationError,
    SandboxError,
    SandboxExecError,
    SandboxTimeoutError,
)

from cofferdam.errors import ApprovalRequired, CofferdamError, InfrastructureError, TimedOut


class SandboxNotCreated(SandboxCreationError, InfrastructureError):
    """The host, its engine or the daemon failed to make a sandbox, or has no room for it now (`retry_after`).

    Repeat it with the same `request_id`, and nothing is made twice.
    """


class SandboxLost(SandboxExecError, InfrastructureError):
    """The host, its engine or the daemon failed: it says nothing about the programs of the sandbox.

    Count it as an error of the infrastructure, and not as a score of 0. Begin again in another sandbox.
    """


def told(error: CofferdamError, kind: type[SandboxNotCreated] | type[SandboxLost]) -> SandboxNotCreated | SandboxLost:
    """Returns a failure of the infrastructure as an error that is Ray's, too."""
    return kind(
        error.message,
        reason=error.reason,
        call_id=error.call_id,
        hint=error.hint,
        details=error.details,
        retry_after=error.retry_after,
        fault=error.fault or "infrastructure",
        retry_safe=error.retry_safe,
        evidence=error.evidence,
    )


@contextmanager
def creating(seconds: float) -> Iterator[None]:
    """Raises errors of the making of a sandbox as Ray names them."""
    try:
        yield
    except ApprovalRequired:
        raise
    except TimedOut as error:
        raise SandboxTimeoutError(f"The sandbox was not ready in {seconds:g} seconds: {error}") from error
    except InfrastructureError as error:
        raise told(error, SandboxNotCreated) from error
    except (CofferdamError, ValueError) as error:
        raise SandboxCreationError(str(error)) from error


@contextmanager
def using(what: str, kind: type[SandboxError]) -> Iterator[None]:
    """Raises errors of the use of a sandbox as Ray names them. `kind`: of a refusal."""
    try:
        yield
    except ApprovalRequired:
        raise
    except InfrastructureError as error:
        raise told(error, SandboxLost) from error
    except TimedOut as error:
        raise SandboxTimeoutError(f"{what}: {error}") from error
    except (CofferdamError, OSError) as error:
        raise kind(f"{what}: {error}") from error
