"""Settings of a sandbox as Ray has them, and the request for a run that they are."""

import posixpath
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ray.experimental.sandbox.config import SandboxConfig, parse_memory_bytes

from cofferdam import Base, Limits, Managed, _requests, v1
from cofferdam._sync.posix import HOME, is_mounted

#: Profiles of a sandbox whose settings name none: shipped ones, with a root that takes no writes and with one that does.
READ_ONLY, WRITABLE = "open", "harness"
#: Seconds that a sandbox outlives its owner.
LEASE = 60.0


@dataclass
class CofferdamSandboxConfig(SandboxConfig):
    """Settings of Ray, and beside them those that its sandboxes have not.

    Raises `ValueError` for a setting of Ray that no sandbox here can have.
    """

    #: Policy, which decides on the root if it is named. Default: `open` for a read-only root, `harness` for a writable one.
    profile: str | None = None
    #: Id of a base with whose files `/workspace` begins. Default: it is empty.
    base: str | None = None
    #: Seconds after which the daemon ends the sandbox of an owner that no longer lives, at least 1.
    lease: float = LEASE
    #: The same id with the same settings is the same sandbox, also if the answer was lost. Default: a new one each time.
    request_id: str | None = None
    #: Agent in the record. Rate limits count the sandboxes of an agent together.
    agent_id: str = "ray"
    #: Labels, by which `cofferdam.Sandbox.list` finds it.
    metadata: Mapping[str, str] = field(default_factory=dict)
    #: Wait for a person where one has to consent, instead of `ApprovalRequired`.
    wait_for_approval: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.network not in ("none", "public"):
            raise ValueError(
                f"network={self.network!r}: it is 'none', or 'public' for what the profile's egress rules allow"
            )
        if self.dns is not None:
            raise ValueError("dns: the daemon resolves the names that the profile's egress rules allow")
        if self.capabilities:
            raise ValueError("capabilities: a sandbox has none; leave the setting out, or give []")
        if self._oci_spec_transform_fn is not None:
            raise ValueError("_oci_spec_transform_fn: the daemon makes the container, and takes no other settings for it")
        if self.lease < 1:
            raise ValueError("lease: at least 1 second")
        if self.profile is None and self.readonly and self._outside:
            raise ValueError(f"workdir={self.workdir!r}: with a read-only root only {HOME} and /tmp are writable")

    @property
    def directory(self) -> str:
        """Where its commands begin."""
        return posixpath.normpath(posixpath.join(HOME, self.workdir or ""))

    @property
    def _outside(self) -> bool:
        """Its directory is in the image, where only a writable root takes writes."""
        return not is_mounted(self.directory) and not self.directory.startswith("/tmp/")

    def request(self) -> v1.CreateRunRequest:
        """Returns the request for its run."""
        profile = self.profile or (READ_ONLY if self.readonly else WRITABLE)
        return v1.CreateRunRequest(
            request_id=self.request_id or f"ray-{uuid.uuid4()}",
            profile=profile,
            image=self.image,
            workspace=_requests.workspace(Managed() if self.base is None else Base(self.base)),
            agent_id=self.agent_id,
            limits=_requests.limits(self._limits()),
            ttl=_requests.duration("ttl_seconds", self.ttl_seconds if (self.ttl_seconds or 0) > 0 else None),
            lease=_requests.duration("lease", self.lease),
            labels=self.metadata,
            writable_paths=[self.directory] if self._outside and self.directory != "/" else [],
            # Ray's default is no network, whatever the profile would allow.
            egress_json="{}" if self.network == "none" else "",
        )

    def _limits(self) -> Limits | None:
        memory, millis = parse_memory_bytes(self.memory) or 0, int((self.cpu or 0) * 1000)
        if memory < 0 or millis < 0:
            raise ValueError("cpu, memory: at least 0, which is the profile's limit")
        return Limits(memory_bytes=memory or None, cpu_millis=millis or None) if memory or millis else None


@dataclass(frozen=True)
class Handover:
    """A sandbox on its way from one owner to another, who has `lease` seconds to take it."""

    instance_id: str
    #: Of the daemon that has it. A path of a socket is one of its node.
    endpoint: str
    config: CofferdamSandboxConfig


def settings_of(config: SandboxConfig) -> CofferdamSandboxConfig:
    """Returns settings of Ray alone with the defaults of the others."""
    if isinstance(config, CofferdamSandboxConfig):
        return config
    known: dict[str, Any] = dict(vars(config))
    return CofferdamSandboxConfig(**known)
