/** `Fleet`: several daemons, each a node with a number. */

import { DaemonUnreachable, Denied, InternalError, InvalidArgument } from "./errors.js";
import { isName, type Mark, markOf, named, Position } from "./fleet-nodes.js";
import type { Member } from "./member.js";
import { Members } from "./members.js";
import { BEGIN_TIMEOUT, type Beginning, type Merging, merged } from "./merge.js";
import { nodeOf } from "./node.js";
import { Placing } from "./placing.js";
import * as results from "./results.js";
import { type Connection, type ConnectOptions, type CreateOptions, Sandbox } from "./sandbox.js";
import type { Tls } from "./settings.js";
import { Stream } from "./stream.js";
import type { RequestOptions } from "./transport.js";
import {
  type AlertInfo,
  type AlertState,
  type ApprovalInfo,
  type ApprovalState,
  type AuditEvent,
  type FleetEvent,
  type FleetNode,
  Gathered,
  type NodeCallback,
  type NodeInfo,
  type OfNode,
  type RunInfo,
  type RunState,
} from "./types.js";
import { Alert_State, Approval_State, Run_State } from "./v1.js";

// Of a list of one node, with a thousand runs or 500 alerts each.
const MOST_PAGES = 1000;

/** Options of `Fleet.open`. `token` and `tls` are for all nodes. */
export interface FleetOptions {
  token?: string;
  tls?: string | Tls;
  /** Seconds that a node has for an answer about itself, and for each page of a list. Default: 2. */
  nodeTimeout?: number;
  /** Of the sandboxes, as in `Client`; default 60. */
  requestTimeout?: number;
  /** Of the sandboxes, as in `Client`; default 30. */
  reconnectTimeout?: number;
}

export interface WatchNodesOptions {
  /** Is told of each node that no longer answers (`unreachable`), and again when it is back. */
  onNode?: NodeCallback;
  signal?: AbortSignal;
}

export interface WatchEventsOptions extends WatchNodesOptions {
  /** `position` of a record: go on after it. Default: before all records. */
  position?: string;
  /** Go on with new records instead of ending; default: true. */
  follow?: boolean;
  /** Only of these kinds, such as `call_receipt`; at most 32. */
  kinds?: readonly string[];
}

/**
 * The nodes of a fleet, asked directly and side by side.
 *
 * ```ts
 * await using fleet = await Fleet.open("fleet.yaml", { tls: "/etc/cofferdam/client" });
 * await using sandbox = await fleet.create({ profile: "build", lease: 60, keepAlive: true });
 * const runs = await fleet.listRuns();
 * console.log(runs.items.map(({ node, item }) => [node, item.runId]), "no answer:", runs.missing.map(({ node }) => node));
 * ```
 *
 * A node that does not answer, or cannot now, is a warning: it is in `missing` of a list, and `onNode` of a stream is told.
 * A list waits for it for `nodeTimeout`. Only if no node answers, `DaemonUnreachable` is thrown.
 */
export class Fleet implements AsyncDisposable {
  readonly #members: Members;
  readonly #patience: number;
  readonly #placing: Placing;

  private constructor(
    nodes: readonly FleetNode[],
    options: FleetOptions,
    resolve: (() => Promise<readonly FleetNode[]>) | null,
  ) {
    const { nodeTimeout = 2, reconnectTimeout = 30, ...rest } = options;
    if (!(nodeTimeout > 0)) {
      throw new InvalidArgument("nodeTimeout: must be more than 0");
    }
    this.#members = new Members(nodes, nodeTimeout, { ...rest, reconnectTimeout }, resolve);
    this.#patience = reconnectTimeout;
    this.#placing = new Placing(this.#members, reconnectTimeout);
  }

  /**
   * Reads the list of nodes. Each connection is made when it is needed.
   *
   * `fleet`: a file as `coffer fleet` reads it (`nodes: [{ id: 7, address: "node-7.example.org:7443" }]`; for YAML, install
   * the package `yaml`), `dns:fleet.example.org:7443` for all addresses of a name, or nodes; default: `COFFERDAM_FLEET`.
   * The name is resolved again while one of its nodes does not answer, so that a node is found at another address; nodes that
   * are new are not.
   *
   * Throws `InvalidArgument` for a list that cannot be one, and `DaemonUnreachable` for a name without addresses.
   */
  static async open(fleet?: string | readonly FleetNode[], options: FleetOptions = {}): Promise<Fleet> {
    const resolve = isName(fleet) ? () => named(fleet) : null;
    return new Fleet(await named(fleet), options, resolve);
  }

  /** All nodes as they are now, also those that do not answer, in the order of the list. */
  async nodes(options: { signal?: AbortSignal } = {}): Promise<readonly NodeInfo[]> {
    return await this.#members.look(options.signal);
  }

  /** The runs that the caller may see, newest first: in this state (default: `ready`; null: any), with this metadata. */
  async listRuns(
    options: { state?: RunState | null; metadata?: Readonly<Record<string, string>>; signal?: AbortSignal } = {},
  ): Promise<Gathered<RunInfo>> {
    const { state = "ready", metadata = {} } = options;
    const wanted = state === null ? undefined : enumOf(Run_State, state);
    const found = await this.#members.gather(async (member) => {
      const asking = questioning(member, options);
      const runs: RunInfo[] = [];
      let pageToken = "";
      for (let page = 0; page < MOST_PAGES; page++) {
        const answer = await member.ask.runs.listRuns({ pageSize: 1000, pageToken, state: wanted }, asking);
        const fits = answer.runs.filter((run) =>
          Object.entries(metadata).every(([name, at]) => run.labels[name] === at),
        );
        runs.push(...fits.map(results.runInfo));
        pageToken = answer.nextPageToken;
        if (pageToken === "") {
          return runs;
        }
      }
      throw new InternalError("the list of runs has no end");
    }, options.signal);
    return sorted(found, (run) => -timeOf(run.createdAt));
  }

  /** The approvals in this state (default: `pending`; null: any), oldest first. To decide, see `Sandbox.approvals`. */
  async approvals(
    options: { state?: ApprovalState | null; signal?: AbortSignal } = {},
  ): Promise<Gathered<ApprovalInfo>> {
    const { state = "pending" } = options;
    const wanted = state === null ? undefined : enumOf(Approval_State, state);
    const found = await this.#members.gather(async (member) => {
      const answer = await member.ask.approvals.listApprovals({ state: wanted }, questioning(member, options));
      return answer.approvals.map(results.approval);
    }, options.signal);
    return sorted(found, (approval) => timeOf(approval.createdAt));
  }

  /** The alerts in this state (default: `open`; null: any), newest first. */
  async alerts(options: { state?: AlertState | null; signal?: AbortSignal } = {}): Promise<Gathered<AlertInfo>> {
    const { state = "open" } = options;
    const wanted = state === null ? undefined : enumOf(Alert_State, state);
    const found = await this.#members.gather(async (member) => {
      const asking = questioning(member, options);
      const alerts: AlertInfo[] = [];
      let pageToken = "";
      for (let page = 0; page < MOST_PAGES; page++) {
        const answer = await member.ask.alerts.listAlerts({ pageSize: 500, pageToken, state: wanted }, asking);
        alerts.push(...answer.alerts.map(results.alert));
        pageToken = answer.nextPageToken;
        if (pageToken === "") {
          return alerts;
        }
      }
      throw new InternalError("the list of alerts has no end");
    }, options.signal);
    return sorted(found, (alert) => -timeOf(alert.raisedAt));
  }

  /**
   * The records of all audit logs by time, none left out and none twice, also across a node that is lost and back.
   * With `follow` a record waits 5 seconds at most for older ones of other nodes, so that no node hides those of others.
   *
   * The records of one node keep their order. Each comes with a `position`; the stream that is given it goes on after that
   * record, and so does `coffer --fleet audit tail`. A log that is another one than before, or that ends before the position, is
   * read from its first record. A stream that does not follow leaves a node out that does not answer; a later one with its last
   * position goes on there.
   *
   * Takes the API role `operator` or `auditor`. Throws `DaemonUnreachable` when no node has answered for `reconnectTimeout`.
   */
  watchEvents(options: WatchEventsOptions = {}): Stream<FleetEvent> {
    const { follow = true, kinds = [], onNode, position = "" } = options;
    const given = new Position(position);
    const read = new Position(position);
    const members = this.#members;
    const begin: Beginning<AuditEvent> = async function* (member, _info, signal) {
      const node = member.number ?? 0;
      const end = await endOf(member, signal);
      const afterSequence = BigInt(read.after(node, end));
      const request = { afterSequence, follow, filter: { kinds: [...kinds] } };
      for await (const answer of member.ask.audit.streamEvents(request, { signal })) {
        const event = results.event(results.present(answer.event));
        const mark = markOf(event);
        yield [event.time, event];
        read.saw(node, mark, members.numbers);
      }
      // An end without an error alone does not prove that this is all.
      if (!follow && kinds.length === 0 && !read.reaches(node, end)) {
        throw new DaemonUnreachable("the daemon ended the stream before the end of its log");
      }
    };
    const merging = { begin, onNode, follow, patience: this.#patience };
    const make = async function* (signal: AbortSignal): AsyncGenerator<FleetEvent, void> {
      for await (const { member, item: event } of merged(members.present, merging, signal)) {
        const node = member.number ?? 0;
        given.saw(node, markOf(event), members.numbers);
        yield { node, event, position: given.written() };
      }
    };
    return new Stream(make, options.signal);
  }

  /** The runs as they are, then each change of state, without end. Those of a node that is back come again. */
  watchRuns(options: WatchNodesOptions = {}): Stream<OfNode<RunInfo>> {
    return this.#watched(options, async function* (member, _info, signal) {
      for await (const change of member.ask.runs.watchRuns({}, { signal })) {
        const run = results.runInfo(change.run);
        yield [run.endedAt ?? run.readyAt ?? run.createdAt ?? new Date(0), run];
      }
    });
  }

  /** The pending approvals, then each change, without end. Those of a node that is back come again. */
  watchApprovals(options: WatchNodesOptions = {}): Stream<OfNode<ApprovalInfo>> {
    return this.#watched(options, async function* (member, _info, signal) {
      for await (const { approval } of member.ask.approvals.watchApprovals({}, { signal })) {
        const one = results.approval(approval);
        yield [results.when(approval?.decidedAt) ?? one.createdAt ?? new Date(0), one];
      }
    });
  }

  /** The open alerts, then each that is new or changes, without end. Those of a node that is back come again. */
  watchAlerts(options: WatchNodesOptions = {}): Stream<OfNode<AlertInfo>> {
    return this.#watched(options, async function* (member, _info, signal) {
      for await (const change of member.ask.alerts.watchAlerts({}, { signal })) {
        const alert = results.alert(change.alert);
        yield [alert.lastAt ?? new Date(0), alert];
      }
    });
  }

  /**
   * Makes a sandbox on the least loaded node that makes runs, and returns when it is ready.
   *
   * What begins with a base, a checkpoint or a kept workspace goes to the node that has it. A node that refuses because it is
   * full or drained or lacks the image, or that cannot be reached, is passed over.
   *
   * A request whose answer was lost is repeated at the same node, for `reconnectTimeout`, and never made at another one: the
   * node does it once. Then `NodeLostError` has the `requestId`; `create` with it, or `find`, has the sandbox when the node is
   * back. Give a `lease`, so that one that nobody fetches ends by itself.
   *
   * `requestId`: in the whole fleet, the same request with the same name is the same sandbox, and the name decides on the
   * node. All nodes are asked for it first. While one does not answer, a name that no other knows throws `NodeLostError`: that
   * node may have it. `issueToken`: the sandbox gets a new `token`, also one that is found.
   */
  async create(options: Omit<CreateOptions, keyof Connection>): Promise<Sandbox> {
    return await this.#placing.create(options);
  }

  /**
   * The sandbox that `create` was asked for by this name, on whichever node it is, also one that has ended.
   *
   * Throws `NodeLostError` if no node that answers has it, and one does not answer.
   */
  async find(requestId: string, options: Omit<ConnectOptions, keyof Connection> = {}): Promise<Sandbox | null> {
    const found = await this.#members.holder(requestId);
    return found && (await Sandbox.connect(found.runId, { ...options, client: found.member.client }));
  }

  /**
   * A sandbox that is there already, on the node that its id names; see `Sandbox.connect`.
   *
   * For an id that names no node, all nodes are asked. Throws `NotFound`, also for a node that the fleet does not have, and
   * `DaemonUnreachable` if the node does not answer within `nodeTimeout`.
   */
  async sandbox(runId: string, options: Omit<ConnectOptions, keyof Connection> = {}): Promise<Sandbox> {
    const number = nodeOf(runId);
    const member = await (number === null ? this.#members.keeper(runId) : this.#members.at(number));
    try {
      await member.look();
    } catch (error) {
      // A run's own token may not ask that.
      if (!(error instanceof Denied)) {
        throw error;
      }
    }
    return await Sandbox.connect(runId, { ...options, client: member.client });
  }

  /** Closes all connections. A later call opens others. */
  async close(): Promise<void> {
    await this.#members.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #watched<T>({ onNode, signal }: WatchNodesOptions, begin: Beginning<T>): Stream<OfNode<T>> {
    const merging: Merging<T> = { begin, onNode, follow: true, patience: this.#patience };
    const members = this.#members;
    const make = async function* (end: AbortSignal): AsyncGenerator<OfNode<T>, void> {
      for await (const { member, item } of merged(members.present, merging, end)) {
        yield { node: member.number ?? 0, item };
      }
    };
    return new Stream(make, signal);
  }
}

function questioning(member: Member, options: { signal?: AbortSignal }): RequestOptions {
  return { timeout: member.timeout, signal: options.signal };
}

/** The place at the end of a node's log; null: it has no record. */
async function endOf(member: Member, signal: AbortSignal): Promise<Mark | null> {
  const options = { timeout: BEGIN_TIMEOUT, signal };
  for await (const { event } of member.ask.audit.streamEvents({ newestOnly: true }, options)) {
    return markOf(results.event(results.present(event)));
  }
  return null;
}

function timeOf(time: Date | null): number {
  return time?.getTime() ?? 0;
}

function sorted<T>(found: Gathered<T>, by: (item: T) => number): Gathered<T> {
  const items = [...found.items].sort((one, other) => by(one.item) - by(other.item));
  return new Gathered(items, found.missing);
}

/** The value of an enum whose names are the words of this package in capitals. */
function enumOf<V extends number>(names: Readonly<Record<string, V | string>>, word: string): V {
  return names[word.toUpperCase()] as V;
}
