/** `sandbox.sessions`, and the handle of a session. */

import type { Caller } from "./caller.js";
import { NotFound } from "./errors.js";
import { checkNotLost } from "./handle.js";
import { between } from "./output.js";
import { connect, start } from "./process.js";
import * as requests from "./requests.js";
import * as results from "./results.js";
import { now } from "./stdin.js";
import type { PtySize, SessionInfo, SessionResult } from "./types.js";
import type * as v1 from "./v1.js";

// Of an interrupt, as the daemon has them.
const ATTEMPTS = 3;
const PAUSE = 1;
// Seconds for an answer, beside those that the session itself takes.
const ANSWER_TIMEOUT = 60;

export interface OpenOptions {
  /** Directory to begin with. Default: `/workspace`. */
  cwd?: string;
  /** Beside the sandbox's own. */
  env?: Readonly<Record<string, string>>;
  /** A name to find it by in `list`: at most 64 letters, digits, `.`, `_` and `-`. */
  tag?: string;
  /** Of its terminal. Default: 24 rows of 80 characters. */
  size?: PtySize;
  /** Seconds until it and everything in it is ended, at most a day. Default: when its sandbox ends. */
  timeout?: number;
  /** Aborting it ends the opening, and leaves no session. After the opening it has no meaning. */
  signal?: AbortSignal;
}

/** Options of one use of a session. */
export interface UseOptions {
  /** Seconds until it is answered in any case; the command runs on. Default: the profile's for a command. */
  timeout?: number;
  /** At most 16 regular expressions, without look-around and back references: answer when what is shown matches one. */
  expect?: readonly string[];
  /** Aborting it ends the waiting, and not the command. */
  signal?: AbortSignal;
}

export interface InterruptOptions {
  /** How often SIGINT is sent, at most 10; after the last one the program is killed. Default: 3. */
  attempts?: number;
  /** Seconds to wait after each, at most 60. Default: 1. */
  timeout?: number;
  /** As in `run`, for a program that shows a prompt of its own after an interrupt. */
  expect?: readonly string[];
}

/**
 * A shell that stays: its directory, variables, functions and jobs last from one command to the next.
 *
 * ```ts
 * await using session = await sandbox.sessions.open();
 * await session.run("cd src && export MODE=fast");
 * console.log((await session.run("make", { timeout: 600 })).output);
 * ```
 *
 * It lives until `close()`, until its `timeout` or the end of the sandbox; this object, its connection and the daemon may come
 * and go meanwhile. It takes one command at a time. A command that is not over in its time runs on: `type` gives it something to
 * read or waits on, `interrupt` ends it.
 *
 * Leaving the block of `await using` is `close()`.
 */
export class Session implements AsyncDisposable {
  /** Its id, a UUIDv7: for `sessions.get`; `commands.connect` takes it, too, and has all that it shows. */
  readonly sessionId: string;
  readonly #caller: Caller;

  /** @internal */
  constructor(caller: Caller, sessionId: string) {
    this.#caller = caller;
    this.sessionId = sessionId;
  }

  /**
   * Runs shell code in the session's own shell: any number of lines, at most 64 KiB.
   *
   * An exit code other than 0 is a result like any other. Throws `PreconditionFailed` while a command runs in it and where it
   * has ended, `Interrupted` where the daemon ended meanwhile (the command runs on: `type("")` waits for it), `RunLost` or
   * `CommandLost` where the host, its engine or the daemon ends the session, `InvalidArgument`, `Denied`, `ApprovalRequired`
   * and others.
   */
  async run(command: string, options: UseOptions = {}): Promise<SessionResult> {
    return await this.#use({ command }, options);
  }

  /**
   * Types at the program that runs, and answers like `run`. Throws like it.
   *
   * `text`: as it is, at most 64 KiB: a line ends with `"\n"`. Empty: types nothing and waits on.
   */
  async type(text: string, options: UseOptions = {}): Promise<SessionResult> {
    return await this.#use({ input: text }, options);
  }

  /**
   * Interrupts the program that runs, and returns when the session takes commands again.
   *
   * Where a `run` waits elsewhere, that one has the output. Throws `CommandLost` where the host,
   * its engine or the daemon ends the session.
   */
  async interrupt(options: InterruptOptions = {}): Promise<SessionResult> {
    const { attempts = ATTEMPTS, timeout = PAUSE, expect = [] } = options;
    const request = {
      ...this.#at,
      attempts: Number(requests.count("attempts", attempts)),
      timeout: requests.duration("timeout", timeout),
      expect: [...expect],
    };
    const signal = this.#caller.options.signal;
    const patience = timeout * (attempts + 1) + ANSWER_TIMEOUT;
    const { result } = await this.#caller.client.sessions.interruptSession(request, { timeout: patience, signal });
    return await this.#shown(results.present(result));
  }

  /** The session as it is now. Throws `NotFound`. */
  async info(): Promise<SessionInfo> {
    const { sessions } = await this.#caller.client.sessions.listSessions({ runId: this.#caller.runId });
    const found = sessions.find((session) => session.sessionId === this.sessionId);
    if (found === undefined) {
      throw new NotFound("the run has no such session", { reason: "NOT_FOUND", callId: this.sessionId });
    }
    return results.sessionInfo(found);
  }

  /** Ends it and everything in it. One that has ended is no error. */
  async close(): Promise<void> {
    try {
      await this.#caller.client.sessions.closeSession(this.#at, { timeout: 2 * ANSWER_TIMEOUT });
    } catch (error) {
      // It may have ended with its run.
      if (!(error instanceof NotFound)) {
        throw error;
      }
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  get #at() {
    return { runId: this.#caller.runId, sessionId: this.sessionId };
  }

  async #use(given: { command: string } | { input: string }, options: UseOptions): Promise<SessionResult> {
    const { expect = [], timeout, signal } = options;
    const value = { ...given, sessionId: this.sessionId, expect: [...expect], timeoutMs: requests.millis(timeout) };
    return await this.#shown(await this.#caller.result({ kind: { case: "session", value } }, signal));
  }

  async #shown(result: v1.SessionResult): Promise<SessionResult> {
    const shown = await this.#whole(result);
    if (shown.state === "ended") {
      await this.#checkNotLost(shown.output);
    }
    return shown;
  }

  /** The answer does not say whose failure the end of the shell is; its process does. */
  async #checkNotLost(output: string): Promise<void> {
    const { client, options, runId } = this.#caller;
    try {
      const process = await now(client.processes, { runId, processId: this.sessionId }, options.signal);
      checkNotLost(process.failure, results.ended(process, Buffer.from(output), new Uint8Array()));
    } catch (error) {
      // The run may have been deleted meanwhile.
      if (!(error instanceof NotFound)) {
        throw error;
      }
    }
  }

  /** What was too long for the answer is in the output of the session's process, as far as that is kept. */
  async #whole(result: v1.SessionResult): Promise<SessionResult> {
    if (result.omittedBytes === 0n) {
      return results.session(result);
    }
    const begin = result.outputOffset;
    const end = begin + result.outputBytes;
    const request = { runId: this.#caller.runId, processId: this.sessionId, stdoutOffset: begin };
    const { client, options } = this.#caller;
    let pieces: Uint8Array[] = [];
    let output = "";
    let omitted = 0n;
    for await (const { event } of client.processes.attachProcess(request, { signal: options.signal })) {
      if (event.case === "output" && event.value.offset < end) {
        pieces.push(event.value.data.subarray(0, Number(end - event.value.offset)));
      } else if (event.case === "gap" && event.value.offset < end) {
        const { offset, bytes } = event.value;
        const missing = offset + bytes < end ? bytes : end - offset;
        const { text, cut } = between(Buffer.concat(pieces), { after: omitted > 0n, before: true });
        output += `${text}\n[${missing} bytes left out]\n`;
        omitted += missing + BigInt(cut);
        pieces = [];
      }
    }
    const { text, cut } = between(Buffer.concat(pieces), { after: omitted > 0n, before: false });
    output += text;
    omitted += BigInt(cut);
    return results.session(result, output, Number(omitted));
  }
}

/** Shells that stay, where the profile allows `process` and `session` (as `harness` does). */
export class Sessions {
  readonly #caller: Caller;

  /** @internal */
  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /**
   * Opens one: bash where the image has it, else `sh`, on a terminal that does not echo.
   *
   * Throws `NotFound`, `Denied`, `ApprovalRequired` and others.
   */
  async open(options: OpenOptions = {}): Promise<Session> {
    const { cwd, tag, size, timeout, signal } = options;
    const env = { ...this.#caller.options.env, ...options.env };
    const opened = await start(this.#caller, requests.session({ cwd, env, tag, size, timeout }), signal);
    return new Session(this.#caller, opened.id);
  }

  /** Sessions, the oldest first: those that live, and the newest that have ended. */
  async list(options: { tag?: string } = {}): Promise<readonly SessionInfo[]> {
    const { client, runId } = this.#caller;
    const { sessions } = await client.sessions.listSessions({ runId, tag: options.tag });
    return sessions.map(results.sessionInfo);
  }

  /** One that was opened before, by this client or another one. Throws `NotFound`. */
  async get(sessionId: string): Promise<Session> {
    const { request } = await (await connect(this.#caller, sessionId)).now();
    if (!request?.session) {
      const message = `${sessionId} is a command, not a session`;
      throw new NotFound(message, { reason: "NOT_FOUND", callId: sessionId });
    }
    return new Session(this.#caller, sessionId);
  }
}
