/**
 * All errors, by kind.
 *
 * The daemon gives a stable reason to each refusal and failure (`NOT_FOUND`, `COMMAND_NOT_ALLOWED` …). Each reason has one
 * class here, and the `hint` of each class says how to go on. An `InfrastructureError` is a failure of the host, its engine
 * or the daemon. It says nothing about the programs of the sandbox: do not count it as a score of theirs.
 */

import type { CommandResult, Fault } from "./types.js";

/** The facts of an error beside its message. */
export interface ErrorFacts {
  reason?: string;
  callId?: string | null;
  hint?: string;
  details?: Readonly<Record<string, string>>;
  retryAfter?: number | null;
  fault?: Fault;
  retrySafe?: boolean;
  evidence?: Readonly<Record<string, string>>;
}

/** Everything that this package throws by itself. */
export class CofferdamError extends Error {
  /** Stable reason such as `COMMAND_NOT_ALLOWED`; empty where the daemon gave none. */
  readonly reason: string;
  /** The call in the audit log; null where there is none, or the daemon does not tell: of a read that it refused. */
  callId: string | null;
  /** How to go on. */
  readonly hint: string;
  /** Facts to act on, such as `rule` or `field`. */
  readonly details: Readonly<Record<string, string>>;
  /** Seconds after which it goes through, if nothing else comes before; null where time mends nothing. */
  readonly retryAfter: number | null;
  /** Whose failure it is; empty where the daemon does not say. */
  readonly fault: Fault;
  /** Nothing was done and nothing can have been done, so that a repetition does it once. */
  retrySafe: boolean;
  /** Facts that show whose failure it is, such as `engine.exit_code` or `cgroup.limit_hits`. */
  readonly evidence: Readonly<Record<string, string>>;
  /**
   * An attempt before this one was sent, and its answer was lost: it may have been carried out.
   *
   * @internal
   */
  followsLostAttempt = false;

  /** The hint of this kind. */
  protected static readonly HINT: string = "";
  /** Whose failure one of this kind is, where the daemon does not say. */
  protected static readonly FAULT: Fault = "";

  constructor(message: string, facts: ErrorFacts = {}) {
    super(message);
    const kind = new.target;
    this.name = kind.name;
    this.reason = facts.reason ?? "";
    this.callId = facts.callId ?? null;
    this.hint = facts.hint ?? kind.HINT;
    this.details = Object.freeze({ ...facts.details });
    this.retryAfter = facts.retryAfter ?? null;
    this.fault = facts.fault || kind.FAULT;
    this.retrySafe = facts.retrySafe ?? false;
    this.evidence = Object.freeze({ ...facts.evidence });
  }

  override toString(): string {
    const reason = this.reason && ` (${this.reason})`;
    const hint = this.hint && `. ${this.hint}`;
    const call = this.callId === null ? "" : ` [call ${this.callId}]`;
    return `${this.name}: ${this.message}${reason}${hint}${call}`;
  }
}

/**
 * The host, its engine or the daemon failed, and not the programs of the sandbox, its policy or the caller.
 *
 * A sample, a rollout or a test that ends with it has no result: count it as an error, and not as a score of 0. `retrySafe`
 * says whether the same may be done again without a look at what has happened. Errors of several classes are `instanceof`
 * this one: those whose `fault` is `infrastructure`.
 */
export class InfrastructureError extends CofferdamError {
  protected static override readonly HINT: string =
    "It says nothing about the program: make another sandbox and begin again.";
  protected static override readonly FAULT: Fault = "infrastructure";

  static override [Symbol.hasInstance](value: unknown): boolean {
    return value instanceof CofferdamError && value.fault === "infrastructure";
  }
}

/** There is no connection to a daemon: it is a `DaemonUnreachable`, `NotPermitted` or `CertificateRefused`. */
export class NoConnection extends CofferdamError {}

/** No daemon answers, or the connection to it was lost and it did not come back. */
export class DaemonUnreachable extends NoConnection {
  protected static override readonly HINT: string =
    "See `systemctl status cofferd`, or name its endpoint with COFFERDAM_ENDPOINT.";
  protected static override readonly FAULT: Fault = "infrastructure";
}

/**
 * A daemon that answered before does so no longer, and it did not come back within `reconnectTimeout`.
 *
 * The request may have been carried out unless `retrySafe`. A request that had a `requestId` is found by it once the node is
 * there again: the same request with the same id is done once.
 */
export class NodeLostError extends DaemonUnreachable {
  protected static override readonly HINT: string = "Ask the node again later, or begin again in another sandbox.";

  /** Id of the request, for a repetition at the same node; null: it had none. */
  readonly requestId: string | null;

  constructor(message: string, facts: ErrorFacts & { requestId?: string | null } = {}) {
    super(message, facts);
    this.requestId = facts.requestId || null;
  }
}

/** This user may not open the daemon's socket. The message says who may. It is no `InfrastructureError`. */
export class NotPermitted extends NoConnection {
  protected static override readonly HINT =
    "Become a member of its group, and log in again. `access` in the daemon's configuration says what a member may do.";
  protected static override readonly FAULT: Fault = "caller";
}

/** The daemon ended the TLS handshake for lack of a certificate that it accepts. It is no `InfrastructureError`. */
export class CertificateRefused extends NoConnection {
  protected static override readonly HINT =
    "`tls` or COFFERDAM_TLS names the directory of a client's certificate; `coffer tls init` makes one.";
  protected static override readonly FAULT: Fault = "caller";
}

/** There is no token or certificate, or the token is unknown. */
export class AuthenticationFailed extends CofferdamError {
  protected static override readonly HINT =
    "A run's token works until the run ends, an API token until it expires or is revoked; check COFFERDAM_TOKEN.";
}

/** Policy, role or API role do not allow it. Repeating changes nothing. */
export class Denied extends CofferdamError {
  protected static override readonly HINT: string =
    "Try something else, or ask an operator to change the profile; `coffer policy explain` shows which rule decides.";
}

/** The command is on the deny list, or not on the allow list. */
export class CommandNotAllowed extends Denied {
  protected static override readonly HINT = "Use another program, or another profile.";
}

/** A path or name that leaves the run's own places. */
export class SandboxViolation extends Denied {
  protected static override readonly HINT = "Paths must be beneath /workspace, /state or /pkg.";
}

/** A reviewer said no, or nobody decided in time (`APPROVAL_EXPIRED`). */
export class ApprovalDenied extends Denied {
  protected static override readonly HINT = "The message says why, if the reviewer did. Do not repeat the same call.";
}

/** A person has to consent first. Nothing has been done yet; the call goes on by itself once it is approved. */
export class ApprovalRequired extends CofferdamError {
  protected static override readonly HINT =
    "Decide with `sandbox.approvals.approve(approvalId)` or `coffer approval approve`, then get the result with " +
    "`sandbox.calls.wait(callId)`; or make calls with `waitForApproval: true`.";

  /** See `sandbox.approvals`. */
  readonly approvalId: string;

  constructor(message: string, ids: { approvalId: string; callId: string }) {
    super(message, { reason: "PENDING_APPROVAL", callId: ids.callId });
    this.approvalId = ids.approvalId;
  }
}

/** No such run, call, approval, profile, image or program. */
export class NotFound extends CofferdamError {}

/** The request is for another node of the fleet than the daemon that got it. Nothing was done. */
export class WrongNodeError extends CofferdamError {
  protected static override readonly HINT =
    "Connect to the node that the message names, or to the one address of the fleet.";

  /** The node that refused; null for a daemon that is no node. */
  get node(): number | null {
    return numberOf(this.details["node"]);
  }

  /** The node that the request is for. */
  get asked(): number | null {
    return numberOf(this.details["asked"]);
  }
}

/** A node's number, of 1 to 5 digits. */
function numberOf(written: string | undefined): number | null {
  return written !== undefined && /^[0-9]{1,5}$/.test(written) ? Number(written) : null;
}

/** No such file or directory. */
export class FileNotFound extends NotFound {}

/** It exists already, with other content. */
export class AlreadyExists extends CofferdamError {}

/** The state is not as the call demands: a hash differs, a file exists, text is not unique. */
export class PreconditionFailed extends CofferdamError {
  protected static override readonly HINT = "Read again, and make the call from the present state.";
}

/** The call itself is malformed; the message names the field. */
export class InvalidArgument extends CofferdamError {
  constructor(message: string, facts: ErrorFacts = {}) {
    super(message, { reason: "INVALID_ARGUMENT", ...facts });
  }
}

/**
 * The run waits for a reviewer of another call, and this call did not wait, or no longer. Nothing was done.
 *
 * `details` has `approval_id`, who decides (`level_needed`, `approvals_needed`) and until when (`expires_at`).
 */
export class AwaitingApproval extends CofferdamError {
  protected static override readonly HINT =
    "Wait for the approval that the message names, then make the call again; files can be read meanwhile.";
}

/** The run takes no calls now: it is paused or has ended. */
export class RunNotReady extends CofferdamError {
  protected static override readonly HINT: string = "`sandbox.info()` says why.";
}

/** The sandbox was lost: the host, its engine or the daemon has ended it. It does not come back under this handle. */
export class RunLost extends RunNotReady {
  protected static override readonly HINT = "Make another sandbox. `evidence` says how this one ended.";
  protected static override readonly FAULT: Fault = "infrastructure";
}

/** More would have to be read or written than the profile allows. */
export class LimitExceeded extends CofferdamError {}

/** The host had no memory or no disk left, although the sandbox was within its own limits. */
export class HostExhausted extends LimitExceeded {
  protected static override readonly HINT = "Have an operator look at the host, and begin again in another sandbox.";
  protected static override readonly FAULT: Fault = "infrastructure";
}

/** Too many calls; nothing was done. `retryAfter` says when it goes through. */
export class RateLimited extends CofferdamError {}

/** Too much at once; nothing was done. */
export class Overloaded extends RateLimited {}

/** The node has no capacity left for the sandbox; nothing was done. */
export class NodeFull extends Overloaded {
  protected static override readonly HINT = "Try another node, or this one when others have ended.";
  protected static override readonly FAULT: Fault = "infrastructure";
}

/** The time was over. */
export class TimedOut extends CofferdamError {}

/** The daemon did not answer within the time of the request, which may have been carried out. */
export class DaemonTimedOut extends TimedOut {
  protected static override readonly HINT: string =
    "Check the present state before you repeat it. `coffer doctor` says if the daemon works.";
  protected static override readonly FAULT: Fault = "infrastructure";
}

/** Somebody cancelled the call, or its run ended. */
export class Cancelled extends CofferdamError {}

/** The call was broken off. It may have had an effect. */
export class Interrupted extends Cancelled {
  protected static override readonly HINT: string = "Check the present state before you repeat it.";
}

/** The daemon ended during the call. It may have had an effect. */
export class CallLost extends Interrupted {
  protected static override readonly FAULT: Fault = "infrastructure";
}

/** The audit log or the container engine does not work, or the daemon stops. */
export class Unavailable extends CofferdamError {
  protected static override readonly HINT = "Run `coffer doctor`.";
  protected static override readonly FAULT: Fault = "infrastructure";
}

/** An upstream MCP server failed, or its tool did: perhaps for its arguments. */
export class UpstreamFailed extends CofferdamError {}

/**
 * A failure that the programs of the sandbox can cause, or that only a worker beside them reports.
 *
 * The sandbox's worker was ended by one of its commands, or gave an answer that cannot be.
 */
export class ProgramError extends CofferdamError {}

/** A fault of the daemon or of its host. */
export class InternalError extends CofferdamError {
  protected static override readonly HINT = "See the daemon's log.";
  protected static override readonly FAULT: Fault = "infrastructure";
}

/** A command did not end as it should. `result` has its output. */
export class CommandError extends CofferdamError {
  /** Its output, and how it ended. */
  readonly result: CommandResult;

  constructor(message: string, result: CommandResult, facts: ErrorFacts = {}) {
    const { callId, fault, retrySafe, evidence } = result;
    super(message, { fault, retrySafe, evidence, ...facts, callId });
    this.result = result;
  }
}

/** The exit code is not 0, and `check: true` was given. */
export class CommandFailed extends CommandError {}

/** Its time was over: it and everything that it had started was ended. */
export class CommandTimedOut extends CommandError {
  protected static override readonly HINT = "Give a longer `timeout`, up to the profile's `exec.max_timeout_s`.";
}

/** It was ended before it was done: cancelled, or over a limit such as that of output (`result.endedBy`). */
export class CommandStopped extends CommandError {}

/** It was lost while it ran. Output after the last piece is lost. */
export class CommandInterrupted extends CommandStopped {
  protected static override readonly HINT: string = "Check the present state before you repeat it.";
}

/** The host, its engine or the daemon ended it: `endedBy` and `evidence` of the result say how. */
export class CommandLost extends CommandInterrupted {
  protected static override readonly FAULT: Fault = "infrastructure";
}
