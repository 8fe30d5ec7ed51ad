# Generated from the asynchronous half by tools/unasync.py: change that half.
"""`sandbox.commands`."""

from collections.abc import Mapping, Sequence

from cofferdam import _requests, _results, errors
from cofferdam._sync.caller import PENDING, SUCCEEDED, Caller, Outcome, succeeded
from cofferdam._sync.transport import OutputCallback
from cofferdam.types import CommandResult


class Commands:
    """Runs commands. Each ends with its call, and all that it started ends with it."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def run(
        self,
        cmd: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | bytes | None = None,
        timeout: float | None = None,
        on_stdout: OutputCallback | None = None,
        on_stderr: OutputCallback | None = None,
        check: bool = False,
    ) -> CommandResult:
        """Runs a command to its end and returns all of its output. An exit code other than 0 is a result like any other.

        `cmd`: a text is a script for the image's shell (`bash -lc`, else `sh -lc`), where the profile allows `shell`. A
        sequence is a program and its arguments, without a shell.
        `cwd`: default `/workspace`. `env`: beside the sandbox's own. `stdin`: at most 1 MiB; default: none.
        `timeout`: seconds until it and everything that it started is ended. Default: the profile's; more than the
        profile's maximum is `InvalidArgument`.
        `on_stdout`, `on_stderr`: are given the output as text while the command runs. If one of them raises, the command
        is ended. Cancelling the call ends it, too; a connection that is lost does not.
        `check`: raise `CommandFailed` unless the exit code is 0.

        Raises `CommandTimedOut`, `CommandStopped` and `CommandInterrupted`, which carry the output so far as `result`;
        `NotFound` for a program that the image does not have, `CommandNotAllowed`, `ApprovalRequired` and others.
        """
        operation = _requests.command(cmd, cwd, {**self._caller.options.env, **(env or {})}, stdin, timeout)
        outcome = self._caller.call(operation, on_stdout=on_stdout, on_stderr=on_stderr)
        result = _judged(outcome)
        if check and not result.ok:
            told = f"the command ended with {result.exit_code}"
            raise errors.CommandFailed(told, result, hint=result.hint or result.stderr[-500:].strip())
        return result


def _judged(outcome: Outcome) -> CommandResult:
    response = outcome.response
    result = _results.command(response, outcome.stdout, outcome.stderr)
    if response.status == SUCCEEDED:
        return result
    reason, message = response.error.reason, response.error.message
    if response.status != PENDING and reason == "TIMED_OUT":
        raise errors.CommandTimedOut(message, result, reason=reason)
    if response.status != PENDING and reason == "CANCELLED":
        if response.error.details.get("interrupted") == "true":
            raise errors.CommandInterrupted(message, result, reason=reason)
        raise errors.CommandStopped(message, result, reason=reason)
    if response.status != PENDING and response.result.WhichOneof("kind") is not None:
        raise errors.CommandStopped(message, result, reason=reason)
    succeeded(response)
    return result
