"""The whole container by its own programs, for frameworks that expect a machine: any directory, any path.

Everything here is a command, so it takes a profile that lets commands run by themselves (`open`), and an image with `sh`,
`cat`, `base64`, `mkdir` and `dirname`. File operations proper, which policy understands, are `sandbox.files`.
"""

import base64
import errno
import os
import posixpath
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace

from cofferdam._async.sandbox import AsyncSandbox
from cofferdam._results import LIMITS
from cofferdam.errors import (
    CofferdamError,
    CommandStopped,
    DaemonTimedOut,
    InfrastructureError,
    NotFound,
    RunNotReady,
    _remade,
)
from cofferdam.types import CommandResult

HOME = "/workspace"
MOUNTS = (HOME, "/state", "/pkg")
# Largest standard input that the daemon takes for one command, bytes.
LARGEST_INPUT = 1024 * 1024
# Bytes that are 1 MiB as base64.
PIECE = LARGEST_INPUT // 4 * 3
# Exit code of shells for a program that they cannot find.
NO_SUCH_PROGRAM = 127
# Exit code of shells for a program that was killed.
KILLED = 137

_IN_DIRECTORY = 'cd -- "$1" && shift && exec "$@"'
_FROM_FILE = 'exec < "$1" && shift && exec "$@"'
# As base64: the daemon takes the input of a shell for code that it may read, and judges it as such.
_MAKE = 'mkdir -p -- "$(dirname -- "$1")" && base64 -d > "$1"'
_APPEND = 'mkdir -p -- "$(dirname -- "$1")" && base64 -d >> "$1"'
_REASONS: Mapping[str, int] = {
    "No such file or directory": errno.ENOENT,
    "Is a directory": errno.EISDIR,
    "Not a directory": errno.ENOTDIR,
    "Permission denied": errno.EACCES,
    "Read-only file system": errno.EACCES,
    # From `mkdir -p`: a file is where a directory should be.
    "File exists": errno.ENOTDIR,
    "File name too long": errno.ENAMETOOLONG,
    "No space left on device": errno.ENOSPC,
}


def is_mounted(path: str) -> bool:
    """Whether the daemon itself can reach it."""
    path = posixpath.normpath(posixpath.join(HOME, path))
    return any(path == mount or path.startswith(f"{mount}/") for mount in MOUNTS)


class NeverRun(CommandResult):
    """The result of a command whose sandbox was ended by its own programs before."""


class Posix:
    """Commands in any directory, and files at any path."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | bytes | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        """As a shell would: a program that is not there is exit code 127, one that cannot be run 126, one that a limit
        ended 137 or 153, and one that ended the worker beside it 137, each with what happened at the end of standard error.
        So is each command after programs have ended the sandbox itself. Otherwise raises like `commands.run`, but for
        `DaemonTimedOut`, which is a plain `InfrastructureError` here.
        """
        data = stdin.encode() if isinstance(stdin, str) else stdin
        if data is not None and len(data) > LARGEST_INPUT:
            return await self._run_with_much_input(argv, data, cwd, env, timeout)
        if cwd is not None and not is_mounted(cwd):
            argv, cwd = ["/bin/sh", "-c", _IN_DIRECTORY, "sh", cwd, *argv], None
        try:
            return await self._sandbox.commands.run(argv, cwd=cwd, env=env, stdin=data, timeout=timeout)
        except DaemonTimedOut as error:
            # Frameworks take a TimeoutError for the command's own, and go on with the model or the score.
            raise _remade(InfrastructureError, error.args, vars(error)) from error
        except NotFound as error:
            # The sandbox itself may be gone, which is no result of a command.
            if error.reason != "NOT_FOUND" or "resource" in error.details:
                raise
            return CommandResult(error.call_id or "", NO_SUCH_PROGRAM, b"", f"{error.message}\n".encode())
        except CommandStopped as error:
            result, told = error.result, f"{error.message}\n".encode()
            if result.ended_by in LIMITS:
                return replace(result, stderr_bytes=result.stderr_bytes + told)
            # A program must not be able to have its result thrown away: one that ended its own worker has failed.
            if error.fault != "program":
                raise
            return replace(result, exit_code=result.exit_code or KILLED, stderr_bytes=result.stderr_bytes + told)
        except RunNotReady as error:
            # The same, for what ended the worker so often that the run ended, too.
            if error.fault != "program":
                raise
            return NeverRun(error.call_id or "", KILLED, b"", f"{error.message}\n".encode(), fault="program")
        except CofferdamError as error:
            if "exit_code" not in error.details:
                raise
            code = int(error.details["exit_code"])
            return CommandResult(error.call_id or "", code, b"", f"{error.message}\n".encode())

    async def _run_with_much_input(
        self,
        argv: Sequence[str],
        data: bytes,
        cwd: str | None,
        env: Mapping[str, str] | None,
        timeout: float | None,
    ) -> CommandResult:
        """By a file, which is empty afterwards: not every profile lets a command delete."""
        file = f"/tmp/.stdin-{uuid.uuid4().hex}"
        written = await self._written(file, data, append=False)
        if isinstance(written, NeverRun):
            return written
        self._check(written, file)
        try:
            return await self.run(["/bin/sh", "-c", _FROM_FILE, "sh", file, *argv], cwd=cwd, env=env, timeout=timeout)
        finally:
            emptied = await self._written(file, b"", append=False)
            # A command that has ended the sandbox has a result.
            if not isinstance(emptied, NeverRun):
                self._check(emptied, file)

    async def read(self, path: str) -> bytes:
        """A file of at most 64 MiB. Raises `FileNotFoundError`, `IsADirectoryError`, `PermissionError` and others."""
        result = await self.run(["cat", "--", path], env={"LC_ALL": "C"})
        self._check(result, path)
        if result.omitted_bytes:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
        return result.stdout_bytes

    async def write(self, path: str, data: bytes, *, append: bool = False) -> None:
        """In place; directories are made. More than 768 KiB are written in pieces. Raises like `read`."""
        self._check(await self._written(path, data, append=append), path)

    async def _written(self, path: str, data: bytes, *, append: bool) -> CommandResult:
        """The result of the command that has written the last piece, or that has failed."""
        script = _APPEND if append else _MAKE
        for at in range(0, max(len(data), 1), PIECE):
            piece = base64.b64encode(data[at : at + PIECE])
            result = await self.run(["/bin/sh", "-c", script, "sh", path], env={"LC_ALL": "C"}, stdin=piece)
            if not result.ok:
                break
            script = _APPEND
        return result

    @staticmethod
    def _check(result: CommandResult, path: str) -> None:
        if result.ok:
            return
        said = result.stderr.strip()
        if isinstance(result, NeverRun):
            # Its files are gone with it.
            raise FileNotFoundError(errno.ENOENT, said, path)
        for words, number in _REASONS.items():
            if said.endswith(words):
                # The kind of OSError that belongs to the number.
                raise OSError(number, os.strerror(number), path)
        raise OSError(errno.EIO, said or f"exit code {result.exit_code}", path)
