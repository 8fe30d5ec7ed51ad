"""Bases that the samples of an evaluation or the trials of a job begin on."""

import asyncio
import uuid
from contextlib import suppress
from dataclasses import dataclass
from weakref import WeakValueDictionary

from typing_extensions import Self

from cofferdam import AsyncClient, Base, Managed, v1
from cofferdam.errors import NotFound

# Seconds. The daemon copies all files of a base.
CREATE_TIMEOUT = 1800.0

# One at a time for each origin: the daemon finds a base again only when it is complete.
_making: WeakValueDictionary[tuple[str, "Origin"], asyncio.Lock] = WeakValueDictionary()


@dataclass(frozen=True)
class Origin:
    """Files that a sandbox begins with. Without a value they are none."""

    #: Id of a base.
    base: str | None = None
    #: Absolute path of a git repository of the daemon's host, and a branch or commit; default: its HEAD.
    repository: str | None = None
    revision: str | None = None
    #: Absolute path of a directory of the daemon's host.
    directory: str | None = None

    def checked(self) -> Self:
        """Raises `ValueError` if it names more than one source."""
        if sum(source is not None for source in (self.base, self.repository, self.directory)) > 1:
            raise ValueError("base, repository and directory exclude one another: name one of them")
        if self.revision is not None and self.repository is None:
            raise ValueError("revision belongs to a repository: name the repository, too")
        return self

    @property
    def is_made(self) -> bool:
        """The daemon has to make a base of it, or find the one that it made before."""
        return self.repository is not None or self.directory is not None

    def _request(self) -> v1.CreateBaseRequest:
        # The client repeats a request with an id if its answer was lost, unless that may reach another node.
        request_id = uuid.uuid4().hex
        if self.repository is not None:
            clone = v1.CloneWorkspace(repository=self.repository, revision=self.revision or "")
            return v1.CreateBaseRequest(source=v1.BaseSource(clone=clone), reuse=True, request_id=request_id)
        directory = v1.DirectorySource(path=self.directory or "")
        return v1.CreateBaseRequest(source=v1.BaseSource(directory=directory), request_id=request_id)

    async def base_id(self) -> str | None:
        """Returns the id of its base, which the daemon may have to make first."""
        return await self.make() if self.is_made else self.base

    async def make(self) -> str:
        """Has the daemon make a base, unless it has one of this repository and commit. Returns its id."""
        async with AsyncClient() as client:
            lock = _making.setdefault((client.endpoint, self), asyncio.Lock())
            async with lock:
                return (await client.bases.create_base(self._request(), timeout=CREATE_TIMEOUT)).base.base_id


def workspace(base_id: str | None) -> Base | Managed:
    """Returns the workspace of a sandbox. Its changes are deleted with it."""
    return Managed() if base_id is None else Base(base_id)


@dataclass
class _Made:
    base_id: str
    #: Tasks that have entered and not left.
    tasks: int = 0


class TaskBases:
    """Bases of the tasks that this process runs: one for each origin, for as long as a task needs it."""

    def __init__(self) -> None:
        self._made: dict[Origin, _Made] = {}
        self._turns: WeakValueDictionary[Origin, asyncio.Lock] = WeakValueDictionary()

    async def enter(self, origin: Origin) -> None:
        """Makes the base of a task. Raises as `CreateBase` does."""
        if origin.is_made:
            (await self._entry(origin)).tasks += 1

    async def base_id(self, origin: Origin) -> str | None:
        """Returns the same id for all samples of a task, even if its repository has moved meanwhile."""
        return (await self._entry(origin)).base_id if origin.is_made else origin.base

    async def _entry(self, origin: Origin) -> _Made:
        lock = self._turns.setdefault(origin, asyncio.Lock())
        async with lock:
            if origin not in self._made:
                self._made[origin] = _Made(await origin.make())
            return self._made[origin]

    async def leave(self, origin: Origin, *, delete: bool) -> None:
        """Deletes the base of a directory after its last task, if `delete`. That of a repository stays for later tasks."""
        made = self._made.get(origin)
        if made is None:
            return
        made.tasks -= 1
        if made.tasks > 0:
            return
        del self._made[origin]
        if delete and origin.directory is not None:
            async with AsyncClient() as client:
                # The daemon may have deleted it to make room.
                with suppress(NotFound):
                    await client.bases.delete_base(v1.DeleteBaseRequest(base_id=made.base_id))
