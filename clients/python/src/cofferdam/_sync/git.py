# Generated from the asynchronous half by tools/unasync.py: change that half.
"""`sandbox.git`."""

from collections.abc import Mapping, Sequence

from cofferdam import _results, v1
from cofferdam._sync.caller import Caller
from cofferdam.types import GitOutput


class Git:
    """The repository whose `.git` is in `/workspace`, worked on from outside: no hook, filter or configuration of it runs.

    `flags` are git's own, as far as the daemon knows them. Every method raises `PreconditionFailed` where there is no
    repository.
    """

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def status(self) -> GitOutput:
        """As `git status --porcelain=v1 --branch`."""
        return self._git(v1.GitRequest(status=v1.GitStatus()))

    def diff(self, paths: Sequence[str] = (), *, staged: bool = False, flags: Sequence[str] = ()) -> GitOutput:
        """The changes that are not staged, or those that are. As `git apply` takes it, unless `flags` say otherwise."""
        flags = [*(["--staged"] if staged else []), *flags]
        return self._git(v1.GitRequest(diff=v1.GitDiff(flags=flags, paths=paths)))

    def log(
        self, revision: str = "", *, paths: Sequence[str] = (), max_count: int = 100, flags: Sequence[str] = ()
    ) -> GitOutput:
        """Commits from a revision (default `HEAD`) or in a range `A..B`, the newest first."""
        request = v1.GitLog(flags=flags, max_count=max_count, revision=revision, paths=paths)
        return self._git(v1.GitRequest(log=request))

    def show(self, revision: str = "", *, paths: Sequence[str] = (), flags: Sequence[str] = ()) -> GitOutput:
        """A commit with its changes (default `HEAD`), or `REVISION:PATH` for a file as it was."""
        return self._git(v1.GitRequest(show=v1.GitShow(flags=flags, revision=revision, paths=paths)))

    def add(self, paths: Sequence[str]) -> GitOutput:
        """Stages files or directories, removed ones included."""
        return self._git(v1.GitRequest(add=v1.GitAdd(paths=paths)))

    def commit(self, message: str) -> GitOutput:
        """Makes a commit of the staged changes. Its id is in `commit`; its author is the profile's."""
        return self._git(v1.GitRequest(commit=v1.GitCommit(message=message)))

    def fetch(
        self, remote: str = "origin", refs: Sequence[str] = (), *, tags: bool = False, depth: int | None = None
    ) -> GitOutput:
        """Gets commits of a remote, which is a name or an https URL: all branches, or these. Not allowed by every profile.

        `updates` has the references that have moved: `refs/remotes/NAME/BRANCH`, or `refs/fetched/heads/BRANCH` for a URL.
        """
        return self._git(v1.GitRequest(fetch=v1.GitFetch(remote=remote, refs=refs, tags=tags, depth=depth)))

    def pull(self, remote: str = "origin", branch: str = "", *, merge: bool = False) -> GitOutput:
        """Fetches a branch (default: the current one's name) and brings the current branch and the files to it.

        Without `merge`, the current branch may have no commits of its own. Raises `PreconditionFailed`, and changes nothing, if
        there are conflicts or changes in the way.
        """
        mode = v1.GitPull.Mode.MERGE if merge else v1.GitPull.Mode.FF_ONLY
        return self._git(v1.GitRequest(pull=v1.GitPull(remote=remote, branch=branch, mode=mode)))

    def push(
        self,
        remote: str = "origin",
        refs: Sequence[str] = ("HEAD",),
        *,
        delete: bool = False,
        expected: Mapping[str, str] | None = None,
        force: bool = False,
    ) -> GitOutput:
        """Gives commits to a remote. A reference is `LOCAL` or `LOCAL:REMOTE`; with `delete` it is the one to delete.

        `expected` has the id that a reference must have at the remote before, by the name that `refs` gives it there. `force`
        needs one for each, and then loses commits that only the remote has.
        """
        leases = expected or {}

        def pushed(ref: str) -> v1.GitPushRef:
            local, _, there = ("", "", ref) if delete else ref.partition(":")
            id_ = leases.get(there or local, "")
            return v1.GitPushRef(local=local, remote_ref=there, expected=id_, delete=not local)

        request = v1.GitPush(remote=remote, refs=[pushed(ref) for ref in refs], force=force)
        return self._git(v1.GitRequest(push=request))

    def _git(self, request: v1.GitRequest) -> GitOutput:
        return _results.git((self._caller.result(v1.Operation(git=request))).git)
