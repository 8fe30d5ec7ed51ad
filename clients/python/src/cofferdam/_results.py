"""From messages of the API to values. No I/O."""

import base64
import json
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, Literal, Protocol, cast

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from cofferdam import types, v1
from cofferdam._status import blame_of, evidence_of, fault_of
from cofferdam.types import CommandResult, Found

# The mounts: the daemon's alias, and the path for commands.
_MOUNTS = {"@project": "/workspace", "@state": "/state", "@pkg": "/pkg"}
_NOTHING = v1.ExecResult.EndedBy.ENDED_BY_UNSPECIFIED
_END_CAUSES = {v1.Run.EndCause.Value(name.upper()): name for name in ("ttl", "idle_timeout", "lease", "node_drained")}


def path(alias: str) -> str:
    """The path as commands in the sandbox see it; the file operations take it as well."""
    mount, slash, rest = alias.partition("/")
    return f"{_MOUNTS.get(mount, mount)}{slash}{rest}"


def when(stamp: Timestamp) -> datetime | None:
    return stamp.ToDatetime(timezone.utc) if stamp.seconds or stamp.nanos else None


def _seconds(duration: Duration) -> float | None:
    return duration.seconds + duration.nanos / 1e9 if duration.seconds or duration.nanos else None


class _Names(Protocol):
    """An enum."""

    def Name(self, number: Any) -> str: ...


def _word(kind: _Names, number: int) -> str:
    """A value of an enum as a word of this package; empty for one of a daemon that is newer than this release."""
    try:
        return kind.Name(number).lower()
    except ValueError:
        return ""


def run_info(run: v1.Run) -> types.RunInfo:
    start = _word(v1.Run.StartKind, run.start_kind)
    return types.RunInfo(
        run_id=run.run_id,
        state=cast(types.RunState, _word(v1.Run.State, run.state)),
        profile=run.profile,
        image=run.image,
        agent_id=run.agent_id,
        role=run.role,
        metadata=dict(run.labels),
        created_at=when(run.created_at),
        ready_at=when(run.ready_at),
        ended_at=when(run.ended_at),
        failure=run.failure,
        end_cause=cast(Literal["ttl", "idle_timeout", "lease", "node_drained", ""], _END_CAUSES.get(run.end_cause, "")),
        timeout=_seconds(run.ttl),
        idle_timeout=_seconds(run.idle_timeout),
        lease=_seconds(run.lease),
        lease_ends_at=when(run.lease_ends_at),
        start=cast(Literal["warm", "cold", ""], start if start in ("warm", "cold") else ""),
        cold_because=_cold_because(run.cold_because),
        restarts=run.restarts,
        holds=tuple(_word(v1.RunHold.Kind, hold.kind) for hold in run.holds),
        secret_env=tuple(run.secret_env),
        writable_paths=tuple(run.writable_paths),
        workspace_path=run.workspace_path,
        forked_from=_forked_from(run),
        companions=tuple(map(_companion_info, run.companions)),
        failure_reason=run.failure_reason,
        fault=fault_of(run.fault),
        evidence=evidence_of(run.evidence),
    )


def _companion_info(status: v1.CompanionStatus) -> types.CompanionInfo:
    state = _word(v1.CompanionStatus.State, status.state)
    return types.CompanionInfo(
        name=status.name,
        image=status.image,
        image_digest=status.image_digest,
        state=cast(Literal["starting", "ready", "exited", ""], state if state in ("starting", "ready", "exited") else ""),
        exit_code=status.exit_code if state == "exited" else None,
        ports=tuple(status.ports),
        address=status.address,
    )


def _forked_from(run: v1.Run) -> types.ForkedFrom | None:
    origin = run.forked_from
    return types.ForkedFrom(origin.checkpoint_id, origin.run_id) if run.HasField("forked_from") else None


def model_usage(response: v1.GetUsageResponse) -> types.ModelUsage:
    return types.ModelUsage(
        total=_model_use(response.total),
        models={group.name: _model_use(group.counts) for group in response.groups},
        budget=tuple(map(_budget_bound, response.bounds)),
    )


def _model_use(counts: v1.ModelCounts) -> types.ModelUse:
    return types.ModelUse(
        requests=counts.requests,
        unreported_requests=counts.unreported_requests,
        input_tokens=counts.input_tokens,
        output_tokens=counts.output_tokens,
        cached_input_tokens=counts.cached_input_tokens,
        cache_write_tokens=counts.cache_write_tokens,
        cost_usd=counts.cost_micro_usd / 1e6,
        unpriced_tokens=counts.unpriced_tokens,
    )


def _budget_bound(bound: v1.BudgetBound) -> types.BudgetBound:
    is_usd = bound.unit == v1.BudgetBound.Unit.MICRO_USD
    scope, unit = _word(v1.BudgetBound.Scope, bound.scope), _word(v1.BudgetBound.Unit, bound.unit)
    return types.BudgetBound(
        scope=cast(Literal["run", "principal_day", "day"], scope),
        unit=cast(Literal["tokens", "requests", "usd"], "usd" if is_usd else unit),
        used=bound.used / 1e6 if is_usd else bound.used,
        limit=bound.limit / 1e6 if is_usd else bound.limit,
        renews_at=when(bound.renews_at),
    )


def _cold_because(because: v1.Run.ColdBecause.ValueType) -> types.ColdBecause:
    """A reason in words of this package, `none-waits` for NONE_WAITS."""
    if because == v1.Run.ColdBecause.COLD_BECAUSE_UNSPECIFIED:
        return ""
    return cast(types.ColdBecause, _word(v1.Run.ColdBecause, because).replace("_", "-"))


def _ended_by(cause: v1.ExecResult.EndedBy.ValueType) -> types.EndedBy:
    """A cause in words of this package, `memory-limit` for MEMORY_LIMIT."""
    return cast(types.EndedBy, "" if cause == _NOTHING else _word(v1.ExecResult.EndedBy, cause).replace("_", "-"))


def _limit(limit: v1.ExecResult.Limit.ValueType) -> types.Limit:
    return cast(types.Limit, _word(v1.ExecResult.Limit, limit).replace("_", "-"))


# Limits of a run that end a command, with the daemon's reason.
LIMITS: dict[types.EndedBy, str] = {
    "memory-limit": "MEMORY_LIMIT",
    "file-size-limit": "WRITE_LIMIT",
    "disk-quota": "WRITE_LIMIT",
}


def command(response: v1.CallResponse, stdout: bytes, stderr: bytes) -> CommandResult:
    """The daemon's account of a command, with all of its output."""
    kind = response.result.WhichOneof("kind")
    result = response.result.shell if kind == "shell" else response.result.exec
    wrote = result.stdout_bytes + result.stderr_bytes
    return CommandResult(
        call_id=response.call_id,
        exit_code=result.exit_code if result.HasField("exit_code") else None,
        stdout_bytes=stdout,
        stderr_bytes=stderr,
        signal=result.signal if result.HasField("signal") else None,
        timed_out=result.timed_out or response.error.reason == "TIMED_OUT",
        ended_by=_ended_by(result.ended_by),
        limits_hit=tuple(map(_limit, result.limits_hit)),
        omitted_bytes=max(0, wrote - len(stdout) - len(stderr)),
        duration=result.wall_time_us / 1e6,
        cpu_time=result.cpu_time_us / 1e6,
        peak_memory_bytes=result.peak_memory_bytes,
        processes_ended=result.kill.ended,
        hint=result.hint,
        **blame_of(response.error)._asdict(),
    )


def process_info(process: v1.Process) -> types.ProcessInfo:
    request = process.request
    state = _word(v1.Process.State, process.state)
    return types.ProcessInfo(
        process_id=process.process_id,
        state=cast(types.ProcessState, state),
        cmd=request.script or ((request.command, *request.args) if request.command else ""),
        cwd=path(request.cwd or "@project"),
        tag=request.tag or None,
        pty=request.session or request.HasField("terminal"),
        started_at=when(process.started_at),
        ended_at=when(process.ended_at),
        exit_code=process.exit_code if process.HasField("exit_code") else None,
        signal=process.signal if process.HasField("signal") else None,
        ended_by=_ended_by(process.ended_by),
        failure=process.failure,
        stdout_size=process.stdout_bytes,
        stderr_size=process.stderr_bytes,
        stdin_size=process.stdin_bytes,
        stdin_open=process.stdin_open,
        cpu_time=process.cpu_time_us / 1e6,
        peak_memory_bytes=process.peak_memory_bytes,
        left_behind=process.left_behind,
        fault=fault_of(process.fault),
        evidence=evidence_of(process.evidence),
    )


def process(process: v1.Process, stdout: bytes, stderr: bytes) -> CommandResult:
    """How a process ended, with the output that the daemon has kept of it."""
    info = process_info(process)
    lasted = info.ended_at - info.started_at if info.ended_at and info.started_at else timedelta()
    return CommandResult(
        call_id=info.process_id,
        exit_code=info.exit_code,
        stdout_bytes=stdout,
        stderr_bytes=stderr,
        signal=info.signal,
        timed_out=info.ended_by == "timeout",
        ended_by=info.ended_by,
        omitted_bytes=max(0, info.stdout_size + info.stderr_size - len(stdout) - len(stderr)),
        duration=lasted.total_seconds(),
        cpu_time=info.cpu_time,
        peak_memory_bytes=info.peak_memory_bytes,
        processes_ended=process.kill.ended,
        fault=info.fault,
        evidence=info.evidence,
    )


def session_info(session: v1.Session) -> types.SessionInfo:
    state = _word(v1.Session.State, session.state)
    return types.SessionInfo(session.session_id, cast(types.SessionState, state), process_info(session.process))


def session(result: v1.SessionResult, output: str, omitted_bytes: int) -> types.SessionResult:
    state = _word(v1.SessionResult.State, result.state)
    return types.SessionResult(
        state=cast(Literal["done", "matched", "running", "ended", "unanswered"], state),
        output=output,
        exit_code=result.exit_code if result.HasField("exit_code") else None,
        matched=result.matched if result.HasField("matched") else None,
        matched_text=result.matched_text,
        omitted_bytes=omitted_bytes,
    )


def content(read: v1.ReadResult) -> bytes:
    if read.encoding == v1.ContentEncoding.CONTENT_ENCODING_BASE64:
        return base64.b64decode(read.content)
    return read.content.encode()


def _entry_type(kind: v1.Entry.Type.ValueType) -> Literal["file", "directory", "symlink", "other"]:
    name = _word(v1.Entry.Type, kind)
    return cast(Literal["file", "directory", "symlink"], name) if name in ("file", "directory", "symlink") else "other"


def listing(result: v1.ListResult) -> Found[types.FileInfo]:
    entries = (
        types.FileInfo(
            path=path(entry.path),
            name=entry.name,
            type=_entry_type(entry.type),
            size=entry.size_bytes,
            modified=datetime.fromtimestamp(entry.modified_unix_seconds, timezone.utc),
        )
        for entry in result.entries
    )
    return Found(tuple(entries), result.truncated, result.hint)


def globbed(result: v1.GlobResult) -> Found[str]:
    return Found(tuple(path(at) for at in result.paths), result.truncated, result.hint)


def matches(result: v1.GrepResult) -> Found[types.Match]:
    found = (types.Match(path(m.path), m.line, m.text, tuple(m.before), tuple(m.after)) for m in result.matches)
    return Found(tuple(found), result.truncated, result.hint)


def written(result: v1.WriteResult) -> types.WriteInfo:
    return types.WriteInfo(path(result.path), result.bytes_written, result.sha256_after, result.sha256_before or None)


def edited(result: v1.EditResult) -> types.EditInfo:
    return types.EditInfo(
        path=path(result.path),
        diff=result.diff,
        diff_truncated=result.diff_truncated,
        sha256=result.sha256_after,
        sha256_before=result.sha256_before or None,
        replacements=result.replacements,
    )


def patched(result: v1.PatchResult) -> types.PatchInfo:
    files = (
        types.PatchedFile(
            path=path(file.path),
            change=cast(Literal["created", "updated", "deleted", "moved"], _word(v1.PatchedFile.Change, file.change)),
            moved_from=path(file.moved_from) if file.moved_from else None,
            sha256=file.sha256_after or None,
        )
        for file in result.files
    )
    return types.PatchInfo(tuple(files), result.diff, result.diff_truncated, tuple(result.notes))


def removed(result: v1.DeleteResult) -> types.RemoveInfo:
    return types.RemoveInfo(path(result.path), _entry_type(result.type), result.trash_entry or None)


def git(result: v1.GitResult) -> types.GitOutput:
    updates = tuple(types.GitRefUpdate(it.name, it.old_id or None, it.new_id or None) for it in result.updates)
    return types.GitOutput(result.output, result.truncated, result.commit or None, result.remote or None, updates)


def any_result(response: v1.CallResponse, stdout: bytes, stderr: bytes) -> types.CallResult:
    """As the method that made the call would return it."""
    result = response.result
    match result.WhichOneof("kind"):
        case "exec" | "shell":
            return command(response, stdout, stderr)
        case "read":
            return content(result.read) if result.read.encoding == 2 else result.read.content
        case "list":
            return listing(result.list)
        case "glob":
            return globbed(result.glob)
        case "grep":
            return matches(result.grep)
        case "write":
            return written(result.write)
        case "edit":
            return edited(result.edit)
        case "patch":
            return patched(result.patch)
        case "delete":
            return removed(result.delete)
        case "git":
            return git(result.git)
        case "process":
            return result.process.process_id
        case "session":
            return session(result.session, result.session.output, result.session.omitted_bytes)
    return None


Status = Literal["succeeded", "failed", "pending_approval", "denied", "running"]


def status(response: v1.CallResponse) -> Status:
    return cast(Status, _word(v1.CallResponse.Status, response.status))


def call_info(response: v1.CallResponse, stdout: bytes, stderr: bytes) -> types.CallInfo:
    return types.CallInfo(
        call_id=response.call_id,
        status=status(response),
        result=any_result(response, stdout, stderr),
        text=response.rendered,
        approval_id=response.approval_id or None,
        reason=response.error.reason,
        message=response.error.message,
        **blame_of(response.error)._asdict(),
    )


def tool_output(response: v1.CallResponse) -> types.ToolOutput:
    return types.ToolOutput(
        text=response.rendered,
        status=cast(Literal["succeeded", "failed", "pending_approval", "denied"], status(response)),
        call_id=response.call_id,
        approval_id=response.approval_id or None,
        reason=response.error.reason,
        fault=fault_of(response.error.fault),
    )


def approval(message: v1.Approval) -> types.ApprovalInfo:
    state = _word(v1.Approval.State, message.state)
    return types.ApprovalInfo(
        approval_id=message.approval_id,
        state=cast(Literal["pending", "approved", "denied", "expired", "cancelled"], state),
        run_id=message.run_id,
        call_id=message.call_id,
        agent_id=message.agent_id,
        operation=message.operation,
        preview=message.preview,
        justification=message.justification,
        risk=message.risk,
        created_at=when(message.created_at),
        expires_at=when(message.expires_at),
        decided_by=message.decided_by,
        comment=message.comment,
    )


def alert(message: v1.Alert) -> types.AlertInfo:
    severity, state = _word(v1.Alert.Severity, message.severity), _word(v1.Alert.State, message.state)
    return types.AlertInfo(
        alert_id=message.alert_id,
        rule=message.rule,
        severity=cast(Literal["low", "medium", "high", "critical", ""], severity if message.severity else ""),
        state=cast(Literal["open", "acknowledged", ""], state if message.state else ""),
        summary=message.summary,
        principal=message.principal,
        agent_id=message.agent_id,
        run_id=message.run_id,
        raised_at=when(message.raised_at),
        last_at=when(message.last_at),
        occurrences=message.occurrences,
        measure=message.measure.action,
        acknowledged_by=message.acknowledged_by,
        comment=message.comment,
    )


def node_info(node: v1.Node, endpoint: str) -> types.NodeInfo:
    state = {v1.Node.State.DRAINING: "draining", v1.Node.State.DRAINED: "drained"}.get(node.state, "serving")
    return types.NodeInfo(
        node=node.node_id or None,
        endpoint=endpoint,
        state=cast(Literal["serving", "draining", "drained"], state),
        instance=node.instance,
        labels=dict(node.labels),
        version=node.versions.daemon,
        capacity=_amounts(node.capacity),
        used=_amounts(node.used),
        drain_reason=node.drain.reason,
    )


def _amounts(amounts: v1.NodeAmounts) -> types.NodeAmounts:
    return types.NodeAmounts(amounts.runs, amounts.memory_mib, amounts.cpu_millis / 1000, amounts.disk_mib)


def event(message: v1.AuditEvent) -> types.AuditEvent:
    record: dict[str, Any] = json.loads(message.record_json)
    return types.AuditEvent(
        sequence=message.sequence,
        time=message.time.ToDatetime(timezone.utc),
        kind=message.kind,
        run_id=message.run_id,
        call_id=message.call_id,
        principal=message.principal,
        agent_id=message.agent_id,
        operation=message.operation,
        record=record,
        hash=message.hash,
    )


def _changed(change: v1.FileChange) -> types.ChangedFile:
    return types.ChangedFile(
        path=change.path,
        change=cast(Literal["added", "modified", "deleted"], _word(v1.FileChange.Kind, change.kind)),
        type=change.file_type,
        size=change.size_bytes,
        objection=change.objection,
        obstacle=change.obstacle,
    )


def diff(response: v1.DiffRunResponse) -> types.Diff:
    return types.Diff(tuple(map(_changed, response.changes)), response.unified_diff, response.truncated)


def comparison(response: v1.CompareRunsResponse, checks: Sequence[CommandResult | None]) -> types.Comparison:
    """The daemon's comparison, with the outcome of the check in each run."""
    runs = (
        types.ComparedRun(
            run=run_info(one.run),
            files=tuple(map(_changed, one.changes)),
            total=one.total,
            lines_added=one.lines_added,
            lines_removed=one.lines_removed,
            lines_incomplete=one.lines_incomplete,
            unavailable=one.unavailable,
            calls=one.calls,
            refused=one.refused,
            approvals=one.approvals,
            cpu_time=one.cpu_us / 1e6,
            check=check,
        )
        for one, check in zip(response.runs, checks, strict=True)
    )
    conflicts = (types.Conflict(one.path, tuple(one.run_ids)) for one in response.conflicts)
    return types.Comparison(tuple(runs), tuple(conflicts), response.truncated)
