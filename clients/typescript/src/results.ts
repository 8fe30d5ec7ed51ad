/** From messages of the API to values. No I/O. */

import { type Duration, durationMs, type Timestamp, timestampDate } from "@bufbuild/protobuf/wkt";
import { InternalError } from "./errors.js";
import * as types from "./types.js";
import * as v1 from "./v1.js";

// The mounts: the daemon's alias, and the path for commands.
const MOUNTS: Readonly<Record<string, string>> = { "@project": "/workspace", "@state": "/state", "@pkg": "/pkg" };

/** The path as commands in the sandbox see it; the file operations take it as well. */
export function path(alias: string): string {
  const end = alias.indexOf("/");
  const mount = end < 0 ? alias : alias.slice(0, end);
  return Object.hasOwn(MOUNTS, mount) ? `${MOUNTS[mount]}${end < 0 ? "" : alias.slice(end)}` : alias;
}

export function when(stamp: Timestamp | undefined): Date | null {
  return stamp === undefined || (stamp.seconds === 0n && stamp.nanos === 0) ? null : moment(stamp);
}

function moment(stamp: Timestamp): Date {
  const date = timestampDate(stamp);
  if (Number.isNaN(date.getTime())) {
    throw new InternalError("a time of the daemon is none");
  }
  return date;
}

function seconds(duration: Duration | undefined): number | null {
  return duration === undefined ? null : durationMs(duration) / 1000 || null;
}

/** The name of an enum's value as a word of this package; those of a newer daemon are `unspecified`. */
function word<W extends string>(names: Readonly<Record<number, string>>, value: number): W {
  return (names[value] ?? "unspecified").toLowerCase() as W;
}

/** The same with hyphens, `memory-limit` for MEMORY_LIMIT; 0 is empty. */
function hyphened<W extends string>(names: Readonly<Record<number, string>>, value: number): W {
  return (value === 0 ? "" : word<string>(names, value).replaceAll("_", "-")) as W;
}

const FAULTS: ReadonlyMap<number, types.Fault> = new Map<number, types.Fault>([
  [v1.Fault.PROGRAM, "program"],
  [v1.Fault.POLICY, "policy"],
  [v1.Fault.CALLER, "caller"],
  [v1.Fault.INFRASTRUCTURE, "infrastructure"],
]);

/** A party in words of this package; empty for one that this release does not know. */
function faultOf(fault: v1.Fault | undefined): types.Fault {
  return FAULTS.get(fault ?? 0) ?? "";
}

function evidenceOf(evidence: readonly v1.Evidence[] = []): Readonly<Record<string, string>> {
  return Object.fromEntries(evidence.map(({ what, value }) => [what, value]));
}

/** Whose failure it is, whether a repetition is safe, and what shows it. */
export function blame(error: v1.ToolFailure | undefined): {
  fault: types.Fault;
  retrySafe: boolean;
  evidence: Readonly<Record<string, string>>;
} {
  const { fault, retrySafe = false, evidence } = error ?? {};
  return { fault: faultOf(fault), retrySafe, evidence: evidenceOf(evidence) };
}

export function runInfo(run: v1.Run | undefined): types.RunInfo {
  const it = present(run);
  return {
    runId: it.runId,
    state: word(v1.Run_State, it.state),
    profile: it.profile,
    image: it.image,
    agentId: it.agentId,
    role: it.role,
    metadata: it.labels,
    createdAt: when(it.createdAt),
    readyAt: when(it.readyAt),
    endedAt: when(it.endedAt),
    failure: it.failure,
    endCause: it.endCause === v1.Run_EndCause.END_CAUSE_UNSPECIFIED ? "" : word(v1.Run_EndCause, it.endCause),
    timeout: seconds(it.ttl),
    idleTimeout: seconds(it.idleTimeout),
    lease: seconds(it.lease),
    leaseEndsAt: when(it.leaseEndsAt),
    start: it.startKind === v1.Run_StartKind.START_KIND_UNSPECIFIED ? "" : word(v1.Run_StartKind, it.startKind),
    coldBecause: hyphened(v1.Run_ColdBecause, it.coldBecause),
    restarts: it.restarts,
    holds: it.holds.map((hold) => word(v1.RunHold_Kind, hold.kind)),
    secretEnv: it.secretEnv,
    writablePaths: it.writablePaths,
    workspacePath: it.workspacePath,
    forkedFrom:
      it.forkedFrom === undefined ? null : { checkpointId: it.forkedFrom.checkpointId, runId: it.forkedFrom.runId },
    companions: it.companions.map(companionInfo),
    failureReason: it.failureReason,
    fault: faultOf(it.fault),
    evidence: evidenceOf(it.evidence),
    failedByInfrastructure: it.fault === v1.Fault.INFRASTRUCTURE,
  };
}

function companionInfo(it: v1.CompanionStatus): types.CompanionInfo {
  const { STATE_UNSPECIFIED, EXITED } = v1.CompanionStatus_State;
  return {
    name: it.name,
    image: it.image,
    imageDigest: it.imageDigest,
    state: it.state === STATE_UNSPECIFIED ? "" : word(v1.CompanionStatus_State, it.state),
    exitCode: it.state === EXITED ? it.exitCode : null,
    ports: it.ports,
    address: it.address,
  };
}

export function modelUsage(response: v1.GetUsageResponse): types.ModelUsage {
  return {
    total: modelUse(response.total),
    models: Object.fromEntries(response.groups.map((group) => [group.name, modelUse(group.counts)])),
    budget: response.bounds.map((bound) => {
      const isUsd = bound.unit === v1.BudgetBound_Unit.MICRO_USD;
      const scale = isUsd ? 1e6 : 1;
      return {
        scope: word(v1.BudgetBound_Scope, bound.scope),
        unit: isUsd ? "usd" : word(v1.BudgetBound_Unit, bound.unit),
        used: Number(bound.used) / scale,
        limit: Number(bound.limit) / scale,
        renewsAt: when(bound.renewsAt),
      };
    }),
  };
}

function modelUse(counts: v1.ModelCounts | undefined): types.ModelUse {
  const it = present(counts);
  return {
    requests: Number(it.requests),
    unreportedRequests: Number(it.unreportedRequests),
    inputTokens: Number(it.inputTokens),
    outputTokens: Number(it.outputTokens),
    cachedInputTokens: Number(it.cachedInputTokens),
    cacheWriteTokens: Number(it.cacheWriteTokens),
    costUsd: Number(it.costMicroUsd) / 1e6,
    unpricedTokens: Number(it.unpricedTokens),
  };
}

/** The daemon's account of a command, with all of its output. */
export function command(response: v1.CallResponse, stdout: Uint8Array, stderr: Uint8Array): types.CommandResult {
  const kind = response.result?.kind;
  const result = kind?.case === "shell" || kind?.case === "exec" ? kind.value : undefined;
  const wrote = Number((result?.stdoutBytes ?? 0n) + (result?.stderrBytes ?? 0n));
  return new types.CommandResult({
    callId: response.callId,
    exitCode: result?.exitCode ?? null,
    stdoutBytes: stdout,
    stderrBytes: stderr,
    signal: result?.signal ?? null,
    timedOut: (result?.timedOut ?? false) || response.error?.reason === "TIMED_OUT",
    endedBy: hyphened(v1.ExecResult_EndedBy, result?.endedBy ?? 0),
    limitsHit: (result?.limitsHit ?? []).map((limit) => hyphened(v1.ExecResult_Limit, limit)),
    omittedBytes: Math.max(0, wrote - stdout.length - stderr.length),
    duration: Number(result?.wallTimeUs ?? 0n) / 1e6,
    cpuTime: Number(result?.cpuTimeUs ?? 0n) / 1e6,
    peakMemoryBytes: Number(result?.peakMemoryBytes ?? 0n),
    processesEnded: result?.kill?.ended ?? 0,
    hint: result?.hint ?? "",
    ...blame(response.error),
  });
}

export function processInfo(process: v1.Process | undefined): types.ProcessInfo {
  const it = present(process);
  const { script = "", command = "", args = [], cwd = "", tag = "", terminal, session = false } = it.request ?? {};
  return {
    processId: it.processId,
    state: word(v1.Process_State, it.state),
    cmd: session ? [] : script || [command, ...args],
    cwd: path(cwd || "@project"),
    tag: tag || null,
    pty: session || terminal !== undefined,
    startedAt: when(it.startedAt),
    endedAt: when(it.endedAt),
    exitCode: it.exitCode ?? null,
    signal: it.signal ?? null,
    endedBy: hyphened(v1.ExecResult_EndedBy, it.endedBy),
    failure: it.failure,
    stdoutSize: Number(it.stdoutBytes),
    stderrSize: Number(it.stderrBytes),
    stdinSize: Number(it.stdinBytes),
    stdinOpen: it.stdinOpen,
    cpuTime: Number(it.cpuTimeUs) / 1e6,
    peakMemoryBytes: Number(it.peakMemoryBytes),
    leftBehind: it.leftBehind,
    fault: faultOf(it.fault),
    evidence: evidenceOf(it.evidence),
    failedByInfrastructure: it.fault === v1.Fault.INFRASTRUCTURE,
  };
}

/** How a process ended, with the output that the daemon has kept of it. */
export function ended(process: v1.Process, stdout: Uint8Array, stderr: Uint8Array): types.CommandResult {
  const info = processInfo(process);
  return new types.CommandResult({
    callId: info.processId,
    exitCode: info.exitCode,
    stdoutBytes: stdout,
    stderrBytes: stderr,
    signal: info.signal,
    timedOut: info.endedBy === "timeout",
    endedBy: info.endedBy,
    limitsHit: [],
    omittedBytes: Math.max(0, info.stdoutSize + info.stderrSize - stdout.length - stderr.length),
    duration: ((info.endedAt?.getTime() ?? 0) - (info.startedAt?.getTime() ?? 0)) / 1000,
    cpuTime: info.cpuTime,
    peakMemoryBytes: info.peakMemoryBytes,
    processesEnded: process.kill?.ended ?? 0,
    hint: "",
    fault: info.fault,
    evidence: info.evidence,
  });
}

export function sessionInfo(session: v1.Session): types.SessionInfo {
  const { sessionId, state, process } = session;
  return { sessionId, state: word(v1.Session_State, state), process: processInfo(process) };
}

/** `output`: in place of the excerpt; `omittedBytes`: what it lacks. */
export function session(
  result: v1.SessionResult,
  output = result.output,
  omittedBytes = Number(result.omittedBytes),
): types.SessionResult {
  return {
    state: word(v1.SessionResult_State, result.state),
    output,
    exitCode: result.exitCode ?? null,
    ok: result.exitCode === 0,
    matched: result.matched ?? null,
    matchedText: result.matchedText,
    omittedBytes,
  };
}

export function content(read: v1.ReadResult): Uint8Array {
  return Buffer.from(read.content, read.encoding === v1.ContentEncoding.BASE64 ? "base64" : "utf8");
}

function entryType(type: v1.Entry_Type): types.EntryType {
  return type === v1.Entry_Type.TYPE_UNSPECIFIED ? "other" : word(v1.Entry_Type, type);
}

export function listing(result: v1.ListResult): types.Found<types.FileInfo> {
  const entries = result.entries.map((entry) => ({
    path: path(entry.path),
    name: entry.name,
    type: entryType(entry.type),
    size: Number(entry.sizeBytes),
    modified: new Date(Number(entry.modifiedUnixSeconds) * 1000),
  }));
  return new types.Found(entries, result.truncated, result.hint);
}

export function globbed(result: v1.GlobResult): types.Found<string> {
  return new types.Found(result.paths.map(path), result.truncated, result.hint);
}

export function matches(result: v1.GrepResult): types.Found<types.Match> {
  const found = result.matches.map((match) => ({
    path: path(match.path),
    line: Number(match.line),
    text: match.text,
    before: match.before,
    after: match.after,
  }));
  return new types.Found(found, result.truncated, result.hint);
}

export function written(result: v1.WriteResult): types.WriteInfo {
  return {
    path: path(result.path),
    size: Number(result.bytesWritten),
    sha256: result.sha256After,
    sha256Before: result.sha256Before || null,
  };
}

export function uploaded(result: v1.WriteResult, type: "file" | "directory", leftOut: number): types.TransferInfo {
  const { path, size, sha256 } = written(result);
  return { path, type, size, sha256, entries: type === "file" ? 1 : Number(result.entries), leftOut };
}

export function downloaded(
  result: v1.ReadResult,
  facts: Pick<types.TransferInfo, "type" | "size" | "entries" | "leftOut">,
): types.TransferInfo {
  return { path: path(result.path), sha256: result.sha256, ...facts };
}

export function edited(result: v1.EditResult): types.EditInfo {
  return {
    path: path(result.path),
    diff: result.diff,
    diffTruncated: result.diffTruncated,
    sha256: result.sha256After,
    sha256Before: result.sha256Before || null,
    replacements: result.replacements,
  };
}

export function patched(result: v1.PatchResult): types.PatchInfo {
  const files = result.files.map((file) => ({
    path: path(file.path),
    change: word<types.PatchedFile["change"]>(v1.PatchedFile_Change, file.change),
    movedFrom: file.movedFrom ? path(file.movedFrom) : null,
    sha256: file.sha256After || null,
  }));
  return { files, diff: result.diff, diffTruncated: result.diffTruncated, notes: result.notes };
}

export function removed(result: v1.DeleteResult): types.RemoveInfo {
  return { path: path(result.path), type: entryType(result.type), trashEntry: result.trashEntry || null };
}

export function git(result: v1.GitResult): types.GitOutput {
  const { output, truncated, commit, remote } = result;
  const updates = result.updates.map((it) => ({ name: it.name, oldId: it.oldId || null, newId: it.newId || null }));
  return { output, truncated, commit: commit || null, remote: remote || null, updates };
}

/** As the method that made the call would return it. */
function anyResult(response: v1.CallResponse, stdout: Uint8Array, stderr: Uint8Array): types.CallResult {
  const kind = response.result?.kind;
  switch (kind?.case) {
    case "exec":
    case "shell":
      return command(response, stdout, stderr);
    case "read":
      return kind.value.encoding === v1.ContentEncoding.BASE64 ? content(kind.value) : kind.value.content;
    case "list":
      return listing(kind.value);
    case "glob":
      return globbed(kind.value);
    case "grep":
      return matches(kind.value);
    case "write":
      return written(kind.value);
    case "edit":
      return edited(kind.value);
    case "patch":
      return patched(kind.value);
    case "delete":
      return removed(kind.value);
    case "git":
      return git(kind.value);
    case "process":
      return kind.value.processId;
    case "session":
      return session(kind.value);
    default:
      return null;
  }
}

export function callInfo(
  response: v1.CallResponse | undefined,
  stdout: Uint8Array,
  stderr: Uint8Array,
): types.CallInfo {
  const it = present(response);
  return {
    callId: it.callId,
    status: word(v1.CallResponse_Status, it.status),
    result: anyResult(it, stdout, stderr),
    text: it.rendered,
    approvalId: it.approvalId || null,
    reason: it.error?.reason ?? "",
    message: it.error?.message ?? "",
    ...blame(it.error),
    failedByInfrastructure: it.error?.fault === v1.Fault.INFRASTRUCTURE,
  };
}

export function toolOutput(response: v1.CallResponse): types.ToolOutput {
  return {
    text: response.rendered,
    status: word(v1.CallResponse_Status, response.status),
    ok: response.status === v1.CallResponse_Status.SUCCEEDED,
    callId: response.callId,
    approvalId: response.approvalId || null,
    reason: response.error?.reason ?? "",
    fault: faultOf(response.error?.fault),
    failedByInfrastructure: response.error?.fault === v1.Fault.INFRASTRUCTURE,
  };
}

export function approval(message: v1.Approval | undefined): types.ApprovalInfo {
  const it = present(message);
  return {
    approvalId: it.approvalId,
    state: word(v1.Approval_State, it.state),
    runId: it.runId,
    callId: it.callId,
    agentId: it.agentId,
    operation: it.operation,
    preview: it.preview,
    justification: it.justification,
    risk: it.risk,
    createdAt: when(it.createdAt),
    expiresAt: when(it.expiresAt),
    decidedBy: it.decidedBy,
    comment: it.comment,
  };
}

export function alert(message: v1.Alert | undefined): types.AlertInfo {
  const it = present(message);
  return {
    alertId: it.alertId,
    rule: it.rule,
    severity: hyphened(v1.Alert_Severity, it.severity),
    state: hyphened(v1.Alert_State, it.state),
    summary: it.summary,
    principal: it.principal,
    agentId: it.agentId,
    runId: it.runId,
    raisedAt: when(it.raisedAt),
    lastAt: when(it.lastAt),
    occurrences: Number(it.occurrences),
    measure: it.measure?.action ?? "",
    acknowledgedBy: it.acknowledgedBy,
    comment: it.comment,
  };
}

const NODE_STATES: ReadonlyMap<number, types.NodeInfo["state"]> = new Map<number, types.NodeInfo["state"]>([
  [v1.Node_State.DRAINING, "draining"],
  [v1.Node_State.DRAINED, "drained"],
]);

export function nodeInfo(message: v1.Node | undefined, endpoint: string): types.NodeInfo {
  const it = present(message);
  return {
    node: it.nodeId || null,
    endpoint,
    state: NODE_STATES.get(it.state) ?? "serving",
    failure: "",
    instance: it.instance,
    labels: it.labels,
    version: it.versions?.daemon ?? "",
    capacity: amounts(it.capacity),
    used: amounts(it.used),
    drainReason: it.drain?.reason ?? "",
  };
}

function amounts(message: v1.NodeAmounts | undefined): types.NodeAmounts {
  return {
    runs: Number(message?.runs ?? 0n),
    memoryMib: Number(message?.memoryMib ?? 0n),
    cores: Number(message?.cpuMillis ?? 0n) / 1000,
    diskMib: Number(message?.diskMib ?? 0n),
  };
}

export function event(message: v1.AuditEvent): types.AuditEvent {
  return {
    sequence: Number(message.sequence),
    time: moment(present(message.time)),
    kind: message.kind,
    runId: message.runId,
    callId: message.callId,
    principal: message.principal,
    agentId: message.agentId,
    operation: message.operation,
    record: JSON.parse(message.recordJson),
    hash: message.hash,
  };
}

export function diff(response: v1.DiffRunResponse): types.Diff {
  return { files: response.changes.map(changed), unified: response.unifiedDiff, truncated: response.truncated };
}

function changed(change: v1.FileChange): types.ChangedFile {
  return {
    path: change.path,
    change: word(v1.FileChange_Kind, change.kind),
    type: change.fileType,
    size: Number(change.sizeBytes),
    objection: change.objection,
    obstacle: change.obstacle,
  };
}

/** The daemon's comparison, with the outcome of the check in each run. */
export function comparison(
  response: v1.CompareRunsResponse,
  checks: readonly (types.CommandResult | null)[],
): types.Comparison {
  const runs = response.runs.map((one, at) => ({
    run: runInfo(one.run),
    files: one.changes.map(changed),
    total: Number(one.total),
    linesAdded: Number(one.linesAdded),
    linesRemoved: Number(one.linesRemoved),
    linesIncomplete: one.linesIncomplete,
    unavailable: one.unavailable,
    calls: Number(one.calls),
    refused: Number(one.refused),
    approvals: Number(one.approvals),
    cpuTime: Number(one.cpuUs) / 1e6,
    check: checks[at] ?? null,
  }));
  const conflicts = response.conflicts.map(({ path, runIds }) => ({ path, runIds }));
  return { runs, conflicts, truncated: response.truncated };
}

/** A field that every daemon sets. */
export function present<T>(value: T | undefined): T {
  if (value === undefined) {
    throw new InternalError("the daemon's answer lacks a required field; the daemon may be of another version");
  }
  return value;
}
