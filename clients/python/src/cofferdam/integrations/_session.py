"""A session of the daemon, as frameworks have it: one shell that stays, and takes one command at a time."""

import re
from collections.abc import Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from enum import Enum

from google.protobuf.duration_pb2 import Duration

from cofferdam import AsyncSandbox, v1
from cofferdam.errors import NotFound

# Seconds, beside those of the interrupt itself.
ANSWER_TIMEOUT = 60.0
# A command that a session takes for none.
_NOTHING = re.compile(r"\s*$")
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")


class State(Enum):
    """How a session came to its answer."""

    #: The command is over.
    DONE = "done"
    #: What it shows matches; it runs.
    MATCHED = "matched"
    #: The time was over; it runs. What it has shown so far comes again with the next answer.
    RUNNING = "running"
    #: The shell has ended, or takes no more commands.
    ENDED = "ended"


_STATES = {
    v1.SessionResult.State.DONE: State.DONE,
    v1.SessionResult.State.MATCHED: State.MATCHED,
    v1.SessionResult.State.RUNNING: State.RUNNING,
}


@dataclass(frozen=True)
class Shown:
    """The answer of a session."""

    state: State
    #: Since the last answer, or since the command began; without escape sequences.
    output: str
    #: Of the command, or of the shell if that has ended. None while the command runs.
    exit_code: int | None = None
    #: Which of the expressions matches.
    matched: str = ""


class BashSession:
    """Opens, uses and closes one. Where a person has to consent its methods raise `ApprovalRequired`, or wait."""

    def __init__(self, sandbox: AsyncSandbox, session_id: str) -> None:
        """For `open`."""
        self._caller = sandbox._caller
        self._session_id = session_id
        self._before = ""
        #: Whether a command runs in it.
        self.busy = False

    @classmethod
    async def open(cls, sandbox: AsyncSandbox) -> "BashSession":
        """Opens one. Raises `NotFound`, `Denied`, `ApprovalRequired` and others."""
        request = v1.ProcessRequest(session=True, env=sandbox._caller.options.env)
        made = await sandbox._caller.result(v1.Operation(process=request))
        return cls(sandbox, made.process.process_id)

    async def run(self, command: str, *, timeout: float | None = None, expect: Sequence[str] = ()) -> Shown:
        """Runs shell code of at most 64 KiB in the session's own shell, which must not be `busy`.

        `timeout`: seconds until it is answered in any case; default: the profile's. `expect`: regular expressions without
        look-around; answer when what is shown matches one.
        """
        if _NOTHING.match(command):
            return Shown(State.DONE, "", 0)
        return await self._use(v1.SessionRequest(session_id=self._session_id, command=command, expect=expect), timeout)

    async def type(self, line: str, *, timeout: float | None = None, expect: Sequence[str] = ()) -> Shown:
        """Types a line at the program that runs. Answers like `run`."""
        return await self._use(v1.SessionRequest(session_id=self._session_id, input=f"{line}\n", expect=expect), timeout)

    async def interrupt(self, *, timeout: float, attempts: int, expect: Sequence[str] = ()) -> Shown:
        """SIGINT for the program that runs, so many times, each with `timeout`; then it is killed."""
        wait = Duration()
        wait.FromNanoseconds(round(timeout * 1e9))
        request = v1.InterruptSessionRequest(
            run_id=self._caller.run_id, session_id=self._session_id, attempts=attempts, timeout=wait, expect=expect
        )
        limit = timeout * (attempts + 1) + ANSWER_TIMEOUT
        answer = await self._caller.client.sessions.interrupt_session(request, timeout=limit)
        return await self._judged(answer.result, expect)

    async def close(self) -> None:
        """Ends it and everything in it."""
        request = v1.CloseSessionRequest(run_id=self._caller.run_id, session_id=self._session_id)
        # It may have ended with its run.
        with suppress(NotFound):
            await self._caller.client.sessions.close_session(request)

    async def _use(self, request: v1.SessionRequest, timeout: float | None) -> Shown:
        if timeout is not None:
            request.timeout_ms = max(1, round(timeout * 1000))
        result = await self._caller.result(v1.Operation(session=request))
        return await self._judged(result.session, request.expect)

    async def _judged(self, result: v1.SessionResult, expect: Sequence[str]) -> Shown:
        state = _STATES.get(result.state, State.ENDED)
        self.busy = state in (State.MATCHED, State.RUNNING)
        shown = await self._whole(result) if result.omitted_bytes else result.output
        output = self._before + _ESCAPES.sub("", shown).replace("\r\n", "\n")
        self._before = output if state is State.RUNNING else ""
        code = result.exit_code if result.HasField("exit_code") else None
        return Shown(state, output, code, expect[result.matched] if result.HasField("matched") else "")

    async def _whole(self, result: v1.SessionResult) -> str:
        """What was too long for the answer is in the output of the session's process, as far as that is kept."""
        end = result.output_offset + result.output_bytes
        request = v1.AttachProcessRequest(
            run_id=self._caller.run_id, process_id=self._session_id, stdout_offset=result.output_offset
        )
        shown = bytearray()
        async with aclosing(self._caller.client.processes.attach_process(request)) as events:
            async for event in events:
                match event.WhichOneof("event"):
                    case "output" if event.output.offset < end:
                        shown += event.output.data[: end - event.output.offset]
                    case "gap" if event.gap.offset < end:
                        shown += f"\n[{event.gap.bytes} bytes left out]\n".encode()
        return shown.decode("utf-8", "replace")
