/** The Claude Agent SDK in a sandbox: its option `spawnClaudeCodeProcess`. */

import { EventEmitter } from "node:events";
import { Readable, Writable } from "node:stream";
import { finished } from "node:stream/promises";
import { PreconditionFailed } from "./errors.js";
import type { CommandHandle } from "./handle.js";
import type { Sandbox } from "./sandbox.js";
import { sleep } from "./transport.js";
import type { CommandOutput, ProcessInfo, SignalName } from "./types.js";

/** The request of the Claude Agent SDK: its own `SpawnOptions`. */
export interface ClaudeSpawnOptions {
  command: string;
  args: string[];
  cwd?: string;
  env: Record<string, string | undefined>;
  signal: AbortSignal;
}

export interface ClaudeOptions {
  /**
   * Names of variables to hand over from the environment that the Claude Agent SDK gives, which is this host's unless its
   * option `env` says otherwise. Default: none. The profile must allow them.
   */
  env?: readonly string[];
  /** Default: the one that the Claude Agent SDK names if it is beneath a mount of the sandbox, else `/workspace`. */
  cwd?: string;
  /** For `commands.list`. Default: none. */
  tag?: string;
}

// Linux's numbers of signals by which a process ends.
const SIGNALS: ReadonlyMap<number, NodeJS.Signals> = new Map<number, NodeJS.Signals>([
  [1, "SIGHUP"],
  [2, "SIGINT"],
  [3, "SIGQUIT"],
  [6, "SIGABRT"],
  [9, "SIGKILL"],
  [11, "SIGSEGV"],
  [13, "SIGPIPE"],
  [15, "SIGTERM"],
]);
const MOUNTS = /^\/(workspace|state|pkg)(\/|$)/;
// Seconds for the reader of the output to come to its end, before the exit is told.
const GRACE = 2;

/**
 * Makes a function for the Claude Agent SDK's option `spawnClaudeCodeProcess`: it runs Claude Code in the sandbox.
 *
 * ```ts
 * const options = { spawnClaudeCodeProcess: spawnClaudeCodeProcess(sandbox), pathToClaudeCodeExecutable: "claude" };
 * for await (const message of query({ prompt, options })) console.log(message);
 * ```
 *
 * The image must have the program that `pathToClaudeCodeExecutable` names, and the profile must allow `process` (as `harness`
 * does). The process has no variable of this host that `options.env` does not name. A start that is refused is the event
 * `error`, as of a program that cannot be run, and so is `CommandLost`: a process that the host, its engine or the daemon ended
 * has no exit.
 */
export function spawnClaudeCodeProcess(
  sandbox: Sandbox,
  options: ClaudeOptions = {},
): (asked: ClaudeSpawnOptions) => SpawnedProcess {
  return (asked) => {
    const env = Object.entries(asked.env).filter(
      (entry): entry is [string, string] => (options.env ?? []).includes(entry[0]) && entry[1] !== undefined,
    );
    const cwd = options.cwd ?? (asked.cwd !== undefined && MOUNTS.test(asked.cwd) ? asked.cwd : undefined);
    const wanted = { background: true, stdinOpen: true, cwd, env: Object.fromEntries(env), tag: options.tag } as const;
    const start = sandbox.commands.run([asked.command, ...asked.args], wanted);
    return new SpawnedProcess(start, asked.signal);
  };
}

/** A process as Node.js knows its children, as far as the Claude Agent SDK goes by it. */
export class SpawnedProcess extends EventEmitter<{
  exit: [code: number | null, signal: NodeJS.Signals | null];
  error: [error: Error];
}> {
  readonly stdin: Writable;
  readonly stdout: Readable;
  readonly stderr: Readable;
  /** It was told to end. */
  killed = false;
  /** null while it runs, and where a signal ended it. */
  exitCode: number | null = null;
  /** The signal that ended it. */
  signalCode: NodeJS.Signals | null = null;
  readonly #start: Promise<CommandHandle>;

  /** @internal */
  constructor(start: Promise<CommandHandle>, signal: AbortSignal) {
    super();
    this.#start = start;
    this.stdin = stdin(start);
    // Each reads by itself, and only if it is read.
    this.stdout = Readable.from(output(start, "stdout"), { objectMode: false });
    this.stderr = Readable.from(output(start, "stderr"), { objectMode: false });
    const abort = () => void this.kill("SIGKILL");
    signal.addEventListener("abort", abort, { once: true });
    if (signal.aborted) {
      abort();
    }
    void this.#live().finally(() => signal.removeEventListener("abort", abort));
  }

  /** Sends it a signal such as `SIGTERM`. False: it has ended, or there is no such signal. */
  kill(signal: NodeJS.Signals = "SIGTERM"): boolean {
    const name = signal.replace(/^SIG/, "");
    if (this.exitCode !== null || this.signalCode !== null || !sendable(name)) {
      return false;
    }
    this.killed = true;
    const send = async () => {
      const handle = await this.#start;
      await (name === "KILL" ? handle.kill() : handle.sendSignal(name));
    };
    // It has ended meanwhile, did not begin, or the daemon is gone: its end says so.
    send().catch(() => {});
    return true;
  }

  async #live(): Promise<void> {
    let end: ProcessInfo;
    try {
      end = await (await this.#start).ended();
    } catch (error) {
      this.stdin.destroy();
      this.emit("error", error instanceof Error ? error : new Error(String(error)));
      return;
    }
    if (this.stdout.readableFlowing) {
      const settled = new AbortController();
      const pause = sleep(GRACE, settled.signal).catch(() => {});
      await Promise.race([finished(this.stdout).catch(() => {}), pause]);
      settled.abort();
    }
    this.signalCode = SIGNALS.get(end.signal ?? 0) ?? null;
    this.exitCode = this.signalCode === null ? (end.exitCode ?? 1) : null;
    this.stdin.destroy();
    this.emit("exit", this.exitCode, this.signalCode);
  }
}

function sendable(name: string): name is SignalName {
  return ["HUP", "INT", "QUIT", "KILL", "USR1", "USR2", "TERM", "CONT", "STOP", "TSTP"].includes(name);
}

/** Its standard input. A process that has ended reads nothing, and says so by its exit. */
function stdin(start: Promise<CommandHandle>): Writable {
  const unlessItEnded = (error: unknown) => {
    if (!(error instanceof PreconditionFailed)) {
      throw error;
    }
  };
  const told = (work: Promise<void>, callback: (error?: Error | null) => void) => {
    work.catch(unlessItEnded).then(() => callback(), callback);
  };
  return new Writable({
    write(chunk: Buffer, _encoding, callback) {
      told(
        start.then((handle) => handle.sendStdin(chunk)),
        callback,
      );
    },
    final(callback) {
      told(
        start.then((handle) => handle.closeStdin()),
        callback,
      );
    },
  });
}

async function* output(start: Promise<CommandHandle>, stream: CommandOutput["stream"]): AsyncGenerator<Uint8Array> {
  const handle = await start.catch(() => null);
  if (handle === null) {
    return;
  }
  for await (const piece of handle) {
    if (piece.stream === stream && piece.data.length > 0) {
      yield piece.data;
    }
  }
}
