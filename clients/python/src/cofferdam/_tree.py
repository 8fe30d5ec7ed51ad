"""Directories of this machine as tar archives, and back.

Trust boundary: an archive out of a sandbox is hostile. Nothing in it follows a link, is absolute or has `..`; a link that it
makes stays in its directory; and git's own files, which git on this machine would obey, are left out.

Directories are entered by handles, so that nothing is followed that is replaced by a link meanwhile.
"""

import os
import re
import shutil
import stat
import tarfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from cofferdam.errors import InternalError, LimitExceeded

# As the daemon has them.
MAX_DEPTH = 128
MAX_ENTRIES = 250_000
# Names of files that the daemon has not yet written whole. It lets nobody else use them.
TEMPORARY = ".cofferdam-tmp-"
_OURS = ".cofferdam-"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# Characters that file systems ignore in a name: Unicode's Default_Ignorable_Code_Point.
_IGNORED = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


@dataclass
class Tree:
    """A directory that was packed or unpacked."""

    #: Files, directories and links.
    entries: int = 0
    #: Bytes of all files.
    size: int = 0
    left_out: int = 0

    def take(self, size: int) -> None:
        self.entries += 1
        self.size += size
        if self.entries > MAX_ENTRIES:
            message = f"the directory has more than the {MAX_ENTRIES} entries that can be copied at once: divide it"
            raise LimitExceeded(message, reason="WRITE_LIMIT")


def pack(top: Path, archive: BinaryIO) -> Tree:
    """Writes all that is in a directory, links as links. Raises `OSError`."""
    packed = Tree()
    with (
        _entered(os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as directory,
        tarfile.open(fileobj=archive, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8") as tar,
    ):
        _pack(tar, directory, [], packed)
    archive.flush()
    return packed


def _pack(tar: tarfile.TarFile, directory: int, above: list[str], packed: Tree) -> None:
    for name in sorted(os.listdir(directory)):
        names = [*above, name]
        if not _may_be_copied(names) or not _pack_one(tar, directory, names, packed):
            packed.left_out += 1


def _pack_one(tar: tarfile.TarFile, directory: int, names: list[str], packed: Tree) -> bool:
    name, member = names[-1], tarfile.TarInfo("/".join(names))
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if stat.S_ISDIR(status.st_mode) and len(names) <= MAX_DEPTH:
        with _entered(os.open(name, _DIRECTORY, dir_fd=directory)) as below:
            packed.take(0)
            member.type = tarfile.DIRTYPE
            _add(tar, member, status)
            _pack(tar, below, names, packed)
        return True
    if stat.S_ISREG(status.st_mode):
        with os.fdopen(os.open(name, _FILE, dir_fd=directory), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return False
            packed.take(status.st_size)
            member.size = status.st_size
            _add(tar, member, status, file)
        return True
    if stat.S_ISLNK(status.st_mode):
        target = os.readlink(name, dir_fd=directory)
        if not _is_text(target) or not _stays_within(len(names) - 1, target):
            return False
        packed.take(0)
        member.type, member.linkname = tarfile.SYMTYPE, target
        _add(tar, member, status)
        return True
    return False


def _add(tar: tarfile.TarFile, member: tarfile.TarInfo, status: os.stat_result, content: BinaryIO | None = None) -> None:
    """Owners of this machine are none of the sandbox's."""
    member.mode, member.mtime = status.st_mode & 0o777, int(status.st_mtime)
    tar.addfile(member, content)
    # Otherwise it keeps them all.
    tar.members = []  # type: ignore[attr-defined]


def unpack(archive: BinaryIO, top: Path) -> Tree:
    """Puts all that is in an archive into a directory, beside what is there. Raises `OSError`."""
    unpacked = Tree()
    top.mkdir(parents=True, exist_ok=True)
    archive.seek(0)
    try:
        with (
            _entered(os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as directory,
            tarfile.open(fileobj=archive, mode="r:", encoding="utf-8") as tar,
        ):
            while (member := tar.next()) is not None:
                tar.members = []  # type: ignore[attr-defined]
                names = [name for name in member.name.split("/") if name not in ("", ".")]
                if not names and member.isdir():
                    continue
                is_named = bool(names) and not member.name.startswith("/") and _may_be_copied(names)
                if not is_named or not _unpack(tar, member, directory, names, unpacked):
                    unpacked.left_out += 1
    except tarfile.TarError as error:
        raise InternalError(f"the archive of the directory is incomplete: {error}") from error
    return unpacked


def _unpack(tar: tarfile.TarFile, member: tarfile.TarInfo, top: int, names: list[str], unpacked: Tree) -> bool:
    *above, name = names
    # One with holes has a size that says nothing of the archive's.
    is_file = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not member.issparse()
    is_link = member.issym() and _stays_within(len(above), member.linkname)
    if len(names) > MAX_DEPTH or not (is_file or is_link or member.isdir()):
        return False
    with suppress(NotADirectoryError), _beneath(top, above) as directory:
        unpacked.take(member.size if is_file else 0)
        if member.isdir():
            os.close(_directory(directory, name, member.mode))
        else:
            _made(tar, member, directory, name)
        return True
    # Something else is where a directory has to be, such as a link.
    return False


def _made(tar: tarfile.TarFile, member: tarfile.TarInfo, directory: int, name: str) -> None:
    """Whole, or not at all."""
    partial = f"{_OURS}{uuid.uuid4().hex}"
    try:
        if member.issym():
            os.symlink(member.linkname, partial, dir_fd=directory)
        else:
            content = tar.extractfile(member)
            assert content is not None, "it is a file"
            with os.fdopen(os.open(partial, _NEW, member.mode & 0o777 | 0o200, dir_fd=directory), "wb") as file:
                shutil.copyfileobj(content, file)
        os.replace(partial, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(partial, dir_fd=directory)
        raise


@contextmanager
def _beneath(top: int, names: list[str]) -> Iterator[int]:
    here = os.dup(top)
    try:
        for name in names:
            below = _directory(here, name, 0o777)
            os.close(here)
            here = below
        yield here
    finally:
        os.close(here)


def _directory(above: int, name: str, mode: int) -> int:
    """A directory, which is made where it is missing. Raises `NotADirectoryError`, for a link as well."""
    with suppress(FileExistsError):
        os.mkdir(name, mode & 0o777 | 0o700, dir_fd=above)
    return os.open(name, _DIRECTORY, dir_fd=above)


@contextmanager
def _entered(directory: int) -> Iterator[int]:
    try:
        yield directory
    finally:
        os.close(directory)


def _stays_within(depth: int, target: str) -> bool:
    """Whether a link so many levels below the top cannot lead out of it, whatever links there are beside it: it goes up
    first, by at most these levels, and then down.
    """
    if not target or target.startswith("/") or "\0" in target:
        return False
    names = [name for name in target.split("/") if name not in ("", ".")]
    ups = next((at for at, name in enumerate(names) if name != ".."), len(names))
    return ups <= depth and ".." not in names[ups:]


def _may_be_copied(names: list[str]) -> bool:
    """Whether it has a name that is none of git's own, and none that the daemon refuses to write."""
    for outer, name in zip(["", *names], names, strict=False):
        folded = _folded(name)
        if name == ".." or "\0" in name or not _is_text(name) or name.startswith(TEMPORARY):
            return False
        if {".git", "git~1"} & folded or (".bin" in folded and "node_modules" in _folded(outer)):
            return False
    return True


def _folded(name: str) -> set[str]:
    """The names that it has on file systems which fold names."""
    parts = _IGNORED.sub("", name).lower().split("\\")
    return {part.partition(":")[0].rstrip(" .") for part in parts}


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
