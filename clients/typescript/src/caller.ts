/**
 * Makes the calls of a run, each once, and has all of their output even if the connection breaks.
 *
 * ```text
 * CallStream ──accepted, output, result──▶ done
 *     │ lost before it was accepted: again, by the same request id
 *     ▼ lost afterwards
 * GetCall from the offsets that are here ──▶ … ──▶ done
 * ```
 */

import { randomUUID } from "node:crypto";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { Client } from "./client.js";
import { ApprovalRequired, CofferdamError, DaemonUnreachable, Interrupted, NodeLostError, NotFound } from "./errors.js";
import { type Options, outlastsReviewers } from "./options.js";
import { Output } from "./output.js";
import { type OperationInit, onlyReads } from "./requests.js";
import { present } from "./results.js";
import { type Patience, Pauses } from "./settings.js";
import { failed, isVoid } from "./status.js";
import { sleep } from "./transport.js";
import type { OutputCallback } from "./types.js";
import {
  CallOutput_Stream,
  type CallRequest,
  CallRequestSchema,
  type CallResponse,
  type DialectCallSchema,
  type Result,
  SignalProcessRequest_Signal,
  CallResponse_Status as Status,
  ToolService,
} from "./v1.js";

/** Most bytes of a stream that `GetCall` gives at once. */
export const PIECE = 1024 * 1024;
// Seconds. The daemon ends a read itself; this is for a daemon that hangs.
const READ_TIMEOUT = 600;
// Seconds for the message that ends a call whose caller has gone, and for the id of a call that has just begun.
const CANCEL_TIMEOUT = 5;
// How often it is asked meanwhile whether the call is over.
const ENDINGS = 100;
// Most questions about one call whose files go on changing, after the first one.
const QUESTIONS = 8;

// Reason of a call that was not made, because its run waits for a reviewer of another call.
const AWAITING = "AWAITING_APPROVAL";

/** Callbacks for the output of a call, and the signal that ends it. */
export interface Listener {
  onStdout?: OutputCallback;
  onStderr?: OutputCallback;
  signal?: AbortSignal;
}

/** The answer to a call, and the output of its command. */
export interface Outcome {
  response: CallResponse;
  stdout: Uint8Array;
  stderr: Uint8Array;
}

/** One call under way. */
class Call {
  readonly #client: Client;
  readonly #request: CallRequest;
  readonly #listener: Listener;
  readonly #stdout = new Output();
  readonly #stderr = new Output();
  // Ends the requests of this call, if its caller can.
  readonly #end: AbortController | null;
  #onAccepted: (() => void) | null = null;
  #callId = "";
  /** The caller's own code threw: that is no answer of the daemon. */
  callbackThrew = false;
  #abandoned = false;

  constructor(client: Client, request: CallRequest, listener: Listener) {
    this.#client = client;
    this.#request = request;
    this.#listener = listener;
    this.#end = listener.signal === undefined ? null : new AbortController();
  }

  async outcome(): Promise<Outcome> {
    const { signal } = this.#listener;
    signal?.throwIfAborted();
    const work = this.#work();
    if (signal === undefined) {
      return await work;
    }
    return await new Promise((resolve, reject) => {
      const abort = () => {
        reject(signal.reason);
        this.#client.transport.afterwards(() => this.#abandon(work));
      };
      signal.addEventListener("abort", abort, { once: true });
      work.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
    });
  }

  async #work(): Promise<Outcome> {
    try {
      const response = await this.#response(this.#client.transport.patience());
      await this.#tell(this.#listener.onStdout, this.#stdout.rest());
      await this.#tell(this.#listener.onStderr, this.#stderr.rest());
      return { response, stdout: this.#stdout.whole(), stderr: this.#stderr.whole() };
    } catch (error) {
      if (this.callbackThrew) {
        this.#client.transport.afterwards(() => this.#cancel());
      } else if (error instanceof CofferdamError) {
        error.callId ??= this.#callId || null;
      }
      throw error;
    }
  }

  async #response(patience: Patience): Promise<CallResponse> {
    const { request, requestId, waitForApproval } = this.#request;
    const repeatable = requestId !== "" || (request.case === "operation" && onlyReads(request.value.kind));
    for (;;) {
      try {
        const response = await this.#streamed(patience);
        // A daemon that ends answers so to those who wait for a person; the next one goes on.
        if (response.status !== Status.PENDING_APPROVAL || !waitForApproval) {
          return response;
        }
      } catch (error) {
        const pause = repeatable && this.#client.transport.isLost(error) ? patience.pause() : null;
        if (this.callbackThrew) {
          throw error;
        }
        if (pause === null) {
          const isSafe = request.case === "operation" && onlyReads(request.value.kind);
          throw this.#client.transport.lost(error, requestId, isSafe);
        }
        await sleep(pause, this.#end?.signal);
      }
      if (this.#callId !== "") {
        try {
          return await this.#polled();
        } catch (error) {
          if (error instanceof NodeLostError && !this.callbackThrew) {
            // The question may be repeated, but the call has begun.
            const retrySafe = request.case === "operation" && onlyReads(request.value.kind);
            throw new NodeLostError(error.message, { callId: error.callId, requestId, retrySafe });
          }
          // It is in no record: it never began.
          if (this.callbackThrew || !(error instanceof NotFound) || this.#stdout.next || this.#stderr.next) {
            throw error;
          }
          this.#callId = "";
        }
      }
    }
  }

  async #streamed(patience: Patience): Promise<CallResponse> {
    let response: CallResponse | null = null;
    // To its very end: a stream that is left before it costs a reset.
    const { callStream } = ToolService.method;
    for await (const { event } of this.#client.transport.stream(callStream, this.#request, this.#ending)) {
      patience.restore();
      if (event.case === "output") {
        const { stream, offset, data } = event.value;
        await this.#take(stream === CallOutput_Stream.STDERR, Number(offset), data);
      } else if (event.case === "result") {
        response = event.value;
      } else if (event.case === "accepted") {
        this.#callId = event.value.callId;
        this.#onAccepted?.();
      }
    }
    if (response === null) {
      throw new DaemonUnreachable("the daemon ended the stream before the result");
    }
    return response;
  }

  /** By offset, until the call is over and all of its output is here. */
  async #polled(): Promise<CallResponse> {
    let pause = 0.02;
    for (;;) {
      const request = {
        callId: this.#callId,
        stdoutOffset: BigInt(this.#stdout.next),
        stderrOffset: BigInt(this.#stderr.next),
        maxOutputBytes: PIECE,
      };
      const found = await this.#client.tools.getCall(request, this.#ending);
      for (const chunk of [found.stdout, found.stderr]) {
        if (chunk !== undefined) {
          await this.#take(chunk === found.stderr, Number(chunk.offset), chunk.data);
        }
      }
      if (found.stdout?.data.length || found.stderr?.data.length) {
        pause = 0.02;
        continue;
      }
      const call = present(found.call);
      const pending = call.status === Status.PENDING_APPROVAL && this.#request.waitForApproval;
      if (!pending && call.status !== Status.RUNNING) {
        return call;
      }
      await sleep(pause, this.#end?.signal);
      pause = Math.min(pause * 1.5, 0.5);
    }
  }

  get #ending(): { signal: AbortSignal | undefined } {
    return { signal: this.#end?.signal };
  }

  async #take(ofStderr: boolean, offset: number, data: Uint8Array): Promise<void> {
    if (ofStderr) {
      await this.#tell(this.#listener.onStderr, this.#stderr.take(offset, data));
    } else {
      await this.#tell(this.#listener.onStdout, this.#stdout.take(offset, data));
    }
  }

  async #tell(callback: OutputCallback | undefined, text: string): Promise<void> {
    if (callback === undefined || text === "" || this.#abandoned) {
      return;
    }
    try {
      await callback(text);
    } catch (error) {
      this.callbackThrew = true;
      throw error;
    }
  }

  /** Ends a call whose caller has gone. One that has just been sent has no id yet: the daemon names it in a moment. */
  async #abandon(work: Promise<unknown>): Promise<void> {
    this.#abandoned = true;
    if (this.#callId === "") {
      const accepted = new Promise<void>((resolve) => {
        this.#onAccepted = resolve;
      });
      const end = new AbortController();
      await Promise.race([work, accepted, sleep(CANCEL_TIMEOUT, end.signal)]).catch(() => {});
      end.abort();
    }
    this.#end?.abort();
    await this.#cancel();
  }

  /** Ends it, and a process that it has started. */
  async #cancel(): Promise<void> {
    const callId = this.#callId;
    const { runId, request } = this.#request;
    const { tools, processes } = this.#client;
    if (callId === "") {
      return;
    }
    await tools.cancelCall({ callId }, { timeout: CANCEL_TIMEOUT });
    if (request.case !== "operation" || request.value.kind.case !== "process") {
      return;
    }
    // One that is there already is not the call's any more.
    for (let asked = 0; asked < ENDINGS; asked++) {
      if ((await tools.getCall({ callId })).call?.status !== Status.RUNNING) {
        break;
      }
      await sleep(CANCEL_TIMEOUT / ENDINGS);
    }
    const kill = { runId, processId: callId, signal: SignalProcessRequest_Signal.KILL };
    await processes.signalProcess(kill, { timeout: CANCEL_TIMEOUT });
  }
}

function newId(): string {
  return randomUUID().replaceAll("-", "");
}

/** The outcome. Throws for a call that was made earlier, by the same request id, and whose result is there no longer. */
function kept(outcome: Outcome): Outcome {
  const { callId, resultDropped } = outcome.response;
  if (resultDropped) {
    const message = "the call was made before, and its result is no longer stored";
    throw new NotFound(message, { reason: "RESULT_DROPPED", callId, hint: "It was not made again." });
  }
  return outcome;
}

/** Makes calls of one run, all with the same options. */
export class Caller {
  readonly client: Client;
  readonly runId: string;
  readonly options: Options;

  constructor(client: Client, runId: string, options: Options) {
    this.client = client;
    this.runId = runId;
    this.options = options;
  }

  /**
   * The outcome, also of a tool that failed. Throws for a refusal, and if the daemon is gone.
   *
   * The reviewer of another call may take longer than the call itself may wait. An approved call may find other files than
   * its reviewer saw, because another one was first. It has done nothing then, and is made anew if its caller waits for
   * people: consent to the present files is asked for.
   */
  async call(
    asked: { operation: OperationInit } | { dialect: MessageInitShape<typeof DialectCallSchema> },
    listener: Listener = {},
  ): Promise<Outcome> {
    const request = create(CallRequestSchema, {
      runId: this.runId,
      taskId: this.options.taskId,
      correlationId: this.options.correlationId,
      waitForApproval: this.options.waitForApproval,
      refuseAwaitingApproval: this.options.onAwaitingApproval === "raise",
      request:
        "operation" in asked
          ? { case: "operation", value: asked.operation }
          : { case: "dialect", value: asked.dialect },
    });
    const { request: made } = request;
    const signal = either(listener.signal, this.options.signal);
    // A call that only reads can be repeated as it is. The daemon knows any other by its id.
    if (this.options.requestId !== "" || made.case !== "operation" || !onlyReads(made.value.kind)) {
      request.requestId = this.options.requestId || newId();
    } else if (!request.waitForApproval) {
      // As one answer: there is no output to follow.
      request.cancelOnDisconnect = true;
      const options = { timeout: READ_TIMEOUT, signal, repeatable: true };
      const response = await this.client.transport.unary(ToolService.method.call, request, options);
      return { response, stdout: new Uint8Array(), stderr: new Uint8Array() };
    }
    const attempt = (last = false) => this.#attempted(request, { ...listener, signal }, last);
    const outcome = await attempt();
    if (outcome !== null) {
      return kept(outcome);
    }
    // One at a time: each changes the files that the consent to the next one covers.
    return await this.client.transport.inTurn(this.runId, signal, async () => {
      for (let left = QUESTIONS; ; ) {
        left--;
        request.requestId = newId();
        const outcome = await attempt(left === 0);
        if (outcome !== null) {
          return kept(outcome);
        }
      }
    });
  }

  /** The outcome. null: another call has changed the files that its reviewer saw, and it is not the `last` attempt. */
  async #attempted(request: CallRequest, listener: Listener, last: boolean): Promise<Outcome | null> {
    const anew = (reason = "", details: Readonly<Record<string, string>> = {}) =>
      outlastsReviewers(this.options) && (reason === AWAITING || (isVoid(details) && !last));
    const pauses = new Pauses();
    for (;;) {
      const call = new Call(this.client, request, listener);
      let reason: string;
      try {
        const outcome = await call.outcome();
        const { error } = outcome.response;
        if (error === undefined || !anew(error.reason, error.details)) {
          return outcome;
        }
        reason = error.reason;
      } catch (error) {
        if (!(error instanceof CofferdamError) || call.callbackThrew || !anew(error.reason, error.details)) {
          throw error;
        }
        reason = error.reason;
      }
      if (reason !== AWAITING) {
        return null;
      }
      await sleep(pauses.next(), listener.signal);
      request.requestId = newId();
    }
  }

  /** The result of an operation of this kind. Throws for a tool that failed, too. */
  async result<K extends Kind>(
    operation: OperationInit & { kind: { case: K } },
    signal?: AbortSignal,
  ): Promise<Value<K>> {
    const { response } = await this.call({ operation }, { signal });
    const { case: kind } = operation.kind;
    succeeded(response, kind !== "git" && kind !== "process");
    const result = present(response.result).kind;
    if (result.case !== kind) {
      const message = "the call has succeeded, but the daemon has dropped its result to free space";
      throw new CofferdamError(message, { callId: response.callId });
    }
    return result.value as Value<K>;
  }

  /** A call when it is over, however long a person takes to decide on it. */
  async over(callId: string, signal: AbortSignal | undefined): Promise<CallResponse> {
    let pause = 0.02;
    for (;;) {
      const call = present((await this.client.tools.getCall({ callId }, { signal })).call);
      if (call.status !== Status.PENDING_APPROVAL && call.status !== Status.RUNNING) {
        return call;
      }
      await sleep(pause, signal);
      pause = Math.min(pause * 1.5, 1);
    }
  }
}

type Kind = Exclude<Result["kind"]["case"], undefined>;
type Value<K extends Kind> = Extract<Result["kind"], { case: K }>["value"];

/** Aborted as soon as one of them is. */
export function either(one: AbortSignal | undefined, other: AbortSignal | undefined): AbortSignal | undefined {
  return one === undefined || other === undefined ? (one ?? other) : AbortSignal.any([one, other]);
}

/** Throws unless it did. `ofFile`: a thing that is not found is a file. */
export function succeeded(response: CallResponse, ofFile = false): void {
  switch (response.status) {
    case Status.SUCCEEDED:
      return;
    case Status.PENDING_APPROVAL: {
      const message = "a person has to approve this call; nothing has been done yet";
      throw new ApprovalRequired(message, { approvalId: response.approvalId, callId: response.callId });
    }
    case Status.RUNNING:
      throw new Interrupted("the call is under way", { callId: response.callId });
    default:
      throw failed(response, ofFile);
  }
}
