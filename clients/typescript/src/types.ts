/** Arguments and results: plain values. Times are seconds, sizes bytes, paths as commands in the sandbox see them. */

/** See `Managed`, `Bind`, `Clone`, `Overlay`, `Base` and `Checkpoint`. */
export type Workspace =
  | { readonly kind: "managed"; readonly workspaceId?: string; readonly keep?: boolean | undefined }
  | { readonly kind: "bind"; readonly path: string }
  | {
      readonly kind: "clone";
      readonly repository: string;
      readonly revision?: string;
      readonly keep?: boolean;
      readonly depth?: number;
    }
  | { readonly kind: "overlay"; readonly path: string }
  | { readonly kind: "base"; readonly baseId: string; readonly keep?: boolean }
  | { readonly kind: "checkpoint"; readonly checkpointId: string; readonly keep?: boolean };

/**
 * An empty directory that the daemon makes, or one that it kept from an earlier run.
 *
 * `keep`: whether it stays after `kill()`, to be used again by its id (the run's). Default: a new one is deleted, one that
 * was named stays.
 */
export function Managed(options: { workspaceId?: string; keep?: boolean } = {}): Workspace {
  return { kind: "managed", ...options };
}

/** An existing directory of the daemon's host, in place. Absolute, beneath one of the daemon's `workspace_roots`. */
export function Bind(path: string): Workspace {
  return { kind: "bind", path };
}

/**
 * A clone of a git repository, at `revision` (default: its HEAD).
 *
 * `repository`: a directory of the daemon's host, or an `https://` address that the profile's `egress` lets the sandbox
 * fetch. `keep`: whether it stays after `kill()`. Default: it stays. `depth`: most commits of the history, for an
 * address. Default: all, with all branches and tags.
 */
export function Clone(
  repository: string,
  options: { revision?: string; keep?: boolean; depth?: number } = {},
): Workspace {
  return { kind: "clone", repository, ...options };
}

/** A directory of the daemon's host through a layer that takes the changes; see `Sandbox.diff` and `accept`. */
export function Overlay(path: string): Workspace {
  return { kind: "overlay", path };
}

/**
 * A base: a tree of files that never changes, through a layer that takes the changes; see `Sandbox.diff`.
 *
 * `Client.bases` makes, lists and deletes bases, as `coffer base` does.
 * `keep`: whether the changes stay after `kill()`, until `discard`. Default: they are deleted with the run.
 */
export function Base(baseId: string, options: { keep?: boolean } = {}): Workspace {
  return { kind: "base", baseId, ...options };
}

/**
 * The files of a checkpoint, which `Sandbox.checkpoint` made: to go back, or to try several ways from one place.
 *
 * The image has to be that of the sandbox of which it was made, where a root was written.
 * `keep`: whether the changes stay after `kill()`. Default: they are deleted with the run.
 */
export function Checkpoint(checkpointId: string, options: { keep?: boolean } = {}): Workspace {
  return { kind: "checkpoint", checkpointId, ...options };
}

/**
 * When the daemon makes a checkpoint by itself: before the first call of each new `taskId`, or after each call that has
 * written to files.
 */
export type Every = "turn" | "write";

/** Lower limits than the profile's; one that is missing is the profile's value. */
export interface Limits {
  memoryBytes?: number;
  /** Thousandths of a core. */
  cpuMillis?: number;
  /** Processes and threads. */
  pids?: number;
  fileSizeBytes?: number;
  openFiles?: number;
  diskBytes?: number;
  diskFiles?: number;
}

/**
 * A container beside a sandbox, such as a database of its tests: commands of the sandbox reach it by its name.
 *
 * It is started before the sandbox is ready, and ended with it. It reaches the hosts that the profile opens to its image.
 */
export interface Companion {
  /** Small letters, digits and `-`, as in a host name. */
  name: string;
  /** One that the engine has and the profile allows. */
  image: string;
  /** Arguments for the image's entrypoint. Default: the image's own. */
  command?: readonly string[];
  env?: Readonly<Record<string, string>>;
  /** Never answered, recorded or logged. */
  secretEnv?: Readonly<Record<string, string>>;
  /** When it is ready: a TCP port accepts connections, or a command ends with 0. Default: once it is started. */
  ready?: number | readonly string[];
  /** Seconds that it has to be ready, at most 600. Default: 60. */
  readyTimeout?: number;
  /** Seconds between two attempts, 0.05 to 60. Default: 0.2. */
  readyInterval?: number;
  /** Default: an equal part of what the profile allows for all of them. */
  memoryMib?: number;
  /** TCP ports that commands may connect to, beside that of `ready`. At most 16. */
  ports?: readonly number[];
  /** Names of companions that must be ready before it starts. */
  dependsOn?: readonly string[];
  /** Rules that its connections have to pass beside those of the profile for its image; `{}` for none. */
  egress?: Readonly<Record<string, unknown>>;
}

/** A companion, as the daemon knows it. */
export interface CompanionInfo {
  name: string;
  image: string;
  imageDigest: string;
  /** Empty: the sandbox has ended. One that has exited is not started again. */
  state: "starting" | "ready" | "exited" | "";
  /** Null unless it has exited. */
  exitCode: number | null;
  /** TCP ports that commands of the sandbox may connect to. */
  ports: readonly number[];
  /** Address of its name in the sandbox; empty until a command has asked for it. */
  address: string;
}

export type RunState = "creating" | "ready" | "paused" | "stopping" | "stopped" | "failed";

/** Why a container was made for a run, instead of one that waited. */
export type ColdBecause =
  | ""
  | "no-pool"
  | "unsupported-host"
  | "own-kernel"
  | "root-in-user-namespace"
  | "pkg-path"
  | "first-of-its-kind"
  | "none-waits"
  | "not-usable"
  | "tenant-share";

/** The checkpoint with whose files a run began. */
export interface ForkedFrom {
  /** It may have been deleted. */
  checkpointId: string;
  /** The run of which it was made. */
  runId: string;
}

/** A run, as the daemon knows it. */
export interface RunInfo {
  runId: string;
  state: RunState;
  profile: string;
  image: string;
  agentId: string;
  role: string;
  metadata: Readonly<Record<string, string>>;
  createdAt: Date | null;
  readyAt: Date | null;
  endedAt: Date | null;
  /** Why it failed; empty otherwise. */
  failure: string;
  /** Its own time that ended it: `ttl` is its `timeout`; empty: none. */
  endCause: "ttl" | "idle_timeout" | "lease" | "node_drained" | "";
  /** Seconds after which it is stopped; null: never. */
  timeout: number | null;
  /** Seconds without a call after which it is stopped; null: never. */
  idleTimeout: number | null;
  /** Seconds without `keepAlive` after which it is stopped; null: never. */
  lease: number | null;
  /** When the lease ends unless it is renewed. Known from `info` and `keepAlive` alone, while the run lives. */
  leaseEndsAt: Date | null;
  /** From a warm container, or made for this run. */
  start: "warm" | "cold" | "";
  /** Why the start was cold; empty otherwise. */
  coldBecause: ColdBecause;
  /** How often it went on under another daemon. */
  restarts: number;
  /** Reasons why it is paused, such as `approval`; empty unless it is. */
  holds: readonly string[];
  /** Names of its secret variables. */
  secretEnv: readonly string[];
  /** Directories of the container that were asked for as its own. */
  writablePaths: readonly string[];
  /** On the daemon's host; empty for those who may not create runs. */
  workspacePath: string;
  /** Where it began; null: not on a checkpoint. */
  forkedFrom: ForkedFrom | null;
  /** Containers beside it. */
  companions: readonly CompanionInfo[];
  /** Stable reason for which it failed, such as `RUN_LOST`; empty otherwise. */
  failureReason: string;
  /** Whose failure that is; empty otherwise. */
  fault: Fault;
  /** Facts that show whose failure it is, such as `engine.exit_code`. */
  evidence: Readonly<Record<string, string>>;
  /** The host, its engine or the daemon ended it: it says nothing about its programs. */
  failedByInfrastructure: boolean;
}

/** Requests to models and what they took, as the answers of models say it. */
export interface ModelUse {
  requests: number;
  /** Answers that said no tokens, which are therefore not counted. */
  unreportedRequests: number;
  /** Tokens of requests that were not read from a cache. */
  inputTokens: number;
  outputTokens: number;
  cachedInputTokens: number;
  cacheWriteTokens: number;
  /** Cost of the tokens that have a price on the daemon. */
  costUsd: number;
  /** Tokens of models without a price. */
  unpricedTokens: number;
}

/** A bound of a run's budget, and what of it is used. */
export interface BudgetBound {
  /** Requests that count: those of the run, of all runs of its principal today, or of all runs today. */
  scope: "run" | "principal_day" | "day";
  unit: "tokens" | "requests" | "usd";
  used: number;
  limit: number;
  /** When it begins anew; null: never. */
  renewsAt: Date | null;
}

/** What a run has used of models in its whole life. */
export interface ModelUsage {
  total: ModelUse;
  /** By the name of the model. The requests are those that were answered. */
  models: Readonly<Record<string, ModelUse>>;
  /** Empty where the profile has no budget, and after the run's end. */
  budget: readonly BudgetBound[];
}

/** The facts of a `CommandResult`. */
export interface CommandFacts {
  callId: string;
  exitCode: number | null;
  stdoutBytes: Uint8Array;
  stderrBytes: Uint8Array;
  signal: number | null;
  timedOut: boolean;
  endedBy: EndedBy;
  limitsHit: readonly Limit[];
  omittedBytes: number;
  duration: number;
  cpuTime: number;
  peakMemoryBytes: number;
  processesEnded: number;
  hint: string;
  fault?: Fault;
  retrySafe?: boolean;
  evidence?: Readonly<Record<string, string>>;
}

/** Cause of an early end; empty: it ended by itself, or the cause is not known. */
export type EndedBy =
  | ""
  | "timeout"
  | "cancelled"
  | "output-limit"
  | "memory-limit"
  | "file-size-limit"
  | "disk-quota"
  | "run-ended"
  | "killed"
  | "interrupted"
  | "host-memory"
  | "host-disk";
/** Whose failure it is; empty: there is none, or the daemon does not say. */
export type Fault = "" | "program" | "policy" | "caller" | "infrastructure";
/** A limit of a run. */
export type Limit =
  | "memory"
  | "processes"
  | "output"
  | "file-size"
  | "tmp-space"
  | "shm-space"
  | "project-space"
  | "state-space"
  | "disk";

/** How a command ended, and all that it wrote. */
export class CommandResult implements CommandFacts {
  readonly callId: string;
  /** 128 and the signal's number where one ended it; null where nobody knows. */
  readonly exitCode: number | null;
  /** Standard output, raw. */
  readonly stdoutBytes: Uint8Array;
  /** Standard error, raw. */
  readonly stderrBytes: Uint8Array;
  readonly signal: number | null;
  readonly timedOut: boolean;
  /** Cause of its early end; empty: it ended by itself, or the cause is not known. */
  readonly endedBy: EndedBy;
  /** Limits of the run that were reached meanwhile. */
  readonly limitsHit: readonly Limit[];
  /** Bytes that it wrote and that are in neither of the two above: the daemon keeps 64 MiB of a command. */
  readonly omittedBytes: number;
  /** Seconds, as the daemon measured them. */
  readonly duration: number;
  /** Seconds of processor time, of it and all that it started. */
  readonly cpuTime: number;
  /** Peak memory of its largest process, bytes. */
  readonly peakMemoryBytes: number;
  /** Processes that it had started and that the daemon ended after it. */
  readonly processesEnded: number;
  /** Advice of the daemon; often empty. */
  readonly hint: string;
  /** Whose failure its early end is; empty: it ended by itself. */
  readonly fault: Fault;
  /** Nothing was done, so that a repetition does it once. */
  readonly retrySafe: boolean;
  /** Facts that show whose failure it is, such as `cgroup.limit_hits`. */
  readonly evidence: Readonly<Record<string, string>>;
  #stdout: string | null = null;
  #stderr: string | null = null;

  constructor(facts: CommandFacts) {
    this.callId = facts.callId;
    this.exitCode = facts.exitCode;
    this.stdoutBytes = facts.stdoutBytes;
    this.stderrBytes = facts.stderrBytes;
    this.signal = facts.signal;
    this.timedOut = facts.timedOut;
    this.endedBy = facts.endedBy;
    this.limitsHit = facts.limitsHit;
    this.omittedBytes = facts.omittedBytes;
    this.duration = facts.duration;
    this.cpuTime = facts.cpuTime;
    this.peakMemoryBytes = facts.peakMemoryBytes;
    this.processesEnded = facts.processesEnded;
    this.hint = facts.hint;
    this.fault = facts.fault ?? "";
    this.retrySafe = facts.retrySafe ?? false;
    this.evidence = facts.evidence ?? {};
  }

  /** The host, its engine or the daemon ended it: it says nothing about the program. */
  get failedByInfrastructure(): boolean {
    return this.fault === "infrastructure";
  }

  /** Standard output as UTF-8, with U+FFFD in place of other bytes. */
  get stdout(): string {
    this.#stdout ??= text(this.stdoutBytes);
    return this.#stdout;
  }

  /** Standard error likewise. */
  get stderr(): string {
    this.#stderr ??= text(this.stderrBytes);
    return this.#stderr;
  }

  /** The exit code is 0, and nothing ended it before its time. */
  get ok(): boolean {
    return this.exitCode === 0 && this.endedBy === "";
  }
}

function text(bytes: Uint8Array): string {
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
}

/** A piece of the output of a command, as it came. */
export interface CommandOutput {
  /** A terminal shows both as `stdout`. */
  stream: "stdout" | "stderr";
  /** Raw. */
  data: Uint8Array;
  /** As UTF-8, with U+FFFD in place of other bytes. A character comes with its last byte. */
  text: string;
}

/** The size of a terminal in characters, 1 to 10,000 each. */
export interface PtySize {
  rows: number;
  cols: number;
}

export type ProcessState = "running" | "ended" | "interrupted";
/** A signal that can be sent, by its name. */
export type SignalName = "HUP" | "INT" | "QUIT" | "KILL" | "USR1" | "USR2" | "TERM" | "CONT" | "STOP" | "TSTP";
/** A signal, by its name in any case, with or without `SIG`, or its number. */
export type Signal = SignalName | (string & {}) | number;

/** A command in the background, or a terminal, as it is now. */
export interface ProcessInfo {
  /** The id of the call that started it, too. */
  processId: string;
  /** `interrupted`: it was lost, and the daemon has ended what was left of it. */
  state: ProcessState;
  /** A script, or a program and its arguments; empty: a session. */
  cmd: string | readonly string[];
  cwd: string;
  /** The name that it was given, to find it by. */
  tag: string | null;
  /** It has a terminal. */
  pty: boolean;
  startedAt: Date | null;
  /** null while it runs. */
  endedAt: Date | null;
  /** 128 and the signal's number where one ended it; null while it runs, and where nobody knows. */
  exitCode: number | null;
  signal: number | null;
  /** Cause of its early end; empty: it ended by itself, or the cause is not known. */
  endedBy: EndedBy;
  /** Why it was lost, or ended by a limit or with its sandbox by the host; empty otherwise. */
  failure: string;
  /** Bytes that it has written to standard output or its terminal. */
  stdoutSize: number;
  /** Bytes that it has written to standard error. */
  stderrSize: number;
  /** Bytes that it was given to read. */
  stdinSize: number;
  /** It can be given more. */
  stdinOpen: boolean;
  /** Seconds of processor time, of it and all that it started; 0 while it runs. */
  cpuTime: number;
  /** Peak memory of its largest process, bytes; 0 while it runs. */
  peakMemoryBytes: number;
  /**
   * Number of processes that a command left running, in a profile that keeps them. This entry represents all of them,
   * and a signal reaches each. 0: the entry is one process, started by `process`.
   */
  leftBehind: number;
  /** Whose failure its early end is; empty: it runs, or ended by itself. */
  fault: Fault;
  /** Facts that show whose failure it is, such as `run.end_cause`. */
  evidence: Readonly<Record<string, string>>;
  /** The host, its engine or the daemon ended it: it says nothing about the program. */
  failedByInfrastructure: boolean;
}

export type SessionState = "idle" | "busy" | "replaced" | "closed";

/** A session, as it is now. */
export interface SessionInfo {
  /** The id of its process, and of the call that opened it, too. */
  sessionId: string;
  /** `idle`: it takes a command. `busy`: one runs. `replaced`: its shell has become another program, and takes none. */
  state: SessionState;
  process: ProcessInfo;
}

/** What a session showed, and whether its command is over. */
export interface SessionResult {
  /**
   * `done`: the command is over. `matched`: what it shows matches, and it runs. `running`: the time was over, and it runs.
   * `ended`: the shell has ended, and the session with it. `unanswered`: code that ran in the shell has broken it.
   */
  state: "done" | "matched" | "running" | "ended" | "unanswered";
  /**
   * Both streams since the last answer, or since the command began; with a match, the text before it. UTF-8, with U+FFFD in
   * place of other bytes.
   */
  output: string;
  /** Of the command, or of the shell if that has ended. null while the command runs, and where nobody knows. */
  exitCode: number | null;
  /** The exit code is 0. */
  ok: boolean;
  /** Which of `expect` matches, from 0; null unless one does. */
  matched: number | null;
  /** The text that matches; the next answer begins after it. */
  matchedText: string;
  /** Bytes that were shown and that the daemon has not kept. A line in `output` says where they are missing. */
  omittedBytes: number;
}

/** A list that may have been cut: `truncated` says so, and `hint` how to get the rest. */
export class Found<Item> implements Iterable<Item> {
  readonly items: readonly Item[];
  readonly truncated: boolean;
  readonly hint: string;

  constructor(items: readonly Item[], truncated: boolean, hint: string) {
    this.items = items;
    this.truncated = truncated;
    this.hint = hint;
  }

  get length(): number {
    return this.items.length;
  }

  [Symbol.iterator](): Iterator<Item> {
    return this.items[Symbol.iterator]();
  }
}

export type EntryType = "file" | "directory" | "symlink" | "other";

/** An entry of a directory. */
export interface FileInfo {
  path: string;
  name: string;
  type: EntryType;
  /** Bytes; 0 for anything but files. */
  size: number;
  modified: Date;
}

/** A file that was written. */
export interface WriteInfo {
  path: string;
  size: number;
  sha256: string;
  /** Of the content before; null: there was no file. */
  sha256Before: string | null;
}

/** A file or a directory that was copied into a sandbox, or out of it. */
export interface TransferInfo {
  /** In the sandbox. */
  path: string;
  type: "file" | "directory";
  /** Bytes of the file; of all files of a directory. */
  size: number;
  /** Of the file; of a directory, of the archive that it was sent as. */
  sha256: string;
  /** Files, directories and links in the directory; 1 for a file. */
  entries: number;
  /** Entries of the directory that were not copied: git's own files, special files, and links that may lead out of it. */
  leftOut: number;
}

/** A change that `watch` has seen. */
export interface FileEvent {
  change: "created" | "modified" | "removed";
  path: string;
  type: EntryType;
}

/** A file that was edited. */
export interface EditInfo {
  path: string;
  /** Unified, from old to new; the beginning of it where it was cut. */
  diff: string;
  diffTruncated: boolean;
  sha256: string;
  sha256Before: string | null;
  /** How many places changed. */
  replacements: number;
}

/** A file of a patch. */
export interface PatchedFile {
  path: string;
  change: "created" | "updated" | "deleted" | "moved";
  /** Where it was before it was moved; null for others. */
  movedFrom: string | null;
  /** null: the file is gone. */
  sha256: string | null;
}

/** The outcome of a patch. */
export interface PatchInfo {
  files: readonly PatchedFile[];
  diff: string;
  diffTruncated: boolean;
  /** Remarks, such as a hunk that was applied at another line. */
  notes: readonly string[];
}

/** A file or directory that was removed. */
export interface RemoveInfo {
  path: string;
  type: EntryType;
  /** Its name in the run's trash; null: it is gone for good. */
  trashEntry: string | null;
}

/** A line that matched. */
export interface Match {
  path: string;
  /** From 1. */
  line: number;
  /** Without its newline, at most 400 characters. */
  text: string;
  before: readonly string[];
  after: readonly string[];
}

/** The output of git, in the form of the git command. */
export interface GitOutput {
  output: string;
  truncated: boolean;
  /** The commit that `commit` made, or that `pull` moved the branch to; null for others. */
  commit: string | null;
  /** Host and repository of `fetch`, `pull` and `push`; null for others. */
  remote: string | null;
  /** The references that these have updated. */
  updates: GitRefUpdate[];
}

/** A reference of git before and after. */
export interface GitRefUpdate {
  /** Such as `refs/remotes/origin/main`. */
  name: string;
  /** null: it was made. */
  oldId: string | null;
  /** null: it was deleted. */
  newId: string | null;
}

export type ApprovalState = "pending" | "approved" | "denied" | "expired" | "cancelled";

/** A call that needs, or needed, a person's consent. */
export interface ApprovalInfo {
  approvalId: string;
  state: ApprovalState;
  runId: string;
  callId: string;
  agentId: string;
  /** Such as `write` or `git.commit`. */
  operation: string;
  /** The view for the reviewer. */
  preview: string;
  /** Why it is asked. */
  justification: string;
  risk: string;
  createdAt: Date | null;
  expiresAt: Date | null;
  decidedBy: string;
  comment: string;
}

/** A record of the audit log. */
export interface AuditEvent {
  /** From 1, without gaps. */
  sequence: number;
  time: Date;
  /** Such as `call_intent` or `call_receipt`. */
  kind: string;
  runId: string;
  callId: string;
  principal: string;
  agentId: string;
  operation: string;
  /** As it is in the log. */
  record: Readonly<Record<string, unknown>>;
  /** SHA-256 of this record. */
  hash: string;
}

export type CallStatus = "succeeded" | "failed" | "pending_approval" | "denied" | "running";

/** The answer of a tool, for the model to see. */
export interface ToolOutput {
  /** Send this to the model. */
  text: string;
  status: Exclude<CallStatus, "running">;
  /** It succeeded. */
  ok: boolean;
  callId: string;
  /** Set when a person has to decide, or has decided. */
  approvalId: string | null;
  /** Stable reason when it failed or was denied. */
  reason: string;
  /** Whose failure it is; empty: it did not fail. */
  fault: Fault;
  /** The host, its engine or the daemon failed: it says nothing about the model or the program. */
  failedByInfrastructure: boolean;
}

export type CallResult =
  | string
  | Uint8Array
  | CommandResult
  | SessionResult
  | WriteInfo
  | EditInfo
  | PatchInfo
  | RemoveInfo
  | GitOutput
  | Found<FileInfo>
  | Found<Match>
  | Found<string>
  | null;

/** A call, as it is now. */
export interface CallInfo {
  callId: string;
  status: CallStatus;
  /** As the method that made it returns it; null until it has succeeded, and when it was dropped to free space. */
  result: CallResult;
  /** For the model. */
  text: string;
  approvalId: string | null;
  reason: string;
  message: string;
  /** Whose failure it is; empty: it did not fail. */
  fault: Fault;
  /** Nothing was done, so that a repetition does it once. */
  retrySafe: boolean;
  /** Facts that show whose failure it is. */
  evidence: Readonly<Record<string, string>>;
  /** The host, its engine or the daemon failed: it says nothing about the program. */
  failedByInfrastructure: boolean;
}

/** A path that is not as it is beneath the overlay. */
export interface ChangedFile {
  path: string;
  change: "added" | "modified" | "deleted";
  type: string;
  size: number;
  /** Why `accept` applies it only with `force`; empty: nothing speaks against it. */
  objection: string;
  /** Why it cannot be applied; empty: it can. */
  obstacle: string;
}

/** The changes in an overlay. */
export interface Diff {
  files: readonly ChangedFile[];
  /** As `patch -p1` takes it. */
  unified: string;
  truncated: boolean;
}

/** Forks that could not be made. */
export interface ForkFailure {
  /** Stable, such as `OVERLOADED`. */
  reason: string;
  message: string;
  /** How many failed in this way. */
  count: number;
}

/** What a run has changed, and what it took for that. */
export interface ComparedRun {
  run: RunInfo;
  /** At most 1,000, by path. */
  files: readonly ChangedFile[];
  /** Number of all changes. */
  total: number;
  /** Lines that text files have more. */
  linesAdded: number;
  /** Lines that text files have less. */
  linesRemoved: number;
  /** Not all lines were counted: a file was large, or there were too many. */
  linesIncomplete: boolean;
  /** Why the changes cannot be shown; empty: they are. */
  unavailable: string;
  /** Calls so far. */
  calls: number;
  /** Calls that policy, limits or people refused. */
  refused: number;
  /** Approvals that were asked for. */
  approvals: number;
  /** Seconds of processor time of its commands so far. */
  cpuTime: number;
  /** How the check ended in it; null: there was none, or the run has ended. */
  check: CommandResult | null;
}

/** A path that several runs have changed in different ways. */
export interface Conflict {
  path: string;
  /** Ids of these runs. */
  runIds: readonly string[];
}

/** What several runs have changed. */
export interface Comparison {
  /** In the order of the request. */
  runs: readonly ComparedRun[];
  /** At most 1,000, by path. */
  conflicts: readonly Conflict[];
  /** There are more conflicts. */
  truncated: boolean;
}

/** Takes a piece of output as text; may be asynchronous. */
export type OutputCallback = (text: string) => unknown;

/** Takes a piece of output, raw; may be asynchronous. */
export type DataCallback = (data: Uint8Array) => unknown;

/** Takes how many bytes have been copied, and of how many (null: nobody knows yet); may be asynchronous. */
export type ProgressCallback = (done: number, total: number | null) => unknown;

/** A daemon of a fleet, as a list of nodes has it. */
export interface FleetNode {
  /** Number, as in `node.id` of its configuration. null: the daemon says it. */
  id: number | null;
  /** Such as `https://node-7.example.org:7443`; see `Client`. */
  endpoint: string;
  /** Name in its certificate. Default: the host of `endpoint`. */
  serverName?: string | undefined;
  /** Share of the sandboxes that it takes, against the weights of the others. Default: 1. */
  weight?: number | undefined;
}

/** Amounts of what runs take. */
export interface NodeAmounts {
  /** Runs and companions. */
  runs: number;
  memoryMib: number;
  cores: number;
  /** On the state disk. */
  diskMib: number;
}

/** A node of a fleet, as it is now. */
export interface NodeInfo {
  /** Number; null: it has not answered yet, and the list of nodes does not say. */
  node: number | null;
  endpoint: string;
  /** `draining`: it makes no runs, and some still live. `drained`: none lives. `unreachable`: it does not answer. */
  state: "serving" | "draining" | "drained" | "unreachable";
  /** Reason why it is unreachable; empty otherwise. All fields below are empty then. */
  failure: string;
  /** Identity of its state, which no other daemon has. */
  instance: string;
  labels: Readonly<Record<string, string>>;
  /** Version of its daemon. */
  version: string;
  capacity: NodeAmounts | null;
  used: NodeAmounts | null;
  /** Reason of its operator for the drain; empty otherwise. */
  drainReason: string;
}

/** A thing, and the node that has it. */
export interface OfNode<Item> {
  node: number;
  item: Item;
}

/** All that the nodes that answered have. Nodes that did not are `missing`. */
export class Gathered<Item> implements Iterable<OfNode<Item>> {
  readonly items: readonly OfNode<Item>[];
  readonly missing: readonly NodeInfo[];

  constructor(items: readonly OfNode<Item>[], missing: readonly NodeInfo[]) {
    this.items = items;
    this.missing = missing;
  }

  get length(): number {
    return this.items.length;
  }

  [Symbol.iterator](): Iterator<OfNode<Item>> {
    return this.items[Symbol.iterator]();
  }
}

/** A record of a node's audit log, among those of the others. */
export interface FleetEvent {
  node: number;
  event: AuditEvent;
  /** Place of this record in all logs. `watchEvents` goes on after it. */
  position: string;
}

export type AlertState = "open" | "acknowledged";

/** A rule that fired. */
export interface AlertInfo {
  alertId: string;
  /** Such as `loop`. */
  rule: string;
  severity: "low" | "medium" | "high" | "critical" | "";
  state: AlertState | "";
  /** One sentence. */
  summary: string;
  /** Who made the call at which it fired. */
  principal: string;
  agentId: string;
  /** Empty: the call had no run. */
  runId: string;
  raisedAt: Date | null;
  /** Last time at which its condition was true. */
  lastAt: Date | null;
  /** How often its condition was true. */
  occurrences: number;
  /** `alert`, `throttle`, `require_approval`, `freeze` or `stop`. */
  measure: string;
  acknowledgedBy: string;
  comment: string;
}

/** Takes a node that no longer answers, or does so again; may be asynchronous. */
export type NodeCallback = (node: NodeInfo) => unknown;
