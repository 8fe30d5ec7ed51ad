"""From the arguments of methods to requests of the API. No I/O."""

import json
import math
import secrets
import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from google.protobuf.duration_pb2 import Duration

from cofferdam import v1
from cofferdam.errors import InvalidArgument
from cofferdam.types import (
    Base,
    Bind,
    Checkpoint,
    Clone,
    Companion,
    Every,
    Limits,
    Managed,
    Overlay,
    PtySize,
    Workspace,
)


def new_id() -> str:
    """A UUIDv7: the time in milliseconds, then random bits."""
    value = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(80)
    value = value & ~(0xF << 76) | 7 << 76
    value = value & ~(0x3 << 62) | 2 << 62
    return str(uuid.UUID(int=value))


def duration(name: str, seconds: float | None) -> Duration | None:
    if seconds is None:
        return None
    made = Duration()
    made.FromTimedelta(timedelta(seconds=positive(name, seconds)))
    return made


def renewed(lease: float | None, *, keep_alive: bool) -> float | None:
    """Seconds of the lease that is renewed in the background. None: none is."""
    if keep_alive and lease is None:
        raise InvalidArgument("keep_alive: is for a sandbox with a lease", reason="INVALID_ARGUMENT")
    return lease if keep_alive else None


def millis(seconds: float | None) -> int | None:
    return None if seconds is None else max(1, round(positive("timeout", seconds) * 1000))


def positive(name: str, seconds: float) -> float:
    # Also false for NaN.
    if not 0 < seconds < 10**9:
        raise InvalidArgument(f"{name}: must be a positive number of seconds, not {seconds}", reason="INVALID_ARGUMENT")
    return seconds


def count(number: int) -> int:
    """How many there are to be; the daemon knows how many there may be."""
    if not 0 < number < 2**32:
        raise InvalidArgument(f"count: must be a positive number, not {number}", reason="INVALID_ARGUMENT")
    return number


def automatic(every: Every | None, keep: int | None) -> v1.AutomaticCheckpoints | None:
    """When the daemon makes checkpoints by itself."""
    if every is None:
        if keep is not None:
            raise InvalidArgument("keep_checkpoints: is for a sandbox with checkpoints", reason="INVALID_ARGUMENT")
        return None
    if every not in ("turn", "write"):
        raise InvalidArgument(f'checkpoints: must be "turn" or "write", not {every!r}', reason="INVALID_ARGUMENT")
    if keep is not None and not 1 <= keep <= 100:
        raise InvalidArgument(f"keep_checkpoints: must be 1 to 100, not {keep}", reason="INVALID_ARGUMENT")
    moment = v1.AutomaticCheckpoints.Every.Value(every.upper())
    return v1.AutomaticCheckpoints(every=moment, keep=keep or 0)


def raw(data: str | bytes | None) -> bytes:
    return data.encode() if isinstance(data, str) else bytes(data or b"")


def workspace(source: Workspace) -> v1.Workspace:
    match source:
        case Managed():
            return v1.Workspace(managed=v1.ManagedWorkspace(workspace_id=source.workspace_id or ""))
        case Bind():
            return v1.Workspace(bind=v1.BindWorkspace(path=str(source.path)))
        case Clone():
            return v1.Workspace(clone=clone(source))
        case Overlay():
            return v1.Workspace(overlay=v1.OverlayWorkspace(path=str(source.path)))
        case Base():
            return v1.Workspace(base=v1.BaseWorkspace(base_id=source.base_id))
        case Checkpoint():
            begun = v1.CheckpointWorkspace(checkpoint_id=source.checkpoint_id)
            return v1.Workspace(checkpoint=begun)


def clone(source: Clone) -> v1.CloneWorkspace:
    named, revision = str(source.repository), source.revision or ""
    if source.depth is not None and not 1 <= source.depth < 1 << 32:
        raise InvalidArgument(f"depth: must be at least 1, not {source.depth}", reason="INVALID_ARGUMENT")
    if "://" in named:
        return v1.CloneWorkspace(url=named, revision=revision, depth=source.depth or 0)
    return v1.CloneWorkspace(repository=named, revision=revision, depth=source.depth or 0)


def limits(limits: Limits | None) -> v1.Limits | None:
    if limits is None:
        return None
    made = v1.Limits()
    for name, value in vars(limits).items():
        if value is not None:
            setattr(made, name, value)
    return made


def companion(given: Companion) -> v1.Companion:
    if given.ready is None and (given.ready_timeout is not None or given.ready_interval is not None):
        raise InvalidArgument(
            f"companion {given.name}: ready_timeout and ready_interval are for one with `ready`", reason="INVALID_ARGUMENT"
        )
    if any(isinstance(words, str) for words in (given.command, given.ready)):
        raise InvalidArgument(
            f"companion {given.name}: a command is a sequence of a program and its arguments", reason="INVALID_ARGUMENT"
        )
    return v1.Companion(
        name=given.name,
        image=given.image,
        command=given.command,
        env=given.env,
        secret_env=given.secret_env,
        ready=_readiness(given),
        memory_mib=unsigned(f"companion {given.name}: memory_mib", given.memory_mib or 0),
        ports=[unsigned(f"companion {given.name}: ports", port) for port in given.ports],
        depends_on=given.depends_on,
        egress_json="" if given.egress is None else json.dumps(given.egress),
    )


def _readiness(given: Companion) -> v1.Readiness | None:
    if given.ready is None:
        return None
    made = v1.Readiness()
    if isinstance(given.ready, int):
        made.tcp = unsigned(f"companion {given.name}: ready", given.ready)
    else:
        made.command.args.extend(given.ready)
    if given.ready_timeout is not None:
        made.timeout_seconds = math.ceil(positive(f"companion {given.name}: ready_timeout", given.ready_timeout))
    if given.ready_interval is not None:
        # The daemon knows the bounds of both; 0 would be its default.
        made.interval_milliseconds = max(
            1, min(round(positive(f"companion {given.name}: ready_interval", given.ready_interval) * 1000), 2**32 - 1)
        )
    return made


def unsigned(name: str, number: int) -> int:
    """A number for a field of 32 bits."""
    if not 0 <= number < 2**32:
        raise InvalidArgument(f"{name}: must be a whole number from 0, not {number}", reason="INVALID_ARGUMENT")
    return number


def command(
    cmd: str | Sequence[str],
    cwd: str | None,
    env: Mapping[str, str],
    stdin: str | bytes | None,
    timeout: float | None,
) -> v1.Operation:
    """A text is a script for the shell; a sequence is a program and its arguments."""
    common: dict[str, Any] = {"cwd": cwd or "", "env": env, "stdin": raw(stdin), "timeout_ms": millis(timeout)}
    if isinstance(cmd, str):
        return v1.Operation(shell=v1.ShellRequest(script=cmd, **common))
    if not cmd:
        raise InvalidArgument("cmd: a command has at least a program", reason="INVALID_ARGUMENT")
    return v1.Operation(exec=v1.ExecRequest(command=cmd[0], args=cmd[1:], **common))


def process(
    cmd: str | Sequence[str],
    cwd: str | None,
    env: Mapping[str, str],
    timeout: float | None,
    tag: str | None,
    *,
    stdin: bool = False,
    terminal: PtySize | None = None,
) -> v1.Operation:
    """The same for a process that stays."""
    size = None if terminal is None else terminal_size(terminal)
    common: dict[str, Any] = {"cwd": cwd or "", "env": env, "timeout_ms": millis(timeout), "tag": tag or ""}
    common |= {"stdin": stdin, "terminal": size}
    if isinstance(cmd, str):
        return v1.Operation(process=v1.ProcessRequest(script=cmd, **common))
    if not cmd:
        raise InvalidArgument("cmd: a command has at least a program", reason="INVALID_ARGUMENT")
    return v1.Operation(process=v1.ProcessRequest(command=cmd[0], args=cmd[1:], **common))


def session(
    cwd: str | None, env: Mapping[str, str], timeout: float | None, tag: str | None, size: PtySize | None
) -> v1.Operation:
    """A shell that stays."""
    request = v1.ProcessRequest(
        session=True,
        cwd=cwd or "",
        env=env,
        timeout_ms=millis(timeout),
        tag=tag or "",
        terminal=None if size is None else terminal_size(size),
    )
    return v1.Operation(process=request)


def terminal_size(size: PtySize) -> v1.TerminalSize:
    return v1.TerminalSize(rows=size.rows, columns=size.cols)


def patch(change: str) -> v1.Operation:
    if change.lstrip().startswith("*** Begin Patch"):
        return v1.Operation(patch=v1.PatchRequest(envelope=change))
    return v1.Operation(patch=v1.PatchRequest(unified_diff=change))


def only_reads(operation: v1.Operation) -> bool:
    """Nothing happens twice if it is made twice."""
    kind = operation.WhichOneof("kind")
    if kind == "git":
        return operation.git.WhichOneof("command") in ("status", "diff", "log", "show")
    return kind in ("read", "list", "glob", "grep")


def frontmatter(
    path: str,
    variables: Mapping[str, Any] | None,
    steps_completed: Sequence[str],
    decisions: Sequence[Mapping[str, Any]],
    artifacts: Sequence[str],
    current_node_id: str | None,
    updated_at: str | None,
    if_match: str | None,
) -> v1.Operation:
    change = v1.UpdateFrontmatter(
        path=path,
        if_match_sha256=if_match or "",
        steps_completed_append=steps_completed,
        variables_set_json=json.dumps(variables) if variables else "",
        decision_log_append_json=[json.dumps(decision) for decision in decisions],
        artifacts_append=artifacts,
        current_node_id=current_node_id,
        updated_at=updated_at,
    )
    return v1.Operation(patch=v1.PatchRequest(update_frontmatter=change))
