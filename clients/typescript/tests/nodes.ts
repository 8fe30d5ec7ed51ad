/** A node of a fleet that is no daemon: what the package asks of it, from memory. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { rmSync } from "node:fs";
import { connect, createServer, type Server as NetServer, type Socket } from "node:net";
import { join } from "node:path";
import { setTimeout as delay, setImmediate as immediate } from "node:timers/promises";
import {
  create,
  type DescMessage,
  type DescMethod,
  fromBinary,
  type MessageInitShape,
  toBinary,
} from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { FleetNode } from "@cofferdam/sdk";
import * as v1 from "@cofferdam/sdk/v1";
import {
  Metadata,
  Server,
  ServerCredentials,
  type ServerUnaryCall,
  type ServerWritableStream,
  status,
} from "@grpc/grpc-js";
import { nodeOf } from "../src/node.js";
import { newId } from "../src/requests.js";

type Run = MessageInitShape<typeof v1.RunSchema>;
type Answer<S extends DescMessage> = MessageInitShape<S>;

/** An id that names this node: the same layout as in the README of the crate `node-id`. */
export function idOf(node: number, at: number): string {
  const data = Buffer.from(newId().replaceAll("-", ""), "hex");
  data.writeUInt16BE(0x7000 | (node >> 4), 6);
  data.writeUInt8(0x80 | (node & 0xf), 8);
  let check = 0xffff;
  for (const byte of [...data.subarray(0, 6), node >> 8, node & 0xff]) {
    check ^= byte << 8;
    for (let bit = 0; bit < 8; bit++) {
      check = ((check << 1) ^ (check & 0x8000 ? 0x1021 : 0)) & 0xffff;
    }
  }
  data.writeUInt16BE(check, 11);
  data.writeUIntBE(at, 13, 3);
  const id = data.toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
  assert.equal(nodeOf(id), node);
  return id;
}

/** A refusal by the daemon, with a reason. */
export class Refused extends Error {
  readonly code: status;
  readonly metadata = new Metadata();
  readonly details: string;

  constructor(reason: string, code: status, node = 0) {
    super(reason);
    this.code = code;
    this.details = `refused: ${reason}`;
    const field = (number: number, content: Uint8Array | string) => {
      const bytes = Buffer.from(content as string);
      return Buffer.concat([Buffer.from([(number << 3) | 2, bytes.length]), bytes]);
    };
    const named = Buffer.concat([field(1, "node"), field(2, `${node}`)]);
    const info = Buffer.concat([field(1, reason), field(2, "cofferdam"), ...(node === 0 ? [] : [field(3, named)])]);
    const any = Buffer.concat([field(1, "type.googleapis.com/google.rpc.ErrorInfo"), field(2, info)]);
    this.metadata.set("grpc-status-details-bin", field(3, any));
  }
}

/** Its runs stay when it is killed. */
export class Node {
  readonly number: number;
  /** The number that it says. */
  says: number;
  instance: string;
  /** Identity of its log. */
  log: string;
  state = v1.Node_State.SERVING;
  usedRuns = 0;
  /** By request id. */
  runs = new Map<string, Run>();
  stopped: string[] = [];
  created = 0;
  tokens = 0;
  /** Runs whose leases were to be renewed. */
  renewed: string[] = [];
  /** Reasons with which the next renewals of leases are refused. */
  refusedRenewals: string[] = [];
  refusesTokens = false;
  /** It failed to make the runs that it has. */
  refusesAgain = false;
  /** A reason with which creates are refused. */
  refuses = "";
  /** Called after a run was made and before the answer. */
  beforeAnswer: () => unknown = () => {};
  /** Watches of runs that end because their client is too slow. */
  lags = 0;
  /** A reason with which questions about it are refused. */
  refusesLooks = "";
  /** A reason with which lists are refused. */
  refusesLists = "";
  /** Its lists have no last page. */
  goesOn = false;
  /** Streams of events that end after one of them, as those of a daemon that stops, and the reason that it gives. */
  cuts = 0;
  cutReason = "";
  /** Its log is for others. */
  denies = false;
  /** Seconds for which it says nothing, unless it is killed before. */
  silentFor = 0;
  /** Questions about it, also those that it does not answer. */
  looks = 0;
  events: Answer<typeof v1.AuditEventSchema>[] = [];
  approvals: Answer<typeof v1.ApprovalSchema>[] = [];
  alerts: Answer<typeof v1.AlertSchema>[] = [];
  #path: string;
  readonly #inner: string;
  readonly #server = new Server();
  readonly #sockets = new Set<Socket>();
  readonly #clients = new Set<Socket>();
  #listener: NetServer | null = null;
  #ended = new AbortController();

  private constructor(place: string, number: number) {
    this.number = number;
    this.says = number;
    this.instance = `instance-${number}`;
    this.log = number.toString(16).padStart(32, "0");
    this.#path = join(place, `${number}.sock`);
    this.#inner = `${this.#path}.inner`;
  }

  static async begin(place: string, number: number): Promise<Node> {
    const node = new Node(place, number);
    node.#serve();
    await new Promise<void>((resolve, reject) => {
      const bound = (error: Error | null) => (error ? reject(error) : resolve());
      node.#server.bindAsync(`unix:${node.#inner}`, ServerCredentials.createInsecure(), bound);
    });
    await node.start();
    return node;
  }

  get renewals(): number {
    return this.renewed.length;
  }

  get endpoint(): string {
    return `unix:${this.#path}`;
  }

  get listed(): FleetNode {
    return { id: this.number, endpoint: this.endpoint };
  }

  async start(): Promise<void> {
    this.#ended = new AbortController();
    this.#listener = createServer((client) => {
      const inner = connect(this.#inner);
      this.#clients.add(client);
      client.on("close", () => this.#clients.delete(client));
      for (const [socket, other] of [
        [client, inner],
        [inner, client],
      ] as const) {
        this.#sockets.add(socket);
        socket.on("error", () => {});
        socket.on("close", () => {
          this.#sockets.delete(socket);
          other.destroy();
        });
        socket.pipe(other);
      }
    });
    this.#listener.listen(this.#path);
    await once(this.#listener, "listening");
  }

  /** Has it hang: the connections that there are carry nothing from it. */
  mute(): void {
    for (const socket of this.#sockets) {
      socket.unpipe();
    }
  }

  /** Kills it, and waits until its clients have closed their ends: what they send before may have been carried out. */
  async die(): Promise<void> {
    this.#close();
    await Promise.all([...this.#clients].map((client) => new Promise((closed) => client.once("close", closed).end())));
    // HTTP/2 and gRPC pass it on in turns of this event loop that follow.
    for (let turn = 0; turn < 20; turn++) {
      await immediate();
    }
    this.kill();
  }

  #close(): void {
    this.#ended.abort();
    this.#listener?.close();
    this.#listener = null;
    rmSync(this.#path, { force: true });
  }

  /** Breaks all connections, and takes no others. */
  kill(): void {
    this.#close();
    for (const socket of this.#sockets) {
      socket.destroy();
    }
  }

  /** Starts it after it was killed, at another address. */
  async moved(endpoint: string): Promise<void> {
    this.#path = endpoint.slice("unix:".length);
    await this.start();
  }

  remove(): void {
    this.kill();
    this.#server.forceShutdown();
  }

  record(second: number, kind = "call_receipt"): void {
    const sequence = this.events.length + 1;
    const time = timestampFromMs(second * 1000);
    this.events.push({
      sequence: BigInt(sequence),
      time,
      kind,
      recordJson: JSON.stringify({ log: this.log }),
      hash: `${sequence}`,
    });
  }

  #serve(): void {
    const unary = <I extends DescMessage, O extends DescMessage>(
      method: DescMethod & { input: I; output: O },
      answer: (request: ReturnType<typeof fromBinary<I>>) => Answer<O> | Promise<Answer<O>>,
    ) => {
      const handle = async (call: ServerUnaryCall<Buffer, Buffer>, done: (error: unknown, made?: Buffer) => void) => {
        this.looks += method.name === "GetNode" ? 1 : 0;
        await delay(this.silentFor * 1000, undefined, { signal: this.#ended.signal }).catch(() => {});
        try {
          this.#check(call.metadata);
          const made = create(method.output, await answer(fromBinary(method.input, call.request)));
          done(null, Buffer.from(toBinary(method.output, made)));
        } catch (error) {
          done(error);
        }
      };
      this.#add(method, handle);
    };
    const streamed = <I extends DescMessage, O extends DescMessage>(
      method: DescMethod & { input: I; output: O },
      answers: (request: ReturnType<typeof fromBinary<I>>, end: AbortSignal) => AsyncIterable<Answer<O>>,
    ) => {
      const handle = async (call: ServerWritableStream<Buffer, Buffer>) => {
        const end = new AbortController();
        call.on("cancelled", () => end.abort());
        const both = AbortSignal.any([end.signal, this.#ended.signal]);
        try {
          this.#check(call.metadata);
          for await (const answer of answers(fromBinary(method.input, call.request), both)) {
            call.write(Buffer.from(toBinary(method.output, create(method.output, answer))));
          }
          call.end();
        } catch (error) {
          // Otherwise its client has gone.
          if (error instanceof Refused) {
            call.emit("error", error);
          }
        }
      };
      this.#add(method, handle);
    };
    const { runs, checkpoints, audit, node, approvals, alerts } = {
      runs: v1.RunService.method,
      checkpoints: v1.CheckpointService.method,
      audit: v1.AuditService.method,
      node: v1.NodeService.method,
      approvals: v1.ApprovalService.method,
      alerts: v1.AlertService.method,
    };
    unary(node.getNode, () => {
      if (this.refusesLooks !== "") {
        throw new Refused(this.refusesLooks, status.RESOURCE_EXHAUSTED);
      }
      const capacity = { runs: 100n, memoryMib: 1000n, cpuMillis: 8000n, diskMib: 1000n };
      const used = { runs: BigInt(this.usedRuns + this.runs.size) };
      return { node: { nodeId: this.says, instance: this.instance, state: this.state, capacity, used } };
    });
    unary(runs.listRuns, ({ requestId, pageSize, pageToken }) => {
      if (this.refusesLists !== "") {
        throw new Refused(this.refusesLists, status.INTERNAL);
      }
      const found = [...this.runs].filter(([name]) => requestId === "" || requestId === name).map(([, run]) => run);
      if (pageSize === 1) {
        return { runs: found.slice(0, 1) };
      }
      if (this.goesOn) {
        return { runs: found, nextPageToken: "more" };
      }
      // Pages of two.
      const at = Number(pageToken);
      return { runs: found.slice(at, at + 2), nextPageToken: at + 2 < found.length ? `${at + 2}` : "" };
    });
    unary(runs.getRun, ({ runId }) => {
      const run = [...this.runs.values()].find((one) => one.runId === runId);
      if (run === undefined) {
        throw new Refused("NOT_FOUND", status.NOT_FOUND);
      }
      return { run };
    });
    unary(runs.createRun, async ({ requestId }) => {
      let run = this.runs.get(requestId);
      if (run === undefined) {
        if (this.refuses !== "") {
          throw new Refused(this.refuses, status.UNAVAILABLE);
        }
        this.created += 1;
        run = {
          runId: idOf(this.number, this.created),
          state: v1.Run_State.READY,
          createdAt: timestampFromMs(Date.now()),
        };
        this.runs.set(requestId, run);
      } else if (this.refusesAgain) {
        throw new Refused("OVERLOADED", status.RESOURCE_EXHAUSTED);
      }
      await this.beforeAnswer();
      return { run };
    });
    unary(checkpoints.forkRun, ({ count }) => {
      const forks = Array.from({ length: count }, (_, at) => ({
        run: { runId: idOf(this.number, at), lease: { seconds: 3600n } },
      }));
      return { checkpoint: { checkpointId: "c" }, forks };
    });
    unary(runs.stopRun, ({ runId }) => {
      this.stopped.push(runId);
      return {};
    });
    unary(runs.keepAliveRun, ({ runId }) => {
      this.renewed.push(runId);
      const reason = this.refusedRenewals.shift();
      if (reason !== undefined) {
        throw new Refused(reason, status.UNAVAILABLE);
      }
      return {};
    });
    unary(runs.issueRunToken, () => {
      if (this.refusesTokens) {
        throw new Refused("AUDIT_UNAVAILABLE", status.UNAVAILABLE);
      }
      this.tokens += 1;
      return { token: `token-${this.tokens}` };
    });
    unary(approvals.listApprovals, () => ({ approvals: this.approvals }));
    unary(alerts.listAlerts, () => ({ alerts: this.alerts }));
    const after = async (end: AbortSignal) => {
      await delay(60_000, undefined, { signal: end });
    };
    const node_ = this;
    streamed(runs.watchRuns, async function* (_request, end) {
      if (node_.lags > 0) {
        node_.lags -= 1;
        throw new Refused("OVERLOADED", status.RESOURCE_EXHAUSTED);
      }
      yield* [...node_.runs.values()].map((run) => ({ run }));
      await after(end);
    });
    streamed(approvals.watchApprovals, async function* (_request, end) {
      yield* node_.approvals.map((approval) => ({ approval }));
      await after(end);
    });
    streamed(alerts.watchAlerts, async function* (_request, end) {
      yield* node_.alerts.map((alert) => ({ alert }));
      await after(end);
    });
    streamed(audit.streamEvents, async function* ({ afterSequence, follow, newestOnly }, end) {
      if (node_.denies) {
        throw new Refused("PERMISSION_DENIED", status.PERMISSION_DENIED);
      }
      if (newestOnly) {
        yield* node_.events.slice(-1).map((event) => ({ event }));
        return;
      }
      if (node_.cuts > 0) {
        node_.cuts -= 1;
        yield { event: node_.events[Number(afterSequence)] };
        if (node_.cutReason !== "") {
          throw new Refused(node_.cutReason, status.UNAVAILABLE);
        }
        return;
      }
      for (let at = Number(afterSequence); !end.aborted; ) {
        for (; at < node_.events.length; at++) {
          yield { event: node_.events[at] };
        }
        if (!follow) {
          return;
        }
        await delay(10);
      }
    });
  }

  #check(metadata: Metadata): void {
    const [node] = metadata.get("cofferdam-node");
    if (node !== undefined && Number(node) !== this.says) {
      throw new Refused("WRONG_NODE", status.FAILED_PRECONDITION, this.says);
    }
  }

  #add(method: DescMethod, handle: unknown): void {
    const raw = (bytes: Buffer) => bytes;
    const both = { requestSerialize: raw, requestDeserialize: raw, responseSerialize: raw, responseDeserialize: raw };
    const path = `/${method.parent.typeName}/${method.name}`;
    const responseStream = method.methodKind === "server_streaming";
    const definition = { path, requestStream: false, responseStream, ...both };
    this.#server.addService({ [method.localName]: definition }, { [method.localName]: handle as never });
  }
}
