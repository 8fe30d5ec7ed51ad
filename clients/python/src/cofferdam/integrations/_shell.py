"""Shell commands as frameworks want them: one text of both streams, and always a result."""

from dataclasses import dataclass

from cofferdam.errors import (
    ApprovalDenied,
    AwaitingApproval,
    CommandError,
    CommandNotAllowed,
    CommandTimedOut,
    InfrastructureError,
    NotFound,
)
from cofferdam.types import CommandResult, EndedBy

# Exit codes of `timeout` of coreutils, and of shells for a program that may not run.
TIMED_OUT, CANNOT_EXECUTE = 124, 126
# `ended_by` of a command that wrote more than the profile's `max_spool_bytes`.
OUTPUT_LIMIT: EndedBy = "output-limit"


@dataclass(frozen=True)
class Said:
    """The outcome of a command, for a model."""

    output: str
    exit_code: int
    timed_out: bool = False
    truncated: bool = False


def merged(command: str, shell: tuple[str, ...] = ("bash", "-c")) -> list[str]:
    """Both streams in the order in which they were written. As an argument a script may be longer than the daemon's own
    `shell` takes it.
    """
    return ["/bin/sh", "-c", 'exec "$@" 2>&1', "sh", *shell, command]


def said(result: CommandResult) -> Said:
    code = result.exit_code if result.exit_code is not None else -1
    return Said(result.stdout, code, truncated=result.omitted_bytes > 0)


def said_of(error: CommandError | CommandNotAllowed | ApprovalDenied | AwaitingApproval | NotFound) -> Said:
    """A command that was ended, or may not run: the model can act on that, and on no other error.

    Raises one of the infrastructure, which is no answer for a model and no score of it.
    """
    if isinstance(error, InfrastructureError):
        raise error
    if isinstance(error, CommandError):
        # Cut short, it has not succeeded, also where it exited with 0.
        code = TIMED_OUT if isinstance(error, CommandTimedOut) else error.result.exit_code or -1
        output = f"{error.result.stdout}\n{error.message}".lstrip("\n")
        return Said(output, code, timed_out=code == TIMED_OUT, truncated=error.result.omitted_bytes > 0)
    return Said(error.message, CANNOT_EXECUTE)
