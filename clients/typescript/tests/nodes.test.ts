/** The node that a request is for: of its ids, the same in all clients, on the way to a daemon's stand-in. */

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, beforeEach, test } from "node:test";
import { type DescMethod, type DescService, fromJson, type JsonValue } from "@bufbuild/protobuf";
import { Client, WrongNodeError } from "@cofferdam/sdk";
import * as v1 from "@cofferdam/sdk/v1";
import { Metadata, Server, ServerCredentials, type ServerDuplexStream, status } from "@grpc/grpc-js";
import { nodeFor, nodeOf } from "../src/node.js";

interface Vectors {
  ids: Record<string, number | null>;
  requests: { method: string; request: JsonValue; node: number | null }[];
}

const VECTORS: Vectors = JSON.parse(readFileSync(new URL("../../../nodes.json", import.meta.url), "utf8"));
const [OF_SEVEN = ""] = Object.entries(VECTORS.ids).find(([, node]) => node === 7) ?? [];

function methodNamed(path: string): DescMethod {
  const [service = "", name = ""] = path.split("/");
  const { methods } = (v1 as unknown as Record<string, DescService>)[service] as DescService;
  return methods.find((method) => method.name === name) as DescMethod;
}

test("every client reads the same nodes", () => {
  assert.ok(Object.keys(VECTORS.ids).length > 10);
  for (const [id, node] of Object.entries(VECTORS.ids)) {
    assert.equal(nodeOf(id), node, id);
  }
  assert.equal(nodeOf(`${OF_SEVEN}\n`), null);
});

test("every client finds the same node in a request", () => {
  assert.ok(VECTORS.requests.length > 10);
  for (const { method, request, node } of VECTORS.requests) {
    const { input } = methodNamed(method);
    assert.equal(nodeFor(input, fromJson(input, request)), node, JSON.stringify({ method, request }));
  }
});

// Of each request: the node in its metadata, and the number of its messages.
const seen: [string | undefined, number][] = [];
const server = new Server();
const directory = mkdtempSync(join(tmpdir(), "nodes-"));
const endpoint = `unix:${directory}/s`;

/** The details of a refusal by node 8, encoded: a `google.rpc.Status` with a `google.rpc.ErrorInfo`. */
function details(asked: string): Buffer {
  const field = (number: number, content: Uint8Array | string) => {
    const bytes = Buffer.from(content as string);
    return Buffer.concat([Buffer.from([(number << 3) | 2, bytes.length]), bytes]);
  };
  const entry = (key: string, value: string) => field(3, Buffer.concat([field(1, key), field(2, value)]));
  const info = Buffer.concat([
    field(1, "WRONG_NODE"),
    field(2, "cofferdam"),
    entry("asked", asked),
    entry("node", "8"),
  ]);
  return field(3, Buffer.concat([field(1, "type.googleapis.com/google.rpc.ErrorInfo"), field(2, info)]));
}

function refuse(call: ServerDuplexStream<Buffer, Buffer>): void {
  let messages = 0;
  call.on("data", () => {
    messages += 1;
  });
  call.on("end", () => {
    const node = call.metadata.get("cofferdam-node")[0]?.toString();
    seen.push([node, messages]);
    const metadata = new Metadata();
    metadata.set("grpc-status-details-bin", details(node ?? ""));
    call.emit("error", { code: status.FAILED_PRECONDITION, details: "this is node 8", metadata });
  });
}

before(async () => {
  const raw = (bytes: Buffer) => bytes;
  for (const service of [v1.RunService, v1.FileService, v1.ForwardService]) {
    const methods = service.methods.map((method) => {
      const path = `/${service.typeName}/${method.name}`;
      const both = { requestSerialize: raw, requestDeserialize: raw, responseSerialize: raw, responseDeserialize: raw };
      return [method.localName, { path, requestStream: true, responseStream: true, ...both }];
    });
    const handlers = service.methods.map((method) => [method.localName, refuse]);
    server.addService(Object.fromEntries(methods), Object.fromEntries(handlers));
  }
  await new Promise<void>((resolve, reject) => {
    server.bindAsync(endpoint, ServerCredentials.createInsecure(), (error) => (error ? reject(error) : resolve()));
  });
});

after(() => {
  server.forceShutdown();
  rmSync(directory, { recursive: true });
});

beforeEach(() => {
  seen.length = 0;
});

async function all<T>(stream: AsyncIterable<T>): Promise<T[]> {
  const items = [];
  for await (const item of stream) {
    items.push(item);
  }
  return items;
}

test("each kind of request goes whole and with its node", async () => {
  await using client = new Client({ endpoint });
  const refused = (error: unknown) => error instanceof WrongNodeError && error.asked === 7 && error.node === 8;
  const runId = OF_SEVEN;
  const begin = { piece: { case: "begin", value: { runId } } } as const;
  const data = { piece: { case: "data", value: new Uint8Array(1) } } as const;
  await assert.rejects(client.runs.getRun({ runId }), refused);
  await assert.rejects(client.runs.listRuns({}), WrongNodeError);
  await assert.rejects(all(client.runs.watchRuns({ runId })), refused);
  await assert.rejects(client.files.uploadFile([begin, data, data]), refused);
  await assert.rejects(all(client.forward.forwardPort([{ event: { case: "start", value: { runId } } }])), refused);
  await assert.rejects(client.files.uploadFile([]), WrongNodeError);
  assert.deepEqual(seen, [
    ["7", 1],
    [undefined, 1],
    ["7", 1],
    ["7", 3],
    ["7", 1],
    [undefined, 0],
  ]);
});

test("an error of the first request is the caller's", async () => {
  await using client = new Client({ endpoint });
  // biome-ignore lint/correctness/useYield: it throws before it yields
  async function* broken(): AsyncGenerator<{ piece: { case: "data"; value: Uint8Array } }> {
    throw new TypeError("mine");
  }
  await assert.rejects(client.files.uploadFile(broken()), new TypeError("mine"));
  assert.deepEqual(seen, []);
});

test("details that are no numbers are null", () => {
  for (const node of ["", "x", "-1", "+7", "\u0667", "123456"]) {
    const error = new WrongNodeError("told", { details: { node } });
    assert.deepEqual([error.node, error.asked], [null, null]);
  }
  assert.equal(new WrongNodeError("told", { details: { asked: "65535" } }).asked, 65535);
});
