/** The lease of a run, renewed as long as its sandbox object wants it. */

import { setTimeout as delay } from "node:timers/promises";
import type { Client } from "./client.js";
import { CofferdamError, NoConnection } from "./errors.js";

// Renewals in a lease: two may be late or lost.
const RENEWALS = 3;
// Seconds for one of them.
const TIMEOUT = 10;

/** Renews it until it is ended, or its run has. */
export class Keeping {
  readonly #end = new AbortController();
  readonly #work: Promise<void>;

  constructor(client: Client, runId: string, lease: number) {
    this.#work = keep(client, runId, lease, this.#end.signal).catch(() => {});
  }

  async end(): Promise<void> {
    this.#end.abort();
    await this.#work;
  }
}

/** A daemon that comes back gives the run one lease to be renewed in. */
async function keep(client: Client, runId: string, lease: number, signal: AbortSignal): Promise<void> {
  for (;;) {
    // It keeps no process alive.
    await delay((lease * 1000) / RENEWALS, undefined, { ref: false, signal });
    try {
      await client.runs.keepAliveRun({ runId }, { timeout: TIMEOUT, signal });
    } catch (error) {
      if (error instanceof CofferdamError && !(error instanceof NoConnection)) {
        return;
      }
    }
  }
}
