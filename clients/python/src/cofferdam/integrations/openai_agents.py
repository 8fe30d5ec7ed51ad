"""OpenAI Agents: tools for a plain `Agent`, and a client for `SandboxAgent`.

```python
ShellTool(executor=CofferdamShellExecutor(sandbox))
ApplyPatchTool(editor=CofferdamApplyPatchEditor(sandbox))
options = CofferdamSandboxClientOptions(profile="harness")
RunConfig(sandbox=SandboxRunConfig(client=CofferdamSandboxClient(), options=options))
```

A call that needs a person's consent raises `ApprovalRequired`, unless the sandbox was made with `wait_for_approval`. There
are no terminals: a command that takes longer than its tool waits is ended.
"""

import io
from pathlib import Path
from typing import Literal
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
    ExecTimeoutError,
    ExecTransportError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
    WorkspaceStartError,
)
from agents.sandbox.session import SandboxSession
from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
from agents.sandbox.session.sandbox_client import BaseSandboxClient, BaseSandboxClientOptions
from agents.sandbox.session.sandbox_session_state import SandboxSessionState
from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot
from agents.sandbox.types import ExecResult, User

from cofferdam import AsyncSandbox
from cofferdam._async.posix import Posix
from cofferdam.errors import (
    ApprovalRequired,
    CofferdamError,
    CommandError,
    CommandNotAllowed,
    CommandTimedOut,
    DaemonUnreachable,
    NotFound,
)

BACKEND = "cofferdam"


class CofferdamShellExecutor:
    """Runs the commands of a `ShellTool`, one after the other, each with the image's shell."""

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
        except CommandError as error:
            result = error.result
            kind: Literal["exit", "timeout"] = "timeout" if isinstance(error, CommandTimedOut) else "exit"
            outcome = ShellCallOutcome(type=kind, exit_code=result.exit_code)
        except CommandNotAllowed as error:
            told = ShellCallOutcome(type="exit", exit_code=126)
            return ShellCommandOutput(stderr=error.message, outcome=told, command=command)
        return ShellCommandOutput(stdout=result.stdout, stderr=result.stderr, outcome=outcome, command=command)


class CofferdamApplyPatchEditor:
    """Makes the changes of an `ApplyPatchTool`, each whole or not at all.

    A change that does not fit is an answer for the model.
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
        except (ApprovalRequired, DaemonUnreachable):
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


class CofferdamSandboxSessionState(SandboxSessionState):
    """Enough to go on with a sandbox."""

    type: Literal["cofferdam"] = "cofferdam"
    profile: str = "harness"
    image: str | None = None
    timeout: int | None = None
    run_id: str = ""


class CofferdamSandboxSession(BaseSandboxSession):
    """A sandbox as `SandboxAgent` uses it."""

    state: CofferdamSandboxSessionState

    def __init__(self, *, state: CofferdamSandboxSessionState, sandbox: AsyncSandbox) -> None:
        self.state = state
        self.sandbox = sandbox
        self._posix = Posix(sandbox)

    async def _exec_internal(self, *command: str | Path, timeout: float | None = None) -> ExecResult:
        argv = [str(part) for part in command]
        try:
            result = await self._posix.run(argv, timeout=timeout)
        except CommandTimedOut as error:
            context = {"stdout": error.result.stdout, "stderr": error.result.stderr}
            raise ExecTimeoutError(command=command, timeout_s=timeout, context=context, cause=error) from error
        except CommandNotAllowed as error:
            return ExecResult(stdout=b"", stderr=f"{error.message}\n".encode(), exit_code=126)
        except CommandError as error:
            result = error.result
        except CofferdamError as error:
            retryable = isinstance(error, DaemonUnreachable)
            told = str(error)
            raise ExecTransportError(command=command, cause=error, message=told, retryable=retryable) from error
        code = result.exit_code if result.exit_code is not None else -1
        return ExecResult(stdout=result.stdout_bytes, stderr=result.stderr_bytes, exit_code=code)

    async def read(self, path: Path, *, user: str | User | None = None) -> io.IOBase:
        at = await self._validate_path_access(path)
        try:
            return io.BytesIO(await self._posix.read(str(at)))
        except FileNotFoundError as error:
            raise WorkspaceReadNotFoundError(path=at, cause=error) from error
        except (OSError, CofferdamError) as error:
            raise WorkspaceArchiveReadError(path=at, cause=error) from error

    async def write(self, path: Path, data: io.IOBase, *, user: str | User | None = None) -> None:
        at = await self._validate_path_access(path, for_write=True)
        content = data.read()
        try:
            await self._posix.write(str(at), content.encode() if isinstance(content, str) else bytes(content))
        except (OSError, CofferdamError) as error:
            raise WorkspaceArchiveWriteError(path=at, cause=error) from error

    async def running(self) -> bool:
        return await self.sandbox.is_running()

    async def persist_workspace(self) -> io.IOBase:
        root = self._workspace_root_path()
        skipped = [f"--exclude=./{path.as_posix()}" for path in sorted(self._persist_workspace_skip_relpaths())]
        packed = await self._exec_internal("tar", "-C", root, *skipped, "-cf", "-", ".")
        if not packed.ok():
            raise WorkspaceArchiveReadError(path=root, context={"stderr": packed.stderr.decode("utf-8", "replace")})
        return io.BytesIO(packed.stdout)

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        root = self._workspace_root_path()
        packed = data.read()
        try:
            result = await self._posix.run(["tar", "-C", str(root), "-xf", "-"], stdin=bytes(packed))
        except CofferdamError as error:
            raise WorkspaceArchiveWriteError(path=root, cause=error) from error
        if not result.ok:
            raise WorkspaceArchiveWriteError(path=root, message=result.stderr)

    async def _after_shutdown(self) -> None:
        await self.sandbox.close()


class CofferdamSandboxClient(BaseSandboxClient[CofferdamSandboxClientOptions]):
    """Makes sandboxes for `SandboxAgent`. They stay, and can be resumed, until `delete`."""

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
        )
        return self._wrap_session(await self._made(state))

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        if not isinstance(state, CofferdamSandboxSessionState):
            raise TypeError("the state is of another backend")
        try:
            sandbox = await AsyncSandbox.connect(state.run_id)
            if not await sandbox.is_running():
                await sandbox.close()
                raise NotFound(f"the run {state.run_id} has ended")
        except NotFound:
            # Its snapshot, if there is one, is restored into a new one.
            state.workspace_root_ready = False
            return self._wrap_session(await self._made(state))
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
        sandbox = await AsyncSandbox.create(
            profile=state.profile, image=state.image, timeout=state.timeout, agent_id="openai-agents"
        )
        state.run_id = sandbox.run_id
        return CofferdamSandboxSession(state=state, sandbox=sandbox)
