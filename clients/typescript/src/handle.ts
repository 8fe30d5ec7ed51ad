/** The handle of a command in the background. */

import { either } from "./caller.js";
import { CommandFailed, CommandInterrupted, CommandLost, CommandStopped, CommandTimedOut } from "./errors.js";
import { type Deadline, deadline, left, type Process, Reading } from "./process.js";
import * as results from "./results.js";
import { Stream } from "./stream.js";
import { sleep } from "./transport.js";
import type {
  CommandOutput,
  CommandResult,
  DataCallback,
  EndedBy,
  OutputCallback,
  ProcessInfo,
  PtySize,
  Signal,
} from "./types.js";
import { Process_State as State, type Process as Status } from "./v1.js";

const NEVER = new AbortController().signal;
// Limits of a run that end a command, with the daemon's reason.
const LIMITS: Readonly<Partial<Record<EndedBy, string>>> = {
  "memory-limit": "MEMORY_LIMIT",
  "file-size-limit": "WRITE_LIMIT",
  "disk-quota": "WRITE_LIMIT",
};
// Seconds; more than a timer takes would be none.
const FOREVER = 2_000_000;

/** Callbacks for the output of a process. */
export interface ProcessListener {
  onStdout?: OutputCallback;
  onStderr?: OutputCallback;
  onData?: DataCallback;
}

export interface WaitOptions {
  /** Seconds; then `TimedOut`, and the command goes on. Default: none. */
  timeout?: number;
  /** Is given the standard output as text, from its beginning on, until the end. */
  onStdout?: OutputCallback;
  /** Is given the standard error likewise. */
  onStderr?: OutputCallback;
  /** Throw `CommandFailed` unless the exit code is 0. */
  check?: boolean;
  /** Aborting it ends the waiting, and not the command. */
  signal?: AbortSignal;
}

/** Callbacks that are told meanwhile. */
class Pump {
  readonly #end = new AbortController();
  readonly #work: Promise<void>;

  constructor(work: (signal: AbortSignal) => Promise<void>, signal: AbortSignal | undefined) {
    this.#work = work(either(this.#end.signal, signal) ?? this.#end.signal).catch((error) => {
      if (!this.#end.signal.aborted) {
        throw error;
      }
    });
    // `done` tells the error.
    this.#work.catch(() => {});
  }

  /** Waits for its end, until the deadline at most. Rejected with its error. */
  async done(until: Deadline, signal: AbortSignal | undefined): Promise<void> {
    const end = new AbortController();
    const pause = sleep(left(until) ?? FOREVER, either(end.signal, signal));
    try {
      await Promise.race([this.#work, pause]);
    } finally {
      end.abort();
      pause.catch(() => {});
    }
  }

  end(): void {
    this.#end.abort();
  }
}

/**
 * A command that runs in the background, or a terminal.
 *
 * ```ts
 * const server = await sandbox.commands.run(["python3", "-m", "http.server"], { background: true });
 * for await (const piece of server) {
 *   process.stdout.write(piece.text);
 * }
 * ```
 *
 * It lives until its first program ends, until `kill()`, until its `timeout` or the end of the sandbox; then everything that
 * it started is ended. This object, its connection and the daemon may come and go meanwhile. Iterating gives its output
 * from the first byte on, any number of times; after a lost connection it goes on at the next byte. Of very much output the
 * daemon keeps the beginning and the end.
 *
 * Leaving the block of `await using` is `kill()`.
 */
export class CommandHandle implements AsyncIterable<CommandOutput>, AsyncDisposable {
  readonly #process: Process;
  #pump: Pump | null = null;
  #exitCode: number | null = null;

  /** @internal */
  constructor(process: Process, listener: ProcessListener) {
    this.#process = process;
    if (hears(listener)) {
      this.#pump = new Pump((signal) => this.#tell(listener, undefined, signal), process.signal());
    }
  }

  /** Its id, a UUIDv7: for `commands.connect`, and that of its start in the audit log. */
  get processId(): string {
    return this.#process.id;
  }

  /** The same: no number of the kernel. */
  get pid(): string {
    return this.#process.id;
  }

  /** As far as this object knows: null until `wait()`, `info()` or a callback has seen its end. */
  get exitCode(): number | null {
    return this.#exitCode;
  }

  /** The process as it is now. */
  async info(): Promise<ProcessInfo> {
    return results.processInfo(this.#seen(await this.#process.now()));
  }

  /**
   * Waits for its end, and for the callbacks that it was started with. Returns all output that the daemon has kept.
   *
   * A command that was killed has a result: exit code 137, `endedBy` is `killed`. Throws `CommandTimedOut` where its own time
   * was over, `CommandStopped` where its sandbox or a limit ended it, `CommandInterrupted` where it was lost, `CommandLost` where
   * the host, its engine or the daemon ended it or its sandbox, each with the output as `result`; and what a callback throws.
   */
  async wait(options: WaitOptions = {}): Promise<CommandResult> {
    const { onStdout, onStderr, check = false } = options;
    const until = deadline(options.timeout);
    const signal = this.#process.signal(options.signal);
    await this.#pump?.done(until, signal);
    if (hears({ onStdout, onStderr })) {
      await this.#tell({ onStdout, onStderr }, until, signal);
    }
    await this.#process.ended(until, signal);
    const reading = new Reading(true);
    for await (const _ of this.#process.read(reading, { follow: false, signal: signal ?? NEVER })) {
      // It is kept.
    }
    const process = this.#seen(reading.process ?? (await this.#process.now()));
    return judged(process, results.ended(process, reading.stdout.whole(), reading.stderr.whole()), check);
  }

  /** @internal Waits for its end alone. Throws `CommandLost`, without output, where the infrastructure ended it. */
  async ended(): Promise<ProcessInfo> {
    await this.#process.ended(undefined, this.#process.signal());
    const process = this.#seen(await this.#process.now());
    checkNotLost(process.failure, results.ended(process, new Uint8Array(), new Uint8Array()));
    return results.processInfo(process);
  }

  /**
   * Gives it something to read; needs `stdinOpen: true` or a terminal. Resolves when it has all of it.
   *
   * `close`: and end of file after that. A terminal's end of file is a byte, Ctrl-D: `"\x04"`.
   * Several calls of this client at once take turns, and no byte comes twice, also if a connection is lost.
   * Throws `PreconditionFailed` where the process has ended or closed its input.
   */
  async sendStdin(data: string | Uint8Array, options: { close?: boolean } = {}): Promise<void> {
    await this.#process.send(data, options.close ?? false);
  }

  /** End of file. */
  async closeStdin(): Promise<void> {
    await this.#process.send("", true);
  }

  /** Ends it and everything that it started, at once. False: it had ended already. */
  async kill(): Promise<boolean> {
    return await this.#process.kill();
  }

  /**
   * Sends a signal to its process group, or to the foreground of its terminal. `TERM`, `SIGTERM`, `term` and 15 are one.
   * Throws `PreconditionFailed`.
   */
  async sendSignal(signal: Signal): Promise<void> {
    await this.#process.sendSignal(signal);
  }

  /** Gives its terminal another size. Throws `PreconditionFailed` where it has none. */
  async resize(size: PtySize): Promise<void> {
    await this.#process.resize(size);
  }

  /** Ends its callbacks. The command goes on; `commands.connect` finds it again. */
  disconnect(): void {
    this.#pump?.end();
    this.#pump = null;
  }

  [Symbol.asyncIterator](): Stream<CommandOutput> {
    const reading = new Reading(false);
    const make = async function* (this: CommandHandle, signal: AbortSignal): AsyncGenerator<CommandOutput, void> {
      yield* this.#process.read(reading, { follow: true, signal });
      this.#seen(reading.process);
    };
    return new Stream(make.bind(this), this.#process.signal());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }

  async #tell(listener: ProcessListener, until: Deadline, signal: AbortSignal | undefined): Promise<void> {
    const reading = new Reading(false);
    for await (const piece of this.#process.read(reading, { follow: true, until, signal: signal ?? NEVER })) {
      const onText = piece.stream === "stderr" ? listener.onStderr : listener.onStdout;
      if (piece.text !== "") {
        await onText?.(piece.text);
      }
      if (piece.data.length > 0) {
        await listener.onData?.(piece.data);
      }
      // It was left meanwhile.
      signal?.throwIfAborted();
    }
    this.#seen(reading.process);
  }

  #seen<S extends Status | null>(process: S): S {
    this.#exitCode = process?.exitCode ?? this.#exitCode;
    return process;
  }
}

function hears(listener: ProcessListener): boolean {
  return Object.values(listener).some((callback) => callback !== undefined);
}

/** Throws `CommandLost` where the end of a process says nothing about its program. `why`: its `failure`. */
export function checkNotLost(why: string, result: CommandResult): void {
  if (result.failedByInfrastructure) {
    throw new CommandLost(why || "the command was lost", result, { reason: "RUN_LOST" });
  }
}

/** The result, or the error that it stands for. */
function judged(process: Status, result: CommandResult, check: boolean): CommandResult {
  checkNotLost(process.failure, result);
  if (process.state === State.INTERRUPTED) {
    throw new CommandInterrupted(process.failure || "the command was lost", result, { reason: "CANCELLED" });
  }
  if (result.timedOut) {
    const hint = "Give a longer `timeout`, or none.";
    throw new CommandTimedOut("the command timed out", result, { reason: "TIMED_OUT", hint });
  }
  if (result.endedBy === "run-ended") {
    throw new CommandStopped(process.failure || "the sandbox has ended", result, { reason: "CANCELLED" });
  }
  const limit = LIMITS[result.endedBy];
  if (limit !== undefined) {
    throw new CommandStopped(process.failure, result, { reason: limit });
  }
  return check ? succeeding(result) : result;
}

/** The result of a command that has to succeed. */
export function succeeding(result: CommandResult): CommandResult {
  if (!result.ok) {
    const hint = result.hint || result.stderr.slice(-500).trim();
    throw new CommandFailed(`the command ended with ${result.exitCode}`, result, { hint });
  }
  return result;
}
