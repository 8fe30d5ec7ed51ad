"""Inspect AI: `sandbox="cofferdam"`, or `sandbox=("cofferdam", CofferdamSandboxConfig(profile=…, image=…))`.

At the command line the same options are in a file of YAML: `inspect eval task.py --sandbox cofferdam:sandbox.yaml`.
A Compose file is taken, too, by its name or from beside the task: its service `default` is the sandbox, and the others are
companions.

Tools that need a process which outlives its command (`exec_remote`, the text editor, the bash session, MCP servers in the
sandbox) do not work: a command's processes end with it. A call that needs a person's consent raises `ApprovalRequired`,
which says how to decide; with `wait_for_approval=True` it waits instead.
"""

import errno
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, overload

import yaml
from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    sandboxenv,
)
from inspect_ai.util._sandbox.compose import COMPOSE_FILES, ComposeConfig, is_compose_yaml, is_dockerfile
from inspect_ai.util._sandbox.environment import SandboxUserUnsupportedError
from inspect_ai.util._sandbox.events import SandboxTimeoutError
from pydantic import BaseModel, ConfigDict, model_validator
from typing_extensions import Self, override

from cofferdam import AsyncSandbox, CommandResult, _output
from cofferdam._async.posix import Posix
from cofferdam.errors import AwaitingApproval, CommandStopped, CommandTimedOut, Denied, NotFound
from cofferdam.integrations import _compose
from cofferdam.integrations._bases import Origin, TaskBases, workspace
from cofferdam.integrations._shell import OUTPUT_LIMIT

# Seconds for each of the repetitions that a command may be given whose time was over.
RETRIES = (60, 30)

_bases = TaskBases()


class CofferdamSandboxConfig(BaseModel):
    """How a sample's sandbox is made."""

    model_config = ConfigDict(frozen=True)

    profile: str = "harness"
    image: str | None = None
    env: dict[str, str] = {}
    #: Id of the base that each sample begins on.
    base: str | None = None
    #: A git repository of the daemon's host, and a branch or commit of it. The daemon makes a base of it once, which stays.
    repository: str | None = None
    revision: str | None = None
    #: A directory of the daemon's host. The daemon makes a base of it, which is deleted after the task.
    directory: str | None = None
    #: A Compose file. `image` and `env` here come before those of its service `default`.
    compose: str | None = None
    #: Seconds after which the daemon stops it.
    timeout: int | None = None
    #: Seconds that it outlives this process, which renews the lease; None: without a bound.
    lease: int | None = None
    #: Wait for a person where one has to consent, instead of `ApprovalRequired`.
    wait_for_approval: bool = False

    def __hash__(self) -> int:
        # Inspect keeps sandboxes by it.
        return hash(self.model_dump_json())

    @property
    def origin(self) -> Origin:
        """Files that each sample begins with."""
        return Origin(self.base, self.repository, self.revision, self.directory)

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        self.origin.checked()
        return self

    @classmethod
    def of(cls, config: SandboxEnvironmentConfigType | None) -> "CofferdamSandboxConfig":
        """Reads a file if `config` is its name. Raises `OSError`, and `ValueError` for a file with other options."""
        if isinstance(config, cls):
            return config
        if config is None:
            return cls()
        if isinstance(config, ComposeConfig):
            return cls._with_options(_project(config).options)
        if not isinstance(config, str):
            raise ValueError(
                f"the sandbox cofferdam takes a CofferdamSandboxConfig or a file, not a {type(config).__name__}"
            )
        if is_dockerfile(config):
            raise ValueError(f"{config}: no image is built for a sandbox; have an operator do it by `coffer image build`")
        if is_compose_yaml(config):
            return cls._with_options({**_project(config).options, "compose": config})
        try:
            found: CofferdamSandboxConfig = cls._with_options(yaml.safe_load(Path(config).read_text()) or {})
            # Relative to the file that names it.
            beside = None if found.compose is None else str(Path(config).parent / found.compose)
            with_file: CofferdamSandboxConfig = found.model_copy(update={"compose": beside})
            return with_file
        except (yaml.YAMLError, ValueError, TypeError) as error:
            raise ValueError(f"{config} has no valid options of CofferdamSandboxConfig: {error}") from error

    @classmethod
    def _with_options(cls, options: Mapping[str, Any]) -> "CofferdamSandboxConfig":
        # A misspelt option has no effect otherwise.
        if unknown := sorted(set(options) - set(cls.model_fields)):
            raise ValueError(f"there is no option {', '.join(map(str, unknown))}")
        found: CofferdamSandboxConfig = cls.model_validate(options)
        return found


def _project(compose: str | ComposeConfig) -> _compose.Project:
    """What a Compose file says, whose service `default` is the sandbox, or the one with `x-default: true`."""

    def is_main(name: str, service: Mapping[str, Any]) -> bool:
        return name == "default" or service.get("x-default") is True

    if isinstance(compose, str):
        return _compose.read(Path(compose), is_main)
    return _compose.parse(compose.model_dump(by_alias=True, exclude_none=True), is_main)


@sandboxenv(name="cofferdam")
class CofferdamSandboxEnvironment(SandboxEnvironment):
    """One sandbox for each sample, `/workspace` its working directory."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        super().__init__()
        self.sandbox = sandbox
        self._posix = Posix(sandbox)

    @override
    @classmethod
    def config_files(cls) -> list[str]:
        return list(COMPOSE_FILES)

    @override
    @classmethod
    async def task_init(cls, task_name: str, config: SandboxEnvironmentConfigType | None) -> None:
        await _bases.enter(CofferdamSandboxConfig.of(config).origin)

    @override
    @classmethod
    async def task_cleanup(cls, task_name: str, config: SandboxEnvironmentConfigType | None, cleanup: bool) -> None:
        await _bases.leave(CofferdamSandboxConfig.of(config).origin, delete=cleanup)

    @override
    @classmethod
    async def sample_init(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        wanted = CofferdamSandboxConfig.of(config)
        compose = config if isinstance(config, ComposeConfig) else wanted.compose
        project = _compose.Project() if compose is None else _project(compose)
        main = project.main
        sandbox = await AsyncSandbox.create(
            profile=wanted.profile,
            image=wanted.image or main.image,
            workspace=workspace(await _bases.base_id(wanted.origin)),
            env={**main.env, **wanted.env},
            limits=main.limits,
            companions=project.companions,
            timeout=wanted.timeout,
            lease=wanted.lease,
            keep_alive=wanted.lease is not None,
            agent_id="inspect",
            metadata={"inspect.task": task_name[:256]},
            wait_for_approval=wanted.wait_for_approval,
        )
        return {main.name: cls(sandbox)}

    @override
    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        for environment in environments.values():
            await environment.as_type(CofferdamSandboxEnvironment).sandbox.kill()

    @override
    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        return CofferdamSandboxConfig(**config)

    @override
    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:
        async for run in AsyncSandbox.list("ready"):
            if id in (None, run.run_id) and "inspect.task" in run.metadata:
                # One may end meanwhile.
                with suppress(NotFound):
                    await (await AsyncSandbox.connect(run.run_id)).kill(delete_workspace=True)

    @override
    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        if user is not None:
            raise SandboxUserUnsupportedError(f"a run has one user; {user} cannot be another one")
        attempts = [timeout]
        if timeout is not None and timeout_retry:
            attempts += [min(timeout, most) for most in RETRIES]
        for number, seconds in enumerate(attempts, 1):
            try:
                result = await self._posix.run(cmd, cwd=cwd, env=env, stdin=input, timeout=seconds)
            except CommandTimedOut as error:
                if number == len(attempts):
                    raise SandboxTimeoutError(error.message, error.result.stdout) from error
            except CommandStopped as error:
                if error.result.ended_by != OUTPUT_LIMIT:
                    raise
                raise self._too_much(error.result.stdout_bytes or error.result.stderr_bytes) from error
            except (Denied, AwaitingApproval) as error:
                raise PermissionError(errno.EACCES, error.message) from error
            else:
                return self._judged(result)
        raise AssertionError("the last attempt returns or raises")

    @staticmethod
    def _judged(result: CommandResult) -> ExecResult[str]:
        code = result.exit_code if result.exit_code is not None else -1
        # As shells say it of a program that cannot be executed.
        if code == 126 and "ermission denied" in result.stderr:
            raise PermissionError(errno.EACCES, result.stderr.strip())
        for written in (result.stdout_bytes, result.stderr_bytes):
            if len(written) > SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE:
                raise CofferdamSandboxEnvironment._too_much(written)
        return ExecResult(success=code == 0, returncode=code, stdout=result.stdout, stderr=result.stderr)

    @staticmethod
    def _too_much(written: bytes) -> OutputLimitExceededError:
        most = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        told = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR
        return OutputLimitExceededError(told, _output.tail(written, most))

    @override
    async def write_file(self, file: str, contents: str | bytes) -> None:
        data = contents.encode() if isinstance(contents, str) else contents
        try:
            await self._posix.write(file, data)
        except OSError as error:
            raise _as_expected(error, file) from error

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...
    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...
    @override
    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        try:
            data = await self._posix.read(file)
        except OSError as error:
            if error.errno == errno.EFBIG:
                raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None) from error
            raise _as_expected(error, file) from error
        if len(data) > SandboxEnvironmentLimits.MAX_READ_FILE_SIZE:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        return data.decode() if text else data


def _as_expected(error: OSError, file: str) -> OSError:
    """With words that Inspect's users look for."""
    if isinstance(error, IsADirectoryError):
        return IsADirectoryError(errno.EISDIR, "Is a directory", file)
    return error
