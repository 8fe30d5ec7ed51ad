/** The input of processes: in order, and no byte twice. */

import type { Service } from "./client.js";
import { InternalError, PreconditionFailed } from "./errors.js";
import type { Process, ProcessService } from "./v1.js";

export type Processes = Service<typeof ProcessService>;

/** A process of a run. */
export interface ProcessAddress {
  runId: string;
  processId: string;
}

// Bytes of one request.
const PIECE = 256 * 1024;
// Seconds for one request. The daemon waits ten for the process to read, for each writer before this one, too.
const WRITE_TIMEOUT = 120;
// The shortest that a client can wait.
const AT_ONCE = { nanos: 1 };

/** A process as it is. */
export async function now(rpc: Processes, at: ProcessAddress, signal?: AbortSignal): Promise<Process> {
  const { process } = await rpc.waitProcess({ ...at, timeout: AT_ONCE }, { signal });
  if (process === undefined) {
    throw new InternalError("the daemon did not report the state of the process");
  }
  return process;
}

/** The input of one process. Its senders take turns. */
export class Stdin {
  #last: Promise<void> = Promise.resolve();
  // Position of the next byte; null: to be asked for.
  #offset: bigint | null = null;

  /** Resolves when the process has all of it. */
  async send(
    rpc: Processes,
    at: ProcessAddress,
    data: Uint8Array,
    close: boolean,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    const sent = this.#last.then(() => this.#send(rpc, at, data, close, signal));
    this.#last = sent.catch(() => {});
    await sent;
  }

  async #send(
    rpc: Processes,
    at: ProcessAddress,
    data: Uint8Array,
    close: boolean,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    signal?.throwIfAborted();
    const begin = this.#offset ?? (await now(rpc, at, signal)).stdinBytes;
    const last = begin + BigInt(data.length);
    let offset = begin;
    this.#offset = null;
    for (;;) {
      const from = Number(offset - begin);
      const piece = data.subarray(from, from + PIECE);
      const end = offset + BigInt(piece.length);
      const request = { ...at, offset, data: piece, close: close && end === last };
      try {
        const answer = await rpc.writeStdin(request, { timeout: WRITE_TIMEOUT, signal });
        if (answer.offset > end) {
          throw refused("another client sent input to the process at the same time");
        }
        offset = answer.offset;
        if (offset === last && !(close && answer.open)) {
          this.#offset = offset;
          return;
        }
        if (!answer.open) {
          throw refused("the process has closed its standard input");
        }
      } catch (error) {
        // Of a request that was repeated: the process may have read it all and ended meanwhile.
        if (error instanceof PreconditionFailed && (await now(rpc, at, signal)).stdinBytes === last) {
          return;
        }
        throw error;
      }
    }
  }
}

function refused(message: string): PreconditionFailed {
  return new PreconditionFailed(message, { reason: "PRECONDITION_FAILED" });
}

/** Those that somebody has a handle of: all handles of a process share one. */
export class Stdins {
  readonly #known = new Map<string, WeakRef<Stdin>>();
  readonly #gone = new FinalizationRegistry<string>((processId) => {
    if (this.#known.get(processId)?.deref() === undefined) {
      this.#known.delete(processId);
    }
  });

  of(processId: string): Stdin {
    const known = this.#known.get(processId)?.deref();
    if (known !== undefined) {
      return known;
    }
    const made = new Stdin();
    this.#known.set(processId, new WeakRef(made));
    this.#gone.register(made, processId);
    return made;
  }
}
