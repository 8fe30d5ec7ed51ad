"""Harbor: `harbor run --env cofferdam.integrations.harbor:CofferdamEnvironment --ek profile=harness`.

The image of a task is one that the daemon's engine has, or its Dockerfile is built there, which only an operator may have
done. A task reaches the hosts that it asks for, if the egress of the profile allows them. Otherwise it is refused, unless
`--ek offline=true` says that it does without. Its commands all run as the run's one user: `root` is accepted and means that
user. The service `main` of a Compose file is the sandbox, and the others are companions. With `--ek base=ID` or
`--ek repository=PATH` its files are in `/workspace` when a trial begins.

A call that needs a person's consent raises `ApprovalRequired`, which says how to decide; with
`--ek wait_for_approval=true` it waits instead.
"""

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities
from harbor.environments.definition import effective_exec_cwd, parse_dockerfile_workdir
from harbor.models.task.config import NetworkMode
from harbor.models.trial.config import ResourceMode
from harbor.models.trial.paths import EnvironmentPaths
from typing_extensions import override

from cofferdam import AsyncClient, AsyncSandbox, Denied, Limits, NotFound
from cofferdam._async.posix import Posix, is_mounted
from cofferdam.errors import ApprovalDenied, AwaitingApproval, CommandNotAllowed, CommandTimedOut, InvalidArgument
from cofferdam.integrations import _compose
from cofferdam.integrations._archive import download, upload
from cofferdam.integrations._bases import Origin, workspace
from cofferdam.integrations._image import Context
from cofferdam.integrations._shell import CANNOT_EXECUTE

MIB = 1024 * 1024
# Images that are built here. The tag is the digest of the directory that they are built from.
REPOSITORY = "harbor-task"
# Hosts of a task with a public network: every name.
PUBLIC = ("*",)
# Of a task with several services, and the service that is the sandbox.
COMPOSE_FILE = "docker-compose.yaml"
MAIN = "main"
# Variables that Harbor sets for such files. It says elsewhere which image the sandbox has.
VARIABLES = {"CONTEXT_DIR": ".", "MAIN_IMAGE_NAME": "", "PREBUILT_IMAGE_NAME": ""}
# Names of the run's own user, as Harbor has them.
OWN_USERS = (None, "", "root", "0")


class CofferdamEnvironment(BaseEnvironment):
    """One sandbox for each environment of a trial. Its image needs `bash` and `tar`."""

    def __init__(
        self,
        *args: Any,
        profile: str = "harness",
        image: str | None = None,
        base: str | None = None,
        repository: str | None = None,
        revision: str | int | None = None,
        offline: bool = False,
        build_network: bool = True,
        lease: float | None = None,
        wait_for_approval: bool = False,
        **kwargs: Any,
    ) -> None:
        """`image`: in place of the task's. `offline`: run tasks that ask for a network without one.

        `base`: the id of the base that each trial begins on. `repository`: a git repository of the daemon's host, and
        `revision` a branch or commit of it, default its HEAD. The daemon makes a base of it once, which stays.
        `build_network`: builds have the network that the engine gives them. `lease`: seconds for which the sandbox outlives
        this process, which renews it; default: without a bound.
        """
        self._profile = profile
        self._image = image
        # Harbor reads a commit of digits as a number.
        self._origin = Origin(base, repository, None if revision is None else str(revision)).checked()
        self._offline = offline
        self._build_network = build_network
        self._lease = lease
        self._wait_for_approval = wait_for_approval
        self._sandbox: AsyncSandbox | None = None
        self._project = _compose.Project()
        super().__init__(*args, **kwargs)
        self._workdir = parse_dockerfile_workdir(self._dockerfile)

    @staticmethod
    @override
    def type() -> str:
        return "cofferdam"

    @property
    @override
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(
            disable_internet=True,
            network_allowlist=True,
            network_allowlist_hostnames=True,
            network_allowlist_wildcard_hostnames=True,
            network_allowlist_ipv4_addresses=True,
            network_allowlist_ipv6_addresses=True,
            network_allowlist_ipv4_cidrs=True,
            network_allowlist_ipv6_cidrs=True,
        )

    @classmethod
    @override
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        return EnvironmentResourceCapabilities(cpu_limit=True, memory_limit=True, fractional_cpus=True)

    @override
    def _validate_definition(self) -> None:
        compose = Path(self.environment_dir, COMPOSE_FILE)
        if compose.exists():
            variables = {**self._persistent_env, **VARIABLES}
            self._project = _compose.read(compose, _is_main, variables=variables, default_main=MAIN)
            if self._project.options:
                raise ValueError(f"{compose}: x-cofferdam has no options for Harbor, which takes them as `--ek NAME=VALUE`")
        if self._ready_image(force_build=False) is None and not self._dockerfile.is_file():
            raise ValueError(
                f"the task {self.environment_name} has neither an image nor a Dockerfile. Name an image as docker_image in "
                "[environment] of its task.toml, or by `--ek image=…`"
            )
        if self._wanted_mounts():
            raise ValueError("directories of this host cannot be mounted in a sandbox: upload them")

    def _wanted_mounts(self) -> Sequence[Mapping[str, Any]]:
        """Those of the user. Harbor's own, of a trial's results, are for environments that mount: it downloads them."""
        mounts: Sequence[Mapping[str, Any]] | None = getattr(self, "_host_mounts", None)
        if mounts is not None:
            return mounts
        # Before 0.25 they come in one list.
        own = Path(self.trial_paths.trial_dir).resolve()
        return [mount for mount in self._mounts if not Path(mount.get("source") or "/").resolve().is_relative_to(own)]

    @property
    def _dockerfile(self) -> Path:
        return Path(self.environment_dir, "Dockerfile")

    def _ready_image(self, *, force_build: bool) -> str | None:
        """The image that is to be there already. None: the Dockerfile is built."""
        if self._image is None and force_build and self._dockerfile.is_file():
            return None
        return self._image or self.task_env_config.docker_image or self._project.main.image

    @property
    def sandbox(self) -> AsyncSandbox:
        """Raises `RuntimeError` before `start` and after `stop`."""
        if self._sandbox is None:
            raise RuntimeError("the environment has not been started")
        return self._sandbox

    @override
    async def start(self, force_build: bool) -> None:
        """Raises `ValueError` if the egress of the profile does not allow the network that the task asks for."""
        image = self._ready_image(force_build=force_build)
        if image is not None:
            self._sandbox = await self._created(image)
        else:
            self._sandbox = await self._created_of_dockerfile(force_build)
        try:
            await self._make_directories()
            await self._upload_environment_dir_after_start()
        except BaseException:
            await self.stop(delete=True)
            raise

    def _hosts(self) -> Sequence[str]:
        """Returns the hosts that the task asks for."""
        policy = self.network_policy
        if self._offline or policy.network_mode is NetworkMode.NO_NETWORK:
            return ()
        return policy.allowed_hosts if policy.network_mode is NetworkMode.ALLOWLIST else PUBLIC

    async def _created(self, image: str) -> AsyncSandbox:
        hosts = self._hosts()
        try:
            return await AsyncSandbox.create(
                profile=self._profile,
                image=image,
                workspace=workspace(await self._origin.base_id()),
                limits=self._limits(),
                companions=self._project.companions,
                writable_paths=self._places(),
                egress={"only": list(hosts)} if hosts else {},
                lease=self._lease,
                keep_alive=self._lease is not None,
                agent_id="harbor",
                metadata={"harbor.session": self.session_id[:256]},
                wait_for_approval=self._wait_for_approval,
            )
        except InvalidArgument as error:
            if error.details.get("field") != "egress_json":
                raise
            listed = 'set network_mode = "allowlist" and allowed_hosts in the task.toml, '
            raise ValueError(
                f"the task asks for a network that the egress of the profile {self._profile} does not allow "
                f"({error.message}). Have an operator add a rule for it, choose another profile by `--ek profile=…`, "
                f"{listed if hosts is PUBLIC else ''}or run the task without a network by `--ek offline=true`"
            ) from error

    async def _created_of_dockerfile(self, again: bool) -> AsyncSandbox:
        with tempfile.TemporaryFile() as file:
            context = await asyncio.to_thread(Context, REPOSITORY, self.environment_dir, file)
            # First, so that a task that is refused for its network is not built. An operator may have built the image.
            sandbox = None if again else await self._created_if_built(context)
            if sandbox is not None:
                return sandbox
            try:
                async with AsyncClient() as client:
                    await context.build(client, again=again, network=self._build_network)
            except Denied as refused:
                sandbox = await self._created_if_built(context) if again else None
                if sandbox is not None:
                    return sandbox
                raise Denied(
                    f"the Dockerfile of the task {self.environment_name} is not built: {refused.message}",
                    reason=refused.reason,
                    hint=f"An operator builds it with `coffer image build {context.directory} {context.reference}`.",
                ) from refused
        return await self._created(context.reference)

    async def _created_if_built(self, context: Context) -> AsyncSandbox | None:
        try:
            return await self._created(context.reference)
        except NotFound as missing:
            if missing.reason != "IMAGE_MISSING":
                raise
            return None

    async def _make_directories(self) -> None:
        paths = EnvironmentPaths.for_os(self.os)
        wanted = [*map(str, (paths.agent_dir, paths.verifier_dir, paths.artifacts_dir))]
        wanted += self._mount_targets(writable_only=True)
        if self.task_env_config.workdir:
            wanted.append(self.task_env_config.workdir)
        made = await Posix(self.sandbox).run(["mkdir", "-p", "--", *wanted])
        if not made.ok:
            raise RuntimeError(f"the directories of a trial cannot be made: {made.stderr.strip()}")

    def _limits(self) -> Limits:
        cpus = self._resource_limit_value("cpu", auto_mode=ResourceMode.LIMIT)
        memory = self._resource_limit_value("memory", auto_mode=ResourceMode.LIMIT)
        storage = self._effective_storage_mb
        of_file = self._project.main.limits
        return Limits(
            cpu_millis=round(cpus * 1000) if cpus else of_file.cpu_millis,
            memory_bytes=memory * MIB if memory else of_file.memory_bytes,
            disk_bytes=storage * MIB if storage else None,
        )

    def _places(self) -> list[str]:
        """Tasks, agents and Harbor itself name these at the root, so that no others will do."""
        paths = EnvironmentPaths.for_os(self.os)
        places = [str(place) for place in (paths.logs_dir, paths.tests_dir, paths.solution_dir)]
        workdir = effective_exec_cwd(None, self.task_env_config.workdir, self._workdir)
        if workdir and not is_mounted(workdir):
            places.append(workdir)
        return places

    @override
    async def stop(self, delete: bool) -> None:
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is None:
            return
        if delete:
            await sandbox.kill(delete_workspace=True)
        else:
            await sandbox.stop()
            await sandbox.close()

    @override
    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        wanted = self._resolve_user(user)
        if (None if wanted is None else str(wanted)) not in OWN_USERS:
            raise ValueError(f"a run has one user, and {wanted!r} cannot be another one: leave it out of the task.toml")
        cwd = effective_exec_cwd(cwd, self.task_env_config.workdir, self._workdir)
        try:
            merged = {**self._project.main.env, **(self._merge_env(env) or {})}
            result = await Posix(self.sandbox).run(["bash", "-c", command], cwd=cwd, env=merged, timeout=timeout_sec)
        except CommandTimedOut as error:
            told = "" if timeout_sec is None else f" after {timeout_sec} seconds"
            raise RuntimeError(f"Command timed out{told}: {error}") from error
        except (CommandNotAllowed, ApprovalDenied, AwaitingApproval) as error:
            # As a shell would say it.
            return ExecResult(stdout="", stderr=f"{error.message}\n", return_code=CANNOT_EXECUTE)
        code = result.exit_code if result.exit_code is not None else -1
        return ExecResult(stdout=result.stdout, stderr=result.stderr, return_code=code)

    @override
    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        await upload(self.sandbox, Path(source_path), target_path)

    @override
    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        await upload(self.sandbox, Path(source_dir), target_dir)

    @override
    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        data = await Posix(self.sandbox).read(source_path)
        await asyncio.to_thread(_written, Path(target_path), data)

    @override
    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        await download(self.sandbox, source_dir, Path(target_dir), self.logger)


def _is_main(name: str, service: Mapping[str, Any]) -> bool:
    return name == MAIN


def _written(target: Path, data: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
