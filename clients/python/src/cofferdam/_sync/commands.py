# Generated from the asynchronous half by tools/unasync.py: change that half.
"""`sandbox.commands`."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Literal, overload

from cofferdam import _requests, _results, errors, v1
from cofferdam._sync.caller import PENDING, SUCCEEDED, Caller, Outcome, succeeded
from cofferdam._sync.handle import CommandHandle, Listener, failed
from cofferdam._sync.process import Process, connect, start
from cofferdam._sync.transport import OutputCallback
from cofferdam.errors import CofferdamError, InvalidArgument, PreconditionFailed
from cofferdam.types import CommandResult, ProcessInfo


class Commands:
    """Runs commands. Each ends with its call, and all that it started ends with it, unless it is in the background."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    @overload
    def run(
        self,
        cmd: str | Sequence[str],
        *,
        background: Literal[False] = False,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | bytes | None = None,
        timeout: float | None = None,
        on_stdout: OutputCallback | None = None,
        on_stderr: OutputCallback | None = None,
        check: bool = False,
    ) -> CommandResult: ...
    @overload
    def run(
        self,
        cmd: str | Sequence[str],
        *,
        background: Literal[True],
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | bytes | None = None,
        stdin_open: bool = False,
        timeout: float | None = None,
        on_stdout: OutputCallback | None = None,
        on_stderr: OutputCallback | None = None,
        tag: str | None = None,
    ) -> CommandHandle: ...
    def run(
        self,
        cmd: str | Sequence[str],
        *,
        background: bool = False,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | bytes | None = None,
        stdin_open: bool = False,
        timeout: float | None = None,
        on_stdout: OutputCallback | None = None,
        on_stderr: OutputCallback | None = None,
        tag: str | None = None,
        check: bool = False,
    ) -> CommandResult | CommandHandle:
        """Runs a command to its end and returns all of its output. An exit code other than 0 is a result like any other.

        `cmd`: a text is a script for the image's shell (`bash -lc`, else `sh -lc`), where the profile allows `shell`. A
        sequence is a program and its arguments, without a shell.
        `cwd`: default `/workspace`. `env`: beside the sandbox's own. `stdin`: at most 1 MiB; default: none.
        `timeout`: seconds until it and everything that it started is ended. Default: the profile's; more than the
        profile's maximum is `InvalidArgument`.
        `on_stdout`, `on_stderr`: are given the output as text while the command runs. If one of them raises, the command
        is ended. Cancelling the call ends it, too; a connection that is lost does not.
        `check`: raise `CommandFailed` unless the exit code is 0.

        With `background=True` it returns a handle as soon as the command has begun, where the profile allows `process`
        (as `harness` does). The command outlives its call, this client and the daemon. Then also:
        `timeout`: at most a day; default: none, which is until its sandbox ends.
        `stdin`: of any size; the handle comes when the command has all of it. `stdin_open`: keep its standard input open
        for `send_stdin`; default: end of file after `stdin`.
        `on_stdout`, `on_stderr`: are called meanwhile, by another thread where this is no coroutine. An exception of
        one ends the callbacks, and `wait()` raises it.
        `tag`: a name to find it by in `list`; at most 64 letters, digits, `.`, `_` and `-`.

        Raises `CommandTimedOut`, `CommandStopped` and `CommandInterrupted`, which carry the output so far as `result`;
        `NotFound` for a program that the image does not have, `CommandNotAllowed`, `ApprovalRequired` and others.
        """
        env = {**self._caller.options.env, **(env or {})}
        if background:
            if check:
                raise InvalidArgument("check: is an argument of the handle's wait()", reason="INVALID_ARGUMENT")
            operation = _requests.process(cmd, cwd, env, timeout, tag, stdin=stdin_open or stdin is not None)
            process = start(self._caller, operation)
            if stdin is not None:
                _feed(process, stdin, close=not stdin_open)
            return CommandHandle(process, Listener(on_stdout, on_stderr))
        if stdin_open or tag is not None:
            raise InvalidArgument("stdin_open, tag: are for background=True", reason="INVALID_ARGUMENT")
        operation = _requests.command(cmd, cwd, env, stdin, timeout)
        outcome = self._caller.call(operation, on_stdout=on_stdout, on_stderr=on_stderr)
        result = _judged(outcome)
        if check and not result.ok:
            raise failed(result)
        return result

    def list(self, *, tag: str | None = None) -> tuple[ProcessInfo, ...]:
        """Commands in the background and terminals, the oldest first: those that live, and the newest that have ended.

        `tag`: only those with this name.
        """
        request = v1.ListProcessesRequest(run_id=self._caller.run_id, tag=tag or "")
        found = self._caller.client.processes.list_processes(request)
        return tuple(_results.process_info(process) for process in found.processes)

    def connect(
        self,
        process_id: str,
        *,
        on_stdout: OutputCallback | None = None,
        on_stderr: OutputCallback | None = None,
    ) -> CommandHandle:
        """A handle of a command that was started before, by this client or another one, or that waited for a person.

        The callbacks are given its output from the first byte on. Raises `NotFound`.
        """
        return CommandHandle(connect(self._caller, process_id), Listener(on_stdout, on_stderr))

    def kill(self, process_id: str) -> bool:
        """Ends a command in the background and everything that it started. False: it had ended, or there is none."""
        return Process(self._caller, process_id).kill()

    def send_stdin(self, process_id: str, data: str | bytes, *, close: bool = False) -> None:
        """Gives a command something to read; see `CommandHandle.send_stdin`. Raises `NotFound`, too."""
        Process(self._caller, process_id).send(data, close=close)


def _feed(process: Process, data: str | bytes, *, close: bool) -> None:
    """As a shell does with a pipe: a command need not read what it is given."""
    try:
        process.send(data, close=close)
    except PreconditionFailed:
        return
    except BaseException:
        # Nobody has its handle.
        process.transport.afterwards(partial(_end, process))
        raise


def _end(process: Process) -> None:
    with suppress(CofferdamError):
        process.kill()


def _judged(outcome: Outcome) -> CommandResult:
    response = outcome.response
    result = _results.command(response, outcome.stdout, outcome.stderr)
    if response.status == SUCCEEDED:
        return result
    reason, message = response.error.reason, response.error.message
    if response.status != PENDING and result.failed_by_infrastructure:
        raise errors.CommandLost(message, result, reason=reason)
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
