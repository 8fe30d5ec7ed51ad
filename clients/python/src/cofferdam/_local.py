"""Contents on this machine: the source of an upload, and the place of a download until it is whole."""

import hashlib
import os
import threading
import uuid
from pathlib import Path
from typing import BinaryIO

from cofferdam.errors import InvalidArgument

# Bytes of one message, and of one step of a hash.
PIECE = 1024 * 1024


class Source:
    """A content that can be read from any byte on, by any thread, until it is closed."""

    def __init__(self, content: bytes | BinaryIO) -> None:
        self._content = content
        self._reading = threading.Lock()
        self._closed = False
        self.size = len(content) if isinstance(content, bytes) else os.fstat(content.fileno()).st_size
        digest, at = hashlib.sha256(), 0
        while piece := self.piece(at):
            digest.update(piece)
            at += len(piece)
        #: Lower-case hex.
        self.sha256 = digest.hexdigest()

    def piece(self, offset: int) -> bytes:
        """The next bytes, at most 1 MiB; none at its end."""
        with self._reading:
            end = min(offset + PIECE, self.size)
            if self._closed or offset >= end:
                return b""
            if isinstance(self._content, bytes):
                return self._content[offset:end]
            return os.pread(self._content.fileno(), end - offset, offset)

    def close(self) -> None:
        with self._reading:
            self._closed = True
            if not isinstance(self._content, bytes):
                self._content.close()


def opened(path: Path) -> Source:
    """A regular file. Raises `OSError`."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0)
    try:
        # Of a FIFO or a device nobody knows the size.
        if not path.is_file():
            raise InvalidArgument(f"{path}: is neither a file nor a directory", reason="INVALID_ARGUMENT")
        return Source(file)
    except BaseException:
        file.close()
        raise


class Partial:
    """A file that is not complete, beside the one that it will be."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._path = target.with_name(f".cofferdam-{uuid.uuid4().hex}")
        self._file: BinaryIO | None = None

    def begin(self, mode: int) -> None:
        """Makes it, less the umask. Again: it is there, and goes on."""
        if self._file is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            self._file = os.fdopen(os.open(self._path, flags, mode & 0o777 | 0o200), "wb", buffering=0)

    def write(self, data: bytes) -> None:
        assert self._file is not None, "it was begun"
        left = memoryview(data)
        while left:
            left = left[self._file.write(left) :]

    def place(self) -> None:
        """Puts it in place of the target, whole."""
        assert self._file is not None, "it was begun"
        os.fsync(self._file.fileno())
        self._path.replace(self._target)

    def close(self) -> None:
        """Removes it unless it is in its place."""
        if self._file is not None:
            self._file.close()
            self._path.unlink(missing_ok=True)


class Memory:
    """A download that is wanted as bytes."""

    def __init__(self, begun: bytes = b"") -> None:
        self._pieces = [begun]

    def begin(self, mode: int) -> None:
        """Its mode is of no interest."""

    def write(self, data: bytes) -> None:
        self._pieces.append(data)

    def whole(self) -> bytes:
        return b"".join(self._pieces)


class Spool:
    """A download that is wanted as a file for a while."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def begin(self, mode: int) -> None:
        """From its beginning on: an archive is never the same twice."""
        self._file.seek(0)
        self._file.truncate()

    def write(self, data: bytes) -> None:
        self._file.write(data)
