"""Pydantic AI: `Workspace(CofferdamWorkspaceBackend(profile=…, image=…))`.

Gives commands; file operations go through them, as Pydantic AI derives them. The daemon ends all processes
of a command with it, so a detached process does not live on. A call that needs a person's consent raises
`ApprovalRequired`, which says how to decide; with `wait_for_approval=True` it waits instead.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from pydantic_ai.workspaces import (
    CommandResult,
    WorkspaceCommand,
    WorkspaceOutputLimitError,
    WorkspaceRef,
    WorkspaceTimeoutError,
    WorkspaceUnavailableError,
)

from cofferdam import AsyncSandbox, _output
from cofferdam import CommandResult as Result
from cofferdam._async.posix import HOME, Posix
from cofferdam.errors import (
    ApprovalDenied,
    AwaitingApproval,
    CommandNotAllowed,
    CommandStopped,
    CommandTimedOut,
    NotFound,
    RunNotReady,
)
from cofferdam.integrations._lease import renew
from cofferdam.integrations._shell import OUTPUT_LIMIT

PROVIDER = "cofferdam"
# Bytes of each stream that the error for more has.
PREVIEW = 64 * 1024


class CofferdamWorkspaceBackend:
    """A sandbox that its first operation makes, or attaches to. It stays until `delete_workspace`, or for its lease."""

    def __init__(
        self,
        *,
        profile: str = "harness",
        image: str | None = None,
        ref: WorkspaceRef | None = None,
        lease: float | None = None,
        wait_for_approval: bool = False,
    ) -> None:
        """`ref`: of a sandbox that is there; default: a new one is made, of this profile and image.

        `lease`: seconds for which a new one outlives its program, or the event loop, which renew it; None: it stays until
        `delete_workspace`. A backend that attaches to a sandbox with a lease renews it, too.
        """
        if ref is not None and ref.provider != PROVIDER:
            raise ValueError(f"ref: is of {ref.provider}, not of {PROVIDER}")
        self._profile = profile
        self._image = image
        self._ref = ref
        self._lease = lease
        self._wait_for_approval = wait_for_approval
        self._attaching: asyncio.Task[AsyncSandbox] | None = None

    @property
    def ref(self) -> WorkspaceRef | None:
        """None until there is a sandbox, and then the same for good."""
        return self._ref

    async def working_dir(self) -> str:
        """Where commands start."""
        await self._sandbox()
        return HOME

    async def run(
        self,
        command: WorkspaceCommand,
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        """Runs a text with a shell, a sequence without. Default of `timeout`: the profile's.

        Raises `WorkspaceOutputLimitError` for a command that writes more than the profile's `max_spool_bytes` (of `harness`
        256 MiB), which ends it.
        """
        if isinstance(command, str) != shell:
            raise TypeError("a text needs shell=True, and a sequence shell=False")
        if timeout is not None and not 0 < timeout < float("inf"):
            raise ValueError("timeout must be a positive finite number or None")
        argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
        sandbox = await self._sandbox()
        try:
            result = await Posix(sandbox).run(argv, env=env, timeout=timeout)
        except CommandTimedOut as error:
            result = error.result
            raise WorkspaceTimeoutError(error.message, stdout=result.stdout, stderr=result.stderr) from error
        except (CommandNotAllowed, ApprovalDenied, AwaitingApproval) as error:
            # For the model, as a shell would say it.
            return CommandResult(exit_code=126, stdout="", stderr=f"{error.message}\n")
        except (NotFound, RunNotReady) as error:
            raise WorkspaceUnavailableError(str(error)) from error
        except CommandStopped as error:
            if error.result.ended_by == OUTPUT_LIMIT:
                raise _cut(error.result, "the command wrote more output than its profile allows, and was ended") from error
            if await sandbox.is_running():
                raise
            raise WorkspaceUnavailableError(str(error)) from error
        if result.omitted_bytes:
            raise _cut(result, f"{result.omitted_bytes} bytes of the command's output were not kept")
        code = result.exit_code if result.exit_code is not None else -1
        return CommandResult(exit_code=code, stdout=result.stdout, stderr=result.stderr)

    async def _sandbox(self) -> AsyncSandbox:
        if self._attaching is None or (self._attaching.done() and _failed(self._attaching)):
            self._attaching = asyncio.create_task(self._attach())
        # Goes on when one of those who wait for it is cancelled.
        return await asyncio.shield(self._attaching)

    async def _attach(self) -> AsyncSandbox:
        if self._ref is None:
            sandbox = await AsyncSandbox.create(
                profile=self._profile,
                image=self._image,
                lease=self._lease,
                keep_alive=self._lease is not None,
                agent_id="pydantic-ai",
                wait_for_approval=self._wait_for_approval,
            )
            self._ref = WorkspaceRef(provider=PROVIDER, id=sandbox.run_id)
            return sandbox
        try:
            sandbox = await AsyncSandbox.connect(self._ref.id, wait_for_approval=self._wait_for_approval)
        except NotFound as error:
            raise WorkspaceUnavailableError(str(error)) from error
        if not await sandbox.is_running():
            await sandbox.close()
            raise WorkspaceUnavailableError(f"the run {self._ref.id} has ended")
        await renew(sandbox)
        return sandbox


def _cut(result: Result, told: str) -> WorkspaceOutputLimitError:
    return WorkspaceOutputLimitError(
        f"{told}; redirect it to a file and read part of it instead",
        limit=len(result.stdout_bytes) + len(result.stderr_bytes),
        stdout=_output.head(result.stdout_bytes, PREVIEW),
        stderr=_output.head(result.stderr_bytes, PREVIEW),
    )


def _failed(task: asyncio.Task[AsyncSandbox]) -> bool:
    return task.cancelled() or task.exception() is not None


async def delete_workspace(ref: WorkspaceRef) -> None:
    """Ends the sandbox and deletes its workspace. One that is gone is no error."""
    with suppress(NotFound):
        await (await AsyncSandbox.connect(ref.id)).kill(delete_workspace=True)
