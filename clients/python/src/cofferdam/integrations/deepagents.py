"""LangChain Deep Agents: `create_deep_agent(backend=CofferdamSandbox(sandbox=sandbox))`."""

import asyncio
import errno
import posixpath
from typing import Literal

from deepagents.backends.protocol import (
    EditResult,
    ExecuteResponse,
    FileDownloadResponse,
    FileUploadResponse,
    WriteResult,
)
from deepagents.backends.sandbox import BaseSandbox

from cofferdam import Sandbox
from cofferdam._sync.posix import HOME, Posix
from cofferdam.errors import (
    CommandError,
    CommandNotAllowed,
    Denied,
    FileNotFound,
    InvalidArgument,
    LimitExceeded,
    NotFound,
    PreconditionFailed,
)
from cofferdam.integrations._shell import merged, said, said_of

FileError = Literal["file_not_found", "permission_denied", "is_directory", "invalid_path"]

_ERRORS: dict[int, FileError] = {
    errno.ENOENT: "file_not_found",
    errno.EACCES: "permission_denied",
    errno.EISDIR: "is_directory",
}

# Characters of a file; more may not fit into one request.
LARGEST_WRITE = 1024 * 1024
# Errors on which a model can act.
_FOR_THE_MODEL = (PreconditionFailed, NotFound, InvalidArgument, Denied, LimitExceeded)


def _is_own(path: str) -> bool:
    return posixpath.normpath(path).startswith(f"{HOME}/")


class CofferdamSandbox(BaseSandbox):
    """A sandbox as the backend of an agent. Its image needs `bash` and `python3`.

    Beneath `/workspace`, `write` and `edit` are the daemon's own operations: policy decides on them, reviewers see the diff,
    and the audit log has them by name. All else is commands.

    The caller makes and ends the sandbox. A command that is refused is an answer for the model; one that needs a person's
    consent raises `ApprovalRequired`, which says how to decide, unless the sandbox was made with `wait_for_approval`.
    """

    def __init__(self, *, sandbox: Sandbox, timeout: int | None = None) -> None:
        """`timeout`: seconds of a command that does not say. Default: the profile's."""
        self._sandbox = sandbox
        self._posix = Posix(sandbox)
        self._timeout = timeout

    @property
    def id(self) -> str:
        """The run's id."""
        return self._sandbox.run_id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Runs a command with bash. Exit code 124: its time was over; 126: it is not allowed."""
        try:
            done = said(self._sandbox.commands.run(merged(command), timeout=timeout or self._timeout))
        except (CommandError, CommandNotAllowed) as error:
            done = said_of(error)
        return ExecuteResponse(output=done.output, exit_code=done.exit_code, truncated=done.truncated)

    def write(self, file_path: str, content: str) -> WriteResult:
        """Creates or overwrites a file."""
        if not _is_own(file_path) or len(content) > LARGEST_WRITE:
            return super().write(file_path, content)
        try:
            self._sandbox.files.write(file_path, content)
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
        try:
            edited = self._sandbox.edit(file_path, old_string, new_string, replace_all=replace_all)
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
        except OSError as error:
            return FileDownloadResponse(path=path, error=_ERRORS.get(error.errno or 0, "invalid_path"))
