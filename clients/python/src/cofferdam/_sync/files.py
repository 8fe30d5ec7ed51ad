# Generated from the asynchronous half by tools/unasync.py: change that half.
"""`sandbox.files`."""

import base64
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, overload

from cofferdam import _requests, _results, v1
from cofferdam._local import Memory, Partial, Source, Spool, opened
from cofferdam._sync.caller import Caller, succeeded
from cofferdam._sync.downloads import Download, IsDirectory
from cofferdam._sync.transport import ProgressCallback, aside
from cofferdam._sync.uploads import Upload
from cofferdam._sync.watch import Watch
from cofferdam._tree import pack, unpack
from cofferdam.errors import InvalidArgument, LimitExceeded, PreconditionFailed
from cofferdam.types import FileInfo, Found, PatchInfo, RemoveInfo, TransferInfo, WriteInfo

BASE64 = v1.ContentEncoding.CONTENT_ENCODING_BASE64
# How often a file that changes while it is read is begun anew.
READINGS = 3
# Bytes of a content that goes with the call itself, as most profiles allow it. More is uploaded.
LARGEST_WRITE = 1_000_000


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

        A file larger than the profile's `max_read_bytes` (50,000 bytes unless it says otherwise) takes a second call, a
        download, which the profile's `max_transfer_bytes` bounds. It must not change meanwhile: after three attempts that
        is `PreconditionFailed`. Raises `FileNotFound`, `InvalidArgument` for a directory, `SandboxViolation`.
        """
        for _ in range(READINGS):
            request = v1.ReadRequest(path=path, encoding=BASE64)
            read = (self._caller.result(v1.Operation(read=request), of_file=True)).read
            data = _results.content(read)
            if len(data) < read.size_bytes:
                memory = Memory(data)
                try:
                    Download(self._caller, path, memory).file(data)
                except (PreconditionFailed, IsDirectory):
                    continue
                data = memory.whole()
            return data if format == "bytes" else data.decode()
        raise PreconditionFailed(f"{path}: the file changes while it is read", reason="PRECONDITION_FAILED")

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
        is this. Raises `LimitExceeded` if the data is more than the profile's `max_write_bytes`; a content of more than
        1,000,000 bytes is uploaded, and bounded by `max_transfer_bytes` alone.
        """
        raw = _requests.raw(data)
        if len(raw) > LARGEST_WRITE:
            begin = v1.BeginUpload(path=path, create_only=create_only, if_match_sha256=if_match or "")
            return _results.written(Upload(self._caller, begin, aside(Source, raw)).result())
        content = data if isinstance(data, str) else base64.b64encode(data).decode()
        request = v1.WriteRequest(
            path=path,
            content=content,
            encoding=v1.ContentEncoding.CONTENT_ENCODING_UTF8 if isinstance(data, str) else BASE64,
            create_only=create_only,
            if_match_sha256=if_match or "",
        )
        return _results.written((self._caller.result(v1.Operation(write=request), of_file=True)).write)

    def upload(
        self,
        local: str | Path,
        path: str,
        *,
        mode: int | None = None,
        create_only: bool = False,
        if_match: str | None = None,
        progress: ProgressCallback | None = None,
    ) -> TransferInfo:
        """Copies a file or a directory of this machine into the sandbox, in one call. Missing directories are made.

        `local`: a file, which becomes `path`, whole or not at all; or a directory, whose content is put into the directory
        `path`, beside what is there, each file whole. Links in it are copied as links and never followed. Left out are git's
        own files, special files, and links that lead out of it.
        `mode`: permission bits of a file, at most `0o777`; default: those of the file here.
        `create_only`: `PreconditionFailed` if there is a file. `if_match`: `PreconditionFailed` unless the SHA-256 of the
        file in the sandbox is this. Neither they nor `mode` are for directories.
        `progress`: is given how many bytes have been sent, and of how many, by another thread where this is no coroutine. An
        exception of it ends the upload, and is raised.

        A connection that is lost costs nothing that has arrived: the upload goes on after it, and a file is written once. A
        directory is packed into a temporary file first, and unpacked again if its answer alone was lost.

        Raises `OSError` for `local`, `LimitExceeded` for more than the profile's `max_transfer_bytes`, `SandboxViolation`,
        `ApprovalRequired` and others.
        """
        local = Path(local)
        if aside(local.is_dir):
            if mode is not None or create_only or if_match is not None:
                raise InvalidArgument("mode, create_only, if_match: are for files", reason="INVALID_ARGUMENT")
            return self._upload_tree(local, path, progress)
        source = aside(opened, local)
        try:
            begin = v1.BeginUpload(
                path=path,
                mode=(aside(local.stat)).st_mode & 0o777 if mode is None else mode,
                create_only=create_only,
                if_match_sha256=if_match or "",
            )
            result = Upload(self._caller, begin, source, progress=progress).result()
        finally:
            source.close()
        return TransferInfo(_results.path(result.path), "file", result.bytes_written, result.sha256_after)

    def _upload_tree(self, local: Path, path: str, progress: ProgressCallback | None) -> TransferInfo:
        with tempfile.TemporaryFile() as spool:
            tree = aside(pack, local, spool)
            source = aside(Source, spool)
            try:
                upload = Upload(self._caller, v1.BeginUpload(path=path), source, archive=True, progress=progress)
                result = upload.result()
            finally:
                source.close()
        return TransferInfo(
            _results.path(result.path), "directory", tree.size, result.sha256_after, tree.entries, tree.left_out
        )

    def download(self, path: str, local: str | Path, *, progress: ProgressCallback | None = None) -> TransferInfo:
        """Copies a file or a directory out of the sandbox, in one call.

        `local`: what the file becomes, with its permission bits, whole or not at all; or the directory that the content of a
        directory is put into, beside what is there, each file whole. It is made where it is missing.
        `progress`: is given how many bytes have come, and of how many (None: of a directory nobody knows). An exception
        of it ends the download, and is raised.

        The sandbox is hostile: nothing is written outside of `local`, and no link is followed or made that leads out of it.
        Left out are git's own files, which git here would obey, special files and such links.

        Over a lost connection a file goes on with the next byte, and a directory begins anew. Raises `FileNotFound`,
        `PreconditionFailed` if the file changes meanwhile, `OSError` for `local`, `LimitExceeded`, `SandboxViolation` and
        others.
        """
        local = Path(local)
        partial = Partial(local)
        try:
            read = Download(self._caller, path, partial, progress).file()
            aside(partial.place)
        except IsDirectory:
            return self._download_tree(path, local, progress)
        finally:
            aside(partial.close)
        return TransferInfo(_results.path(read.path), "file", read.size_bytes, read.sha256)

    def _download_tree(self, path: str, local: Path, progress: ProgressCallback | None) -> TransferInfo:
        with tempfile.TemporaryFile() as spool:
            read = Download(self._caller, path, Spool(spool), progress).archive()
            tree = aside(unpack, spool, local)
        left_out = tree.left_out + read.left_out
        return TransferInfo(_results.path(read.path), "directory", tree.size, read.sha256, tree.entries, left_out)

    def watch(self, path: str = ".", *, recursive: bool = False, interval: float = 1.0) -> Watch:
        """Changes in a directory, from now on.

        `recursive`: of its directories, too, down to 16 levels. `interval`: seconds between looks, at least 0.1. Raises like
        `list`, and `LimitExceeded` where there are more than 10,000 entries.
        """
        watch = Watch(self._caller, path, 16 if recursive else 1, interval)
        watch.begin()
        return watch

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
