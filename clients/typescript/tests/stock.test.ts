/** Clients that others have written, with default options and this package's messages: grpc-js, and Connect for Node.js. */

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import {
  create,
  type DescMessage,
  type DescMethod,
  fromBinary,
  type MessageInitShape,
  type MessageShape,
  toBinary,
} from "@bufbuild/protobuf";
import { Sandbox } from "@cofferdam/sdk";
import {
  type CallRequestSchema,
  type CallResponseSchema,
  type CallStreamResponseSchema,
  type ListRunsResponseSchema,
  RunService,
  ToolService,
} from "@cofferdam/sdk/v1";
import { createClient, type Interceptor, type Transport } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { type ChannelCredentials, Client, credentials, Metadata } from "@grpc/grpc-js";
import { coffer, Daemon } from "./daemon.js";

// The first call makes the entries of the connection's table of headers, later ones refer to them.
const READS = 5;

const certificates = join(mkdtempSync("/var/tmp/cofferdam-tls-"), "tls");
coffer("tls", "init", certificates);
const at = join(certificates, "server");
const ca = readFileSync(join(at, "ca.pem"));
const tls = `tls: { certificate: ${at}/cert.pem, key: ${at}/key.pem }`;
const daemon = await Daemon.start({ tcp: `address: '127.0.0.1:0', ${tls}, tokens: {}` });
const token = daemon.coffer("token", "create", "ci", "--role", "operator");
const path = daemon.endpoint.slice("unix:".length);
const sandbox = await Sandbox.create({ profile: "open", endpoint: daemon.endpoint });
await sandbox.files.write("a.txt", "read\n");
after(async () => {
  await sandbox.kill();
  await daemon[Symbol.asyncDispose]();
  rmSync(join(certificates, ".."), { recursive: true });
});

/** The methods of a client, however it makes them. */
interface Methods {
  listRuns(): Promise<MessageShape<typeof ListRunsResponseSchema>>;
  call(request: MessageInitShape<typeof CallRequestSchema>): Promise<MessageShape<typeof CallResponseSchema>>;
  callStream(
    request: MessageInitShape<typeof CallRequestSchema>,
  ): AsyncIterable<MessageShape<typeof CallStreamResponseSchema>>;
}

async function listsReadsAndStreams(methods: Methods): Promise<void> {
  const { runs } = await methods.listRuns();
  assert.deepEqual(
    runs.map((run) => run.runId),
    [sandbox.runId],
  );
  const operation = { kind: { case: "read", value: { path: "a.txt" } } } as const;
  const read = { runId: sandbox.runId, request: { case: "operation", value: operation } } as const;
  for (const { result } of await Promise.all(Array.from({ length: READS }, () => methods.call(read)))) {
    assert(result?.kind.case === "read");
    assert.equal(result.kind.value.content, "read\n");
  }
  const exec = { kind: { case: "exec" as const, value: { command: "echo", args: ["streamed"] } } };
  let said = "";
  for await (const { event } of methods.callStream({
    runId: sandbox.runId,
    request: { case: "operation", value: exec },
  })) {
    said += event.case === "output" ? Buffer.from(event.value.data).toString() : "";
  }
  assert.equal(said, "streamed\n");
}

describe("Connect for Node.js", () => {
  const methods = (transport: Transport): Methods => {
    const runs = createClient(RunService, transport);
    const tools = createClient(ToolService, transport);
    return { listRuns: () => runs.listRuns({}), call: tools.call, callStream: tools.callStream };
  };
  test("by the socket", async () => {
    const nodeOptions = { createConnection: () => connect(path) };
    await listsReadsAndStreams(methods(createGrpcTransport({ baseUrl: "http://localhost", nodeOptions })));
  });
  test("over TLS with a token", async () => {
    const shown: Interceptor = (next) => async (request) => {
      request.header.set("authorization", `Bearer ${token}`);
      return await next(request);
    };
    const options = { baseUrl: `https://localhost:${daemon.port}`, nodeOptions: { ca }, interceptors: [shown] };
    await listsReadsAndStreams(methods(createGrpcTransport(options)));
  });
});

describe("grpc-js", () => {
  const methods = (target: string, secured: ChannelCredentials, metadata: Metadata): Methods => {
    const client = new Client(target, secured);
    after(() => client.close());
    const forms = <I extends DescMessage, O extends DescMessage>(method: DescMethod & { input: I; output: O }) =>
      [
        `/${method.parent.typeName}/${method.name}`,
        (request: MessageShape<I>) => Buffer.from(toBinary(method.input, request)),
        (bytes: Buffer) => fromBinary(method.output, bytes),
      ] as const;
    const unary = <I extends DescMessage, O extends DescMessage>(
      method: DescMethod & { input: I; output: O },
      request: MessageInitShape<I>,
    ): Promise<MessageShape<O>> =>
      new Promise((resolve, reject) => {
        client.makeUnaryRequest(...forms(method), create(method.input, request), metadata, (error, response) =>
          response === undefined ? reject(error) : resolve(response),
        );
      });
    const { call, callStream } = ToolService.method;
    return {
      listRuns: () => unary(RunService.method.listRuns, {}),
      call: (request) => unary(call, request),
      callStream: (request) =>
        client.makeServerStreamRequest(...forms(callStream), create(callStream.input, request), metadata),
    };
  };
  test("by the socket", async () => {
    await listsReadsAndStreams(methods(daemon.endpoint, credentials.createInsecure(), new Metadata()));
  });
  test("over TLS with a token", async () => {
    const metadata = new Metadata();
    metadata.set("authorization", `Bearer ${token}`);
    await listsReadsAndStreams(methods(`localhost:${daemon.port}`, credentials.createSsl(ca), metadata));
  });
});
