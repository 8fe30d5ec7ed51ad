/** `sandbox.commands`. */

import { type Caller, type Outcome, succeeded } from "./caller.js";
import {
  CommandInterrupted,
  CommandLost,
  CommandStopped,
  CommandTimedOut,
  InvalidArgument,
  PreconditionFailed,
} from "./errors.js";
import { CommandHandle, succeeding } from "./handle.js";
import { connect, Process, start } from "./process.js";
import * as requests from "./requests.js";
import * as results from "./results.js";
import type { CommandResult, OutputCallback, ProcessInfo } from "./types.js";
import { CallResponse_Status as Status } from "./v1.js";

/** Options of every command. */
export interface StartOptions {
  /** Default: `/workspace`. */
  cwd?: string;
  /** Beside the sandbox's own. */
  env?: Readonly<Record<string, string>>;
}

export interface RunOptions extends StartOptions {
  background?: false;
  /** At most 1 MiB; default: none. */
  stdin?: string | Uint8Array;
  /**
   * Seconds until the command and everything that it started is ended. Default: the profile's; more than the profile's
   * maximum is `InvalidArgument`.
   */
  timeout?: number;
  /** Is given the standard output as text while the command runs. If it throws, the command is ended. */
  onStdout?: OutputCallback;
  /** Is given the standard error likewise. */
  onStderr?: OutputCallback;
  /** Throw `CommandFailed` unless the exit code is 0. */
  check?: boolean;
  /** Aborting it ends the command; a connection that is lost does not. */
  signal?: AbortSignal;
}

export interface BackgroundOptions extends StartOptions {
  /** Return a handle as soon as the command has begun. It outlives its call, this client and the daemon. */
  background: true;
  /** Of any size; the handle comes when the command has all of it. */
  stdin?: string | Uint8Array;
  /** Keep its standard input open for `sendStdin`. Default: end of file after `stdin`. */
  stdinOpen?: boolean;
  /** Seconds until the command and everything that it started is ended, at most a day. Default: when its sandbox ends. */
  timeout?: number;
  /** Is given the standard output as text meanwhile. If it throws, no callback is called again, and `wait()` throws the same. */
  onStdout?: OutputCallback;
  /** Is given the standard error likewise. */
  onStderr?: OutputCallback;
  /** A name to find it by in `list`: at most 64 letters, digits, `.`, `_` and `-`. */
  tag?: string;
  /** Aborting it ends the start, and leaves no command behind. After the start it has no meaning. */
  signal?: AbortSignal;
}

/** Callbacks of `connect`. */
export interface ConnectedOptions {
  /** Is given the standard output as text, from its first byte on. */
  onStdout?: OutputCallback;
  /** Is given the standard error likewise. */
  onStderr?: OutputCallback;
}

/** Runs commands. Each ends with its call, and all that it started ends with it, unless it is in the background. */
export class Commands {
  readonly #caller: Caller;

  /** @internal */
  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /**
   * Runs a command to its end and returns all of its output. An exit code other than 0 is a result like any other.
   *
   * `cmd`: a text is a script for the image's shell (`bash -lc`, else `sh -lc`), where the profile allows `shell`. An array
   * is a program and its arguments, without a shell.
   *
   * With `background: true` it returns a handle, where the profile allows `process` (as `harness` does).
   *
   * Throws `CommandTimedOut`, `CommandStopped` and `CommandInterrupted`, which carry the output so far as `result`;
   * `NotFound` for a program that the image does not have, `CommandNotAllowed`, `ApprovalRequired` and others.
   */
  async run(cmd: string | readonly string[], options?: RunOptions): Promise<CommandResult>;
  async run(cmd: string | readonly string[], options: BackgroundOptions): Promise<CommandHandle>;
  async run(
    cmd: string | readonly string[],
    options: RunOptions | BackgroundOptions = {},
  ): Promise<CommandResult | CommandHandle> {
    const env = { ...this.#caller.options.env, ...options.env };
    return options.background ? await this.#start(cmd, env, options) : await this.#run(cmd, env, options);
  }

  async #run(cmd: string | readonly string[], env: Record<string, string>, options: RunOptions) {
    const { cwd, stdin, timeout, onStdout, onStderr, signal, check = false } = options;
    if ("stdinOpen" in options || "tag" in options) {
      throw new InvalidArgument("stdinOpen, tag: are for background: true");
    }
    const operation = requests.command(cmd, { cwd, env, stdin, timeout });
    const result = judged(await this.#caller.call({ operation }, { onStdout, onStderr, signal }));
    return check ? succeeding(result) : result;
  }

  async #start(cmd: string | readonly string[], env: Record<string, string>, options: BackgroundOptions) {
    const { cwd, stdin, stdinOpen = false, timeout, tag, signal, onStdout, onStderr } = options;
    if ("check" in options) {
      throw new InvalidArgument("check: is an option of the handle's wait()");
    }
    const reads = stdinOpen || stdin !== undefined;
    const process = await start(this.#caller, requests.process(cmd, { cwd, env, timeout, tag, stdin: reads }), signal);
    if (stdin !== undefined) {
      await feed(process, stdin, !stdinOpen);
    }
    return new CommandHandle(process, { onStdout, onStderr });
  }

  /** Commands in the background and terminals, the oldest first: those that live, and the newest that have ended. */
  async list(options: { tag?: string } = {}): Promise<readonly ProcessInfo[]> {
    const { client, runId } = this.#caller;
    const { processes } = await client.processes.listProcesses({ runId, tag: options.tag });
    return processes.map(results.processInfo);
  }

  /**
   * A handle of a command that was started before, by this client or another one, or that waited for a person.
   *
   * Throws `NotFound`.
   */
  async connect(processId: string, options: ConnectedOptions = {}): Promise<CommandHandle> {
    const { onStdout, onStderr } = options;
    return new CommandHandle(await connect(this.#caller, processId), { onStdout, onStderr });
  }

  /** Ends a command in the background and everything that it started. False: it had ended, or there is none. */
  async kill(processId: string): Promise<boolean> {
    return await new Process(this.#caller, processId).kill();
  }

  /** Gives a command something to read; see `CommandHandle.sendStdin`. Throws `NotFound`, too. */
  async sendStdin(processId: string, data: string | Uint8Array, options: { close?: boolean } = {}): Promise<void> {
    await new Process(this.#caller, processId).send(data, options.close ?? false);
  }
}

/** As a shell does with a pipe: a command need not read what it is given. */
async function feed(process: Process, data: string | Uint8Array, close: boolean): Promise<void> {
  try {
    await process.send(data, close);
  } catch (error) {
    if (!(error instanceof PreconditionFailed)) {
      // Nobody has its handle.
      process.abandon();
      throw error;
    }
  }
}

function judged({ response, stdout, stderr }: Outcome): CommandResult {
  const result = results.command(response, stdout, stderr);
  const { reason = "", message = "", details = {} } = response.error ?? {};
  if (response.status !== Status.SUCCEEDED && response.status !== Status.PENDING_APPROVAL) {
    if (result.failedByInfrastructure) {
      throw new CommandLost(message, result, { reason });
    }
    if (reason === "TIMED_OUT") {
      throw new CommandTimedOut(message, result, { reason });
    }
    if (reason === "CANCELLED" && details["interrupted"] === "true") {
      throw new CommandInterrupted(message, result, { reason });
    }
    if (reason === "CANCELLED" || response.result?.kind.case !== undefined) {
      throw new CommandStopped(message, result, { reason });
    }
  }
  succeeded(response);
  return result;
}
