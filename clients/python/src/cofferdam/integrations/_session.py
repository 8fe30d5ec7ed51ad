"""A session as frameworks have it: plain text, whole lines, and the output of a command in one piece."""

import re
from collections.abc import Sequence
from dataclasses import replace

from cofferdam import AsyncSandbox, AsyncSession, SessionResult

# A command that a session takes for none.
_NOTHING = re.compile(r"\s*$")
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")


class BashSession:
    """One of them. Where a person has to consent its methods raise `ApprovalRequired`, or wait."""

    def __init__(self, session: AsyncSession) -> None:
        """For `open`."""
        self._session = session
        self._before = ""
        #: Whether a command runs in it.
        self.busy = False

    @classmethod
    async def open(cls, sandbox: AsyncSandbox) -> "BashSession":
        """Raises like `sessions.open`."""
        return cls(await sandbox.sessions.open())

    async def run(self, command: str, *, timeout: float | None = None, expect: Sequence[str] = ()) -> SessionResult:
        """As that of a session, which must not be `busy`. What a command that runs has shown so far comes again."""
        if _NOTHING.match(command):
            return SessionResult("done", "", 0)
        return self._plain(await self._session.run(command, timeout=timeout, expect=expect))

    async def type(self, line: str, *, timeout: float | None = None, expect: Sequence[str] = ()) -> SessionResult:
        """Types a line. Answers like `run`."""
        return self._plain(await self._session.type(f"{line}\n", timeout=timeout, expect=expect))

    async def interrupt(self, *, timeout: float, attempts: int, expect: Sequence[str] = ()) -> SessionResult:
        """Answers like `run`."""
        return self._plain(await self._session.interrupt(timeout=timeout, attempts=attempts, expect=expect))

    async def close(self) -> None:
        """Ends it and everything in it."""
        await self._session.close()

    def _plain(self, shown: SessionResult) -> SessionResult:
        self.busy = shown.state in ("matched", "running")
        output = self._before + _ESCAPES.sub("", shown.output).replace("\r\n", "\n")
        self._before = output if shown.state == "running" else ""
        return replace(shown, output=output)
