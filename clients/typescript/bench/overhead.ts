/**
 * What the SDK adds to a call: `sandbox.files.read` against the same read by a stub of grpc-js, in turns.
 *
 *   overhead.js RUN FILE CALLS
 *
 * `tests/bench/sdk.sh` starts it, with COFFERDAM_ENDPOINT.
 */

import assert from "node:assert/strict";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { Sandbox } from "@cofferdam/sdk";
import { CallRequestSchema, type CallResponse, CallResponseSchema } from "@cofferdam/sdk/v1";
import { Client, credentials } from "@grpc/grpc-js";

// Calls before those that count.
const WARM = 200;

const [runId = "", path = "", calls = "0"] = process.argv.slice(2);
const endpoint = process.env["COFFERDAM_ENDPOINT"] ?? "";
const client = new Client(endpoint, credentials.createInsecure());
const sandbox = await Sandbox.connect(runId, { endpoint });
const content = await sandbox.files.read(path);

function call(): Promise<CallResponse> {
  const operation = { kind: { case: "read", value: { path } } } as const;
  const request = create(CallRequestSchema, { runId, request: { case: "operation", value: operation } });
  return new Promise((resolve, reject) => {
    client.makeUnaryRequest(
      "/cofferdam.v1.ToolService/Call",
      (message: typeof request) => Buffer.from(toBinary(CallRequestSchema, message)),
      (bytes: Buffer) => fromBinary(CallResponseSchema, bytes),
      request,
      { deadline: Date.now() + 60_000 },
      (error, response) => (response === undefined ? reject(error) : resolve(response)),
    );
  });
}

/** Milliseconds. */
async function timed(read: () => Promise<string>): Promise<number> {
  const began = process.hrtime.bigint();
  const found = await read();
  const took = Number(process.hrtime.bigint() - began) / 1e6;
  assert.equal(found, content);
  return took;
}

const ofStub = () =>
  timed(async () => {
    const { result } = await call();
    return result?.kind.case === "read" ? result.kind.value.content : "";
  });
const ofSdk = () => timed(() => sandbox.files.read(path));

const stub: number[] = [];
const sdk: number[] = [];
for (let number = 0; number < WARM + Number(calls); number++) {
  if (number % 2 === 0) {
    sdk.push(await ofSdk());
    stub.push(await ofStub());
  } else {
    stub.push(await ofStub());
    sdk.push(await ofSdk());
  }
}

function at(times: number[], part: number): number {
  return times.toSorted((a, b) => a - b)[Math.floor(times.length * part)] ?? Number.NaN;
}

function shown(times: number[]): string {
  return `${at(times, 0.5).toFixed(3).padStart(9)} ${at(times, 0.99).toFixed(3).padStart(8)}`;
}

const [ofStubs, ofSdks] = [stub.slice(WARM), sdk.slice(WARM)];
const added = ofSdks.map((time, number) => time - (ofStubs[number] ?? Number.NaN));
console.log(
  `${"TypeScript, grpc-js".padEnd(28)}${shown(ofStubs)}${shown(ofSdks)}${at(added, 0.5).toFixed(3).padStart(10)}`,
);
client.close();
await sandbox.close();
