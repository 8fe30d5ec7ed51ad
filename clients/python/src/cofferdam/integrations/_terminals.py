"""Processes that outlive the tool call that started them, as the sandbox sessions of OpenAI Agents have them."""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from contextlib import aclosing, suppress

from agents.sandbox.errors import PtySessionNotFoundError
from agents.sandbox.session.pty_types import (
    PTY_PROCESSES_MAX,
    PtyExecUpdate,
    allocate_pty_process_id,
    clamp_pty_yield_time_ms,
    process_id_to_prune_from_meta,
    resolve_pty_write_yield_time_ms,
    truncate_text_by_tokens,
)

from cofferdam import AsyncCommandHandle, AsyncSandbox, CofferdamError, _results
from cofferdam._async.handle import check_not_lost
from cofferdam._async.process import Reading, deadline
from cofferdam.errors import PreconditionFailed, TimedOut

# Seconds that an answer waits for output where the caller does not say.
START_YIELD, WRITE_YIELD = 10.0, 0.25
# Characters of output that wait for the next answer; of more its beginning and its end are kept.
LARGEST = 1024 * 1024
# Seconds for a process that was killed.
ENDED_WITHIN = 10.0
# Words that the SDK's own tool knows.
NO_STDIN = "stdin is not available for this process"


class _Kept:
    """The beginning and the end of a text that may be very long."""

    def __init__(self, most: int) -> None:
        self._half = most // 2
        self._clear()

    def _clear(self) -> None:
        self._begin = ""
        self._end: deque[str] = deque()
        self._in_end = 0
        self._left_out = 0

    def add(self, text: str) -> None:
        space = self._half - len(self._begin)
        self._begin += text[:space]
        text = text[space:]
        if not text:
            return
        self._end.append(text)
        self._in_end += len(text)
        while self._in_end - len(self._end[0]) >= self._half:
            gone = len(self._end.popleft())
            self._in_end -= gone
            self._left_out += gone

    def take(self) -> str:
        left_out = f"\n[{self._left_out} characters left out]\n" if self._left_out else ""
        taken = self._begin + left_out + "".join(self._end)
        self._clear()
        return taken


class _Terminal:
    """One process and what it has shown since the last answer."""

    def __init__(self, handle: AsyncCommandHandle, *, tty: bool) -> None:
        self.handle = handle
        self.tty = tty
        self.used = time.monotonic()
        self._reading = Reading(keep=False)
        self._kept = _Kept(LARGEST)
        # Bytes that were read or are known to be missing.
        self._passed = 0
        # One reader at a time: each byte is in one answer.
        self._lock = asyncio.Lock()

    @property
    def exit_code(self) -> int | None:
        """None: it lives, as far as it was read. -1: nobody knows its code."""
        process = self._reading.process
        if process is None:
            return None
        return process.exit_code if process.HasField("exit_code") else -1

    def check_not_lost(self, shown: str) -> None:
        """Raises `CommandLost`, with what it has shown last, where the infrastructure has ended it."""
        process = self._reading.process
        if process is not None:
            check_not_lost(process, _results.process(process, shown.encode(), b""))

    async def shown(self, seconds: float) -> str:
        """What it shows until its end, or for so long."""
        async with self._lock:
            self.used = time.monotonic()
            with suppress(TimedOut):
                read = self.handle._process.read(self._reading, follow=True, until=deadline(seconds))
                async with aclosing(read) as pieces:
                    async for piece in pieces:
                        self._kept.add(self._notice(len(piece.data)) + piece.text)
            self.used = time.monotonic()
            return self._kept.take()

    def _notice(self, read: int) -> str:
        """What the daemon has not kept of very much output must not look whole."""
        at = self._reading.stdout.next + self._reading.stderr.next
        missing, self._passed = at - self._passed - read, at
        return f"\n[{missing} bytes were not kept]\n" if missing else ""


class Terminals:
    """The processes of one session, by numbers that a model can remember."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox
        self._terminals: dict[int, _Terminal] = {}

    async def start(
        self, argv: Sequence[str], *, timeout: float | None, tty: bool, seconds: float | None, most_tokens: int | None
    ) -> PtyExecUpdate:
        """Raises like `commands.run`, and `CommandLost` where the infrastructure ends the process at once."""
        handle: AsyncCommandHandle
        if tty:
            handle = await self._sandbox.pty.create(cmd=argv, timeout=timeout)
        else:
            handle = await self._sandbox.commands.run(argv, background=True, timeout=timeout)
        number = allocate_pty_process_id(set(self._terminals))
        self._terminals[number] = _Terminal(handle, tty=tty)
        await self._make_room()
        wait = clamp_pty_yield_time_ms(_milliseconds(START_YIELD if seconds is None else seconds))
        return await self._answer(number, self._terminals[number], wait, most_tokens)

    async def write(self, number: int, chars: str, *, seconds: float | None, most_tokens: int | None) -> PtyExecUpdate:
        """Raises `PtySessionNotFoundError`, `RuntimeError` for one that has no terminal, and `CommandLost`."""
        terminal = self._terminals.get(number)
        if terminal is None:
            raise PtySessionNotFoundError(session_id=number)
        if chars:
            if not terminal.tty:
                raise RuntimeError(NO_STDIN)
            # One that has ended meanwhile says so in the answer.
            with suppress(PreconditionFailed):
                await terminal.handle.send_stdin(chars)
        wanted = _milliseconds(WRITE_YIELD if seconds is None else seconds)
        wait = resolve_pty_write_yield_time_ms(yield_time_ms=wanted, input_empty=not chars)
        return await self._answer(number, terminal, wait, most_tokens)

    async def end_all(self) -> None:
        """Ends all that live."""
        terminals, self._terminals = self._terminals, {}
        await asyncio.gather(*(_end(terminal) for terminal in terminals.values()))

    async def _answer(self, number: int, terminal: _Terminal, milliseconds: int, most_tokens: int | None) -> PtyExecUpdate:
        shown = await terminal.shown(milliseconds / 1000)
        code = terminal.exit_code
        if code is not None:
            self._terminals.pop(number, None)
        # It has no exit code, and is nothing for a model.
        terminal.check_not_lost(shown)
        text, tokens = truncate_text_by_tokens(shown, most_tokens)
        live = number if code is None else None
        return PtyExecUpdate(process_id=live, output=text.encode(), exit_code=code, original_token_count=tokens)

    async def _make_room(self) -> None:
        """A session has as many as the SDK allows: one that was not used for longest is ended."""
        if len(self._terminals) <= PTY_PROCESSES_MAX:
            return
        found = [(number, one.used, one.exit_code is not None) for number, one in self._terminals.items()]
        number = process_id_to_prune_from_meta(found)
        if number is not None:
            await _end(self._terminals.pop(number))


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)


async def _end(terminal: _Terminal) -> None:
    """A caller that waits for it may take a snapshot of the workspace next."""
    # With the sandbox it has ended, too.
    with suppress(CofferdamError):
        await terminal.handle.kill()
        await terminal.handle._process.ended(deadline(ENDED_WITHIN))
