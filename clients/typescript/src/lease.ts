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

  constructor(client: Client, runId: string, lease: number) {
    this.#work = client.transport.background((signal) => keep(client, runId, lease, signal));
  }

  async end(): Promise<void> {
    await this.#work.end();
  }
}

/**
 * A daemon that comes back gives the run one lease to be renewed in. Begins at once: of a run that was found, most of the
 * lease may be over.
 */
async function keep(client: Client, runId: string, lease: number, signal: AbortSignal): Promise<void> {
  for (;;) {
    try {
      await client.runs.keepAliveRun({ runId }, { timeout: TIMEOUT, signal });
    } catch (error) {
      if (error instanceof CofferdamError && !mayPass(error)) {
        return;
      }
    }
    // It keeps no process alive.
    await delay((lease * 1000) / RENEWALS, undefined, { ref: false, signal });
  }
}
