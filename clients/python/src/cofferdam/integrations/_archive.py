"""Files and directories between this machine and a sandbox, with their modes, as tar archives through commands.

What comes out of a sandbox is hostile: an archive from there can neither leave the directory that it is unpacked in nor
make anything but files, directories and links that stay inside.
"""

import asyncio
import io
import logging
import posixpath
import tarfile
from pathlib import Path

from cofferdam._async.posix import Posix
from cofferdam.types import CommandResult


async def upload(posix: Posix, source: Path, target: str) -> None:
    """A file becomes `target`; of a directory the content is put into `target`, beside what is there."""
    place, packed = await asyncio.to_thread(_packed, source, target)
    for command, data in ((["mkdir", "-p", "--", place], None), (["tar", "-xf", "-", "-C", place], packed)):
        _check(await posix.run(command, stdin=data), f"{target} could not be written")


async def download(posix: Posix, source: str, target: Path, logger: logging.Logger) -> None:
    """Puts the content of a directory into `target`, over what is there. At most 64 MiB.

    What may not be unpacked is left out, and the log says so.
    """
    result = await posix.run(["tar", "-cf", "-", "-C", source, "."])
    _check(result, f"{source} could not be read")
    if result.omitted_bytes:
        raise OSError(f"{source} is too large: 64 MiB can be fetched at once")
    await asyncio.to_thread(_unpacked, result.stdout_bytes, target, logger)


def _check(result: CommandResult, failed: str) -> None:
    if not result.ok:
        raise OSError(f"{failed}: {result.stderr.strip() or f'exit code {result.exit_code}'}")


def _packed(source: Path, target: str) -> tuple[str, bytes]:
    """The directory to unpack in, and the archive."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        if source.is_dir():
            # Not the directory itself: its owner and mode in the sandbox stay as they are.
            for child in sorted(source.iterdir()):
                archive.add(child, arcname=child.name, filter=_of_nobody)
            place = target
        else:
            # The file itself, also where its name is a link's.
            archive.add(source.resolve(), arcname=posixpath.basename(target), filter=_of_nobody)
            place = posixpath.dirname(target) or "."
    return place, packed.getvalue()


def _of_nobody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Users of this machine are none of the sandbox's."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _unpacked(packed: bytes, target: Path, logger: logging.Logger) -> None:
    def harmless(member: tarfile.TarInfo, place: str) -> tarfile.TarInfo | None:
        try:
            return tarfile.data_filter(member, place)
        except tarfile.FilterError as error:
            logger.warning("left out of a download: %s", error)
            return None

    target.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:") as archive:
        archive.extractall(target, filter=harmless)
