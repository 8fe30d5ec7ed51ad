"""Forks of a run, and the comparison of several runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, overload

from typing_extensions import Self

from cofferdam import _requests, _results, v1
from cofferdam._async.transport import sleep, together
from cofferdam._options import Options
from cofferdam._status import left_nothing
from cofferdam.errors import (
    CofferdamError,
    CommandError,
    DaemonUnreachable,
    NotFound,
    PreconditionFailed,
    RateLimited,
    RunNotReady,
    Unavailable,
)
from cofferdam.types import CommandResult, Comparison, ForkFailure, Limits

if TYPE_CHECKING:
    from cofferdam._async.client import AsyncClient
    from cofferdam._async.sandbox import AsyncSandbox

# Seconds. The answer comes when all forks are ready, and each may need a container.
FORK_TIMEOUT = 600.0
# How often forks that nobody wants any more are asked for, and seconds between.
ABANDONINGS = 20
ABANDONING_PAUSE = 0.1
# Seconds. A comparison reads all that the runs have changed.
COMPARE_TIMEOUT = 300.0


class AsyncForks(Sequence["AsyncSandbox"]):
    """Sandboxes that began with the state of one run or checkpoint: a sequence of those that are ready.

    ```python
    async with await sandbox.fork(4) as forks:
        for number, fork in enumerate(forks):
            await fork.files.write("answer.txt", str(number))
        compared = await forks.compare(check="make test")
        passed = [fork for fork, run in zip(forks, compared.runs) if run.check and run.check.ok]
        if passed:
            await passed[0].accept()
    ```

    Leaving the `with` block is `kill()`.
    """

    def __init__(
        self,
        client: AsyncClient,
        sandboxes: Sequence[AsyncSandbox],
        failures: Sequence[ForkFailure],
        checkpoint: str,
        *,
        owns_checkpoint: bool,
    ) -> None:
        """For `Sandbox.fork` and `Client.fork`."""
        self._client = client
        self._sandboxes = tuple(sandboxes)
        self._owns_checkpoint = owns_checkpoint
        self._kept: set[str] = set()
        self._accepted: set[str] = set()
        #: Those that could not be made, by reason.
        self.failures = tuple(failures)
        #: Id of the checkpoint on which all of them began.
        self.checkpoint = checkpoint

    @overload
    def __getitem__(self, at: int) -> AsyncSandbox: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[AsyncSandbox, ...]: ...
    def __getitem__(self, at: int | slice) -> AsyncSandbox | tuple[AsyncSandbox, ...]:
        return self._sandboxes[at]

    def __iter__(self) -> Iterator[AsyncSandbox]:
        return iter(self._sandboxes)

    def __len__(self) -> int:
        return len(self._sandboxes)

    def keep(self, sandbox: AsyncSandbox) -> None:
        """Has `kill()` of the family leave this one alone: it goes on until a `kill()` or `stop()` of its own."""
        self._kept.add(sandbox.run_id)

    async def compare(self, check: str | Sequence[str] | None = None, *, timeout: float | None = None) -> Comparison:
        """What each of them has changed, and the outcome of a check in each, in the order of this sequence.

        See `AsyncClient.compare`. There have to be two of them at least.
        """
        return await compare(self._client, self._sandboxes, check, timeout=timeout)

    async def kill(self) -> None:
        """Ends and deletes those that were neither kept nor accepted, and their changes, all at once.

        A checkpoint that was made for these forks alone goes with them, unless one was kept.
        """
        stay = self._kept | self._accepted
        losers = [sandbox for sandbox in self._sandboxes if sandbox.run_id not in stay]
        errors = [error for error in await together([partial(_killed, loser) for loser in losers]) if error is not None]
        if errors:
            raise errors[0]
        if self._owns_checkpoint and not self._kept:
            try:
                await self._client.checkpoints.delete_checkpoint(v1.DeleteCheckpointRequest(checkpoint_id=self.checkpoint))
            except (NotFound, PreconditionFailed):
                # It was deleted before, or a run that somebody else has begun needs it.
                return

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._client._transport.finish(self.kill())
        except CofferdamError:
            # The error of the block itself says more.
            if error is None:
                raise

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self._sandboxes)!r})"

    def _begin_accept(self, sandbox: AsyncSandbox) -> None:
        """Keeps it: its changes must not go if they cannot be applied."""
        self.keep(sandbox)

    def _end_accept(self, sandbox: AsyncSandbox) -> None:
        self._kept.discard(sandbox.run_id)
        self._accepted.add(sandbox.run_id)


async def fork(
    client: AsyncClient,
    origin: AsyncSandbox | str,
    count: int,
    *,
    env: Mapping[str, str] | None,
    secret_env: Mapping[str, str] | None,
    metadata: Mapping[str, str] | None,
    limits: Limits | None,
    timeout: float | None,
    lease: float | None,
    keep_alive: bool,
    issue_tokens: bool,
    options: Options,
) -> AsyncForks:
    """Makes the forks of a sandbox, or of the checkpoint of this id."""
    request = v1.ForkRunRequest(
        request_id=f"sdk-{_requests.new_id()}",
        count=_requests.count(count),
        env=env,
        secret_env=secret_env,
        labels=metadata,
        limits=_requests.limits(limits),
        ttl=_requests.duration("timeout", timeout),
        lease=_requests.duration("lease", lease),
        issue_tokens=issue_tokens,
    )
    if isinstance(origin, str):
        request.checkpoint_id = origin
    else:
        request.run_id = origin.run_id
    try:
        made = await client.checkpoints.fork_run(request, timeout=FORK_TIMEOUT)
        if issue_tokens and not all(one.token for one in made.forks):
            raise DaemonUnreachable("the connection was lost, and the tokens of the forks with it")
    except BaseException as error:
        if not left_nothing(error):
            client._transport.afterwards(partial(_abandon, client, request))
        raise
    # A variable of a call would replace that of the fork.
    own = {name: value for name, value in options.env.items() if name not in request.env and name not in request.secret_env}
    sandboxes = [
        _sandbox(
            client,
            one.run.run_id,
            Options(options.wait_for_approval, options.on_awaiting_approval, env=own),
            token=one.token,
        )
        for one in made.forks
    ]
    failures = [ForkFailure(one.reason, one.message, one.count) for one in made.failures]
    checkpoint = made.checkpoint.checkpoint_id
    forks = AsyncForks(client, sandboxes, failures, checkpoint, owns_checkpoint=not isinstance(origin, str))
    for sandbox, one in zip(sandboxes, made.forks, strict=True):
        sandbox._forks = forks
        seconds = _results.run_info(one.run).lease
        if keep_alive and seconds is not None:
            # It began when this fork was ready, and the answer came when all were.
            sandbox._keeping.begin(client, sandbox.run_id, seconds, since=None)
    return forks


async def compare(
    client: AsyncClient,
    runs: Sequence[AsyncSandbox | str],
    check: str | Sequence[str] | None,
    *,
    timeout: float | None,
) -> Comparison:
    """What these runs have changed, and the outcome of a check in each."""
    sandboxes = [_sandbox(client, run, Options(), token="") if isinstance(run, str) else run for run in runs]
    request = v1.CompareRunsRequest(run_ids=[sandbox.run_id for sandbox in sandboxes])
    response = await client.checkpoints.compare_runs(request, timeout=COMPARE_TIMEOUT)
    checks: Sequence[CommandResult | None] = [None] * len(sandboxes)
    if check is not None:
        checks = await together([partial(_checked, sandbox, check, timeout) for sandbox in sandboxes])
    return _results.comparison(response, checks)


async def _checked(sandbox: AsyncSandbox, check: str | Sequence[str], timeout: float | None) -> CommandResult | None:
    try:
        return await sandbox.commands.run(check, timeout=timeout)
    except CommandError as error:
        # A check that never ends is a result like any other, and half a one of a run that was lost is none.
        return None if error.reason == "RUN_LOST" else error.result
    except RunNotReady:
        return None


async def _killed(sandbox: AsyncSandbox) -> CofferdamError | None:
    """An error is returned: the others are to be ended all the same."""
    try:
        await sandbox.kill(delete_workspace=True)
    except CofferdamError as error:
        return error
    return None


async def _abandon(client: AsyncClient, request: v1.ForkRunRequest) -> None:
    """Ends forks whose ids nobody has learned. The same request has them in its answer, and makes no others."""
    for _ in range(ABANDONINGS):
        try:
            made = await client.checkpoints.fork_run(request, timeout=FORK_TIMEOUT)
            break
        except (RateLimited, Unavailable):
            # Not now, such as without a log: that is perhaps why they are abandoned.
            await sleep(ABANDONING_PAUSE)
        except CofferdamError:
            return
    else:
        return
    await together([partial(_killed, _sandbox(client, one.run.run_id, Options(), token="")) for one in made.forks])


def _sandbox(client: AsyncClient, run_id: str, options: Options, *, token: str) -> AsyncSandbox:
    # That module needs this one, too.
    from cofferdam._async.sandbox import AsyncSandbox

    sandbox = AsyncSandbox(client, run_id, options, owns_client=False, delete_workspace=True)
    sandbox._token = token or None
    return sandbox
