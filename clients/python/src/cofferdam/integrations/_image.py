"""Images of tasks that bring a Dockerfile: the daemon's engine builds each once for each content of its directory."""

import asyncio
import hashlib
import os
import re
import stat
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO
from weakref import WeakValueDictionary

from cofferdam import (
    AlreadyExists,
    AsyncClient,
    BuildFailed,
    DaemonUnreachable,
    Overloaded,
    PreconditionFailed,
    TimedOut,
    v1,
)

# Bytes of one message.
PIECE = 256 * 1024
# Characters of a build's log that its error has.
LOG = 4_000
# What moves a terminal's cursor and sets its colours.
SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
# Seconds between attempts while the daemon builds others.
PAUSE = 2.0
# Seconds in which the daemon may refuse a build before its directory is sent, at the first attempt: of a refusal that comes
# while a message is sent gRPC tells nothing. Each further attempt gives it twice as long.
REFUSAL = 0.1
ATTEMPTS = 6

# One at a time for each image: the others find it built.
_building: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()


class Context:
    """A directory with a Dockerfile, packed into a file."""

    def __init__(self, repository: str, directory: Path, file: IO[bytes]) -> None:
        """Raises `OSError`."""
        self.directory = directory
        self.reference = f"{repository}:{pack(directory, file)}"
        self._file = file

    async def build(self, client: AsyncClient, *, again: bool, network: bool) -> None:
        """Has the engine build the image, unless it has it and `again` is false. Only an operator may.

        `network`: the build has the one that the engine gives it. Raises `Denied`, `BuildFailed`, and `InvalidArgument` for
        a directory that the daemon does not take.
        """
        lock = _building.setdefault(self.reference, asyncio.Lock())
        async with lock:
            lost = 0
            while True:
                try:
                    return await self._build(client, again, network, REFUSAL * 2**lost)
                except AlreadyExists:
                    return None
                except Overloaded as busy:
                    await asyncio.sleep(busy.retry_after or PAUSE)
                except DaemonUnreachable:
                    lost += 1
                    if lost == ATTEMPTS:
                        raise
                    await asyncio.sleep(REFUSAL * 2**lost)

    async def _build(self, client: AsyncClient, again: bool, network: bool, refusal: float) -> None:
        header = v1.BuildImageHeader(reference=self.reference, replace=again, without_network=not network)
        log = ""
        try:
            async for told in client.images.build_image(self._requests(header, refusal)):
                log = (log + told.output)[-LOG:]
        except (PreconditionFailed, TimedOut) as error:
            raise BuildFailed(error.message, log=_plain(log), reason=error.reason) from error

    async def _requests(self, header: v1.BuildImageHeader, refusal: float) -> AsyncIterator[v1.BuildImageRequest]:
        yield v1.BuildImageRequest(header=header)
        await asyncio.sleep(refusal)
        await asyncio.to_thread(self._file.seek, 0)
        while piece := await asyncio.to_thread(self._file.read, PIECE):
            yield v1.BuildImageRequest(piece=piece)


def pack(directory: Path, output: IO[bytes]) -> str:
    """Writes everything in a directory as a tar, and returns the tar's SHA-256: the same for the same content.

    Links stay links: nothing outside of the directory is read.
    """
    with tarfile.open(fileobj=output, mode="w") as tar:
        for place, directories, files in os.walk(directory, onerror=_raise):
            directories.sort()
            for name in sorted([*directories, *files]):
                path = Path(place, name)
                member = _member(path, str(path.relative_to(directory)))
                if member.isreg():
                    with path.open("rb") as content:
                        tar.addfile(member, content)
                else:
                    tar.addfile(member)
    output.seek(0)
    digest = hashlib.sha256()
    while piece := output.read(PIECE):
        digest.update(piece)
    return digest.hexdigest()


def _raise(error: OSError) -> None:
    raise error


def _member(path: Path, name: str) -> tarfile.TarInfo:
    """As root's and without a time; of its mode whether it is a program."""
    found = path.lstat()
    member = tarfile.TarInfo(name)
    member.mode = 0o755 if found.st_mode & 0o100 else 0o644
    if stat.S_ISDIR(found.st_mode):
        member.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(found.st_mode):
        member.type, member.linkname = tarfile.SYMTYPE, str(path.readlink())
    elif stat.S_ISREG(found.st_mode):
        member.size = found.st_size
    else:
        raise OSError(f"{path} is neither a file, a directory nor a link")
    return member


def _plain(log: str) -> str:
    """Programs of the build may have printed anything, and the engine itself prints colours."""
    return "".join(letter for letter in SEQUENCE.sub("", log) if letter.isprintable() or letter in "\n\t").strip()
