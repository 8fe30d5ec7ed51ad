"""A bash that stays, on a terminal of its own, for frameworks with sessions.

A process of the run (`sandbox.pty`) whose commands are framed by marks:

```text
PROMPT_COMMAND=…; printf BEGIN; eval "$command"; printf END:$?
                     │                               └ or by PROMPT_COMMAND, where an interrupt took the rest of the line
                     └ what came before is no output of this command: echoes, prompts, notices of earlier jobs
```

Each command has a mark of its own, 128 random bits, so that no file that it shows and no program that it runs can hold it
beforehand. Code of the session's own shell could read it, and is trusted with its own exit code only.
"""

import asyncio
import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

from cofferdam import AsyncCommandHandle, AsyncSandbox
from cofferdam.errors import PreconditionFailed
from cofferdam.types import Signal

# Bytes of a line that a terminal takes are 4095.
LINE = 1024
# Bytes of output that are kept between two answers, the last ones.
MOST_OUTPUT = 16 * 1024 * 1024
# Seconds until a shell is there.
START_TIMEOUT = 60.0

# Exit codes of a job that a signal has stopped, and that is the shell's current one then: SIGSTOP to SIGTTOU.
STOPPED = range(128 + 19, 128 + 23)

# What is typed is no output, and a newline stays one.
_QUIET = "stty -echo -onlcr; "
# `!` is a character like any other.
_SETUP = f"{_QUIET}set +o histexpand; unset HISTFILE"
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")


class State(Enum):
    """How a session came to its answer."""

    #: The command is over.
    DONE = "done"
    #: What it shows matches; it runs.
    MATCHED = "matched"
    #: The time was over; it runs. What it has shown so far comes again with the next answer.
    RUNNING = "running"
    #: The shell has ended.
    ENDED = "ended"


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
    """One shell. It takes one command at a time, and tells how that ended."""

    def __init__(self, terminal: AsyncCommandHandle) -> None:
        """For `open`."""
        self._terminal = terminal
        self._shown = bytearray()
        self._omitted = 0
        # What comes before has been searched for the end of the command.
        self._searched = 0
        self._news = asyncio.Event()
        self._ended = False
        self._mark = b""
        self._begun = True
        self._typed = False
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def open(cls, sandbox: AsyncSandbox) -> "BashSession":
        """Opens one. Raises like `sandbox.pty.create`, and `RuntimeError` where the image has no bash."""
        session = cls(await sandbox.pty.create(cmd=["bash", "--noediting"], env={"TERM": "dumb"}))
        try:
            answer = await session.run(_SETUP, timeout=START_TIMEOUT)
            if answer.state is not State.DONE or answer.exit_code != 0:
                raise RuntimeError(f"no shell could be started, {answer.state.value}: {answer.output}")
        except BaseException:
            await session.close()
            raise
        return session

    @property
    def busy(self) -> bool:
        """Whether a command runs in it."""
        return bool(self._mark)

    async def run(self, command: str, *, timeout: float | None = None, expect: Sequence[str] = ()) -> Shown:
        """Runs shell code in the session's own shell, which must not be `busy`.

        `timeout`: seconds until it is answered in any case; default: none. `expect`: regular expressions; answer when what
        is shown matches one.
        """
        if "\0" in command:
            raise ValueError("command: a shell takes no NUL")
        mark = secrets.token_hex(16)
        quiet = _QUIET if self._typed else ""
        self._mark, self._begun, self._typed = mark.encode(), False, False
        end = rf"printf '\036{mark}:%d\036' $?"
        lines = [*_assignments(command), f"PS1= PROMPT_COMMAND={_quoted(end)}; {quiet}printf '\\036{mark}\\036'"]
        lines[-1] += f'; eval "$__cofferdam"; {end}'
        await self._type("".join(f"{line}\n" for line in lines))
        return await self._answer(timeout, expect)

    async def type(self, line: str, *, timeout: float | None = None, expect: Sequence[str] = ()) -> Shown:
        """Types a line at the program that runs. Answers like `run`."""
        # Such programs change the terminal.
        self._typed = True
        await self._type(f"{line}\n")
        return await self._answer(timeout, expect)

    async def interrupt(self, *, timeout: float, attempts: int, expect: Sequence[str] = ()) -> Shown:
        """SIGINT for the program that runs, so many times; then it is stopped and killed. RUNNING: none of it helped."""
        if not self.busy:
            return Shown(State.DONE, "")
        for attempt in range(attempts + 1):
            signal: Signal = "INT" if attempt < attempts else "TSTP"
            with suppress(PreconditionFailed):
                await self._terminal.send_signal(signal)
            answer = await self._answer(timeout, expect)
            if answer.state is not State.RUNNING:
                break
        if answer.state is State.DONE and answer.exit_code in STOPPED:
            killed = await self.run("kill -KILL %%", timeout=START_TIMEOUT)
            return Shown(killed.state, answer.output + killed.output, killed.exit_code)
        return answer

    async def close(self) -> None:
        """Ends it and everything in it."""
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        await self._terminal.kill()

    async def _type(self, text: str) -> None:
        # A shell that has ended reads nothing; the answer says so.
        with suppress(PreconditionFailed):
            await self._terminal.send_stdin(text)

    async def _read(self) -> None:
        try:
            async for piece in self._terminal:
                self._shown += piece.data
                excess = len(self._shown) - MOST_OUTPUT
                if excess > 0:
                    self._drop(excess)
                    self._omitted += excess
                self._news.set()
        finally:
            self._ended = True
            self._news.set()

    async def _answer(self, timeout: float | None, expect: Sequence[str]) -> Shown:
        loop = asyncio.get_running_loop()
        until = None if timeout is None else loop.time() + timeout
        expressions = [(wanted, re.compile(wanted)) for wanted in expect]
        while True:
            self._news.clear()
            shown = self._judged(expressions)
            if shown is not None:
                return shown
            if self._ended:
                self._check_reader()
                info = await self._terminal.info()
                return Shown(State.ENDED, self._taken(len(self._shown)), info.exit_code)
            try:
                await asyncio.wait_for(self._news.wait(), None if until is None else until - loop.time())
            except asyncio.TimeoutError:
                return Shown(State.RUNNING, _plain(bytes(self._shown)) if self._begun else "")

    def _check_reader(self) -> None:
        """Raises what ended the reader, if that was not the end of the shell."""
        if self._reader.done() and not self._reader.cancelled():
            self._reader.result()

    def _judged(self, expressions: Sequence[tuple[str, "re.Pattern[str]"]]) -> Shown | None:
        """The answer, as soon as there is one."""
        if not self._begun:
            begin = self._shown.find(b"\x1e" + self._mark + b"\x1e")
            if begin < 0:
                return None
            self._drop(begin + len(self._mark) + 2)
            self._begun, self._omitted, self._searched = True, 0, 0
        end = None
        if self._mark:
            end = re.compile(b"\x1e" + self._mark + rb":(\d+)\x1e").search(self._shown, self._searched)
            if end is None:
                # One of which a part is there begins not more than this before.
                self._searched = max(0, len(self._shown) - len(self._mark) - len("\x1e:255\x1e"))
        # Each byte that is no character is one character, so that positions can be told.
        text = self._shown[: end.start() if end else None].decode("utf-8", "surrogateescape") if expressions else ""
        found = [(match, wanted) for wanted, expression in expressions if (match := expression.search(text))]
        if found:
            match, wanted = min(found, key=lambda each: each[0].start())
            output = self._taken(len(text[: match.start()].encode("utf-8", "surrogateescape")))
            self._taken(len(match[0].encode("utf-8", "surrogateescape")))
            return Shown(State.MATCHED, output, matched=wanted)
        if end is None:
            return None
        code = int(end[1])
        output = self._taken(end.start())
        self._mark = b""
        self._drop(len(self._shown))
        return Shown(State.DONE, output, code)

    def _taken(self, length: int) -> str:
        """The next bytes, which are an answer's."""
        omitted, self._omitted = self._omitted, 0
        taken = bytes(self._shown[:length])
        self._drop(length)
        return (f"[{omitted} bytes left out]\n" if omitted else "") + _plain(taken)

    def _drop(self, length: int) -> None:
        del self._shown[:length]
        self._searched = max(0, self._searched - length)


def _plain(shown: bytes) -> str:
    """As text, without what only a terminal understands."""
    return _ESCAPES.sub("", shown.decode("utf-8", "backslashreplace")).replace("\r\n", "\n")


def _assignments(command: str) -> list[str]:
    """Lines that give a variable the command, each short enough for a terminal."""
    lines, line = [], ""
    for byte in command.encode("utf-8", "surrogateescape"):
        # Controls would be for the terminal, and a character that is cut into two lines would be none.
        piece = chr(byte) if 0x20 <= byte < 0x7F and chr(byte) not in "\\'" else f"\\{byte:03o}"
        if len(line) + len(piece) > LINE:
            lines.append(line)
            line = ""
        line += piece
    lines.append(line)
    return [f"__cofferdam{'+' if number else ''}=$'{line}'" for number, line in enumerate(lines)]


def _quoted(code: str) -> str:
    return "'" + code.replace("'", "'\\''") + "'"
