"""Files and directories between this machine and any path of a sandbox, with their modes.

The daemon's own transfers reach its three directories, and leave git's own files alone. Frameworks have other directories,
and whole repositories: for these `tar` runs in the sandbox, and its archive is what is transferred.

What comes out of a sandbox is hostile: an archive from there can neither leave the directory that it is unpacked in nor
make anything but files, directories and links that stay inside.
"""

import asyncio
import logging
import posixpath
import tarfile
import tempfile
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from cofferdam import AsyncSandbox, CofferdamError
from cofferdam._async.posix import Posix
from cofferdam.types import CommandResult


async def upload(sandbox: AsyncSandbox, source: Path, target: str) -> None:
    """A file becomes `target`; of a directory the content is put into `target`, beside what is there."""
    posix = Posix(sandbox)
    async with _archive(sandbox) as (here, there):
        place = await asyncio.to_thread(_pack, source, target, here)
        await sandbox.files.upload(here, there)
        for command in (["mkdir", "-p", "--", place], ["tar", "-xf", there, "-C", place]):
            _check(await posix.run(command), f"{target} could not be written")


async def download(sandbox: AsyncSandbox, source: str, target: Path, logger: logging.Logger) -> None:
    """Puts the content of a directory into `target`, over what is there.

    What may not be unpacked is left out, and the log says so.
    """
    async with _archive(sandbox) as (here, there):
        _check(await Posix(sandbox).run(["tar", "-cf", there, "-C", source, "."]), f"{source} could not be read")
        await sandbox.files.download(there, here)
        await asyncio.to_thread(_unpack, here, target, logger)


@asynccontextmanager
async def _archive(sandbox: AsyncSandbox) -> AsyncIterator[tuple[Path, str]]:
    """Its place here and in the sandbox. It is empty there afterwards: not every profile lets a command delete."""
    there = f"/state/.archive-{uuid.uuid4().hex}"
    with tempfile.TemporaryDirectory() as directory:
        try:
            yield Path(directory, "archive"), there
        finally:
            # It may have ended, and what went wrong before says more.
            with suppress(CofferdamError):
                await sandbox.files.write(there, b"")


def _check(result: CommandResult, failed: str) -> None:
    if not result.ok:
        raise OSError(f"{failed}: {result.stderr.strip() or f'exit code {result.exit_code}'}")


def _pack(source: Path, target: str, archive: Path) -> str:
    """The directory to unpack it in."""
    with tarfile.open(archive, mode="w") as tar:
        if source.is_dir():
            # Not the directory itself: its owner and mode in the sandbox stay as they are.
            for child in sorted(source.iterdir()):
                tar.add(child, arcname=child.name, filter=_of_nobody)
            return target
        # The file itself, also where its name is a link's.
        tar.add(source.resolve(), arcname=posixpath.basename(target), filter=_of_nobody)
        return posixpath.dirname(target) or "."


def _of_nobody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Users of this machine are none of the sandbox's."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _unpack(archive: Path, target: Path, logger: logging.Logger) -> None:
    def harmless(member: tarfile.TarInfo, place: str) -> tarfile.TarInfo | None:
        try:
            return tarfile.data_filter(member, place)
        except tarfile.FilterError as error:
            logger.warning("left out of a download: %s", error)
            return None

    target.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, mode="r:") as tar:
        tar.extractall(target, filter=harmless)
