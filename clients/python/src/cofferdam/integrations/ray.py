"""Ray: `from cofferdam.integrations.ray import create` in place of `from ray.experimental.sandbox import create`.

The names are those of `ray.experimental.sandbox` 2.60, over runs of the daemon of the node on which an actor is. A call that
needs a person's consent raises `ApprovalRequired`, which says how to decide; with `wait_for_approval=True` it waits instead.
"""

import json
import sys
from contextlib import suppress
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.experimental.sandbox import (
    DEFAULT_PUBLIC_DNS,
    DOCKER_DEFAULT_CAPABILITIES,
    BaseSandboxBackend,
    ExecResult,
    ExecutionResult,
    SandboxCreationError,
    SandboxError,
    SandboxExecError,
    SandboxNotFoundError,
    SandboxStatus,
    SandboxTimeoutError,
    parse_memory_bytes,
)

from cofferdam import Client, v1
from cofferdam.integrations._ray_backend import CofferdamBackend, CofferdamExecResult, CofferdamImages, CofferdamRuntime
from cofferdam.integrations._ray_errors import SandboxLost, SandboxNotCreated
from cofferdam.integrations._ray_prefetch import Prefetch
from cofferdam.integrations._ray_settings import CofferdamSandboxConfig, Handover

__all__ = [
    "DEFAULT_PUBLIC_DNS",
    "DOCKER_DEFAULT_CAPABILITIES",
    "BaseSandboxBackend",
    "CofferdamBackend",
    "CofferdamExecResult",
    "CofferdamImages",
    "CofferdamRuntime",
    "CofferdamSandboxConfig",
    "ExecResult",
    "ExecutionResult",
    "Handover",
    "Prefetch",
    "Sandbox",
    "SandboxCreationError",
    "SandboxError",
    "SandboxExecError",
    "SandboxLost",
    "SandboxNotCreated",
    "SandboxNotFoundError",
    "SandboxRuntime",
    "SandboxStatus",
    "SandboxTimeoutError",
    "create",
    "node_resources",
]

#: Ray's name for it.
SandboxRuntime = CofferdamRuntime
#: The resource that a node declares for each run that it can have.
RUNS = "cofferdam_runs"


class SandboxActor:
    """One sandbox for as long as the actor lives. If it dies, the daemon ends the sandbox one lease later."""

    def __init__(
        self,
        image: str,
        cpu: float | None = None,
        memory: str | float | None = None,
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
    ) -> None:
        """Arguments are those of `create`. Without `cpu` and `memory` the resources of the actor are the limits."""
        assigned = ray.get_runtime_context().get_assigned_resources() if ray.is_initialized() else {}
        self.runtime = CofferdamRuntime()
        self.instance_id = self.runtime.create(
            image,
            cpu=cpu if cpu is not None and cpu > 0 else assigned.get("CPU"),
            memory=memory if memory is not None else assigned.get("memory"),
            env=env,
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

    def __del__(self) -> None:
        # Its lease ends it where nothing else does.
        with suppress(Exception):
            self.delete()

    def get_instance_id(self) -> str:
        """Returns the id of the sandbox."""
        return self.instance_id

    def get_config(self) -> CofferdamSandboxConfig:
        """Returns its settings. Raises `SandboxNotFoundError`."""
        known = self.runtime.backend._sandbox_metadata.get(self.instance_id)
        if known is None:
            raise SandboxNotFoundError(f"Sandbox {self.instance_id!r} has been deleted.")
        config: CofferdamSandboxConfig = known["config"]
        return config

    def exec(
        self,
        command: str | list[str],
        timeout: float | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        shell: str | None = None,
    ) -> ExecResult:
        """Runs a command to its end. See `CofferdamBackend.exec_command`."""
        return self.runtime.exec(self.instance_id, command, timeout=timeout, cwd=cwd, env=env, shell=shell)

    def upload_file(self, local_path: str, remote_path: str) -> None:
        """Copies a file of the actor's node into the sandbox."""
        self.runtime.upload_file(self.instance_id, local_path, remote_path)

    def download_file(self, remote_path: str, local_path: str) -> None:
        """Copies a file of the sandbox to the actor's node."""
        self.runtime.download_file(self.instance_id, remote_path, local_path)

    def write_file(self, path: str, content: str | bytes) -> None:
        """Writes a file; directories are made."""
        self.runtime.write_file(self.instance_id, path, content)

    def read_file(self, path: str) -> bytes:
        """Reads a file of at most 64 MiB."""
        data: bytes = self.runtime.read_file(self.instance_id, path)
        return data

    def get_status(self) -> SandboxStatus:
        """Asks the daemon."""
        return self.runtime.get_status(self.instance_id)

    def delete(self) -> None:
        """Ends the sandbox and deletes its files."""
        self.runtime.delete(self.instance_id)

    def terminate(self) -> None:
        """Ends the sandbox and deletes its files."""
        self.delete()


Sandbox = ray.remote(SandboxActor)


def create(
    image: str,
    cpu: float | None = None,
    memory: str | float | None = None,
    env: dict[str, str] | None = None,
    workdir: str | None = None,
    ttl_seconds: int | None = None,
    timeout_seconds: float = 30.0,
    rootless: bool = True,
    network: str = "none",
    dns: list[str] | None = None,
    capabilities: list[str] | None = None,
    resources: dict[str, float] | None = None,
    readonly: bool = True,
    **kwargs: Any,
) -> ActorHandle:
    """Makes an actor with a sandbox, and returns its handle.

    `image`: one that the engine of the node has and the profile allows. Nothing is pulled.
    `cpu`, `memory`: resources of the actor, and limits of the sandbox, which are not above those of the profile.
    `env`: for each command. `workdir`: where commands begin; default: `/workspace`.
    `ttl_seconds`: until the daemon ends it. `timeout_seconds`: until it has to be ready.
    `network`: "none", or "public" for the hosts that the profile's egress rules allow.
    `resources`: further ones of the actor, such as `{"cofferdam_runs": 1}`, which `node_resources` declares.
    `readonly`: profile `open`, whose root takes no writes; else `harness`, whose root does. `profile` names another.
    `rootless` changes nothing: no sandbox has root's rights on the node. `dns`, and any `capabilities`, are refused.
    Others are `shell` and the fields of `CofferdamSandboxConfig`: `profile`, `base`, `lease`, `request_id`, `agent_id`,
    `metadata` and `wait_for_approval`.
    """
    options: dict[str, Any] = {}
    if cpu is not None and cpu >= 0:
        options["num_cpus"] = cpu
    bytes_of_memory = parse_memory_bytes(memory)
    if bytes_of_memory is not None and bytes_of_memory > 0:
        options["memory"] = bytes_of_memory
    if resources:
        options["resources"] = resources
    settings = {
        "image": image,
        "cpu": cpu,
        "memory": memory,
        "env": env,
        "workdir": workdir,
        "ttl_seconds": ttl_seconds,
        "timeout_seconds": timeout_seconds,
        "rootless": rootless,
        "network": network,
        "dns": dns,
        "capabilities": capabilities,
        "readonly": readonly,
    }
    handle: ActorHandle = Sandbox.options(**options).remote(**settings, **kwargs)
    return handle


def node_resources(node: v1.Node) -> dict[str, float]:
    """Returns the resources that a node of Ray declares for its daemon, of which runs take their share.

    None on a node that makes no runs, so that nothing is placed there.
    """
    if node.state != v1.Node.State.SERVING:
        return {}
    capacity = node.capacity
    declared = {
        RUNS: float(capacity.runs),
        "cofferdam_memory_mib": float(capacity.memory_mib),
        "cofferdam_cores": capacity.cpu_millis / 1000,
        "cofferdam_disk_mib": float(capacity.disk_mib),
    }
    if node.node_id:
        declared[f"cofferdam_node_{node.node_id}"] = 1.0
    return {name: amount for name, amount in declared.items() if amount > 0}


def main() -> None:
    """Prints the resources of the daemon of this node, for `ray start --resources`."""
    with Client() as client:
        json.dump(node_resources(client.node.get_node(v1.GetNodeRequest()).node), sys.stdout)
    print()


if __name__ == "__main__":
    main()
