/**
 * Nodes of a fleet that is a DNS name: one that is away is looked for at all addresses that the name has now.
 *
 * ```text
 * no answer ──▶ resolve again ──▶ ask each address where no node answers ──▶ the number of the node: it goes on there
 * ```
 *
 * Nodes that are new to the fleet are not added.
 */

import type { Member } from "./member.js";
import type { FleetNode } from "./types.js";

// Milliseconds between two looks.
const REST = 5000;

/** The looks for nodes at other addresses, one for all nodes that are away. */
export class Moving {
  readonly #resolve: () => Promise<readonly FleetNode[]>;
  readonly #make: (node: FleetNode) => Member;
  readonly #members: readonly Member[];
  readonly #rest: number;
  #next = Number.NEGATIVE_INFINITY;

  /** `resolve`: the addresses of the name. `make`: connects to one of them. `rest`: default: `REST`. */
  constructor(
    resolve: () => Promise<readonly FleetNode[]>,
    make: (node: FleetNode) => Member,
    members: readonly Member[],
    rest = REST,
  ) {
    this.#resolve = resolve;
    this.#make = make;
    this.#members = members;
    this.#rest = rest;
  }

  /** Begins to look, unless that was a short time ago. For a node that has not answered; it does not wait. */
  begin(member: Member): void {
    const now = performance.now();
    if (now >= this.#next) {
      this.#next = now + this.#rest;
      member.ask.transport.background((signal) => this.#look(signal));
    }
  }

  async #look(signal: AbortSignal): Promise<void> {
    // It fails for a name without addresses: perhaps later.
    const nodes = await Promise.race([this.#resolve(), ended(signal)]);
    const known = this.#members.filter(({ isTwin, isMissed }) => !isTwin && !isMissed);
    const answer = new Set(known.map(({ endpoint }) => endpoint));
    const addresses = new Set(nodes.map(({ endpoint }) => endpoint));
    const asked = nodes.filter(({ endpoint }) => !answer.has(endpoint));
    await Promise.all(asked.map((node) => this.#ask(node, addresses, signal)));
  }

  /** Asks an address which node it is. */
  async #ask(node: FleetNode, addresses: ReadonlySet<string>, signal: AbortSignal): Promise<void> {
    const found = this.#make(node);
    try {
      const info = await found.look({ signal });
      this.#missed(found, addresses)?.move(found, info);
    } catch {
      // No node answers there.
    } finally {
      await found.close();
    }
  }

  /** The node that is away and was found. One without a known number is it if its own address is no longer there. */
  #missed(found: Member, addresses: ReadonlySet<string>): Member | undefined {
    const known = this.#members.filter(({ isTwin }) => !isTwin);
    const same = known.filter(({ number }) => number === found.number);
    const missed =
      same.length > 0 ? same : known.filter(({ number, endpoint }) => number === null && !addresses.has(endpoint));
    return missed.find(({ isMissed, endpoint }) => isMissed && endpoint !== found.endpoint);
  }
}

/** Is rejected when the signal is aborted. No fleet that is closed waits for DNS. */
function ended(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
}
