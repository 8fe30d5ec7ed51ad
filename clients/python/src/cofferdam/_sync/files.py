# Generated from the asynchronous half by tools/unasync.py: change that half.
"""`sandbox.files`."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Literal, overload

from cofferdam import _requests, _results, v1
from cofferdam._sync.caller import Caller, succeeded
from cofferdam.errors import LimitExceeded, PreconditionFailed
from cofferdam.types import FileInfo, Found, PatchInfo, RemoveInfo, WriteInfo

BASE64 = v1.ContentEncoding.CONTENT_ENCODING_BASE64
# How often a file that changes while it is read is begun anew.
READINGS = 3


class Files:
    """Reads and writes files beneath `/workspace`, `/state` and `/pkg`. Relative paths are those of `/workspace`.

    A file operation is a call like any other: policy decides on it, and the audit log has it. Only commands reach paths
    outside of these three places.
    """

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    @overload
    def read(self, path: str, *, format: Literal["text"] = "text") -> str: ...
    @overload
    def read(self, path: str, *, format: Literal["bytes"]) -> bytes: ...
    def read(self, path: str, *, format: Literal["text", "bytes"] = "text") -> str | bytes:
        """The whole file. `text` is UTF-8, and a file that is not is `UnicodeDecodeError`.

        A file larger than the profile's `max_read_bytes` (50,000 bytes unless it says otherwise) takes several calls, and
        the daemon reads it whole for each. It must not change meanwhile: after three attempts that is
        `PreconditionFailed`. Raises `FileNotFound`, `InvalidArgument` for a directory, `SandboxViolation`.
        """
        for _ in range(READINGS):
            data = self._read_unchanged(path)
            if data is not None:
                return data if format == "bytes" else data.decode()
        raise PreconditionFailed(f"{path}: the file changes while it is read", reason="PRECONDITION_FAILED")

    def _read_unchanged(self, path: str) -> bytes | None:
        pieces: list[bytes] = []
        offset, sha256 = 0, ""
        while True:
            request = v1.ReadRequest(path=path, encoding=BASE64)
            if offset:
                request.offset = offset
            operation = v1.Operation(read=request)
            read = (self._caller.result(operation, of_file=True)).read
            if pieces and read.sha256 != sha256:
                return None
            piece, sha256 = _results.content(read), read.sha256
            pieces.append(piece)
            offset += len(piece)
            if offset >= read.size_bytes:
                return b"".join(pieces)
            if not piece:
                raise LimitExceeded(f"{path}: {read.hint}", reason="READ_LIMIT")

    def read_lines(self, path: str, start: int = 1, end: int | None = None) -> str:
        """Lines `start` to `end`, from 1, both included; default: to the last.

        Raises `LimitExceeded` if they are more than the profile lets one call read. Otherwise raises like `read`.
        """
        request = v1.ReadRequest(path=path, start_line=start, end_line=end)
        read = (self._caller.result(v1.Operation(read=request), of_file=True)).read
        if read.truncated or read.binary:
            raise LimitExceeded(f"{path}: {read.hint}", reason="READ_LIMIT")
        return read.content

    def write(self, path: str, data: str | bytes, *, create_only: bool = False, if_match: str | None = None) -> WriteInfo:
        """Creates or overwrites a file, whole or not at all. Missing directories are made.

        `create_only`: `PreconditionFailed` if there is a file. `if_match`: `PreconditionFailed` unless the file's SHA-256
        is this. Raises `LimitExceeded` if the data is more than the profile's `max_write_bytes`.
        """
        content = data if isinstance(data, str) else base64.b64encode(data).decode()
        request = v1.WriteRequest(
            path=path,
            content=content,
            encoding=v1.ContentEncoding.CONTENT_ENCODING_UTF8 if isinstance(data, str) else BASE64,
            create_only=create_only,
            if_match_sha256=if_match or "",
        )
        return _results.written((self._caller.result(v1.Operation(write=request), of_file=True)).write)

    def list(
        self,
        path: str = ".",
        *,
        depth: int = 1,
        include_hidden: bool = True,
        include_symlinks: bool = True,
        max_entries: int = 10_000,
    ) -> Found[FileInfo]:
        """The entries of a directory, sorted by path. `depth`: how many levels, 1 to 16.

        At most `max_entries` of them; `truncated` says if there are more. Raises `FileNotFound`, `InvalidArgument` for a
        file.
        """
        request = v1.ListRequest(
            path=path,
            depth=depth,
            include_hidden=include_hidden,
            include_symlinks=include_symlinks,
            max_entries=max_entries,
        )
        return _results.listing((self._caller.result(v1.Operation(list=request), of_file=True)).list)

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory. Raises `SandboxViolation` for a path that leads outside."""
        request = v1.ListRequest(path=path, max_entries=1)
        response = (self._caller.call(v1.Operation(list=request))).response
        if response.error.reason == "NOT_FOUND":
            return False
        # It was looked at, and is no directory.
        if response.error.reason != "INVALID_ARGUMENT":
            succeeded(response, of_file=True)
        return True

    def remove(self, path: str, *, if_match: str | None = None) -> RemoveInfo:
        """Removes a file or an empty directory, to the run's trash. In most profiles a person has to approve that.

        `if_match`: `PreconditionFailed` unless the file's SHA-256 is this. Raises `FileNotFound`.
        """
        request = v1.DeleteRequest(path=path, if_match_sha256=if_match or "")
        return _results.removed((self._caller.result(v1.Operation(delete=request), of_file=True)).delete)

    def update_frontmatter(
        self,
        path: str,
        *,
        variables: Mapping[str, Any] | None = None,
        steps_completed: Sequence[str] = (),
        decisions: Sequence[Mapping[str, Any]] = (),
        artifacts: Sequence[str] = (),
        current_node_id: str | None = None,
        updated_at: str | None = None,
        if_match: str | None = None,
    ) -> PatchInfo:
        """Changes the YAML front matter of a Markdown file; its body stays as it is, byte for byte.

        `variables` are set, `steps_completed`, `decisions` and `artifacts` are added to their lists. Raises
        `InvalidArgument` with the reason `INVALID_FRONTMATTER` if the front matter is not valid.
        """
        change = _requests.frontmatter(
            path, variables, steps_completed, decisions, artifacts, current_node_id, updated_at, if_match
        )
        return _results.patched((self._caller.result(change, of_file=True)).patch)
