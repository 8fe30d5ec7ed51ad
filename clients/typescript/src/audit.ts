/** `sandbox.audit`. */

import { type Caller, either } from "./caller.js";
import { count } from "./requests.js";
import * as results from "./results.js";
import { resumed } from "./resumed.js";
import { Stream } from "./stream.js";
import type { AuditEvent } from "./types.js";

export interface AuditOptions {
  /** Only records after this sequence number; default 0. */
  after?: number;
  /** Go on with new records instead of ending; default: true. */
  follow?: boolean;
  /** Only of these kinds, such as `call_receipt`; at most 32. */
  kinds?: readonly string[];
  signal?: AbortSignal;
}

/** The audit log's records of this sandbox. Takes the API role `operator` or `auditor`, or runs of one's own. */
export class Audit {
  readonly #caller: Caller;

  /** @internal */
  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** Records in the order of the log, none left out and none twice, also across a lost connection or daemon. */
  stream(options: AuditOptions = {}): Stream<AuditEvent> {
    const { follow = true, kinds = [] } = options;
    let afterSequence = count("after", options.after ?? 0);
    const { client, runId } = this.#caller;
    const filter = { runId, kinds: [...kinds] };
    const make = async function* (signal: AbortSignal): AsyncGenerator<AuditEvent, void> {
      const begin = () => client.audit.streamEvents({ afterSequence, follow, filter }, { signal });
      for await (const { event } of resumed(client.transport, begin, () => !follow, signal)) {
        const record = results.present(event);
        afterSequence = record.sequence;
        yield results.event(record);
      }
    };
    return new Stream(make, either(options.signal, this.#caller.options.signal));
  }
}
