/** From the arguments of methods to requests of the API. No I/O. */

import { randomBytes } from "node:crypto";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { type Duration, durationFromMs } from "@bufbuild/protobuf/wkt";
import { InvalidArgument } from "./errors.js";
import type { Companion, Every, Limits, PtySize, Workspace } from "./types.js";
import {
  AutomaticCheckpoints_Every,
  type AutomaticCheckpointsSchema,
  type CompanionSchema,
  type LimitsSchema,
  type OperationSchema,
  type ReadinessSchema,
  type TerminalSizeSchema,
  type WorkspaceSchema,
} from "./v1.js";

export type OperationInit = MessageInitShape<typeof OperationSchema>;
type Kind = NonNullable<OperationInit["kind"]>;

/** A UUIDv7: the time in milliseconds, then random bits. */
export function newId(): string {
  const bytes = randomBytes(16);
  bytes.writeUIntBE(Date.now(), 0, 6);
  bytes.writeUInt8((bytes.readUInt8(6) & 0x0f) | 0x70, 6);
  bytes.writeUInt8((bytes.readUInt8(8) & 0x3f) | 0x80, 8);
  return bytes.toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

export function duration(name: string, seconds: number | undefined): Duration | undefined {
  return seconds === undefined ? undefined : durationFromMs(Math.max(1, Math.round(positive(name, seconds) * 1000)));
}

/** Seconds of the lease that is renewed in the background. Null: none is. */
export function renewed(lease: number | undefined, keepAlive = false): number | null {
  if (keepAlive && lease === undefined) {
    throw new InvalidArgument("keepAlive: is for a sandbox with a lease");
  }
  return keepAlive ? (lease ?? null) : null;
}

export function millis(seconds: number | undefined): bigint | undefined {
  return seconds === undefined ? undefined : BigInt(Math.max(1, Math.round(positive("timeout", seconds) * 1000)));
}

export function positive(name: string, seconds: number): number {
  // Also false for NaN.
  if (!(seconds > 0 && seconds < 1e9)) {
    throw new InvalidArgument(`${name}: must be a positive number of seconds, not ${seconds}`);
  }
  return seconds;
}

/** A number for a 64-bit field. */
export function count(name: string, value: number | undefined): bigint | undefined {
  if (value !== undefined && !(Number.isSafeInteger(value) && value >= 0)) {
    throw new InvalidArgument(`${name}: must be a whole number from 0, not ${value}`);
  }
  return value === undefined ? undefined : BigInt(value);
}

function clone(source: Workspace & { kind: "clone" }) {
  const { repository, revision, depth } = source;
  const named = repository.includes("://") ? { url: repository } : { repository };
  return { ...named, revision, depth };
}

export function workspace(source: Workspace): MessageInitShape<typeof WorkspaceSchema> {
  switch (source.kind) {
    case "managed":
      return { source: { case: "managed", value: { workspaceId: source.workspaceId } } };
    case "bind":
      return { source: { case: "bind", value: { path: source.path } } };
    case "clone":
      return { source: { case: "clone", value: clone(source) } };
    case "overlay":
      return { source: { case: "overlay", value: { path: source.path } } };
    case "base":
      return { source: { case: "base", value: { baseId: source.baseId } } };
    case "checkpoint":
      return { source: { case: "checkpoint", value: { checkpointId: source.checkpointId } } };
  }
}

/** Whether it stays after `kill()`. */
export function stays(source: Workspace): boolean {
  switch (source.kind) {
    case "managed":
      return source.keep ?? source.workspaceId !== undefined;
    case "clone":
      return source.keep ?? true;
    case "base":
    case "checkpoint":
      return source.keep ?? false;
    default:
      return true;
  }
}

export function limits(given: Limits | undefined): MessageInitShape<typeof LimitsSchema> | undefined {
  return given === undefined
    ? undefined
    : {
        cpuMillis: given.cpuMillis,
        pids: given.pids,
        openFiles: given.openFiles,
        memoryBytes: count("limits.memoryBytes", given.memoryBytes),
        fileSizeBytes: count("limits.fileSizeBytes", given.fileSizeBytes),
        diskBytes: count("limits.diskBytes", given.diskBytes),
        diskFiles: count("limits.diskFiles", given.diskFiles),
      };
}

export function companion(given: Companion): MessageInitShape<typeof CompanionSchema> {
  const of = `companion ${given.name}`;
  if (given.ready === undefined && (given.readyTimeout !== undefined || given.readyInterval !== undefined)) {
    throw new InvalidArgument(`${of}: readyTimeout and readyInterval are for one with \`ready\``);
  }
  return {
    name: given.name,
    image: given.image,
    command: [...(given.command ?? [])],
    env: { ...given.env },
    secretEnv: { ...given.secretEnv },
    ready: given.ready === undefined ? undefined : readiness(of, given.ready, given),
    memoryMib: unsigned(`${of}: memoryMib`, given.memoryMib ?? 0),
    ports: (given.ports ?? []).map((port) => unsigned(`${of}: ports`, port)),
    dependsOn: [...(given.dependsOn ?? [])],
    egressJson: given.egress === undefined ? "" : JSON.stringify(given.egress),
  };
}

function readiness(
  of: string,
  ready: number | readonly string[],
  { readyTimeout, readyInterval }: Companion,
): MessageInitShape<typeof ReadinessSchema> {
  // The daemon knows the bounds of both; 0 would be its default.
  return {
    check:
      typeof ready === "number"
        ? { case: "tcp", value: unsigned(`${of}: ready`, ready) }
        : { case: "command", value: { args: [...ready] } },
    timeoutSeconds: readyTimeout === undefined ? 0 : Math.ceil(positive(`${of}: readyTimeout`, readyTimeout)),
    intervalMilliseconds:
      readyInterval === undefined
        ? 0
        : Math.min(Math.max(1, Math.round(positive(`${of}: readyInterval`, readyInterval) * 1000)), 0xffffffff),
  };
}

/** A number for a field of 32 bits. */
export function unsigned(name: string, value: number): number {
  if (!(Number.isInteger(value) && value >= 0 && value < 2 ** 32)) {
    throw new InvalidArgument(`${name}: must be a whole number from 0, not ${value}`);
  }
  return value;
}

/** A text is a script for the shell; an array is a program and its arguments. */
export function command(
  cmd: string | readonly string[],
  options: {
    cwd?: string;
    env: Record<string, string>;
    stdin?: string | Uint8Array;
    timeout?: number;
  },
): OperationInit {
  const { cwd, env, stdin, timeout } = options;
  const common = { cwd, env, stdin: stdin === undefined ? undefined : raw(stdin), timeoutMs: millis(timeout) };
  if (typeof cmd === "string") {
    return { kind: { case: "shell", value: { script: cmd, ...common } } };
  }
  const [program, ...args] = cmd;
  if (program === undefined) {
    throw new InvalidArgument("cmd: a command has at least a program");
  }
  return { kind: { case: "exec", value: { command: program, args, ...common } } };
}

/** The same for a process that stays. */
export function process(
  cmd: string | readonly string[],
  options: {
    cwd?: string;
    env: Record<string, string>;
    timeout?: number;
    tag?: string;
    stdin?: boolean;
    terminal?: PtySize;
  },
): OperationInit & { kind: { case: "process" } } {
  const { cwd, env, timeout, tag, stdin = false, terminal } = options;
  const size = terminal && terminalSize(terminal);
  const common = { cwd, env, tag, stdin, terminal: size, timeoutMs: millis(timeout) };
  if (typeof cmd === "string") {
    return { kind: { case: "process", value: { script: cmd, ...common } } };
  }
  const [command, ...args] = cmd;
  if (command === undefined) {
    throw new InvalidArgument("cmd: a command has at least a program");
  }
  return { kind: { case: "process", value: { command, args, ...common } } };
}

/** The same for a shell that stays. */
export function session(options: {
  cwd?: string;
  env: Record<string, string>;
  timeout?: number;
  tag?: string;
  size?: PtySize;
}): ReturnType<typeof process> {
  const { cwd, env, timeout, tag, size } = options;
  const terminal = size && terminalSize(size);
  return { kind: { case: "process", value: { session: true, cwd, env, tag, terminal, timeoutMs: millis(timeout) } } };
}

export function terminalSize(size: PtySize): MessageInitShape<typeof TerminalSizeSchema> {
  for (const number of [size.rows, size.cols]) {
    if (!Number.isInteger(number) || number < 1 || number > 10_000) {
      throw new InvalidArgument(`size: must be 1 to 10,000 rows and columns, not ${number}`);
    }
  }
  return { rows: size.rows, columns: size.cols };
}

/** When the daemon makes checkpoints by itself. */
export function automatic(
  every: Every | undefined,
  keep: number | undefined,
): MessageInitShape<typeof AutomaticCheckpointsSchema> | undefined {
  if (every === undefined) {
    if (keep !== undefined) {
      throw new InvalidArgument("keepCheckpoints: is for a sandbox with checkpoints");
    }
    return undefined;
  }
  if (every !== "turn" && every !== "write") {
    throw new InvalidArgument(`checkpoints: must be "turn" or "write", not ${every}`);
  }
  if (keep !== undefined && !(Number.isInteger(keep) && keep >= 1 && keep <= 100)) {
    throw new InvalidArgument(`keepCheckpoints: must be 1 to 100, not ${keep}`);
  }
  const moments = { turn: AutomaticCheckpoints_Every.TURN, write: AutomaticCheckpoints_Every.WRITE };
  return { every: moments[every], keep };
}

export function raw(data: string | Uint8Array): Uint8Array {
  return typeof data === "string" ? new TextEncoder().encode(data) : data;
}

export function patch(change: string): OperationInit & { kind: { case: "patch" } } {
  const form = change.trimStart().startsWith("*** Begin Patch") ? "envelope" : "unifiedDiff";
  return { kind: { case: "patch", value: { change: { case: form, value: change } } } };
}

/** Nothing happens twice if it is made twice. */
export function onlyReads(kind: Kind): boolean {
  if (kind.case === "git") {
    return ["status", "diff", "log", "show"].includes(kind.value.command?.case ?? "");
  }
  return ["read", "list", "glob", "grep"].includes(kind.case ?? "");
}
