# Generated from the asynchronous half by tools/unasync.py: change that half.
"""A file or a directory on its way out of a run, and the check that it came whole."""

import hashlib
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from typing import Protocol

from cofferdam import v1
from cofferdam._settings import Patience
from cofferdam._sync.caller import Caller
from cofferdam._sync.progress import Progress
from cofferdam._sync.transport import ProgressCallback, aside
from cofferdam.errors import (
    ApprovalDenied,
    ApprovalRequired,
    CofferdamError,
    DaemonUnreachable,
    FileNotFound,
    NoConnection,
    NotFound,
    PreconditionFailed,
)

Message = v1.DownloadFileResponse | v1.DownloadArchiveResponse


class Sink(Protocol):
    """Where it goes."""

    def begin(self, mode: int) -> None:
        """The bytes of a stream follow; its permission bits."""

    def write(self, data: bytes) -> None:
        """The next bytes."""


class IsDirectory(Exception):
    """The path is no file's."""


class Download:
    """One download."""

    def __init__(self, caller: Caller, path: str, sink: Sink, progress: ProgressCallback | None = None) -> None:
        self._caller = caller
        self._transport = caller.client._transport
        self._path = path
        self._sink = sink
        self._progress = Progress(progress)
        self._offset = 0
        self._digest = hashlib.sha256()

    def file(self, begun: bytes = b"") -> v1.ReadResult:
        """All of a file, over any number of connections; `begun` is here already.

        Raises `PreconditionFailed` where the file has changed meanwhile, and `IsDirectory`.
        """
        self._digest.update(begun)
        self._offset = len(begun)
        patience = self._transport.patience()
        while True:
            request = v1.DownloadFileRequest(
                run_id=self._caller.run_id,
                path=self._path,
                offset=self._offset,
                wait_for_approval=self._caller.options.wait_for_approval,
            )
            before = self._offset
            try:
                with closing(self._caller.client.files.download_file(request)) as messages:
                    return self._checked(self._taken(messages))
            except NoConnection as error:
                if self._offset > before:
                    patience.restore()
                self._wait(patience, error)

    def archive(self) -> v1.ReadResult:
        """All of a directory. Over a lost connection it comes again, from its beginning."""
        patience = self._transport.patience()
        request = v1.DownloadArchiveRequest(
            run_id=self._caller.run_id, path=self._path, wait_for_approval=self._caller.options.wait_for_approval
        )
        while True:
            self._offset, self._digest = 0, hashlib.sha256()
            try:
                with closing(self._caller.client.files.download_archive(request)) as messages:
                    return self._checked(self._taken(messages))
            except NoConnection as error:
                self._wait(patience, error)

    def _wait(self, patience: Patience, error: NoConnection) -> None:
        """Until the next attempt. Raises the error where there is none."""
        lost = error is not self._progress.error and self._transport.is_lost(error)
        pause = patience.pause() if lost else None
        if pause is None:
            # It only reads.
            raise (self._transport.lost(error, None, retry_safe=True) if lost else error) from None
        self._transport.reconnect(pause)

    def _taken(self, messages: Generator[Message, None]) -> v1.ReadResult:
        total: int | None = None
        ended: v1.DownloadEnded | None = None
        with self._named():
            for message in messages:
                match message.WhichOneof("piece"):
                    case "begin":
                        total = message.begin.size_bytes or None
                        aside(self._sink.begin, message.begin.mode)
                    case "data":
                        aside(self._sink.write, message.data)
                        self._digest.update(message.data)
                        self._offset += len(message.data)
                        self._progress.tell(self._offset, total)
                    case "end":
                        ended = message.end
        if ended is None:
            raise DaemonUnreachable("the daemon ended the stream before the end of the download")
        return ended.result

    def _checked(self, result: v1.ReadResult) -> v1.ReadResult:
        if self._digest.hexdigest() != result.sha256:
            raise PreconditionFailed(f"{self._path}: changed while it was copied", reason="PRECONDITION_FAILED")
        return result

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Refusals as those of a call."""
        try:
            yield
        except CofferdamError as error:
            if error is self._progress.error:
                raise
            details = error.details
            # A reviewer's denial has the same reason.
            if isinstance(error, ApprovalDenied) and details.get("approval") == "pending":
                message, call_id = "a person has to approve this download", error.call_id or ""
                raise ApprovalRequired(message, approval_id=details["approval_id"], call_id=call_id) from None
            # Without a call it is about the run.
            if isinstance(error, NotFound) and error.call_id is not None:
                raise FileNotFound(error.message, reason=error.reason, call_id=error.call_id, details=details) from None
            if details.get("is") == "directory":
                raise IsDirectory from error
            raise
