/** `sandbox.calls`. */

import { type Caller, either, PIECE } from "./caller.js";
import { Output } from "./output.js";
import * as results from "./results.js";
import type { CallInfo } from "./types.js";

/** Calls that were made, by id: the outcome of a call that waited for a person, or whose answer was lost. */
export class Calls {
  readonly #caller: Caller;

  /** @internal */
  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** A call as it is now, with the output of its command so far. Throws `NotFound`. */
  async get(callId: string, options: { signal?: AbortSignal } = {}): Promise<CallInfo> {
    const stdout = new Output();
    const stderr = new Output();
    for (;;) {
      const offsets = { stdoutOffset: BigInt(stdout.next), stderrOffset: BigInt(stderr.next) };
      const request = { callId, ...offsets, maxOutputBytes: PIECE };
      const found = await this.#caller.client.tools.getCall(request, this.#options(options));
      stdout.take(Number(found.stdout?.offset ?? 0n), found.stdout?.data ?? new Uint8Array());
      stderr.take(Number(found.stderr?.offset ?? 0n), found.stderr?.data ?? new Uint8Array());
      if (!found.stdout?.data.length && !found.stderr?.data.length) {
        return results.callInfo(found.call, stdout.whole(), stderr.whole());
      }
    }
  }

  /** A call when it is over. Waits without end for a person; the daemon's `approvals.timeout` ends that. */
  async wait(callId: string, options: { signal?: AbortSignal } = {}): Promise<CallInfo> {
    await this.#caller.over(callId, this.#options(options).signal);
    return await this.get(callId, options);
  }

  /** Ends a call that waits or runs. False: it was over. */
  async cancel(callId: string): Promise<boolean> {
    return (await this.#caller.client.tools.cancelCall({ callId })).cancelled;
  }

  #options(options: { signal?: AbortSignal }): { signal: AbortSignal | undefined } {
    return { signal: either(options.signal, this.#caller.options.signal) };
  }
}
