"""The handle of a command in the background."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from types import TracebackType

from typing_extensions import Self

from cofferdam import _results, errors, v1
from cofferdam._async.process import Process, Reading, deadline, left
from cofferdam._async.transport import AsyncDataCallback, AsyncOutputCallback, tell
from cofferdam._results import LIMITS
from cofferdam.types import CommandOutput, CommandResult, ProcessInfo, PtySize, Signal


@dataclass(frozen=True)
class Listener:
    """Callbacks for the output of a process."""

    on_stdout: AsyncOutputCallback | None = None
    on_stderr: AsyncOutputCallback | None = None
    on_data: AsyncDataCallback | None = None

    @property
    def hears(self) -> bool:
        return not (self.on_stdout is None and self.on_stderr is None and self.on_data is None)

    async def hear(self, piece: CommandOutput) -> None:
        callback = self.on_stderr if piece.stream == "stderr" else self.on_stdout
        if callback is not None and piece.text:
            await tell(callback, piece.text)
        if self.on_data is not None and piece.data:
            await tell(self.on_data, piece.data)


class AsyncCommandHandle:
    """A command that runs in the background, or a terminal.

    ```python
    server = await sandbox.commands.run(["python3", "-m", "http.server"], background=True)
    async for piece in server:
        print(piece.text, end="")
    ```

    It lives until its first program ends, until `kill()`, until its `timeout` or the end of the sandbox; then everything
    that it started is ended. This object, its connection and the daemon may come and go meanwhile. Iterating gives its
    output from the first byte on, any number of times; after a lost connection it goes on at the next byte. Of very much
    output the daemon keeps the beginning and the end.

    Leaving a `with` block of it is `kill()`.
    """

    def __init__(self, process: Process, listener: Listener) -> None:
        """For `commands` and `pty`."""
        self._process = process
        self._listener = listener
        self._exit_code: int | None = None
        self._disconnected = False
        self._pump = process.transport.background(self._listen) if listener.hears else None

    @property
    def process_id(self) -> str:
        """Its id, a UUIDv7: for `commands.connect`, and that of its start in the audit log."""
        return self._process.id

    @property
    def pid(self) -> str:
        """The same: no number of the kernel."""
        return self._process.id

    @property
    def exit_code(self) -> int | None:
        """As far as this object knows: None until `wait()`, `info()` or a callback has seen its end."""
        return self._exit_code

    async def info(self) -> ProcessInfo:
        """The process as it is now."""
        return _results.process_info(self._seen(await self._process.now()))

    async def wait(
        self,
        *,
        timeout: float | None = None,
        on_stdout: AsyncOutputCallback | None = None,
        on_stderr: AsyncOutputCallback | None = None,
        check: bool = False,
    ) -> CommandResult:
        """Waits for its end, and for the callbacks that it was started with. Returns all output that the daemon has kept.

        `timeout`: seconds; then `TimedOut`, and the command goes on. Default: none.
        `on_stdout`, `on_stderr`: are given the output as text from its beginning on, until the end.
        `check`: raise `CommandFailed` unless the exit code is 0.

        A command that was killed has a result: exit code 137, `ended_by` is `killed`. Raises `CommandTimedOut` where its
        own time was over, `CommandStopped` where its sandbox or a limit ended it, `CommandInterrupted` where it was
        lost, `CommandLost` where the host, its engine or the daemon ended it or its sandbox, each with the output as
        `result`; and what a callback raises.
        """
        until = deadline(timeout)
        if self._pump is not None:
            await self._pump.wait(left(until))
        listener = Listener(on_stdout, on_stderr)
        if listener.hears:
            async with aclosing(self._process.read(Reading(keep=False), follow=True, until=until)) as heard:
                async for piece in heard:
                    await listener.hear(piece)
        await self._process.ended(until)
        reading = Reading(keep=True)
        async with aclosing(self._process.read(reading, follow=False)) as pieces:
            async for _ in pieces:
                pass
        process = self._seen(reading.process or await self._process.now())
        result = _results.process(process, reading.stdout.whole(), reading.stderr.whole())
        return judged(process, result, check)

    async def send_stdin(self, data: str | bytes, *, close: bool = False) -> None:
        """Gives it something to read; needs `stdin_open=True` or a terminal. Returns when it has all of it.

        `close`: and end of file after that. A terminal's end of file is a byte, Ctrl-D: `"\\x04"`.
        Several calls of this client at once take turns, and no byte comes twice, also if a connection is lost.
        Raises `PreconditionFailed` where the process has ended or closed its input.
        """
        await self._process.send(data, close=close)

    async def close_stdin(self) -> None:
        """End of file."""
        await self._process.send(b"", close=True)

    async def kill(self) -> bool:
        """Ends it and everything that it started, at once. False: it had ended already."""
        return await self._process.kill()

    async def send_signal(self, signal: Signal | str | int) -> None:
        """Sends a signal to its process group, or to the foreground of its terminal. `TERM`, `SIGTERM`, `term`, 15 and
        `signal.SIGTERM` are one. Raises `PreconditionFailed`.
        """
        await self._process.signal(signal)

    async def resize(self, size: PtySize) -> None:
        """Gives its terminal another size. Raises `PreconditionFailed` where it has none."""
        await self._process.resize(size)

    async def disconnect(self) -> None:
        """Ends its callbacks. The command goes on; `commands.connect` finds it again."""
        self._disconnected = True
        pump, self._pump = self._pump, None
        if pump is not None:
            await pump.end()

    async def __aiter__(self) -> AsyncGenerator[CommandOutput, None]:
        reading = Reading(keep=False)
        async with aclosing(self._process.read(reading, follow=True)) as pieces:
            async for piece in pieces:
                yield piece
        if reading.process is not None:
            self._seen(reading.process)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._process.transport.finish(self._process.kill())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.process_id!r})"

    async def _listen(self) -> None:
        reading = Reading(keep=False)
        async with aclosing(self._process.read(reading, follow=True)) as pieces:
            async for piece in pieces:
                await self._listener.hear(piece)
                # Perhaps by the callback itself.
                if self._disconnected:
                    return
        if reading.process is not None:
            self._seen(reading.process)

    def _seen(self, process: v1.Process) -> v1.Process:
        if process.HasField("exit_code"):
            self._exit_code = process.exit_code
        return process


def check_not_lost(process: v1.Process, result: CommandResult) -> None:
    """Raises `CommandLost` where the end of a process says nothing about its program."""
    if result.failed_by_infrastructure:
        raise errors.CommandLost(process.failure or "the command was lost", result, reason="RUN_LOST")


def judged(process: v1.Process, result: CommandResult, check: bool) -> CommandResult:
    """The result, or the error that it stands for."""
    check_not_lost(process, result)
    if process.state == v1.Process.State.INTERRUPTED:
        raise errors.CommandInterrupted(process.failure or "the command was lost", result, reason="CANCELLED")
    if result.timed_out:
        hint = "Give a longer `timeout`, or none."
        raise errors.CommandTimedOut("the command timed out", result, reason="TIMED_OUT", hint=hint)
    if result.ended_by == "run-ended":
        raise errors.CommandStopped(process.failure or "the sandbox has ended", result, reason="CANCELLED")
    if result.ended_by in LIMITS:
        raise errors.CommandStopped(process.failure, result, reason=LIMITS[result.ended_by])
    if check and not result.ok:
        raise failed(result)
    return result


def failed(result: CommandResult) -> errors.CommandFailed:
    """The error of a command that had to succeed."""
    told = f"the command ended with {result.exit_code}"
    return errors.CommandFailed(told, result, hint=result.hint or result.stderr[-500:].strip())
