"""OpenAI Agents: tools for a plain `Agent`, and a client for `SandboxAgent`.

```python
ShellTool(executor=CofferdamShellExecutor(sandbox))
ApplyPatchTool(editor=CofferdamApplyPatchEditor(sandbox))
options = CofferdamSandboxClientOptions(profile="harness")
RunConfig(sandbox=SandboxRunConfig(client=CofferdamSandboxClient(), options=options))
```

A call that needs a person's consent raises `ApprovalRequired`, which says how to decide, unless the sandbox was made with
`wait_for_approval`, which is an option of the client, too.

Where the profile allows `process`, as `harness` does, a command that takes longer than its tool waits runs on, with a
terminal if the model asks for one, and `write_stdin` goes on with it. Elsewhere it is ended. A run has one user: `user=` and
`run_as` are refused.

With the option `snapshots="checkpoint"` a snapshot of the workspace is the id of a checkpoint, which the daemon keeps, and
not an archive of all files.
"""

import io
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NoReturn
from uuid import uuid4

from agents import (
    ApplyPatchOperation,
    ApplyPatchResult,
    ShellCallOutcome,
    ShellCommandOutput,
    ShellCommandRequest,
    ShellResult,
)
from agents.sandbox import Manifest
from agents.sandbox.errors import (
    ConfigurationError,
    ErrorCode,
    ExecTimeoutError,
    ExecTransportError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
    WorkspaceStartError,
)
from agents.sandbox.session import SandboxSession
from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
from agents.sandbox.session.pty_types import PtyExecUpdate
from agents.sandbox.session.sandbox_client import BaseSandboxClient, BaseSandboxClientOptions
from agents.sandbox.session.sandbox_session_state import SandboxSessionState
from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot
from agents.sandbox.types import ExecResult, User

from cofferdam import AsyncSandbox, v1
from cofferdam._async.posix import Posix
from cofferdam.errors import (
    ApprovalDenied,
    ApprovalRequired,
    AwaitingApproval,
    CofferdamError,
    CommandError,
    CommandNotAllowed,
    CommandTimedOut,
    DaemonUnreachable,
    InfrastructureError,
    NotFound,
    PreconditionFailed,
    RunLost,
)
from cofferdam.integrations._lease import renew
from cofferdam.integrations._terminals import Terminals
from cofferdam.types import Checkpoint, Managed

BACKEND = "cofferdam"
# Before the id of a checkpoint that stands for an archive. No archive of tar begins so: its first bytes are a name.
REFERENCE = b"\0cofferdam checkpoint "
# The directory that a checkpoint has.
WHOLE = Path("/workspace")
# Answers for the model: the command was not made.
_REFUSED = (CommandNotAllowed, ApprovalDenied, AwaitingApproval)


class CofferdamShellExecutor:
    """Runs the commands of a `ShellTool`, one after the other, each with the image's shell.

    The SDK gives the model each error that this raises, also an `InfrastructureError`. Ask
    `sandbox.failed_by_infrastructure()` before a result counts.
    """

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox

    async def __call__(self, request: ShellCommandRequest) -> ShellResult:
        action = request.data.action
        timeout = action.timeout_ms / 1000 if action.timeout_ms else None
        output = [await self._run(command, timeout) for command in action.commands]
        return ShellResult(output=output, max_output_length=action.max_output_length)

    async def _run(self, command: str, timeout: float | None) -> ShellCommandOutput:
        try:
            result = await self._sandbox.commands.run(command, timeout=timeout)
            outcome = ShellCallOutcome(type="exit", exit_code=result.exit_code)
        except InfrastructureError:
            raise
        except CommandError as error:
            result = error.result
            kind: Literal["exit", "timeout"] = "timeout" if isinstance(error, CommandTimedOut) else "exit"
            outcome = ShellCallOutcome(type=kind, exit_code=result.exit_code)
        except _REFUSED as error:
            told = ShellCallOutcome(type="exit", exit_code=126)
            return ShellCommandOutput(stderr=error.message, outcome=told, command=command)
        return ShellCommandOutput(stdout=result.stdout, stderr=result.stderr, outcome=outcome, command=command)


class CofferdamApplyPatchEditor:
    """Makes the changes of an `ApplyPatchTool`, each whole or not at all.

    A change that does not fit is an answer for the model. So is each error that this raises, as those of
    `CofferdamShellExecutor` are.
    """

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox

    async def create_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        """Adds a file."""
        return await self._apply(f"*** Add File: {operation.path}\n{_lines(operation.diff)}", f"created {operation.path}")

    async def update_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        """Changes a file, and moves it if it is to have another name."""
        moved = f"*** Move to: {operation.move_to}\n" if operation.move_to else ""
        change = f"*** Update File: {operation.path}\n{moved}{_lines(operation.diff)}"
        return await self._apply(change, f"updated {operation.path}")

    async def delete_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        """Removes a file, to the run's trash."""
        return await self._apply(f"*** Delete File: {operation.path}\n", f"deleted {operation.path}")

    async def _apply(self, change: str, done: str) -> ApplyPatchResult:
        try:
            await self._sandbox.patch(f"*** Begin Patch\n{change}*** End Patch\n")
        except (ApprovalRequired, InfrastructureError):
            raise
        except CofferdamError as error:
            return ApplyPatchResult(status="failed", output=error.message)
        return ApplyPatchResult(status="completed", output=done)


def _lines(diff: str | None) -> str:
    return "" if not diff else diff if diff.endswith("\n") else f"{diff}\n"


class CofferdamSandboxClientOptions(BaseSandboxClientOptions):
    """How a sandbox is made."""

    type: Literal["cofferdam"] = "cofferdam"
    profile: str = "harness"
    image: str | None = None
    #: Seconds after which the daemon stops it.
    timeout: int | None = None
    #: Seconds that it outlives its session and this process, which renews the lease; None: it stays until `delete`.
    lease: int | None = None
    #: Wait for a person where one has to consent, instead of `ApprovalRequired`.
    wait_for_approval: bool = False
    #: Form of the workspace's snapshots: an archive, or the id of a checkpoint. That one also has `/state` and changes of a
    #: writable root, and lasts as long as the run of the session, until `delete`. Of a session's checkpoints the last two
    #: are kept. An archive is made all the same of a workspace with ephemeral entries, or with another root.
    snapshots: Literal["archive", "checkpoint"] = "archive"


class CofferdamSandboxSessionState(SandboxSessionState):
    """Enough to go on with a sandbox."""

    type: Literal["cofferdam"] = "cofferdam"
    profile: str = "harness"
    image: str | None = None
    timeout: int | None = None
    lease: int | None = None
    wait_for_approval: bool = False
    run_id: str = ""
    snapshots: Literal["archive", "checkpoint"] = "archive"
    #: Those of this session that the daemon keeps, the oldest first.
    checkpoints: tuple[str, ...] = ()


class CofferdamSandboxSession(BaseSandboxSession):
    """A sandbox as `SandboxAgent` uses it.

    An `InfrastructureError` is the cause of the error that a method raises. The tools `exec_command` and `write_stdin` let
    it through to the caller of the agent. `apply_patch` and `view_image` give the model the text or the name of each error.
    """

    state: CofferdamSandboxSessionState

    def __init__(self, *, state: CofferdamSandboxSessionState, sandbox: AsyncSandbox) -> None:
        self.state = state
        self._use(sandbox)

    def _use(self, sandbox: AsyncSandbox) -> None:
        self.sandbox = sandbox
        self._posix = Posix(sandbox)
        self._terminals = Terminals(sandbox)
        self.state.run_id = sandbox.run_id

    def _prepare_exec_command(self, *command: str | Path, shell: bool | list[str], user: str | User | None) -> list[str]:
        _check_user(user, "exec")
        prepared: list[str] = super()._prepare_exec_command(*command, shell=shell, user=None)
        return prepared

    async def _exec_internal(self, *command: str | Path, timeout: float | None = None) -> ExecResult:
        argv = [str(part) for part in command]
        try:
            result = await self._posix.run(argv, timeout=timeout)
        except CommandTimedOut as error:
            context = {"stdout": error.result.stdout, "stderr": error.result.stderr}
            raise ExecTimeoutError(command=command, timeout_s=timeout, context=context, cause=error) from error
        except _REFUSED as error:
            return ExecResult(stdout=b"", stderr=f"{error.message}\n".encode(), exit_code=126)
        except InfrastructureError as error:
            _raise_failed(command, error)
        except CommandError as error:
            result = error.result
        except CofferdamError as error:
            _raise_failed(command, error)
        code = result.exit_code if result.exit_code is not None else -1
        return ExecResult(stdout=result.stdout_bytes, stderr=result.stderr_bytes, exit_code=code)

    def supports_pty(self) -> bool:
        return True

    async def pty_exec_start(
        self,
        *command: str | Path,
        timeout: float | None = None,
        shell: bool | list[str] = True,
        user: str | User | None = None,
        tty: bool = False,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        """Starts a process, and waits for `yield_time_s` for its end; `process_id` is None if it has come.

        Raises `ExecTransportError`, and for a profile that allows no processes one after which the SDK's own tool makes
        the command without: what such a profile allows.
        """
        argv = self._prepare_exec_command(*command, shell=shell, user=user)
        try:
            return await self._terminals.start(
                argv, timeout=timeout, tty=tty, seconds=yield_time_s, most_tokens=max_output_tokens
            )
        except _REFUSED as error:
            return PtyExecUpdate(
                process_id=None, output=f"{error.message}\n".encode(), exit_code=126, original_token_count=None
            )
        except NotFound as error:
            if not await self.sandbox.is_running():
                _raise_failed(command, error)
            return PtyExecUpdate(
                process_id=None, output=f"{error.message}\n".encode(), exit_code=127, original_token_count=None
            )
        except CofferdamError as error:
            _raise_failed(command, error)

    async def pty_write_stdin(
        self,
        *,
        session_id: int,
        chars: str,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        """Types into a terminal, or with no `chars` waits. Only one that was started with `tty=True` takes some."""
        try:
            return await self._terminals.write(session_id, chars, seconds=yield_time_s, most_tokens=max_output_tokens)
        except CofferdamError as error:
            _raise_failed(("write_stdin", str(session_id)), error)

    async def pty_terminate_all(self) -> None:
        """Ends the processes of this session."""
        await self._terminals.end_all()

    async def read(self, path: Path, *, user: str | User | None = None) -> io.IOBase:
        _check_user(user, "read")
        at = await self._validate_path_access(path)
        try:
            return io.BytesIO(await self._posix.read(str(at)))
        except FileNotFoundError as error:
            raise WorkspaceReadNotFoundError(path=at, cause=error) from error
        except ApprovalRequired:
            raise
        except (OSError, CofferdamError) as error:
            raise WorkspaceArchiveReadError(path=at, cause=error) from error

    async def write(self, path: Path, data: io.IOBase, *, user: str | User | None = None) -> None:
        _check_user(user, "write")
        at = await self._validate_path_access(path, for_write=True)
        content = data.read()
        try:
            await self._posix.write(str(at), content.encode() if isinstance(content, str) else bytes(content))
        except ApprovalRequired:
            raise
        except (OSError, CofferdamError) as error:
            raise WorkspaceArchiveWriteError(path=at, cause=error) from error

    async def running(self) -> bool:
        return await self.sandbox.is_running()

    async def persist_workspace(self) -> io.IOBase:
        root = self._workspace_root_path()
        whole = root == WHOLE and not self._persist_workspace_skip_relpaths()
        if self.state.snapshots == "checkpoint" and whole:
            return io.BytesIO(REFERENCE + (await self._checkpoint(root)).encode())
        skipped = [f"--exclude=./{path.as_posix()}" for path in sorted(self._persist_workspace_skip_relpaths())]
        packed = await self._exec_internal("tar", "-C", root, *skipped, "-cf", "-", ".")
        if not packed.ok():
            raise WorkspaceArchiveReadError(path=root, context={"stderr": packed.stderr.decode("utf-8", "replace")})
        return io.BytesIO(packed.stdout)

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        root = self._workspace_root_path()
        packed = bytes(data.read())
        if packed.startswith(REFERENCE):
            try:
                await self._restore(packed.removeprefix(REFERENCE).decode("utf-8", "replace"))
            except CofferdamError as error:
                raise WorkspaceArchiveWriteError(path=root, message=error.message, cause=error) from error
            return
        try:
            result = await self._posix.run(["tar", "-C", str(root), "-xf", "-"], stdin=packed)
        except ApprovalRequired:
            raise
        except CofferdamError as error:
            raise WorkspaceArchiveWriteError(path=root, cause=error) from error
        if not result.ok:
            raise WorkspaceArchiveWriteError(path=root, message=result.stderr)

    async def _checkpoint(self, root: Path) -> str:
        try:
            checkpoint = await self.sandbox.checkpoint("snapshot")
            # The newest one before it stays: this one may never be stored.
            for old in self.state.checkpoints[:-1]:
                await self._delete(old)
        except CofferdamError as error:
            raise WorkspaceArchiveReadError(path=root, context={"stderr": error.message}, cause=error) from error
        self.state.checkpoints = (*self.state.checkpoints[-1:], checkpoint)
        return checkpoint

    async def _delete(self, checkpoint: str) -> None:
        # It may be needed by another session that began on it, or be gone.
        with suppress(NotFound, PreconditionFailed):
            request = v1.DeleteCheckpointRequest(checkpoint_id=checkpoint)
            await self.sandbox.client.checkpoints.delete_checkpoint(request)

    async def _restore(self, checkpoint: str) -> None:
        """Gives the run the files of a checkpoint; a run that cannot have them is replaced by another one."""
        request = v1.GetRunCheckpointRequest(checkpoint_id=checkpoint)
        origin = (await self.sandbox.client.checkpoints.get_run_checkpoint(request)).checkpoint.run_id
        own = origin == self.sandbox.run_id
        if own:
            # Refused where a written root has changed since.
            with suppress(PreconditionFailed):
                await self._delete(await self.sandbox.restore(checkpoint))
                return
        await self._terminals.end_all()
        before, new = self.sandbox, await made(self.state, Checkpoint(checkpoint))
        self._use(new)
        # A run that is deleted takes its checkpoints with it.
        await (before.stop() if own else before.kill(delete_workspace=True))
        if own:
            await before.close()

    async def _after_shutdown(self) -> None:
        await self.sandbox.close()


def _check_user(user: str | User | None, op: Literal["exec", "read", "write"]) -> None:
    """Raises for any other than the run's own."""
    name = user.name if isinstance(user, User) else user
    if name:
        raise ConfigurationError(
            message=f"a run has one user, and {name!r} cannot be another one: leave out `user` and `run_as`",
            error_code=ErrorCode.SANDBOX_CONFIG_INVALID,
            op=op,
            context={"user": name},
            retryable=False,
        )


def _raise_failed(command: Sequence[str | Path], error: CofferdamError) -> NoReturn:
    """A person's consent is for the caller of the SDK, whose own errors say nothing of it."""
    if isinstance(error, ApprovalRequired):
        raise error
    # Where nothing was started; what a profile refuses for a process it may allow for a command. A person's no is for both.
    retry_safe = error.retry_safe and not isinstance(error, ApprovalDenied)
    context = {"retry_safe": retry_safe}
    # A command whose answer was lost may have been executed.
    retryable = retry_safe and isinstance(error, DaemonUnreachable)
    raise ExecTransportError(
        command=command, cause=error, message=str(error), context=context, retryable=retryable
    ) from error


class CofferdamSandboxClient(BaseSandboxClient[CofferdamSandboxClientOptions]):
    """Makes sandboxes for `SandboxAgent`. They stay, and can be resumed, until `delete`, or for their `lease`."""

    backend_id = BACKEND
    supports_default_options = True

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: CofferdamSandboxClientOptions | None = None,
    ) -> SandboxSession:
        wanted = options or CofferdamSandboxClientOptions()
        state = CofferdamSandboxSessionState(
            snapshot=resolve_snapshot(snapshot, str(uuid4())),
            manifest=self._validate_manifest_for_create(manifest or Manifest()),
            profile=wanted.profile,
            image=wanted.image,
            timeout=wanted.timeout,
            lease=wanted.lease,
            wait_for_approval=wanted.wait_for_approval,
            snapshots=wanted.snapshots,
        )
        return self._wrap_session(await self._made(state))

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        if not isinstance(state, CofferdamSandboxSessionState):
            raise TypeError("the state is of another backend")
        try:
            sandbox = await AsyncSandbox.connect(state.run_id, wait_for_approval=state.wait_for_approval)
            run = await sandbox.info()
            if run.state not in ("ready", "paused"):
                await sandbox.close()
                if run.failed_by_infrastructure and state.snapshot_fingerprint is None:
                    # There is nothing to restore, and a fresh sandbox is not the one that was lost.
                    raise RunLost(
                        f"the run {state.run_id} was lost, and the session has no snapshot: {run.failure}",
                        reason="RUN_LOST",
                        fault=run.fault,
                        evidence=run.evidence,
                    )
                raise NotFound(f"the run {state.run_id} has ended")
        except NotFound:
            # Its snapshot, if there is one, is restored into a new one.
            state.workspace_root_ready = False
            return self._wrap_session(await self._made(state))
        await renew(sandbox)
        session = CofferdamSandboxSession(state=state, sandbox=sandbox)
        session._set_start_state_preserved(True)
        return self._wrap_session(session)

    async def delete(self, session: SandboxSession) -> SandboxSession:
        inner = session._inner
        if not isinstance(inner, CofferdamSandboxSession):
            raise TypeError("the session is of another backend")
        await inner.sandbox.kill(delete_workspace=True)
        return session

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        return CofferdamSandboxSessionState.model_validate(payload)

    @staticmethod
    async def _made(state: CofferdamSandboxSessionState) -> CofferdamSandboxSession:
        root = Path(state.manifest.root)
        if not root.is_relative_to("/workspace"):
            raise WorkspaceStartError(path=root, message="the workspace of a sandbox is /workspace")
        return CofferdamSandboxSession(state=state, sandbox=await made(state, Managed()))


async def made(state: CofferdamSandboxSessionState, workspace: Managed | Checkpoint) -> AsyncSandbox:
    """A sandbox for a session, on this workspace."""
    return await AsyncSandbox.create(
        profile=state.profile,
        image=state.image,
        workspace=workspace,
        timeout=state.timeout,
        lease=state.lease,
        keep_alive=state.lease is not None,
        agent_id="openai-agents",
        wait_for_approval=state.wait_for_approval,
    )
