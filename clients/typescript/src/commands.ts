/** `sandbox.commands`. */

import { type Caller, type Outcome, succeeded } from "./caller.js";
import { CommandFailed, CommandInterrupted, CommandStopped, CommandTimedOut } from "./errors.js";
import * as requests from "./requests.js";
import * as results from "./results.js";
import type { CommandResult, OutputCallback } from "./types.js";
import { CallResponse_Status as Status } from "./v1.js";

export interface RunOptions {
  /** Default: `/workspace`. */
  cwd?: string;
  /** Beside the sandbox's own. */
  env?: Readonly<Record<string, string>>;
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

/** Runs commands. Each ends with its call, and all that it started ends with it. */
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
   * Throws `CommandTimedOut`, `CommandStopped` and `CommandInterrupted`, which carry the output so far as `result`;
   * `NotFound` for a program that the image does not have, `CommandNotAllowed`, `ApprovalRequired` and others.
   */
  async run(cmd: string | readonly string[], options: RunOptions = {}): Promise<CommandResult> {
    const { cwd, stdin, timeout, onStdout, onStderr, signal, check = false } = options;
    const env = { ...this.#caller.options.env, ...options.env };
    const operation = requests.command(cmd, { cwd, env, stdin, timeout });
    const result = judged(await this.#caller.call({ operation }, { onStdout, onStderr, signal }));
    if (check && !result.ok) {
      const hint = result.hint || result.stderr.slice(-500).trim();
      throw new CommandFailed(`the command ended with ${result.exitCode}`, result, { hint });
    }
    return result;
  }
}

function judged({ response, stdout, stderr }: Outcome): CommandResult {
  const result = results.command(response, stdout, stderr);
  const { reason = "", message = "", details = {} } = response.error ?? {};
  if (response.status !== Status.SUCCEEDED && response.status !== Status.PENDING_APPROVAL) {
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
