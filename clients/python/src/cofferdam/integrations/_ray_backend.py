"""The backend and the runtime beneath Ray's sandboxes: runs of a daemon in place of gVisor's containers."""

import posixpath
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from ray.experimental.sandbox import SandboxRuntime
from ray.experimental.sandbox.backend.base import BaseSandboxBackend, ExecResult, SandboxStatus
from ray.experimental.sandbox.config import SandboxConfig
from ray.experimental.sandbox.exceptions import (
    SandboxCreationError,
    SandboxError,
    SandboxExecError,
    SandboxNotFoundError,
    SandboxTimeoutError,
)

from cofferdam import Client, Sandbox, _results, v1
from cofferdam._options import Options
from cofferdam._sync.posix import HOME, Posix
from cofferdam.errors import (
    ApprovalDenied,
    AwaitingApproval,
    Cancelled,
    CommandNotAllowed,
    CommandTimedOut,
    InfrastructureError,
    NotFound,
    RunLost,
    RunNotReady,
)
from cofferdam.integrations._ray_errors import SandboxLost, SandboxNotCreated, creating, using
from cofferdam.integrations._ray_settings import CofferdamSandboxConfig, Handover, settings_of
from cofferdam.integrations._shell import CANNOT_EXECUTE
from cofferdam.types import CommandResult

PREFIX = "ray-sandbox-"
# Seconds that a run may take to end, and between looks at it.
ENDING, ENDING_PAUSE = 10.0, 0.1
ENDED = ("stopping", "stopped", "failed")
_STATUS = {
    "creating": SandboxStatus.PENDING,
    "ready": SandboxStatus.RUNNING,
    "paused": SandboxStatus.RUNNING,
    "failed": SandboxStatus.ERROR,
}


@dataclass
class CofferdamExecResult(ExecResult):
    """Outcome of a command, with the facts that Ray's has not."""

    #: The call in the audit log; empty if the daemon does not tell.
    call_id: str = ""
    #: Whose failure it was: `program`, `policy` or `caller`; empty: the command ended by itself.
    fault: str = ""
    #: Bytes of output that the profile's `max_spool_bytes` left out.
    omitted_bytes: int = 0
    #: Facts that show whose failure it was.
    evidence: Mapping[str, str] = field(default_factory=dict)


class CofferdamImages:
    """Images of the node's engine. Nothing is pulled: an operator imports or builds them."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def pull_image(self, image: str, timeout_seconds: float = 120.0, instance_id: str | None = None) -> str:
        """Returns the image's name if the engine has it. Raises `SandboxCreationError`."""
        wanted = image if ":" in image.rpartition("/")[2] or "@" in image else f"{image}:latest"
        with creating(timeout_seconds):
            listed = self._client.images.list_images(v1.ListImagesRequest(), timeout=timeout_seconds).images
        if not any(wanted in (known.reference, known.image_id) for known in listed):
            raise SandboxCreationError(f"The node has no image {wanted}: an operator imports it with `coffer image import`.")
        return image

    def release_image(self, image: str, instance_id: str) -> None:
        """Does nothing: the engine knows which images are in use."""


@dataclass
class _Held:
    config: CofferdamSandboxConfig
    sandbox: Sandbox
    posix: Posix


class CofferdamBackend(BaseSandboxBackend):
    """Runs of one daemon, each with a lease that this process renews: when it dies, the daemon ends them.

    The id of a sandbox is `ray-sandbox-` and the id of its run.
    """

    def __init__(self, endpoint: str | None = None, *, client: Client | None = None) -> None:
        """`client`, else `endpoint`: the daemon; default: `COFFERDAM_ENDPOINT`, else that of this node."""
        self._client = Client(endpoint) if client is None else client
        super().__init__(image_manager=CofferdamImages(self._client))
        # Named as in Ray's own backend, whose users look into it.
        self._sandbox_metadata: dict[str, dict[str, Any]] = {}

    @property
    def endpoint(self) -> str:
        """Where its daemon is."""
        return self._client.endpoint

    def create_sandbox(self, config: SandboxConfig) -> str:
        """Makes a sandbox. Raises `SandboxNotCreated` for a failure of the infrastructure, and Ray's errors for others."""
        with creating(config.timeout_seconds):
            settings = settings_of(config)
            request = settings.request()
            run = _results.run_info(self._client.runs.create_run(request, timeout=settings.timeout_seconds).run)
        if run.state in ENDED:
            message = f"The sandbox of request {request.request_id!r} has ended: another request_id makes another one."
            if run.fault == "infrastructure":
                raise SandboxNotCreated(message, fault=run.fault, evidence=run.evidence)
            raise SandboxCreationError(message)
        instance_id = self._hold(run.run_id, settings)
        try:
            self._prepare(instance_id, settings)
        except BaseException:
            with suppress(SandboxError):
                self.delete_sandbox(instance_id)
            raise
        return instance_id

    def attach_sandbox(self, handover: Handover) -> str:
        """Takes a sandbox from its owner before, and renews its lease from now on.

        Raises `SandboxLost` if it has ended meanwhile, which no program did, and `SandboxNotFoundError`.
        """
        instance_id, run_id = handover.instance_id, handover.instance_id.removeprefix(PREFIX)
        with using("attach", SandboxError):
            try:
                run = _results.run_info(self._client.runs.get_run(v1.GetRunRequest(run_id=run_id)).run)
            except NotFound as error:
                raise SandboxNotFoundError(
                    f"Sandbox {instance_id!r} is not at {self.endpoint}: its owner made it at {handover.endpoint}."
                ) from error
            has_ended = run.state in ENDED
            if not has_ended:
                try:
                    # Here, and not by the renewing that begins now: the end of its lease may be near.
                    self._client.runs.keep_alive_run(v1.KeepAliveRunRequest(run_id=run_id))
                except RunNotReady:
                    has_ended = True
        if has_ended:
            message = f"Sandbox {instance_id!r} has ended before it was taken."
            raise SandboxLost(message, fault="infrastructure", retry_safe=True, evidence=run.evidence)
        return self._hold(run_id, handover.config)

    def release_sandbox(self, instance_id: str) -> Handover:
        """Gives a sandbox away, with a whole lease for the next owner to attach it. After an error this one has it."""
        held = self._held(instance_id)
        held.sandbox.close()
        try:
            with using("release", SandboxError):
                self._client.runs.keep_alive_run(v1.KeepAliveRunRequest(run_id=held.sandbox.run_id))
        except BaseException:
            held.sandbox._keeping.begin(self._client, held.sandbox.run_id, held.config.lease, since=None)
            raise
        del self._sandbox_metadata[instance_id]
        return Handover(instance_id, self.endpoint, held.config)

    def delete_sandbox(self, sandbox_id: str) -> None:
        """Ends a sandbox and deletes its files. One that is not known is none. If the daemon is away, the lease ends it."""
        known = self._sandbox_metadata.pop(sandbox_id, None)
        if known is not None:
            with using("delete", SandboxError):
                known["held"].sandbox.kill()

    def exec_command(
        self,
        sandbox_id: str,
        command: str | list[str],
        timeout: float | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        shell: str | None = None,
        user: str | None = None,
    ) -> CofferdamExecResult:
        """Runs a command to its end. A refusal of the policy is exit code 126 with its reason as standard error.

        Raises `SandboxLost` for a failure of the infrastructure, which is no result of the command.
        """
        held = self._held(sandbox_id)
        if user is not None:
            raise SandboxExecError(f"user={user!r}: a sandbox has one user, and no command becomes another one")
        argv = list(command) if isinstance(command, list) else [shell or held.config.shell, "-c", command]
        directory = posixpath.join(held.config.directory, cwd or "")
        began = time.monotonic()
        with _on(held, "exec", SandboxExecError):
            try:
                result = held.posix.run(argv, cwd=posixpath.normpath(directory), env=env, timeout=timeout)
            except CommandTimedOut as error:
                raise SandboxTimeoutError(f"The command took too long and was ended: {error}") from error
            except (CommandNotAllowed, ApprovalDenied, AwaitingApproval) as error:
                took, call = time.monotonic() - began, error.call_id or ""
                return CofferdamExecResult(CANNOT_EXECUTE, "", f"{error.message}\n", took, call, error.fault or "policy")
        return _result(result, began)

    def write_file(self, sandbox_id: str, path: str, content: str | bytes, append: bool = False) -> None:
        held = self._held(sandbox_id)
        data = content.encode() if isinstance(content, str) else content
        with _on(held, f"write {path!r}", SandboxError):
            held.posix.write(posixpath.join(held.config.directory, path), data, append=append)

    def read_file(self, sandbox_id: str, path: str) -> bytes:
        """Reads a file of at most 64 MiB."""
        held = self._held(sandbox_id)
        with _on(held, f"read {path!r}", SandboxError):
            return held.posix.read(posixpath.join(held.config.directory, path))

    def get_status(self, sandbox_id: str) -> SandboxStatus:
        """Asks the daemon. `ERROR` is a sandbox that was lost, or whose daemon does not answer."""
        known = self._sandbox_metadata.get(sandbox_id)
        if known is None:
            return SandboxStatus.TERMINATED
        try:
            with using("status", SandboxError):
                return _STATUS.get(known["held"].sandbox.info().state, SandboxStatus.TERMINATED)
        except InfrastructureError:
            return SandboxStatus.ERROR
        except SandboxError:
            return SandboxStatus.TERMINATED

    def _held(self, sandbox_id: str) -> _Held:
        if sandbox_id not in self._sandbox_metadata:
            raise SandboxNotFoundError(f"Sandbox {sandbox_id!r} is not one of this process.")
        held: _Held = self._sandbox_metadata[sandbox_id]["held"]
        return held

    def _hold(self, run_id: str, config: CofferdamSandboxConfig) -> str:
        instance_id = f"{PREFIX}{run_id}"
        if instance_id in self._sandbox_metadata:
            # A repetition of the request that made it.
            return instance_id
        options = Options(wait_for_approval=config.wait_for_approval, env=dict(config.env or {}))
        sandbox = Sandbox(self._client, run_id, options, owns_client=False, delete_workspace=True)
        sandbox._keeping.begin(self._client, run_id, config.lease, since=None)
        self._sandbox_metadata[instance_id] = {"config": config, "held": _Held(config, sandbox, Posix(sandbox))}
        return instance_id

    def _prepare(self, instance_id: str, config: CofferdamSandboxConfig) -> None:
        held = self._held(instance_id)
        with creating(config.timeout_seconds):
            if config.network == "public":
                run = self._client.runs.get_run(v1.GetRunRequest(run_id=held.sandbox.run_id)).run
                if not run.HasField("egress"):
                    raise SandboxCreationError(
                        f"network='public': profile {run.profile!r} has no egress rules, so that its sandboxes reach nothing"
                    )
            if config.directory != HOME:
                made = held.posix.run(["mkdir", "-p", "--", config.directory])
                if not made.ok:
                    raise SandboxCreationError(f"workdir={config.workdir!r} cannot be made: {made.stderr.strip()}")


@contextmanager
def _on(held: _Held, what: str, kind: type[SandboxError]) -> Iterator[None]:
    """As `using`. A run that is ending says only at its end whose failure that is."""
    with using(what, kind):
        try:
            yield
        except (RunNotReady, Cancelled) as error:
            if isinstance(error, InfrastructureError):
                raise
            end = time.monotonic() + ENDING
            while (run := held.sandbox.info()).state == "stopping" and time.monotonic() < end:
                time.sleep(ENDING_PAUSE)
            if run.fault != "infrastructure":
                raise
            reason, evidence = run.failure_reason, run.evidence
            message = f"The sandbox was lost: {run.failure}"
            raise RunLost(message, reason=reason, call_id=error.call_id, fault=run.fault, evidence=evidence) from error


def _result(result: CommandResult, began: float) -> CofferdamExecResult:
    code = result.exit_code if result.exit_code is not None else -1
    return CofferdamExecResult(
        code,
        result.stdout,
        result.stderr,
        time.monotonic() - began,
        result.call_id,
        result.fault,
        result.omitted_bytes,
        dict(result.evidence),
    )


class CofferdamRuntime(SandboxRuntime):
    """Ray's runtime over this backend, for actors that have sandboxes themselves."""

    def __init__(self, endpoint: str | None = None, *, client: Client | None = None) -> None:
        """See `CofferdamBackend`."""
        self._backend = CofferdamBackend(endpoint, client=client)
        self._image_manager = self._backend.image_manager
        # For the methods that Ray has: the daemon itself ends a sandbox whose time is over.
        self._ttl_timers: dict[str, Any] = {}

    def create(
        self,
        image: str,
        cpu: float | None = 0.0,
        memory: str | float | None = 0,
        env: dict[str, str] | None = None,
        workdir: str | None = None,
        ttl_seconds: int | None = None,
        timeout_seconds: float = 30.0,
        rootless: bool = True,
        network: str = "none",
        dns: list[str] | None = None,
        capabilities: list[str] | None = None,
        readonly: bool = True,
        **kwargs: Any,
    ) -> str:
        """Makes a sandbox and returns its id. Other arguments are fields of `CofferdamSandboxConfig`."""
        return self._backend.create_sandbox(
            CofferdamSandboxConfig(
                image=image,
                cpu=cpu or 0.0,
                memory=memory or 0,
                env=env or {},
                workdir=workdir,
                ttl_seconds=ttl_seconds,
                timeout_seconds=timeout_seconds,
                rootless=rootless,
                network=network,
                dns=dns,
                capabilities=capabilities,
                readonly=readonly,
                **kwargs,
            )
        )

    def attach(self, handover: Handover) -> str:
        """See `CofferdamBackend.attach_sandbox`."""
        return self._backend.attach_sandbox(handover)

    def release(self, instance_id: str) -> Handover:
        """See `CofferdamBackend.release_sandbox`."""
        return self._backend.release_sandbox(instance_id)
