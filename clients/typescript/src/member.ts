/** One node of a fleet, with its connections. */

import { Client } from "./client.js";
import { CofferdamError, DaemonUnreachable, InternalError, TimedOut, WrongNodeError } from "./errors.js";
import { isAway, Standing } from "./fleet-nodes.js";
import * as results from "./results.js";
import type { ClientOptions } from "./settings.js";
import type { FleetNode, NodeInfo } from "./types.js";

/** A node. Questions about it have a short time, and sandboxes on it have the patience of any client. */
export class Member {
  endpoint: string;
  readonly standing: Standing;
  /** Seconds for a question. */
  readonly timeout: number;
  /** For questions: a node that went away is not waited for. */
  readonly ask: Client;
  /** For sandboxes. */
  readonly client: Client;
  number: number | null;
  /** It is a second address of a node that the fleet has already. */
  isTwin = false;
  /** Identity of the daemon that has answered last; empty: none has. */
  instance = "";
  /** Why it did not answer when it was asked last; null: it did. */
  failure: CofferdamError | null = null;
  /** Called when it is missed. */
  whenAway: ((member: Member) => void) | null = null;
  readonly #numbers: Map<number, Member>;

  /** `numbers`: all nodes whose numbers are known; this one enters itself. */
  constructor(node: FleetNode, numbers: Map<number, Member>, timeout: number, options: ClientOptions) {
    const { endpoint, serverName } = node;
    this.endpoint = endpoint;
    this.number = node.id;
    this.timeout = timeout;
    this.standing = new Standing(node.weight);
    this.#numbers = numbers;
    const tls = endpoint.startsWith("https://") ? options.tls : undefined;
    const given = { ...options, endpoint, serverName, tls };
    this.ask = new Client({ ...given, reconnectTimeout: 0 });
    this.client = new Client(given);
    if (node.id !== null) {
      numbers.set(node.id, this);
      this.#name(node.id);
    }
  }

  /** As a message names it. */
  get label(): string {
    return this.number === null ? `the node at ${this.endpoint}` : `node ${this.number} (${this.endpoint})`;
  }

  /** It may be at another address. A node that refuses by itself is at its own. */
  get isMissed(): boolean {
    return this.failure !== null && (this.failure.reason === "" || this.failure instanceof WrongNodeError);
  }

  /**
   * The node as it is now. Throws `DaemonUnreachable` if it does not answer in time, or is another one, and `InternalError` for
   * an answer that cannot be read.
   */
  async look(options: { timeout?: number; signal?: AbortSignal } = {}): Promise<NodeInfo> {
    const { timeout = this.timeout, signal } = options;
    try {
      const { node } = await this.ask.node.getNode({}, { timeout, signal });
      const info = results.nodeInfo(node, this.endpoint);
      await this.#meet(info, { timeout, signal });
      this.#check(info);
      this.standing.answered(info);
      this.failure = null;
      return info;
    } catch (error) {
      signal?.throwIfAborted();
      const judged = this.judged(error, timeout);
      if (isAway(judged)) {
        this.failed(judged);
      }
      throw judged;
    }
  }

  /** It has not answered, or cannot work now. */
  failed(error: CofferdamError): void {
    this.standing.failed();
    this.failure = error;
    if (this.isMissed) {
      this.whenAway?.(this);
    }
  }

  /** Goes on at the address of another object for the same node, which has just answered this. */
  move(to: Member, info: NodeInfo): void {
    this.endpoint = to.endpoint;
    this.instance = to.instance;
    this.ask.transport.move(to.ask.transport);
    this.client.transport.move(to.client.transport);
    this.standing.answered(info);
    this.failure = null;
  }

  /** The error, or the better one for a node that takes too long, or whose answer cannot be read. */
  judged(error: unknown, timeout = this.timeout): CofferdamError {
    if (!(error instanceof CofferdamError)) {
      const kind = error instanceof Error ? error.name : typeof error;
      return new InternalError(`${this.label} gave an answer that cannot be read: ${kind}`);
    }
    return error instanceof TimedOut
      ? new DaemonUnreachable(`${this.label} does not answer within ${timeout} seconds`)
      : error;
  }

  /** What is known of it while it does not answer. */
  unreachable(error: CofferdamError): NodeInfo {
    return {
      node: this.number,
      endpoint: this.endpoint,
      state: "unreachable",
      failure: error.message,
      instance: "",
      labels: {},
      version: "",
      capacity: null,
      used: null,
      drainReason: "",
    };
  }

  /** Has the node that the list gives this number answer first: this one may be a second address of it. */
  async #meet(
    { node: number }: NodeInfo,
    options: { timeout: number; signal: AbortSignal | undefined },
  ): Promise<void> {
    const first = number === null || this.number !== null ? undefined : this.#numbers.get(number);
    if (first?.instance === "") {
      await first.look(options).catch(() => {});
      options.signal?.throwIfAborted();
    }
  }

  #check({ node: number, instance }: NodeInfo): void {
    if (number === null) {
      throw new DaemonUnreachable(`${this.label} has no number: its configuration needs \`node.id\``);
    }
    if (this.number !== null && this.number !== number) {
      throw new DaemonUnreachable(`${this.label} says that it is node ${number}`);
    }
    this.instance = instance;
    if (this.number === null) {
      const first = this.#numbers.get(number) ?? this;
      if (first !== this && first.instance !== instance) {
        const told =
          first.instance === ""
            ? `which the list says of ${first.endpoint}, and that has not answered`
            : `as another daemon at ${first.endpoint} does`;
        throw new DaemonUnreachable(`${this.label} says that it is node ${number}, ${told}`);
      }
      this.isTwin = first !== this;
      if (!this.isTwin) {
        this.#numbers.set(number, this);
      }
      this.number = number;
      this.#name(number);
    }
  }

  /** Has each request name the node, so that no other daemon does it. */
  #name(number: number): void {
    this.ask.transport.node = number;
    this.client.transport.node = number;
  }

  async close(): Promise<void> {
    await Promise.all([this.ask.close(), this.client.close()]);
  }
}
