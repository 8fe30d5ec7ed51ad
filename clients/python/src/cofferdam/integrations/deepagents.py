"""LangChain Deep Agents: `create_deep_agent(backend=CofferdamSandbox(sandbox=sandbox))`."""

import asyncio
import errno
import hashlib
import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Literal

from deepagents.backends.protocol import (
    EditResult,
    ExecuteResponse,
    FileDownloadResponse,
    FileUploadResponse,
    GrepMatch,
    GrepResult,
    LsResult,
    WriteResult,
)
from deepagents.backends.sandbox import BaseSandbox

from cofferdam import CommandResult, Sandbox
from cofferdam._sync.posix import HOME, Posix
from cofferdam.errors import (
    ApprovalDenied,
    AwaitingApproval,
    CommandError,
    CommandNotAllowed,
    Denied,
    FileNotFound,
    InfrastructureError,
    InvalidArgument,
    LimitExceeded,
    NotFound,
    PreconditionFailed,
    SandboxViolation,
)
from cofferdam.integrations._interrupts import Interrupts
from cofferdam.integrations._shell import merged, said, said_of

FileError = Literal["file_not_found", "permission_denied", "is_directory", "invalid_path"]

_ERRORS: dict[int, FileError] = {
    errno.ENOENT: "file_not_found",
    errno.EACCES: "permission_denied",
    errno.EISDIR: "is_directory",
}

# Bytes of a file. More would be an upload, which no request id makes the same call as before.
LARGEST_WRITE = 1_000_000
# Errors on which a model can act, unless they are of the infrastructure.
_FOR_THE_MODEL = (PreconditionFailed, NotFound, InvalidArgument, Denied, LimitExceeded, AwaitingApproval)


# What a command says in its own way, or can do where the daemon's operation cannot.
_FOR_A_COMMAND = (SandboxViolation, PreconditionFailed, NotFound, InvalidArgument, LimitExceeded)
# Several lines would be several patterns.
_SEARCHABLE = re.compile(r"[^\n\r\0]+")
# Characters of a line of which the daemon's operation shows more nowhere.
LONGEST_LINE = 400


def _is_plain(glob: str | None) -> bool:
    """The same for every program: of a name alone, without classes, alternatives and the like."""
    return glob is None or ("**" not in glob and re.fullmatch(r"[\w.*?-]+", glob) is not None)


def _is_own(path: str) -> bool:
    return posixpath.normpath(path).startswith(f"{HOME}/")


def _is_place(path: str) -> bool:
    return posixpath.normpath(path) == HOME or _is_own(path)


class _Commands(Posix):
    """Files outside of the daemon's own places, by commands that may need consent as any other."""

    def __init__(self, sandbox: Sandbox, interrupts: Interrupts) -> None:
        super().__init__(sandbox)
        self._interrupts = interrupts

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | bytes | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        given = None if data is None else hashlib.sha256(data).hexdigest()
        wanted: dict[str, object] = {"operation": "exec", "argv": list(argv), "cwd": cwd, "stdin": given}
        return self._interrupts.call(
            wanted, lambda sandbox: Posix(sandbox).run(argv, cwd=cwd, env=env, stdin=data, timeout=timeout)
        )


class CofferdamSandbox(BaseSandbox):
    """A sandbox as the backend of an agent. Its image needs `bash` and `python3`.

    In `/workspace`, `write` and `edit` are the daemon's own operations, and so are `ls` and `grep` where they mean the same:
    policy decides on them, reviewers see the diff, and the audit log has them by name. All else is commands.

    The caller makes and ends the sandbox. A command that is refused is an answer for the model. One that needs a person's
    consent interrupts a graph that has a checkpointer, with a value that has `approval_id`, `summary` and the command that
    decides (`decide`). Resumed with any value after the decision, the graph goes on with the call's outcome; the command is
    not made twice. Resumed before it, the graph is interrupted again. Elsewhere `ApprovalRequired` says how to decide.

    An `InfrastructureError` ends the graph, but for one of the tool `glob`, which gives the model each error.
    """

    def __init__(self, *, sandbox: Sandbox, timeout: int | None = None, wait_for_approval: bool | None = None) -> None:
        """`timeout`: seconds of a command that does not say. Default: the profile's.

        `wait_for_approval`: wait for a person where one has to consent, instead. Default: as the sandbox was made.
        """
        sandbox = sandbox.with_options(wait_for_approval=wait_for_approval)
        # A graph is interrupted for its reviewer after all calls of a step have ended: none of them may wait for that.
        self._sandbox = sandbox if sandbox._options.wait_for_approval else sandbox.with_options(on_awaiting_approval="raise")
        self._interrupts = Interrupts(self._sandbox)
        self._posix = _Commands(self._sandbox, self._interrupts)
        self._timeout = timeout

    @property
    def id(self) -> str:
        """The run's id."""
        return self._sandbox.run_id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Runs a command with bash. Exit code 124: its time was over; 126: it is not allowed."""
        seconds = timeout or self._timeout
        wanted: dict[str, object] = {"operation": "execute", "command": command, "timeout": seconds}
        try:
            run = self._interrupts.call(wanted, lambda sandbox: sandbox.commands.run(merged(command), timeout=seconds))
            done = said(run)
        except (CommandError, CommandNotAllowed, ApprovalDenied, AwaitingApproval) as error:
            done = said_of(error)
        return ExecuteResponse(output=done.output, exit_code=done.exit_code, truncated=done.truncated)

    def ls(self, path: str) -> LsResult:
        """The entries of a directory."""
        if not _is_place(path):
            return super().ls(path)
        wanted: dict[str, object] = {"operation": "list", "path": path}
        try:
            found = self._interrupts.call(wanted, lambda sandbox: sandbox.files.list(path))
        except InfrastructureError:
            raise
        except _FOR_A_COMMAND:
            return super().ls(path)
        except Denied as error:
            return LsResult(error=f"Path '{path}': {error.message}")
        if found.truncated:
            return super().ls(path)
        return LsResult(
            entries=[{"path": posixpath.join(path, entry.name), "is_dir": entry.type == "directory"} for entry in found]
        )

    async def als(self, path: str) -> LsResult:
        """As `ls`."""
        return await asyncio.to_thread(self.ls, path)

    def grep(
        self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None
    ) -> GrepResult:
        """Lines with this text."""
        if path is None or not _is_place(path) or not _SEARCHABLE.fullmatch(pattern) or not _is_plain(glob):
            return super().grep(pattern, path, glob, max_count=max_count)
        wanted: dict[str, object] = {"operation": "grep", "pattern": pattern, "path": path, "glob": glob}
        try:
            found = self._interrupts.call(
                wanted,
                lambda sandbox: sandbox.search.grep(
                    pattern, path, glob=None if glob is None else f"**/{glob}", include_ignored=True
                ),
            )
        except InfrastructureError:
            raise
        except _FOR_A_COMMAND:
            return super().grep(pattern, path, glob, max_count=max_count)
        except Denied as error:
            return GrepResult(error=f"Path '{path}': {error.message}")
        if found.truncated or any(len(one.text) >= LONGEST_LINE for one in found):
            return super().grep(pattern, path, glob, max_count=max_count)
        excluded = set(self.grep_exclude_dirs)
        matches: list[GrepMatch] = [
            {"path": one.path, "line": one.line, "text": one.text}
            for one in found
            if excluded.isdisjoint(posixpath.relpath(one.path, path).split("/")[:-1])
        ]
        cut = max_count is not None and len(matches) > max_count
        return GrepResult(matches=matches[:max_count], truncated=cut)

    async def agrep(
        self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None
    ) -> GrepResult:
        """As `grep`."""
        return await asyncio.to_thread(self.grep, pattern, path, glob, max_count=max_count)

    def write(self, file_path: str, content: str) -> WriteResult:
        """Creates or overwrites a file."""
        if not _is_own(file_path) or len(content.encode()) > LARGEST_WRITE:
            return super().write(file_path, content)
        wanted: dict[str, object] = {"operation": "write", "path": file_path, "content": content}
        try:
            self._interrupts.call(wanted, lambda sandbox: sandbox.files.write(file_path, content))
        except InfrastructureError:
            raise
        except LimitExceeded:
            # More than the profile lets one operation write; a command may.
            return super().write(file_path, content)
        except _FOR_THE_MODEL as error:
            return WriteResult(error=error.message)
        return WriteResult(path=file_path)

    async def awrite(self, file_path: str, content: str) -> WriteResult:
        """As `write`."""
        return await asyncio.to_thread(self.write, file_path, content)

    def edit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        """Replaces a text that is in a file once, or all of them."""
        if not _is_own(file_path):
            return super().edit(file_path, old_string, new_string, replace_all)
        wanted: dict[str, object] = {"operation": "edit", "path": file_path, "old": old_string, "new": new_string}
        wanted["replace_all"] = replace_all
        try:
            edited = self._interrupts.call(
                wanted, lambda sandbox: sandbox.edit(file_path, old_string, new_string, replace_all=replace_all)
            )
        except InfrastructureError:
            raise
        except FileNotFound as error:
            return EditResult(error=f"file not found: {error.message}")
        except _FOR_THE_MODEL as error:
            kind = "multiple occurrences: " if "count" in error.details else ""
            return EditResult(error=f"{kind}{error.message}")
        return EditResult(path=file_path, occurrences=edited.replacements)

    async def aedit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        """As `edit`."""
        return await asyncio.to_thread(self.edit, file_path, old_string, new_string, replace_all)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Writes files at absolute paths, each for itself."""
        return [FileUploadResponse(path=path, error=self._upload(path, content)) for path, content in files]

    def _upload(self, path: str, content: bytes) -> FileError | None:
        if not path.startswith("/"):
            return "invalid_path"
        try:
            self._posix.write(path, content)
        except InfrastructureError:
            raise
        except OSError as error:
            return _ERRORS.get(error.errno or 0, "invalid_path")
        return None

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Reads files at absolute paths, each for itself."""
        return [self._download(path) for path in paths]

    def _download(self, path: str) -> FileDownloadResponse:
        if not path.startswith("/"):
            return FileDownloadResponse(path=path, error="invalid_path")
        try:
            return FileDownloadResponse(path=path, content=self._posix.read(path))
        except InfrastructureError:
            raise
        except OSError as error:
            return FileDownloadResponse(path=path, error=_ERRORS.get(error.errno or 0, "invalid_path"))
