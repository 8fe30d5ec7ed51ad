"""`sandbox.sessions`, and the handle of a session."""

from collections.abc import Mapping, Sequence
from contextlib import aclosing, suppress
from types import TracebackType
from typing import TypeAlias

from google.protobuf.duration_pb2 import Duration
from typing_extensions import Self

from cofferdam import _output, _requests, _results, v1
from cofferdam._async.caller import Caller
from cofferdam._async.handle import check_not_lost
from cofferdam._async.process import connect, start
from cofferdam._async.stdin import now
from cofferdam.errors import CofferdamError, NotFound
from cofferdam.types import PtySize, SessionInfo, SessionResult

# Of an interrupt, as the daemon has them.
ATTEMPTS = 3
PAUSE = 1.0
# A session has a method `type`.
ErrorKind: TypeAlias = type[BaseException]
# Seconds for an answer, beside those that the session itself takes.
ANSWER_TIMEOUT = 60.0


class AsyncSession:
    """A shell that stays: its directory, variables, functions and jobs last from one command to the next.

    ```python
    async with await sandbox.sessions.open() as session:
        await session.run("cd src && export MODE=fast")
        print((await session.run("make", timeout=600)).output)
    ```

    It lives until `close()`, until its `timeout` or the end of the sandbox; this object, its connection and the daemon may
    come and go meanwhile. It takes one command at a time. Leaving a `with` block of it is `close()`.

    A command that is not over in its time runs on: `type` gives it something to read or waits on, `interrupt` ends it.
    """

    def __init__(self, caller: Caller, session_id: str) -> None:
        """For `sessions`."""
        self._caller = caller
        self._session_id = session_id

    @property
    def session_id(self) -> str:
        """Its id, a UUIDv7: for `sessions.get`; `commands.connect` takes it, too, and has all that it shows."""
        return self._session_id

    async def run(self, command: str, *, timeout: float | None = None, expect: Sequence[str] = ()) -> SessionResult:
        """Runs shell code in the session's own shell.

        `command`: any number of lines, at most 64 KiB. `timeout`: seconds until it is answered in any case; default: the
        profile's for a command. `expect`: at most 16 regular expressions, without look-around and back references; it is
        answered when what is shown matches one of them.

        An exit code other than 0 is a result like any other. Raises `PreconditionFailed` while a command runs in it and
        where it has ended, `RunLost` or `CommandLost` where the host, its engine or the daemon ends it, `InvalidArgument`,
        `Denied`, `ApprovalRequired` and others.
        """
        return await self._use(v1.SessionRequest(command=command, expect=expect), timeout)

    async def type(self, text: str, *, timeout: float | None = None, expect: Sequence[str] = ()) -> SessionResult:
        """Types at the program that runs, and answers like `run`. Raises like it.

        `text`: as it is, at most 64 KiB: a line ends with `"\\n"`. Empty: types nothing and waits on.
        """
        return await self._use(v1.SessionRequest(input=text, expect=expect), timeout)

    async def interrupt(
        self, *, attempts: int = ATTEMPTS, timeout: float = PAUSE, expect: Sequence[str] = ()
    ) -> SessionResult:
        """Interrupts the program that runs, and returns when the session takes commands again.

        `attempts`: how often SIGINT is sent, 1 to 10; after the last one the program is killed. `timeout`: seconds to wait
        after each, at most 60. `expect`: as in `run`, for a program that shows a prompt of its own after an interrupt.

        Where a `run` waits elsewhere, that one has the output. Raises `PreconditionFailed` where the session has ended, and
        `CommandLost` where the host, its engine or the daemon ends it.
        """
        wait = Duration()
        wait.FromNanoseconds(round(_requests.positive("timeout", timeout) * 1e9))
        request = v1.InterruptSessionRequest(
            run_id=self._caller.run_id, session_id=self._session_id, attempts=attempts, timeout=wait, expect=expect
        )
        limit = timeout * (attempts + 1) + ANSWER_TIMEOUT
        answer = await self._caller.client.sessions.interrupt_session(request, timeout=limit)
        return await self._shown(answer.result)

    async def info(self) -> SessionInfo:
        """The session as it is now. Raises `NotFound`."""
        request = v1.ListSessionsRequest(run_id=self._caller.run_id)
        found = await self._caller.client.sessions.list_sessions(request)
        for session in found.sessions:
            if session.session_id == self._session_id:
                return _results.session_info(session)
        raise NotFound("the run has no such session", reason="NOT_FOUND", call_id=self._session_id)

    async def close(self) -> None:
        """Ends it and everything in it. One that has ended is no error."""
        request = v1.CloseSessionRequest(run_id=self._caller.run_id, session_id=self._session_id)
        # It may have ended with its run.
        with suppress(NotFound):
            await self._caller.client.sessions.close_session(request)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: ErrorKind | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            await self._caller.client._transport.finish(self.close())
        except CofferdamError:
            # The error of the block itself says more.
            if error is None:
                raise

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._session_id!r})"

    async def _use(self, request: v1.SessionRequest, timeout: float | None) -> SessionResult:
        request.session_id = self._session_id
        if timeout is not None:
            request.timeout_ms = _requests.millis(timeout) or 0
        return await self._shown((await self._caller.result(v1.Operation(session=request))).session)

    async def _shown(self, result: v1.SessionResult) -> SessionResult:
        output, omitted = await self._whole(result) if result.omitted_bytes else (result.output, 0)
        if result.state == v1.SessionResult.State.ENDED:
            await self._check_not_lost(output)
        return _results.session(result, output, omitted)

    async def _check_not_lost(self, output: str) -> None:
        """The answer does not say whose failure the end of the shell is; its process does."""
        # The run may have been deleted meanwhile.
        with suppress(NotFound):
            process = await now(self._caller.client.processes, self._caller.run_id, self._session_id)
            check_not_lost(process, _results.process(process, output.encode(), b""))

    async def _whole(self, result: v1.SessionResult) -> tuple[str, int]:
        """The output of the session's process has the bytes that the answer leaves out, as far as the daemon keeps them."""
        begin, end = result.output_offset, result.output_offset + result.output_bytes
        request = v1.AttachProcessRequest(run_id=self._caller.run_id, process_id=self._session_id, stdout_offset=begin)
        shown, omitted = "", 0
        piece = bytearray()
        async with aclosing(self._caller.client.processes.attach_process(request)) as events:
            async for event in events:
                match event.WhichOneof("event"):
                    case "output" if event.output.offset < end:
                        piece += event.output.data[: end - event.output.offset]
                    case "gap" if event.gap.offset < end:
                        missing = min(event.gap.offset + event.gap.bytes, end) - event.gap.offset
                        text, cut = _output.between(bytes(piece), after=omitted > 0, before=True)
                        omitted += missing + cut
                        shown += f"{text}\n[{missing} bytes left out]\n"
                        piece.clear()
        text, cut = _output.between(bytes(piece), after=omitted > 0, before=False)
        return shown + text, omitted + cut


class Sessions:
    """Shells that stay, where the profile allows `process` and `session` (as `harness` does)."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def open(
        self,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        tag: str | None = None,
        size: PtySize | None = None,
        timeout: float | None = None,
    ) -> AsyncSession:
        """Opens one: bash where the image has it, else `sh`, on a terminal that does not echo.

        `cwd`: directory to begin with; default: `/workspace`. `env`: beside the sandbox's own. `tag`: a name to find it
        by in `list`; at most 64 letters, digits, `.`, `_` and `-`. `size`: of its terminal; default: 24 rows of 80
        characters.
        `timeout`: seconds until it and everything in it is ended, at most a day; default: none, which is until its
        sandbox ends.

        Raises `NotFound`, `Denied`, `ApprovalRequired` and others.
        """
        env = {**self._caller.options.env, **(env or {})}
        operation = _requests.session(cwd, env, timeout, tag, size)
        return AsyncSession(self._caller, (await start(self._caller, operation)).id)

    async def list(self, *, tag: str | None = None) -> tuple[SessionInfo, ...]:
        """Sessions, the oldest first: those that live, and the newest that have ended. `tag`: only those with this name."""
        request = v1.ListSessionsRequest(run_id=self._caller.run_id, tag=tag or "")
        found = await self._caller.client.sessions.list_sessions(request)
        return tuple(_results.session_info(session) for session in found.sessions)

    async def get(self, session_id: str) -> AsyncSession:
        """One that was opened before, by this client or another one. Raises `NotFound`."""
        process = await (await connect(self._caller, session_id)).now()
        if not process.request.session:
            raise NotFound(f"{session_id} is a command, not a session", reason="NOT_FOUND", call_id=session_id)
        return AsyncSession(self._caller, session_id)
