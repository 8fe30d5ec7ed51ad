/** The lease of a run, renewed as long as its sandbox object wants it. */

import { setTimeout as delay } from "node:timers/promises";
import type { Client } from "./client.js";
import { CofferdamError } from "./errors.js";
import { mayPass } from "./status.js";
import type { Background } from "./transport.js";

// Renewals in a lease: two may be late or lost.
export const RENEWALS = 3;
// Seconds for one of them.
const TIMEOUT = 10;

/** Renews it until it is ended, its client is closed, or its run has ended. */
export class Keeping {
  readonly #work: Background;

  /** `isNew`: the lease begins now. Of a run that was found or made a while ago, most of it may be over. */
  constructor(client: Client, runId: string, lease: number, isNew: boolean) {
    this.#work = client.transport.background((signal) => keep(client, runId, lease, isNew, signal));
  }

  async end(): Promise<void> {
    await this.#work.end();
  }
}

/** Renews it until the run has ended. A daemon that comes back gives the run one lease to be renewed in. */
async function keep(client: Client, runId: string, lease: number, isNew: boolean, signal: AbortSignal): Promise<void> {
  // It keeps no process alive.
  const pause = () => delay((lease * 1000) / RENEWALS, undefined, { ref: false, signal });
  if (isNew) {
    await pause();
  }
  for (;;) {
    try {
      await client.runs.keepAliveRun({ runId }, { timeout: TIMEOUT, signal });
    } catch (error) {
      if (error instanceof CofferdamError && !mayPass(error)) {
        return;
      }
    }
    await pause();
  }
}
