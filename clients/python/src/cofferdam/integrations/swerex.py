"""SWE-ReX: `deployment=CofferdamDeployment(profile=…, image=…)`, or `CofferdamDeploymentConfig(…).get_deployment()`.

A call that needs a person's consent raises `ApprovalRequired`, which says how to decide; with `wait_for_approval=True` it
waits instead.
"""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from swerex.deployment.abstract import AbstractDeployment
from swerex.deployment.hooks.abstract import CombinedDeploymentHook, DeploymentHook
from swerex.exceptions import (
    BashIncorrectSyntaxError,
    CommandTimeoutError,
    DeploymentNotStartedError,
    DeploymentStartupError,
    NonZeroExitCodeError,
    SessionDoesNotExistError,
    SessionExistsError,
)
from swerex.runtime.abstract import (
    AbstractRuntime,
    Action,
    BashAction,
    BashInterruptAction,
    BashObservation,
    CloseBashSessionResponse,
    CloseResponse,
    CloseSessionRequest,
    CloseSessionResponse,
    Command,
    CommandResponse,
    CreateBashSessionResponse,
    CreateSessionRequest,
    CreateSessionResponse,
    IsAliveResponse,
    Observation,
    ReadFileRequest,
    ReadFileResponse,
    UploadRequest,
    UploadResponse,
    WriteFileRequest,
    WriteFileResponse,
)
from swerex.utils.log import get_logger
from typing_extensions import Self

from cofferdam import ApprovalRequired, AsyncSandbox, Bind, Clone, CofferdamError, Managed, Overlay, SessionResult
from cofferdam._async.posix import Posix
from cofferdam.errors import ApprovalDenied, AwaitingApproval, CommandNotAllowed, CommandTimedOut
from cofferdam.integrations._archive import upload
from cofferdam.integrations._lease import LEASE
from cofferdam.integrations._session import BashSession
from cofferdam.integrations._shell import CANNOT_EXECUTE

# Seconds for the answer of a daemon that is asked whether it lives.
ALIVE_TIMEOUT = 10.0
# Seconds for the check of a command's syntax.
SYNTAX_TIMEOUT = 60.0

# Answers for the model: the command was not made.
_REFUSED = (CommandNotAllowed, ApprovalDenied, AwaitingApproval)
_MERGED = ("/bin/sh", "-c", 'exec "$@" 2>&1', "sh")


class CofferdamRuntime(AbstractRuntime):
    """A sandbox as SWE-ReX uses it. Sessions need an image with bash, uploads one with tar."""

    def __init__(self, sandbox: AsyncSandbox, *, logger: logging.Logger | None = None) -> None:
        """The caller makes and ends the sandbox; `close` ends the sessions."""
        self.sandbox = sandbox
        self.logger = logger or get_logger("rex-runtime")
        self._posix = Posix(sandbox)
        self._sessions: dict[str, BashSession] = {}

    async def is_alive(self, *, timeout: float | None = None) -> IsAliveResponse:
        try:
            alive = await asyncio.wait_for(self.sandbox.is_running(), timeout or ALIVE_TIMEOUT)
        except (CofferdamError, asyncio.TimeoutError) as error:
            return IsAliveResponse(is_alive=False, message=str(error))
        return IsAliveResponse(is_alive=alive, message="" if alive else "the run has ended")

    async def create_session(self, request: CreateSessionRequest) -> CreateSessionResponse:
        if request.session in self._sessions:
            raise SessionExistsError(f"session {request.session!r} exists already")
        session = await BashSession.open(self.sandbox)
        self._sessions[request.session] = session
        output = ""
        for path in request.startup_source:
            shown = await session.run(f"source {path}", timeout=request.startup_timeout)
            output += shown.output
            if shown.state != "done":
                await self._end(request.session)
                raise CommandTimeoutError(f"{path} could not be sourced in {request.startup_timeout} seconds: {output}")
        return CreateBashSessionResponse(output=output)

    async def run_in_session(self, action: Action) -> Observation:
        session = self._session(action.session)
        if isinstance(action, BashInterruptAction):
            shown = await session.interrupt(timeout=action.timeout, attempts=action.n_retry, expect=action.expect)
            await self._check_answered(shown, action.session, "the session could not be interrupted")
            return BashObservation(output=shown.output.strip(), exit_code=0, expect_string=_matched(action.expect, shown))
        try:
            if action.is_interactive_command or action.is_interactive_quit:
                return await self._interact(session, action)
            return await self._run(session, action)
        except _REFUSED as error:
            if action.check == "raise":
                raise _failed(action.command, CANNOT_EXECUTE, error.message, action.error_msg) from error
            code = None if action.check == "ignore" else CANNOT_EXECUTE
            return BashObservation(output=f"{error.message}\n", exit_code=code)

    async def close_session(self, request: CloseSessionRequest) -> CloseSessionResponse:
        self._session(request.session)
        await self._end(request.session)
        return CloseBashSessionResponse()

    async def execute(self, command: Command) -> CommandResponse:
        argv = command.command if isinstance(command.command, list) else [command.command]
        if command.shell:
            argv = ["/bin/sh", "-c", *argv]
        if command.env is not None:
            # In place of the run's own, not beside it.
            argv = ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in command.env.items()), *argv]
        if command.merge_output_streams:
            argv = [*_MERGED, *argv]
        try:
            result = await self._posix.run(argv, cwd=command.cwd, timeout=command.timeout)
        except CommandTimedOut as error:
            raise CommandTimeoutError(_late(command.command, command.timeout)) from error
        except _REFUSED as error:
            # For the model, as a shell would say it.
            response = CommandResponse(stderr=error.message, exit_code=CANNOT_EXECUTE)
        else:
            stdout, stderr = (
                written.decode(errors="backslashreplace") for written in (result.stdout_bytes, result.stderr_bytes)
            )
            response = CommandResponse(stdout=stdout, stderr=stderr, exit_code=result.exit_code)
        if command.check and response.exit_code != 0:
            told = f"{response.stdout}{response.stderr}"
            raise _failed(command.command, response.exit_code, told, command.error_msg)
        return response

    async def read_file(self, request: ReadFileRequest) -> ReadFileResponse:
        data = await self._posix.read(request.path)
        return ReadFileResponse(content=data.decode(request.encoding or "utf-8", request.errors or "strict"))

    async def write_file(self, request: WriteFileRequest) -> WriteFileResponse:
        await self._posix.write(request.path, request.content.encode())
        return WriteFileResponse()

    async def upload(self, request: UploadRequest) -> UploadResponse:
        await upload(self.sandbox, Path(request.source_path), request.target_path)
        return UploadResponse()

    async def close(self) -> CloseResponse:
        for name in list(self._sessions):
            await self._end(name)
        return CloseResponse()

    def _session(self, name: str) -> BashSession:
        if name not in self._sessions:
            raise SessionDoesNotExistError(f"there is no session {name!r}")
        return self._sessions[name]

    async def _end(self, name: str) -> None:
        await self._sessions.pop(name).close()

    async def _run(self, session: BashSession, action: BashAction) -> BashObservation:
        if session.busy:
            raise CommandTimeoutError("the previous command still runs in this session: interrupt it, or close the session")
        await self._check_syntax(action.command)
        shown = await session.run(action.command, timeout=action.timeout, expect=action.expect)
        await self._check_answered(shown, action.session, _late(action.command, action.timeout))
        if action.check == "raise" and shown.exit_code not in (0, None):
            raise _failed(action.command, shown.exit_code, shown.output, action.error_msg)
        code = None if action.check == "ignore" else shown.exit_code
        return BashObservation(output=shown.output, exit_code=code, expect_string=_matched(action.expect, shown))

    async def _interact(self, session: BashSession, action: BashAction) -> BashObservation:
        """The end of a program, or its prompt, is all that tells that it has done something: there is no exit code."""
        give = session.type if session.busy else session.run
        shown = await give(action.command, timeout=action.timeout, expect=action.expect)
        await self._check_answered(shown, action.session, _late(action.command, action.timeout))
        output = shown.output
        if output.startswith(action.command):
            # Some programs echo by themselves.
            output = output.removeprefix(action.command).lstrip("\r\n")
        return BashObservation(output=output, exit_code=0, expect_string=_matched(action.expect, shown))

    async def _check_answered(self, shown: SessionResult, session: str, late: str) -> None:
        if shown.state == "running":
            raise CommandTimeoutError(f"{late}; output so far: {shown.output!r}")
        if shown.state in ("ended", "unanswered"):
            await self._end(session)
            raise SessionDoesNotExistError(
                f"the shell has ended with {shown.exit_code}, and the session with it: {shown.output}"
            )

    async def _check_syntax(self, command: str) -> None:
        checked = await self._posix.run(["bash", "-n"], stdin=command, timeout=SYNTAX_TIMEOUT)
        if not checked.ok:
            extra = {"bash_stdout": checked.stdout, "bash_stderr": checked.stderr}
            raise BashIncorrectSyntaxError(f"{command!r} is not valid shell code: {checked.stderr}", extra_info=extra)


def _matched(expect: Sequence[str], shown: SessionResult) -> str:
    return "" if shown.matched is None else expect[shown.matched]


def _late(command: object, timeout: float | None) -> str:
    return f"{command!r} took more than {'the profile allows' if timeout is None else f'{timeout} seconds'}"


def _failed(command: object, code: int | None, output: str, prefix: str) -> NonZeroExitCodeError:
    told = f"{command!r} ended with {code}: {output!r}"
    return NonZeroExitCodeError(f"{prefix}: {told}" if prefix else told)


class CofferdamDeploymentConfig(BaseModel):
    """How a sandbox is made."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["cofferdam"] = "cofferdam"
    profile: str = "harness"
    image: str | None = None
    workspace: Managed | Bind | Clone | Overlay | None = None
    env: dict[str, str] = {}
    #: Seconds after which the daemon stops the sandbox.
    timeout: float | None = None
    #: Seconds that the sandbox outlives its program, which renews this lease until `stop`; None: without a bound.
    lease: float | None = LEASE
    #: Wait for a person where one has to consent, instead of `ApprovalRequired`.
    wait_for_approval: bool = False

    def get_deployment(self) -> "CofferdamDeployment":
        """One that has not been started."""
        return CofferdamDeployment.from_config(self)


class CofferdamDeployment(AbstractDeployment):
    """One sandbox, from `start` to `stop`. Arguments are the fields of `CofferdamDeploymentConfig`."""

    def __init__(self, *, logger: logging.Logger | None = None, **kwargs: Any) -> None:
        self.logger = logger or get_logger("rex-deploy")
        self._config = CofferdamDeploymentConfig(**kwargs)
        self._hooks = CombinedDeploymentHook()
        self._runtime: CofferdamRuntime | None = None

    @classmethod
    def from_config(cls, config: CofferdamDeploymentConfig) -> Self:
        return cls(**dict(config))

    def add_hook(self, hook: DeploymentHook) -> None:
        self._hooks.add_hook(hook)

    async def is_alive(self, *, timeout: float | None = None) -> IsAliveResponse:
        """Raises `DeploymentNotStartedError`."""
        return await self.runtime.is_alive(timeout=timeout)

    async def start(self, *args: Any, **kwargs: Any) -> None:
        """Makes the sandbox. Raises `DeploymentStartupError`, which says why there is none."""
        if self._runtime is not None:
            return
        config = self._config
        self._hooks.on_custom_step("Starting sandbox")
        try:
            sandbox = await AsyncSandbox.create(
                profile=config.profile,
                image=config.image,
                workspace=config.workspace,
                env=config.env,
                timeout=config.timeout,
                lease=config.lease,
                keep_alive=config.lease is not None,
                agent_id="swe-rex",
                wait_for_approval=config.wait_for_approval,
            )
        except ApprovalRequired:
            raise
        except CofferdamError as error:
            raise DeploymentStartupError(str(error)) from error
        self._runtime = CofferdamRuntime(sandbox, logger=self.logger)

    async def stop(self, *args: Any, **kwargs: Any) -> None:
        """Ends the sandbox, and deletes its workspace if that is new."""
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            await runtime.close()
            await runtime.sandbox.kill()

    @property
    def runtime(self) -> CofferdamRuntime:
        """Raises `DeploymentNotStartedError`."""
        if self._runtime is None:
            raise DeploymentNotStartedError
        return self._runtime
