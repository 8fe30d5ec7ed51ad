/** The lease of a run, renewed as long as its sandbox object wants it. */

import { setTimeout as delay } from "node:timers/promises";
import type { Client } from "./client.js";
import { CofferdamError } from "./errors.js";
import { mayPass } from "./status.js";
import type { Background } from "./transport.js";

// Renewals in a lease: two may be late or lost.
const RENEWALS = 3;
// Seconds for one of them.
const TIMEOUT = 10;

/** Renews it until it is ended, its client is closed, or its run has ended. */
export class Keeping {
  readonly #work: Background;

  /**
   * Renews the lease for the first time when a third of it may be over.
   *
   * `since`: a moment of `performance.now` before which the lease did not begin, such as when the run was asked for. Null: it
   * may have begun long ago, as that of a run that was found.
   */
  constructor(client: Client, runId: string, lease: number, since: number | null) {
    const pause = (lease * 1000) / RENEWALS;
    const first = since === null ? 0 : Math.max(0, since + pause - performance.now());
    this.#work = client.transport.background((signal) => keep(client, runId, first, pause, signal));
  }

  async end(): Promise<void> {
    await this.#work.end();
  }
}

/**
 * Renews it until the run has ended, with these pauses in milliseconds. A daemon that comes back gives the run one lease to be
 * renewed in.
 */
async function keep(client: Client, runId: string, first: number, pause: number, signal: AbortSignal): Promise<void> {
  // They keep no process alive.
  const options = { ref: false, signal };
  await delay(first, undefined, options);
  for (;;) {
    try {
      await client.runs.keepAliveRun({ runId }, { timeout: TIMEOUT, signal });
    } catch (error) {
      if (error instanceof CofferdamError && !mayPass(error)) {
        return;
      }
    }
    await delay(pause, undefined, options);
  }
}
