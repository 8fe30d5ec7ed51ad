"""`sandbox.git`."""

from collections.abc import Sequence

from cofferdam import _results, v1
from cofferdam._async.caller import Caller
from cofferdam.types import GitOutput


class Git:
    """The repository whose `.git` is in `/workspace`, worked on from outside: no hook, filter or configuration of it runs.

    `flags` are git's own, as far as the daemon knows them. Every method raises `PreconditionFailed` where there is no
    repository.
    """

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def status(self) -> GitOutput:
        """As `git status --porcelain=v1 --branch`."""
        return await self._git(v1.GitRequest(status=v1.GitStatus()))

    async def diff(self, paths: Sequence[str] = (), *, staged: bool = False, flags: Sequence[str] = ()) -> GitOutput:
        """The changes that are not staged, or those that are. As `git apply` takes it, unless `flags` say otherwise."""
        flags = [*(["--staged"] if staged else []), *flags]
        return await self._git(v1.GitRequest(diff=v1.GitDiff(flags=flags, paths=paths)))

    async def log(
        self, revision: str = "", *, paths: Sequence[str] = (), max_count: int = 100, flags: Sequence[str] = ()
    ) -> GitOutput:
        """Commits from a revision (default `HEAD`) or in a range `A..B`, the newest first."""
        request = v1.GitLog(flags=flags, max_count=max_count, revision=revision, paths=paths)
        return await self._git(v1.GitRequest(log=request))

    async def show(self, revision: str = "", *, paths: Sequence[str] = (), flags: Sequence[str] = ()) -> GitOutput:
        """A commit with its changes (default `HEAD`), or `REVISION:PATH` for a file as it was."""
        return await self._git(v1.GitRequest(show=v1.GitShow(flags=flags, revision=revision, paths=paths)))

    async def add(self, paths: Sequence[str]) -> GitOutput:
        """Stages files or directories, removed ones included."""
        return await self._git(v1.GitRequest(add=v1.GitAdd(paths=paths)))

    async def commit(self, message: str) -> GitOutput:
        """Makes a commit of the staged changes. Its id is in `commit`; its author is the profile's."""
        return await self._git(v1.GitRequest(commit=v1.GitCommit(message=message)))

    async def _git(self, request: v1.GitRequest) -> GitOutput:
        return _results.git((await self._caller.result(v1.Operation(git=request))).git)
