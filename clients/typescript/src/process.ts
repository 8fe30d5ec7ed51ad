/**
 * A process that stays, with what a lost connection takes: its output by offset, its end however long that takes.
 *
 * ```text
 * AttachProcess from the offsets that are here ──output, gap──▶ … ──the process──▶ done
 *     ▲ lost, or the daemon ends │
 *     └──────────────────────────┘
 * ```
 */

import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { type Caller, either } from "./caller.js";
import { InvalidArgument, NotFound, PreconditionFailed, TimedOut } from "./errors.js";
import { Output } from "./output.js";
import * as requests from "./requests.js";
import { present } from "./results.js";
import { resumed } from "./resumed.js";
import { now, type ProcessAddress, type Stdin } from "./stdin.js";
import { sleep } from "./transport.js";
import type { CommandOutput, PtySize, Signal, SignalName } from "./types.js";
import {
  type AttachProcessResponse,
  ProcessService,
  ProcessStream,
  SignalProcessRequest_Signal,
  Process_State as State,
  type Process as Status,
} from "./v1.js";

// Seconds that one request waits for the end of a process, and more for its answer.
const LONGEST_WAIT = 600;
const ANSWER_TIMEOUT = 30;
// Seconds, between such requests.
const PAUSE = 0.05;

const SIGNALS: Readonly<Record<SignalName, SignalProcessRequest_Signal>> = {
  HUP: SignalProcessRequest_Signal.HUP,
  INT: SignalProcessRequest_Signal.INT,
  QUIT: SignalProcessRequest_Signal.QUIT,
  KILL: SignalProcessRequest_Signal.KILL,
  USR1: SignalProcessRequest_Signal.USR1,
  USR2: SignalProcessRequest_Signal.USR2,
  TERM: SignalProcessRequest_Signal.TERM,
  CONT: SignalProcessRequest_Signal.CONT,
  STOP: SignalProcessRequest_Signal.STOP,
  TSTP: SignalProcessRequest_Signal.TSTP,
};

/** The signal of a name in any case, with or without `SIG`, or of a number. */
export function parseSignal(signal: Signal): SignalProcessRequest_Signal {
  const text = String(signal).toUpperCase();
  const name = text.replace(/^SIG/, "");
  const found = /^\d+$/.test(text)
    ? Object.values(SIGNALS).find((number) => number === Number(text))
    : Object.hasOwn(SIGNALS, name)
      ? SIGNALS[name as SignalName]
      : undefined;
  if (found === undefined) {
    const known = Object.keys(SIGNALS).join(", ");
    throw new InvalidArgument(`signal: ${JSON.stringify(signal)} cannot be sent; the signals are ${known}`);
  }
  return found;
}

/** The output of a process, from its first byte on. */
export class Reading {
  readonly stdout: Output;
  readonly stderr: Output;
  /** How it is: set at the end. */
  process: Status | null = null;

  /** `keep`: it is wanted whole in the end. */
  constructor(keep: boolean) {
    this.stdout = new Output(keep);
    this.stderr = new Output(keep);
  }

  /** The new part, if there is one. */
  take({ event }: AttachProcessResponse): CommandOutput | null {
    if (event.case === "output") {
      const stream = this.#of(event.value.stream);
      const data = stream.fresh(Number(event.value.offset), event.value.data);
      return data.length > 0 ? this.#piece(stream, data, stream.text(data)) : null;
    }
    if (event.case === "gap") {
      this.#of(event.value.stream).skip(Number(event.value.offset + event.value.bytes));
    } else if (event.case === "process") {
      this.process = event.value;
    }
    return null;
  }

  /** Characters that are not whole. */
  rest(): CommandOutput[] {
    const ends = [this.stdout, this.stderr].map((stream) => this.#piece(stream, new Uint8Array(), stream.rest()));
    return ends.filter((end) => end.text !== "");
  }

  #of(stream: ProcessStream): Output {
    return stream === ProcessStream.STDERR ? this.stderr : this.stdout;
  }

  #piece(stream: Output, data: Uint8Array, text: string): CommandOutput {
    return { stream: stream === this.stderr ? "stderr" : "stdout", data, text };
  }
}

/** A moment on this process's own clock, milliseconds. */
export type Deadline = number | undefined;

export function deadline(timeout: number | undefined): Deadline {
  return timeout === undefined ? undefined : performance.now() + requests.positive("timeout", timeout) * 1000;
}

/** Seconds; never 0, which would be none at all. */
export function left(until: Deadline): number | undefined {
  return until === undefined ? undefined : Math.max(0.001, (until - performance.now()) / 1000);
}

/** One process of a run. */
export class Process {
  readonly id: string;
  readonly #caller: Caller;
  readonly #at: ProcessAddress;
  readonly #stdin: Stdin;

  constructor(caller: Caller, id: string) {
    this.id = id;
    this.#caller = caller;
    this.#at = { runId: caller.runId, processId: id };
    this.#stdin = caller.client.stdins.of(id);
  }

  /** The signal that ends all calls and streams of the sandbox object, and this one. */
  signal(signal?: AbortSignal): AbortSignal | undefined {
    return either(signal, this.#caller.options.signal);
  }

  async now(): Promise<Status> {
    return await now(this.#rpc, this.#at, this.signal());
  }

  /** The output so far, or with `follow` all until its end, over any number of connections. Throws `TimedOut`. */
  async *read(
    reading: Reading,
    options: { follow: boolean; until?: Deadline; signal: AbortSignal },
  ): AsyncGenerator<CommandOutput, void> {
    const { follow, until, signal } = options;
    const begin = () => {
      const offsets = { stdoutOffset: BigInt(reading.stdout.next), stderrOffset: BigInt(reading.stderr.next) };
      return this.#rpc.attachProcess({ ...this.#at, ...offsets, follow }, { timeout: left(until), signal });
    };
    const whole = () => reading.process !== null;
    try {
      for await (const event of resumed(this.#caller.client.transport, begin, whole, signal)) {
        const piece = reading.take(event);
        if (piece !== null) {
          yield piece;
        }
      }
    } catch (error) {
      throw error instanceof TimedOut ? this.#stillRunning() : error;
    }
    yield* reading.rest();
  }

  /** Waits for its end. Throws `TimedOut`. */
  async ended(until: Deadline, signal: AbortSignal | undefined): Promise<void> {
    for (;;) {
      const seconds = Math.min(LONGEST_WAIT, left(until) ?? LONGEST_WAIT);
      const request = { ...this.#at, timeout: durationFromMs(Math.ceil(seconds * 1000)) };
      const { process } = await this.#rpc.waitProcess(request, { timeout: seconds + ANSWER_TIMEOUT, signal });
      if (process?.state !== State.RUNNING) {
        return;
      }
      if (until !== undefined && performance.now() >= until) {
        throw this.#stillRunning();
      }
      // A daemon that ends says so, too.
      await sleep(PAUSE, signal);
    }
  }

  async send(data: string | Uint8Array, close: boolean): Promise<void> {
    await this.#named(this.#stdin.send(this.#rpc, this.#at, requests.raw(data), close, this.signal()));
  }

  async sendSignal(name: Signal): Promise<void> {
    const signal = parseSignal(name);
    await this.#named(this.#rpc.signalProcess({ ...this.#at, signal }, { signal: this.signal() }));
  }

  /** Whatever the signal of the sandbox object says. */
  async kill(): Promise<boolean> {
    const { signalProcess } = ProcessService.method;
    try {
      // A second one changes nothing.
      await this.#caller.client.transport.unary(
        signalProcess,
        { ...this.#at, signal: SIGNALS.KILL },
        { repeatable: true },
      );
      return true;
    } catch (error) {
      if (error instanceof NotFound || error instanceof PreconditionFailed) {
        return false;
      }
      throw error;
    }
  }

  /** Ends it although its caller has gone. */
  abandon(): void {
    this.#caller.client.transport.afterwards(() => this.kill());
  }

  async resize(size: PtySize): Promise<void> {
    const request = { ...this.#at, size: requests.terminalSize(size) };
    await this.#named(this.#rpc.resizeTerminal(request, { signal: this.signal() }));
  }

  get #rpc() {
    return this.#caller.client.processes;
  }

  /** Errors say which process it is, and how to learn more. */
  async #named(work: Promise<unknown>): Promise<void> {
    try {
      await work;
    } catch (error) {
      if (error instanceof PreconditionFailed) {
        const { message, reason, details, retryAfter } = error;
        const hint = "`info()` shows the state of the process.";
        throw new PreconditionFailed(message, { reason, details, retryAfter, hint, callId: this.id });
      }
      throw error;
    }
  }

  #stillRunning(): TimedOut {
    const hint = "It goes on: wait again, or `kill()` it.";
    return new TimedOut("the process has not ended", { reason: "TIMED_OUT", callId: this.id, hint });
  }
}

/** A call like any other: policy, approval and record are those of a command. */
export async function start(
  caller: Caller,
  operation: ReturnType<typeof requests.process>,
  signal?: AbortSignal,
): Promise<Process> {
  return new Process(caller, present(await caller.result(operation, signal)).processId);
}

/** One that was started before. Throws `NotFound`. */
export async function connect(caller: Caller, processId: string): Promise<Process> {
  const process = new Process(caller, processId);
  await process.now();
  return process;
}
