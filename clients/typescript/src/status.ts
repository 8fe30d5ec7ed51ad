/** From a gRPC status or a failed call to an error. The one place that knows both. */

import { readFileSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { BinaryReader } from "@bufbuild/protobuf/wire";
import { Metadata, type ServiceError, status } from "@grpc/grpc-js";
import * as errors from "./errors.js";
import { blame } from "./results.js";
import type { Fault } from "./types.js";
import { type CallResponse, ForwardClosed_Reason } from "./v1.js";

type Kind = new (message: string, facts: errors.ErrorFacts) => errors.CofferdamError;

const DETAILS = "grpc-status-details-bin";
const DOMAIN = "cofferdam";

const BY_REASON: ReadonlyMap<string, Kind> = new Map<string, Kind>([
  ["SANDBOX_VIOLATION", errors.SandboxViolation],
  ["PERMISSION_DENIED", errors.Denied],
  ["COMMAND_NOT_ALLOWED", errors.CommandNotAllowed],
  ["RATE_LIMITED", errors.RateLimited],
  ["APPROVAL_DENIED", errors.ApprovalDenied],
  ["APPROVAL_EXPIRED", errors.ApprovalDenied],
  ["READ_LIMIT", errors.LimitExceeded],
  ["WRITE_LIMIT", errors.LimitExceeded],
  ["MEMORY_LIMIT", errors.LimitExceeded],
  ["TENANT_LIMIT", errors.LimitExceeded],
  ["PRECONDITION_FAILED", errors.PreconditionFailed],
  ["INVALID_FRONTMATTER", errors.InvalidArgument],
  ["INVALID_ARGUMENT", errors.InvalidArgument],
  ["NOT_FOUND", errors.NotFound],
  ["WRONG_NODE", errors.WrongNodeError],
  ["IMAGE_MISSING", errors.NotFound],
  ["IMAGE_NOT_ALLOWED", errors.Denied],
  ["IMAGE_UNUSABLE", errors.InvalidArgument],
  ["ALREADY_EXISTS", errors.AlreadyExists],
  ["TIMED_OUT", errors.TimedOut],
  ["CANCELLED", errors.Cancelled],
  ["AWAITING_APPROVAL", errors.AwaitingApproval],
  ["RUN_NOT_READY", errors.RunNotReady],
  ["RUN_LOST", errors.RunLost],
  ["OVERLOADED", errors.Overloaded],
  ["DAEMON_STOPPING", errors.Unavailable],
  ["NODE_DRAINED", errors.Unavailable],
  ["AUDIT_UNAVAILABLE", errors.Unavailable],
  ["ENGINE_UNAVAILABLE", errors.Unavailable],
  ["UPSTREAM_FAILED", errors.UpstreamFailed],
  ["INTERNAL", errors.InternalError],
]);

/** Reasons with another class where the daemon puts the failure down to the infrastructure. */
const OF_INFRASTRUCTURE: ReadonlyMap<string, Kind> = new Map<string, Kind>([
  ["OVERLOADED", errors.NodeFull],
  ["MEMORY_LIMIT", errors.HostExhausted],
  ["WRITE_LIMIT", errors.HostExhausted],
  ["CANCELLED", errors.CallLost],
  ["RUN_NOT_READY", errors.RunLost],
]);

/** Classes of failures of the infrastructure, which another party's failure never has. */
const LOSSES: ReadonlySet<Kind> = new Set<Kind>([errors.RunLost, errors.Unavailable, errors.InternalError]);

/** The beginning of the names of facts that show whose failure it is. */
const EVIDENCE = "evidence.";

const FAULTS: ReadonlySet<string> = new Set(["program", "policy", "caller", "infrastructure"]);

/** The class of a failure. It is an `InfrastructureError` exactly where the daemon says that, if it says it. */
export function kindOf(reason: string, fault: Fault): Kind {
  const kind = BY_REASON.get(reason) ?? errors.CofferdamError;
  if (fault === "infrastructure" && !LOSSES.has(kind)) {
    return OF_INFRASTRUCTURE.get(reason) ?? errors.InfrastructureError;
  }
  if (fault !== "" && fault !== "infrastructure" && LOSSES.has(kind)) {
    return kind === errors.RunLost ? errors.RunNotReady : errors.ProgramError;
  }
  return kind;
}

/** The facts of a status: those to act on, and those about whose failure it is. */
function toldApart(metadata: Readonly<Record<string, string>>): errors.ErrorFacts {
  const details: Record<string, string> = {};
  const evidence: Record<string, string> = {};
  for (const [name, value] of Object.entries(metadata)) {
    if (name.startsWith(EVIDENCE)) {
      evidence[name.slice(EVIDENCE.length)] = value;
    } else if (name !== "fault" && name !== "retry_safe") {
      details[name] = value;
    }
  }
  const fault = (metadata["fault"] ?? "").toLowerCase();
  return {
    details,
    evidence,
    fault: FAULTS.has(fault) ? (fault as Fault) : "",
    retrySafe: metadata["retry_safe"] === "true",
  };
}

/** How the daemon's gRPC says, with CANCELLED, that the deadline of the client is over there first. */
const EXPIRED = "Timeout expired";

// Codes of which the daemon's own refusals always come with a reason.
const WITHOUT_REASON: ReadonlyMap<status, Kind> = new Map<status, Kind>([
  [status.UNAVAILABLE, errors.DaemonUnreachable],
  [status.UNAUTHENTICATED, errors.AuthenticationFailed],
  [status.PERMISSION_DENIED, errors.Denied],
  [status.DEADLINE_EXCEEDED, errors.DaemonTimedOut],
  [status.CANCELLED, errors.Cancelled],
  [status.RESOURCE_EXHAUSTED, errors.LimitExceeded],
  [status.NOT_FOUND, errors.NotFound],
  [status.INVALID_ARGUMENT, errors.InvalidArgument],
]);

/** Whether the files that a reviewer saw have changed since. Nothing was done; another consent has to be asked for. */
export function isVoid(details: Readonly<Record<string, string>>): boolean {
  return details["approval"] === "void";
}

/** The error for a status; anything else as it is. */
export function refused(error: unknown): unknown {
  if (!isServiceError(error)) {
    return error;
  }
  const { info, retryAfter } = factsOf(error);
  if (info !== null) {
    const callId = info.metadata["call_id"] ?? null;
    return madeOf(info.reason, error.details, { ...toldApart(info.metadata), retryAfter, callId });
  }
  if (error.code === status.UNIMPLEMENTED) {
    return new errors.CofferdamError(error.details, { hint: "The daemon is older than this client; update it." });
  }
  if (error.code === status.CANCELLED && error.details === EXPIRED) {
    return new errors.DaemonTimedOut(error.details);
  }
  const kind = isCut(error) ? errors.DaemonUnreachable : (WITHOUT_REASON.get(error.code) ?? errors.InternalError);
  return kind === errors.DaemonUnreachable ? unreachable(error.details) : new kind(error.details, { reason: "" });
}

/** TLS's alerts about a client's certificate, as OpenSSL words them: with TLS 1.3 they arrive after the client's handshake. */
const CERTIFICATE_ALERT =
  /alert (certificate required|bad certificate|unknown ca|certificate (?:expired|revoked|unknown))/;

/** How gRPC's message begins where no connection came about. */
const UNCONNECTED = "No connection established";

/** Why there is no connection: no socket, nothing that listens, a socket that this user may not open, or no certificate. */
export function unreachable(details: string): errors.NoConnection {
  // gRPC says so where no connection came about: nothing of the request has left this process.
  const facts = { retrySafe: details.startsWith(UNCONNECTED) };
  const alert = CERTIFICATE_ALERT.exec(details)?.[1];
  if (alert !== undefined) {
    const why =
      alert === "certificate required"
        ? "it requires a client certificate"
        : `it does not accept this client's certificate (${alert})`;
    return new errors.CertificateRefused(`the daemon closed the connection after the TLS handshake: ${why}`, facts);
  }
  const [, code, path = ""] =
    /connect (EACCES|ENOENT|ECONNREFUSED) (\/.*?)(?:\. Resolution note: .*)?$/.exec(details) ?? [];
  switch (code) {
    case "EACCES": {
      const who = whoMayOpen(path);
      return new errors.NotPermitted(`you may not use the daemon's socket ${path}${who && ` (${who})`}`, facts);
    }
    case "ENOENT":
      return new errors.DaemonUnreachable(`there is no daemon: ${path} does not exist`, facts);
    case "ECONNREFUSED":
      return new errors.DaemonUnreachable(
        `there is no daemon: the socket ${path} exists, but no process listens on it`,
        facts,
      );
    default:
      return new errors.DaemonUnreachable(`the daemon does not answer: ${details}`, facts);
  }
}

/** The owner and group of a socket, or of the directory that is closed before it. Empty where that cannot be seen. */
function whoMayOpen(path: string): string {
  for (let place = path; ; place = dirname(place)) {
    try {
      const { uid, gid, mode } = statSync(place);
      const group = (mode & 0o070) === 0 ? "alone" : `and members of group ${account("/etc/group", gid)}`;
      return `${place} is for user ${account("/etc/passwd", uid)} ${group}`;
    } catch {
      if (place === dirname(place)) {
        return "";
      }
    }
  }
}

/** The name that a file of accounts has for an id, or the id. */
function account(file: string, id: number): string {
  const lines = readFileSync(file, "utf8").split("\n");
  return lines.map((line) => line.split(":")).find((fields) => fields[2] === String(id))?.[0] ?? String(id);
}

/**
 * Marks the error of a request of which an earlier attempt may have been carried out, its answer lost. It says nothing about
 * that attempt, also where it refuses the last one.
 */
export function afterLostAttempt(error: unknown, repeatable: boolean): void {
  if (error instanceof errors.CofferdamError) {
    error.followsLostAttempt = true;
    error.retrySafe &&= repeatable;
  }
}

/** Whether a request was refused, and no attempt of it may have been carried out: then it has made nothing. */
export function leftNothing(error: unknown): boolean {
  return error instanceof errors.CofferdamError && error.reason !== "" && !error.followsLostAttempt;
}

/** True if the daemon is away, busy or broken for now, so that it may carry out the same request later. */
export function mayPass(error: errors.CofferdamError): boolean {
  if (error instanceof errors.RunLost) {
    return false;
  }
  const isCut = error instanceof errors.Cancelled && error.reason === "";
  const kinds = [errors.InfrastructureError, errors.NoConnection, errors.RateLimited, errors.TimedOut];
  return isCut || kinds.some((kind) => error instanceof kind);
}

/** The error for a call that ran and failed. `ofFile`: a thing that is not found is a file. */
export function failed(response: CallResponse, ofFile = false): errors.CofferdamError {
  const { reason = "", message = "", details = {} } = response.error ?? {};
  return madeOf(reason, message, { details, callId: response.callId || null, ...blame(response.error) }, ofFile);
}

const CREDENTIAL =
  "A run's token works until the run ends, an API token until it expires or is revoked; check COFFERDAM_TOKEN.";

function madeOf(reason: string, message: string, facts: errors.ErrorFacts, ofFile = false): errors.CofferdamError {
  let kind = kindOf(reason, facts.fault ?? "");
  if (kind === errors.Cancelled && facts.details?.["interrupted"] === "true") {
    kind = errors.Interrupted;
  }
  if (kind === errors.NotFound && ofFile) {
    kind = errors.FileNotFound;
  }
  // A token or certificate is the reason, and not the policy.
  const hint = kind === errors.Denied && facts.details?.["credential"] !== undefined ? { hint: CREDENTIAL } : {};
  return new kind(message, { ...facts, ...hint, reason });
}

/**
 * A stream that was cut in the middle: grpc-js calls that an internal error, and Node.js 20 has it write on for a moment to
 * the stream of a connection that is lost.
 */
function isCut({ code, details }: ServiceError): boolean {
  return code === status.INTERNAL && /^(Received RST_STREAM|Write error: write after end$)/.test(details);
}

function isServiceError(error: unknown): error is ServiceError {
  return error instanceof Error && "code" in error && "metadata" in error && error.metadata instanceof Metadata;
}

interface Info {
  reason: string;
  domain: string;
  metadata: Record<string, string>;
}

function factsOf(error: ServiceError): { info: Info | null; retryAfter: number | null } {
  let info: Info | null = null;
  let retryAfter: number | null = null;
  for (const value of error.metadata.get(DETAILS)) {
    try {
      for (const [type, detail] of detailsOf(Buffer.from(value))) {
        if (type === "google.rpc.ErrorInfo") {
          const found = infoOf(detail);
          info = found.domain === DOMAIN ? found : info;
        } else if (type === "google.rpc.RetryInfo") {
          retryAfter = delayOf(detail);
        }
      }
    } catch {
      // This daemon sends no such bytes.
    }
  }
  return { info, retryAfter };
}

/** Type and content of each detail of a `google.rpc.Status`. */
function detailsOf(bytes: Uint8Array): [string, Uint8Array][] {
  const found: [string, Uint8Array][] = [];
  fields(bytes, {
    3: (reader) => {
      let type = "";
      let content: Uint8Array = new Uint8Array();
      fields(reader.bytes(), {
        1: (any) => {
          type = any.string().replace(/^.*\//, "");
        },
        2: (any) => {
          content = any.bytes();
        },
      });
      found.push([type, content]);
    },
  });
  return found;
}

/** A `google.rpc.ErrorInfo`. */
function infoOf(bytes: Uint8Array): Info {
  const info: Info = { reason: "", domain: "", metadata: {} };
  fields(bytes, {
    1: (reader) => {
      info.reason = reader.string();
    },
    2: (reader) => {
      info.domain = reader.string();
    },
    3: (reader) => {
      let [key, text] = ["", ""];
      fields(reader.bytes(), {
        1: (entry) => {
          key = entry.string();
        },
        2: (entry) => {
          text = entry.string();
        },
      });
      info.metadata[key] = text;
    },
  });
  return info;
}

/** Seconds of a `google.rpc.RetryInfo`. */
function delayOf(bytes: Uint8Array): number {
  let seconds = 0;
  fields(bytes, {
    1: (reader) =>
      fields(reader.bytes(), {
        1: (duration) => {
          seconds += Number(duration.int64());
        },
        2: (duration) => {
          seconds += duration.int32() / 1e9;
        },
      }),
  });
  return seconds;
}

/** Gives each field of a message to its reader, and skips the others. */
function fields(bytes: Uint8Array, readers: Readonly<Record<number, (reader: BinaryReader) => void>>): void {
  const reader = new BinaryReader(bytes);
  while (reader.pos < reader.len) {
    const [number, type] = reader.tag();
    const read = readers[number];
    if (read === undefined) {
      reader.skip(type, number);
    } else {
      read(reader);
    }
  }
}

const ENDS: ReadonlyMap<ForwardClosed_Reason, readonly [Kind, string]> = new Map<
  ForwardClosed_Reason,
  readonly [Kind, string]
>([
  [ForwardClosed_Reason.RESET, [errors.Cancelled, "the server closed the connection early"]],
  [ForwardClosed_Reason.RUN_ENDED, [errors.RunNotReady, "the sandbox has ended"]],
  [ForwardClosed_Reason.RUN_PAUSED, [errors.RunNotReady, "the sandbox was paused"]],
  [ForwardClosed_Reason.NOT_ALLOWED, [errors.Denied, "the policy no longer allows the connection"]],
  [ForwardClosed_Reason.STOPPING, [errors.DaemonUnreachable, "the daemon is stopping"]],
]);

/** Throws unless a forwarded connection ended as its two sides wanted. */
export function endedConnection(reason: ForwardClosed_Reason): void {
  const end = ENDS.get(reason);
  if (end !== undefined) {
    const [Kind, message] = end;
    throw new Kind(message, { reason: ForwardClosed_Reason[reason] });
  }
}
