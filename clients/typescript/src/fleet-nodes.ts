/** The nodes of a fleet: their list, the place in their logs, and the choice of one for a sandbox. No I/O but files. */

import { createHash } from "node:crypto";
import { lookup } from "node:dns/promises";
import { open } from "node:fs/promises";
import { isIPv6 } from "node:net";
import {
  Cancelled,
  CofferdamError,
  DaemonUnreachable,
  InfrastructureError,
  InternalError,
  InvalidArgument,
  LimitExceeded,
  NoConnection,
  RateLimited,
  TimedOut,
  Unavailable,
  WrongNodeError,
} from "./errors.js";
import type { AuditEvent, FleetNode, NodeInfo, Workspace } from "./types.js";

const FLEET_VARIABLE = "COFFERDAM_FLEET";
// Of the addresses of a DNS name.
const DEFAULT_PORT = "7443";
// Bounds of a list of nodes.
const MOST_NODES = 512;
const LARGEST_FILE = 1024 * 1024;
const LARGEST_NUMBER = 65_535;
const LARGEST_WEIGHT = 256;
// Milliseconds for which the use of a node counts as known.
const FRESH = 1000;
// Milliseconds until a node that did not answer is asked again, first and at most.
const FIRST_REST = 500;
const LONGEST_REST = 10_000;

const ADDRESS = /^(?:[A-Za-z0-9_.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}$/;
const NAME = /^[A-Za-z0-9_.-]{1,253}$/;
const LOG = /^[0-9a-f]{32}$/;
// A position is this, the version of its form, and base64 of one entry for each node: number (2 bytes), log and sequence number.
const PREFIX = "p1.";
const LOG_SIZE = 16;
const ENTRY = 2 + LOG_SIZE + 8;
const KEYS: ReadonlySet<string> = new Set(["id", "address", "server_name", "weight", "agent_check"]);

/** True if the node does not answer, cannot work now, or is another one: of a fleet that is a warning. */
export function isAway(error: unknown): error is CofferdamError {
  const isAnswer = [RateLimited, Unavailable, WrongNodeError].some((kind) => error instanceof kind);
  const isInternal = error instanceof CofferdamError && (error.reason === "INTERNAL" || isUnexplained(error));
  return isAnswer || isInternal || error instanceof NoConnection || error instanceof TimedOut;
}

/** Each refusal of a daemon has a reason: this node is broken, is older, or is none. */
function isUnexplained(error: CofferdamError): boolean {
  const kinds = [CofferdamError, InternalError, LimitExceeded];
  return error.reason === "" && kinds.some((kind) => error.constructor === kind);
}

/** True if the node itself has not said how the request ended. */
export function hasNoAnswer(error: unknown): error is CofferdamError {
  const isCut = error instanceof Cancelled && error.reason === "";
  return isCut || error instanceof NoConnection || error instanceof TimedOut;
}

/** True if the node has certainly made no run, and another one may. */
export function wasRefused(error: unknown): error is CofferdamError {
  if (!(error instanceof CofferdamError)) {
    return false;
  }
  const isOfNode = error instanceof InfrastructureError || error instanceof NoConnection;
  const refuses =
    (isOfNode && error.retrySafe) || ["OVERLOADED", "NODE_DRAINED", "IMAGE_MISSING"].includes(error.reason);
  // Its repetition was refused, and not the request.
  return refuses && !error.followsLostAttempt;
}

/** The rank of a node for a named request: all clients try the nodes in the same order. */
export function draw(number: number, name: string): string {
  return createHash("sha256").update(`${number} ${name}`).digest("hex");
}

/** The id of what a sandbox begins with, which is on one node; empty: it begins with nothing of a node. */
export function homeOf(workspace: Workspace | undefined): string {
  switch (workspace?.kind) {
    case "base":
      return workspace.baseId;
    case "checkpoint":
      return workspace.checkpointId;
    case "managed":
      return workspace.workspaceId ?? "";
    default:
      return "";
  }
}

/** True if the fleet is a DNS name, whose addresses may change. */
export function isName(given: string | readonly FleetNode[] | undefined): boolean {
  const fleet = given ?? process.env[FLEET_VARIABLE];
  return typeof fleet === "string" && fleet.startsWith("dns:");
}

/** The nodes of a list, a file or a DNS name. */
export async function named(
  given: string | readonly FleetNode[] | undefined,
  resolve: typeof lookup = lookup,
): Promise<readonly FleetNode[]> {
  const fleet = given ?? process.env[FLEET_VARIABLE] ?? "";
  if (fleet === "") {
    throw new InvalidArgument(`fleet: name a file, dns:NAME:PORT or nodes, or set ${FLEET_VARIABLE}`);
  }
  if (typeof fleet !== "string") {
    return checked(fleet);
  }
  if (!fleet.startsWith("dns:")) {
    return await read(fleet);
  }
  const [, name = "", port = DEFAULT_PORT] = /^dns:([^:]*)(?::(\d{1,5}))?$/.exec(fleet) ?? [];
  if (!NAME.test(name) || !isWithin(Number(port), 65_535)) {
    const example = "dns:fleet.example.org:7443";
    throw new InvalidArgument(`fleet: a DNS name looks like ${example}, not ${JSON.stringify(fleet)}`);
  }
  return await resolved(name, port, resolve);
}

/** A node for each address of a name. Their certificates have that name. */
async function resolved(name: string, port: string, resolve: typeof lookup): Promise<readonly FleetNode[]> {
  let found: { address: string }[];
  try {
    found = await resolve(name, { all: true });
  } catch (error) {
    throw new DaemonUnreachable(`fleet: ${name} has no address: ${error instanceof Error ? error.message : error}`);
  }
  const addresses = [...new Set(found.map(({ address }) => address))].sort();
  const shown = addresses.map((address) => (isIPv6(address) ? `[${address}]` : address));
  return checked(shown.map((address) => ({ id: null, endpoint: `https://${address}:${port}`, serverName: name })));
}

/** The nodes, if each can be one and no two have the same number. */
export function checked(nodes: readonly FleetNode[]): readonly FleetNode[] {
  if (nodes.length < 1 || nodes.length > MOST_NODES) {
    throw new InvalidArgument(`fleet: must be 1 to ${MOST_NODES} nodes, not ${nodes.length}`);
  }
  const seen = new Set<number>();
  for (const { id, endpoint, weight = 1 } of nodes) {
    if (endpoint === "") {
      throw new InvalidArgument("fleet: a node has no endpoint");
    }
    if (id !== null) {
      if (!isWithin(id, LARGEST_NUMBER)) {
        throw new InvalidArgument(`fleet: ${id} is no number of a node: 1 to ${LARGEST_NUMBER}`);
      }
      if (seen.has(id)) {
        throw new InvalidArgument(`fleet: two nodes have the number ${id}`);
      }
      seen.add(id);
    }
    if (!isWithin(weight, LARGEST_WEIGHT)) {
      throw new InvalidArgument(`fleet: ${weight} is no weight: 1 to ${LARGEST_WEIGHT}`);
    }
  }
  return nodes;
}

/** The nodes of a file in the form that `coffer fleet` reads: YAML, of which JSON is a part. */
export async function read(file: string): Promise<readonly FleetNode[]> {
  const top = await parsed(file, await content(file));
  const fields = isFields(top) ? Object.keys(top) : [];
  const nodes = isFields(top) ? top["nodes"] : undefined;
  if (fields.length !== 1 || !Array.isArray(nodes)) {
    throw new InvalidArgument(`fleet: ${file} must have a list of \`nodes\`, and nothing else`);
  }
  return checked(nodes.map((one, at) => node(`fleet: ${file}: nodes[${at}]`, one)));
}

async function content(file: string): Promise<string> {
  try {
    await using opened = await open(file);
    const buffer = Buffer.alloc(LARGEST_FILE + 1);
    let size = 0;
    for (let read = -1; read !== 0 && size < buffer.length; size += read) {
      read = (await opened.read(buffer, size, buffer.length - size)).bytesRead;
    }
    if (size > LARGEST_FILE) {
      throw new InvalidArgument(`fleet: ${file} is larger than ${LARGEST_FILE} bytes`);
    }
    return buffer.toString("utf8", 0, size);
  } catch (error) {
    if (error instanceof InvalidArgument) {
      throw error;
    }
    const code = error instanceof Error && "code" in error ? error.code : error;
    throw new InvalidArgument(`fleet: ${file} cannot be read: ${code}`);
  }
}

async function parsed(file: string, text: string): Promise<unknown> {
  try {
    return JSON.parse(text);
  } catch {
    // It may be YAML.
  }
  const yaml = await import("yaml").catch(() => {
    throw new InvalidArgument(`fleet: ${file} is no JSON: for YAML, install the package yaml`);
  });
  try {
    return yaml.parse(text);
  } catch (error) {
    const [line] = (error instanceof Error ? error.message : String(error)).split("\n");
    throw new InvalidArgument(`fleet: ${file} is no YAML: ${line}`);
  }
}

function node(where: string, one: unknown): FleetNode {
  if (!isFields(one) || !Object.keys(one).every((key) => KEYS.has(key))) {
    throw new InvalidArgument(
      `${where}: must have \`id\` and \`address\`, and may have server_name, weight, agent_check`,
    );
  }
  const { id, address, server_name: serverName, weight } = one;
  if (!isWithin(id, LARGEST_NUMBER)) {
    throw new InvalidArgument(`${where}.id: must be 1 to ${LARGEST_NUMBER}`);
  }
  if (typeof address !== "string" || !ADDRESS.test(address)) {
    throw new InvalidArgument(`${where}.address: must look like node-7.example.org:7443`);
  }
  if (serverName !== undefined && serverName !== null && (typeof serverName !== "string" || !NAME.test(serverName))) {
    throw new InvalidArgument(`${where}.server_name: must be a host name`);
  }
  if (weight !== undefined && !isWithin(weight, LARGEST_WEIGHT)) {
    throw new InvalidArgument(`${where}.weight: must be 1 to ${LARGEST_WEIGHT}`);
  }
  return { id, endpoint: `https://${address}`, serverName: serverName ?? undefined, weight };
}

function isFields(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isWithin(value: unknown, largest: number): value is number {
  return typeof value === "number" && Number.isSafeInteger(value) && 1 <= value && value <= largest;
}

/** A place in one log: after this record. */
export interface Mark {
  /** Identity of the log, in hex. */
  log: string;
  sequence: number;
}

export function markOf(event: AuditEvent): Mark {
  const log = event.record["log"];
  if (typeof log !== "string" || !LOG.test(log)) {
    throw new InternalError("a record of the audit log names no log");
  }
  if (!Number.isSafeInteger(event.sequence)) {
    throw new InternalError("a record of the audit log has a number that none can have");
  }
  return { log, sequence: event.sequence };
}

/** The numbers of the nodes of a fleet. */
export type Numbers = Pick<ReadonlySet<number>, "has">;

/** By node: the last record of its log that was seen. Written as `coffer --fleet audit tail` writes it. */
export class Position {
  readonly #of = new Map<number, Mark>();

  /** `written`: as `written()` gives it; empty: before all records. */
  constructor(written = "") {
    const wrong = () => new InvalidArgument("position: is none that `watchEvents` gave");
    const encoded = written.slice(PREFIX.length);
    const raw = Buffer.from(encoded, "base64url");
    const isWhole =
      raw.length % ENTRY === 0 && raw.length <= MOST_NODES * ENTRY && raw.toString("base64url") === encoded;
    if (written !== "" && !(written.startsWith(PREFIX) && isWhole)) {
      throw wrong();
    }
    for (let at = 0; at < raw.length; at += ENTRY) {
      const node = raw.readUInt16BE(at);
      const log = raw.toString("hex", at + 2, at + 2 + LOG_SIZE);
      if (node === 0 || this.#of.has(node)) {
        throw wrong();
      }
      const sequence = Number(raw.readBigUInt64BE(at + 2 + LOG_SIZE));
      if (Number.isSafeInteger(sequence)) {
        this.#of.set(node, { log, sequence });
      }
    }
  }

  /** The last record that was seen of the log that ends so. 0: none, and so in a log that is another one or shorter. */
  after(node: number, end: Mark | null): number {
    const seen = this.#of.get(node);
    return seen && seen.log === end?.log && seen.sequence <= end.sequence ? seen.sequence : 0;
  }

  /** True if the log of the node was seen to this end. */
  reaches(node: number, end: Mark | null): boolean {
    const seen = this.#of.get(node);
    return end === null || (seen !== undefined && seen.log === end.log && seen.sequence >= end.sequence);
  }

  /**
   * Takes the last record of a node. Where there are too many nodes, one that left the fleet is forgotten.
   *
   * Others that left stay: a node may be back in the list, and goes on where it was.
   */
  saw(node: number, mark: Mark, fleet: Numbers): void {
    if (!this.#of.has(node) && this.#of.size >= MOST_NODES) {
      const left = [...this.#of.keys()].filter((number) => !fleet.has(number));
      this.#of.delete(Math.min(...(left.length > 0 ? left : this.#of.keys())));
    }
    this.#of.set(node, mark);
  }

  written(): string {
    const entries = [...this.#of]
      .sort(([one], [other]) => one - other)
      .map(([node, { log, sequence }]) => {
        const entry = Buffer.alloc(ENTRY);
        entry.writeUInt16BE(node, 0);
        entry.write(log, 2, "hex");
        entry.writeBigUInt64BE(BigInt(sequence), 2 + LOG_SIZE);
        return entry;
      });
    return PREFIX + Buffer.concat(entries).toString("base64url");
  }
}

/** Facts about a node that decide if it gets the next sandbox. */
export class Standing {
  readonly #weight: number;
  #info: NodeInfo | null = null;
  // Sandboxes that were given to it since `info`, and those of them that are being made.
  #given = 0;
  #making = 0;
  /** It did not answer, and gets no sandbox until it does. */
  isSuspect = false;
  #askedAt = Number.NEGATIVE_INFINITY;
  #rest = FIRST_REST;

  constructor(weight = 1) {
    this.#weight = weight;
  }

  /** It has to be asked before it is chosen. */
  get isStale(): boolean {
    return !this.isSuspect && performance.now() >= this.#askedAt + FRESH;
  }

  /** Tells once that it is time to ask a node again that did not answer. */
  isDue(): boolean {
    const due = this.isSuspect && performance.now() >= this.#askedAt + this.#rest;
    if (due) {
      this.#askedAt = performance.now();
      this.#rest = Math.min(2 * this.#rest, LONGEST_REST);
    }
    return due;
  }

  answered(info: NodeInfo): void {
    this.#info = info;
    this.#given = this.#making;
    this.isSuspect = false;
    this.#askedAt = performance.now();
    this.#rest = FIRST_REST;
  }

  failed(): void {
    this.#info = null;
    this.isSuspect = true;
    this.#askedAt = performance.now();
  }

  begin(): void {
    this.#given += 1;
    this.#making += 1;
  }

  end(): void {
    this.#making -= 1;
  }

  /** Nodes that make runs come first, and of these the least loaded one. */
  rank(): readonly [number, number, number] {
    let load = 0;
    const { used, capacity, state } = this.#info ?? {};
    if (used && capacity) {
      const pairs = [
        [used.runs + this.#given, capacity.runs],
        [used.memoryMib, capacity.memoryMib],
        [used.cores, capacity.cores],
        [used.diskMib, capacity.diskMib],
      ] as const;
      load = Math.max(0, ...pairs.filter(([, most]) => most > 0).map(([taken, most]) => taken / most));
    }
    const isClosed = state !== undefined && state !== "serving";
    return [isClosed ? 1 : 0, load / this.#weight, this.#given / this.#weight];
  }
}
