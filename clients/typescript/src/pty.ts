/** `sandbox.pty`. */

import type { Caller } from "./caller.js";
import type { StartOptions } from "./commands.js";
import { CommandHandle } from "./handle.js";
import { connect, Process, start } from "./process.js";
import * as requests from "./requests.js";
import type { DataCallback, PtySize } from "./types.js";

// The image's own shell, as at a login.
const LOGIN = "if command -v bash >/dev/null; then exec bash -l; else exec sh -l; fi";
const USUAL: PtySize = { rows: 24, cols: 80 };

export interface PtyOptions extends StartOptions {
  /** Default: 24 rows of 80 characters. */
  size?: PtySize;
  /** As in `commands.run`. Default: a login shell, bash where there is one. */
  cmd?: string | readonly string[];
  /** Is given all that it shows, raw. If it throws, `wait()` throws the same. */
  onData?: DataCallback;
  /** Seconds until it and everything that was started in it is ended, at most a day. Default: when its sandbox ends. */
  timeout?: number;
  /** A name to find it by in `commands.list`: at most 64 letters, digits, `.`, `_` and `-`. */
  tag?: string;
  /** Aborting it ends the start, and leaves no terminal behind. After the start it has no meaning. */
  signal?: AbortSignal;
}

/** Terminals: commands in the background that have one in place of pipes. `commands.list` shows them, too. */
export class Pty {
  readonly #caller: Caller;

  /** @internal */
  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /**
   * Opens a terminal, where the profile allows `process` (as `harness` does).
   *
   * Throws `NotFound`, `Denied`, `ApprovalRequired` and others.
   */
  async create(options: PtyOptions = {}): Promise<CommandHandle> {
    const { size = USUAL, cmd = LOGIN, onData, cwd, timeout, tag, signal } = options;
    const env = { ...this.#caller.options.env, ...options.env };
    const operation = requests.process(cmd, { cwd, env, timeout, tag, terminal: size });
    return new CommandHandle(await start(this.#caller, operation, signal), { onData });
  }

  /** A handle of a terminal that is there. `onData`: is given all that it has shown, too. Throws `NotFound`. */
  async connect(processId: string, options: { onData?: DataCallback } = {}): Promise<CommandHandle> {
    return new CommandHandle(await connect(this.#caller, processId), { onData: options.onData });
  }

  /** Types something. Throws `NotFound`, and `PreconditionFailed` where it has ended. */
  async sendStdin(processId: string, data: string | Uint8Array): Promise<void> {
    await new Process(this.#caller, processId).send(data, false);
  }

  /** Gives it another size. Throws like `sendStdin`. */
  async resize(processId: string, size: PtySize): Promise<void> {
    await new Process(this.#caller, processId).resize(size);
  }

  /** Ends it and everything that was started in it. False: it had ended, or there is none. */
  async kill(processId: string): Promise<boolean> {
    return await new Process(this.#caller, processId).kill();
  }
}
