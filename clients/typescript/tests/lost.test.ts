/** Answers that are lost, and errors that tell them from refusals: with a stand-in for a daemon. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { constants, createServer, type Http2Session, type ServerHttp2Stream } from "node:http2";
import { join } from "node:path";
import { after, test } from "node:test";
import { create, type DescMessage, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import {
  ApprovalDenied,
  ApprovalRequired,
  CertificateRefused,
  Client,
  CofferdamError,
  CommandLost,
  CommandStopped,
  DaemonUnreachable,
  InfrastructureError,
  NoConnection,
  NodeLostError,
  NotFound,
  NotPermitted,
  RateLimited,
  Sandbox,
  Unavailable,
} from "@cofferdam/sdk";
import { tools } from "@cofferdam/sdk/ai";
import * as v1 from "@cofferdam/sdk/v1";
import { generateText, stepCountIs, streamText } from "ai";
import { convertArrayToReadableStream, MockLanguageModelV3 } from "ai/test";
import type { Caller } from "../src/caller.js";
import { SpawnedProcess } from "../src/claude.js";
import { CommandHandle } from "../src/handle.js";
import type { Process } from "../src/process.js";
import { Session } from "../src/sessions.js";
import { unreachable } from "../src/status.js";

const place = mkdtempSync("/var/tmp/cofferdam-lost-");
after(() => rmSync(place, { recursive: true }));
let daemons = 0;

/** What comes of a request: a message, a refusal (its `google.rpc.Status`), or a lost answer. */
type End = { answer: Uint8Array } | { refusal: Uint8Array } | "lost";

function field(number: number, content: Uint8Array | string): Uint8Array {
  const writer = new BinaryWriter().tag(number, WireType.LengthDelimited);
  return (typeof content === "string" ? writer.string(content) : writer.bytes(content)).finish();
}

function detail(type: string, content: Uint8Array): Uint8Array {
  return field(3, Buffer.concat([field(1, `type.googleapis.com/google.rpc.${type}`), field(2, content)]));
}

/** `seconds`: until it goes through. */
function refusal(reason: string, metadata: Record<string, string> = {}, seconds?: number): End {
  const facts = Object.entries(metadata).map(([key, value]) =>
    field(3, Buffer.concat([field(1, key), field(2, value)])),
  );
  const info = detail("ErrorInfo", Buffer.concat([field(1, reason), field(2, "cofferdam"), ...facts]));
  if (seconds === undefined) {
    return { refusal: info };
  }
  const duration = new BinaryWriter().tag(1, WireType.Varint).int64(seconds).finish();
  return { refusal: Buffer.concat([info, detail("RetryInfo", field(1, duration))]) };
}

function answer<M extends DescMessage>(schema: M, init: MessageInitShape<M>): End {
  return { answer: toBinary(schema, create(schema, init)) };
}

/** Ends the requests of each method as it is told, the last end for all that follow, and counts them. */
class StandIn implements AsyncDisposable {
  readonly endpoint: string;
  readonly ends: Record<string, End[]> = {};
  readonly counts: Record<string, number> = {};
  readonly #server = createServer();
  readonly #sessions = new Set<Http2Session>();

  private constructor(socket: string) {
    this.endpoint = `unix:${socket}`;
    this.#server.on("session", (session) => this.#sessions.add(session));
    this.#server.on("stream", (stream, headers) => {
      stream.on("error", () => {});
      stream.on("end", () => this.#end(stream, String(headers[":path"]).replace(/^.*\//, "")));
      stream.resume();
    });
    this.#server.unref().listen(socket);
  }

  static async start(): Promise<StandIn> {
    daemons += 1;
    const daemon = new StandIn(join(place, `${daemons}.sock`));
    await once(daemon.#server, "listening");
    // By these a client learns that there is a daemon, and of a run.
    daemon.ends["ListRuns"] = [answer(v1.ListRunsResponseSchema, { runs: [{ runId: "made" }] })];
    return daemon;
  }

  #end(stream: ServerHttp2Stream, method: string): void {
    this.counts[method] = (this.counts[method] ?? 0) + 1;
    const ends = this.ends[method] ?? [];
    const end = (ends.length > 1 ? ends.shift() : ends[0]) ?? "lost";
    const head = { ":status": 200, "content-type": "application/grpc" };
    if (end === "lost") {
      stream.close(constants.NGHTTP2_INTERNAL_ERROR);
    } else if ("refusal" in end) {
      const details = Buffer.from(end.refusal).toString("base64");
      const trailers = { "grpc-status": "9", "grpc-message": "told", "grpc-status-details-bin": details };
      stream.respond({ ...head, ...trailers }, { endStream: true });
    } else {
      const length = Buffer.alloc(5);
      length.writeUInt32BE(end.answer.length, 1);
      stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
      stream.respond(head, { waitForTrailers: true });
      stream.end(Buffer.concat([length, end.answer]));
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const session of this.#sessions) {
      session.destroy();
    }
    this.#server.close();
  }
}

/** A run of a daemon that has answered. */
async function found(client: Client, waitForApproval = false): Promise<Sandbox> {
  const sandbox = await Sandbox.find("name", { client, waitForApproval });
  assert(sandbox !== null);
  return sandbox;
}

/** The error with which a promise is rejected. */
async function thrown(work: Promise<unknown>): Promise<CofferdamError> {
  const error = await work.then(
    () => null,
    (error: unknown) => error,
  );
  assert(error instanceof CofferdamError, String(error));
  return error;
}

const NO_LOG = refusal("AUDIT_UNAVAILABLE", { fault: "INFRASTRUCTURE", retry_safe: "true" });

test("a refused repetition leaves no run of an attempt that was sent", async () => {
  await using daemon = await StandIn.start();
  // Without a log the run cannot be ended at once, either.
  daemon.ends["StopRun"] = [NO_LOG, answer(v1.StopRunResponseSchema, {})];
  for (const [create, stops] of [
    [["lost", NO_LOG], 2],
    [[NO_LOG], 0],
  ] satisfies [End[], number][]) {
    daemon.counts["StopRun"] = 0;
    daemon.ends["CreateRun"] = create;
    const client = new Client({ endpoint: daemon.endpoint });
    await client.runs.listRuns({});
    const refused = await thrown(Sandbox.create({ profile: "open", client }));
    assert(refused instanceof Unavailable);
    assert.equal(refused.retrySafe, stops === 0);
    // It waits for the end of the run.
    await client.close();
    assert.equal(daemon.counts["StopRun"], stops);
  }
});

test("an upload whose daemon is gone may have been carried out", async () => {
  await using daemon = await StandIn.start();
  await using client = new Client({ endpoint: daemon.endpoint, reconnectTimeout: 0.3 });
  const sandbox = await found(client);
  writeFileSync(`${place}/local`, "x");
  const lost = await thrown(sandbox.files.upload(`${place}/local`, "f"));
  assert(lost instanceof NodeLostError && lost instanceof DaemonUnreachable);
  assert(!lost.retrySafe && lost.requestId !== null);
});

test("a denied download is not one that waits", async () => {
  await using daemon = await StandIn.start();
  await using client = new Client({ endpoint: daemon.endpoint });
  const sandbox = await found(client);
  const facts = { call_id: "c", approval_id: "a" };
  daemon.ends["DownloadFile"] = [refusal("APPROVAL_DENIED", { ...facts, approval: "pending" })];
  const waits = await thrown(sandbox.files.download("f", `${place}/f`));
  assert(waits instanceof ApprovalRequired && waits.approvalId === "a");
  daemon.ends["DownloadFile"] = [refusal("APPROVAL_DENIED", facts)];
  assert((await thrown(sandbox.files.download("f", `${place}/f`))) instanceof ApprovalDenied);
});

test("a wait for a reviewer outlasts rate limits", async () => {
  await using daemon = await StandIn.start();
  await using client = new Client({ endpoint: daemon.endpoint });
  const sandbox = await found(client, true);
  const awaiting = refusal("AWAITING_APPROVAL");
  const limited = refusal("RATE_LIMITED", {}, 1);
  const kind = { case: "write", value: { path: "f" } } as const;
  const value = { callId: "c", status: v1.CallResponse_Status.SUCCEEDED, result: { kind } };
  const done = answer(v1.CallStreamResponseSchema, { event: { case: "result", value } });
  daemon.ends["CallStream"] = [awaiting, limited, done];
  assert.match((await sandbox.files.write("f", "x")).path, /f$/);
  assert.equal(daemon.counts["CallStream"], 3);
  // Without a wait before it is an error like any other.
  daemon.ends["CallStream"] = [limited];
  assert((await thrown(sandbox.files.write("f", "x"))) instanceof RateLimited);
});

test("a client that is not let in is no failure of the infrastructure", () => {
  const start = "No connection established. Last error: ";
  const denied = unreachable(`${start}connect EACCES ${place}/none.sock`);
  const refused = unreachable(`${start}SSL alert number 116: tlsv13 alert certificate required`);
  assert(denied instanceof NotPermitted && refused instanceof CertificateRefused);
  for (const error of [denied, refused]) {
    assert(error instanceof NoConnection && !(error instanceof InfrastructureError));
    assert.equal(error.fault, "caller");
  }
  const silent = unreachable(`${start}connect ECONNREFUSED ${place}/none.sock`);
  assert(silent instanceof DaemonUnreachable && silent instanceof InfrastructureError && silent.retrySafe);
});

test("a process that the host ended with its sandbox is no result of the program", async () => {
  const { ENDED, INTERRUPTED } = v1.Process_State;
  for (const [state, failure] of [[ENDED, "the node was drained"] as const, [INTERRUPTED, ""] as const]) {
    const endedBy = state === ENDED ? v1.ExecResult_EndedBy.RUN_ENDED : v1.ExecResult_EndedBy.INTERRUPTED;
    const evidence = [{ what: "run.end_cause", value: "node_drained" }];
    const status = create(v1.ProcessSchema, { state, endedBy, failure, evidence });
    const process = { signal: () => undefined, ended: async () => {}, read: () => [], now: async () => status };
    const handle = new CommandHandle(process as unknown as Process, {});
    status.fault = v1.Fault.INFRASTRUCTURE;
    const lost = await thrown(handle.wait());
    assert(lost instanceof CommandLost && lost instanceof InfrastructureError && lost.result.failedByInfrastructure);
    assert.deepEqual([lost.message, lost.reason], [failure || "the command was lost", "RUN_LOST"]);
    assert.deepEqual([lost.fault, lost.retrySafe], ["infrastructure", false]);
    assert.equal(lost.evidence["run.end_cause"], "node_drained");
    assert((await handle.info()).failedByInfrastructure);
    status.fault = v1.Fault.PROGRAM;
    const own = await thrown(handle.wait());
    assert(own instanceof CommandStopped && !(own instanceof InfrastructureError));
    assert.equal(own.fault, "program");
  }
});

test("a session that the host ended with its sandbox is no end of its shell", async () => {
  const facts = { state: v1.Process_State.INTERRUPTED, failure: "the container was killed" };
  const evidence = [{ what: "engine.exit_code", value: "137" }];
  const process = create(v1.ProcessSchema, { ...facts, evidence });
  const result = create(v1.SessionResultSchema, { state: v1.SessionResult_State.ENDED, output: "half" });
  let deleted = false;
  const waitProcess = async () => {
    if (deleted) {
      throw new NotFound("no such run", { reason: "NOT_FOUND" });
    }
    return { process };
  };
  const client = { processes: { waitProcess }, sessions: { interruptSession: async () => ({ result }) } };
  const caller = { client, runId: "r", options: {}, result: async () => result };
  const session = new Session(caller as unknown as Caller, "s");
  for (const use of [() => session.run("make"), () => session.type("x"), () => session.interrupt()]) {
    [process.fault, deleted] = [v1.Fault.INFRASTRUCTURE, false];
    const lost = await thrown(use());
    assert(lost instanceof CommandLost && lost instanceof InfrastructureError);
    assert.deepEqual([lost.message, lost.result.stdout], ["the container was killed", "half"]);
    assert.equal(lost.evidence["engine.exit_code"], "137");
    process.fault = v1.Fault.PROGRAM;
    const ended = await use();
    assert.deepEqual([ended.state, ended.output], ["ended", "half"]);
    [process.fault, deleted] = [v1.Fault.INFRASTRUCTURE, true];
    assert.deepEqual(await use(), ended);
  }
});

test("an agent that the host ended with its sandbox has no exit", async () => {
  for (const fault of [v1.Fault.INFRASTRUCTURE, v1.Fault.PROGRAM]) {
    const status = create(v1.ProcessSchema, {
      state: v1.Process_State.INTERRUPTED,
      failure: "the container was killed",
    });
    status.fault = fault;
    const process = { signal: () => undefined, ended: async () => {}, now: async () => status };
    const handle = new CommandHandle(process as unknown as Process, {});
    const child = new SpawnedProcess(Promise.resolve(handle), new AbortController().signal);
    const told = await new Promise<unknown>((resolve) => {
      child.once("error", resolve);
      child.once("exit", (code, signal) => resolve([code, signal]));
    });
    if (fault === v1.Fault.PROGRAM) {
      assert.deepEqual(told, [1, null]);
      continue;
    }
    assert(told instanceof CommandLost && told instanceof InfrastructureError);
    assert.equal(told.message, "the container was killed");
    assert.deepEqual([child.exitCode, child.signalCode, child.stdin.destroyed], [null, null, true]);
  }
});

test("the AI SDK tells no model of a sandbox that the host has lost", async () => {
  await using daemon = await StandIn.start();
  await using client = new Client({ endpoint: daemon.endpoint });
  const sandbox = await found(client);
  const listed = [{ name: "bash", description: "Runs a command.", inputSchema: { type: "object" } }];
  daemon.ends["ListTools"] = [answer(v1.ListToolsResponseSchema, { toolsJson: JSON.stringify(listed) })];
  const made = await tools(sandbox);
  const usage = {
    inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
    outputTokens: { total: 1, text: 1, reasoning: 0 },
  };
  const call = { type: "tool-call", toolCallId: "1", toolName: "bash", input: "{}" } as const;
  const calls = { unified: "tool-calls", raw: undefined } as const;
  const stop = { unified: "stop", raw: undefined } as const;
  const asked = () => {
    const model = new MockLanguageModelV3({
      doGenerate: [
        { content: [call], finishReason: calls, usage, warnings: [] },
        { content: [{ type: "text", text: "done" }], finishReason: stop, usage, warnings: [] },
      ],
      doStream: {
        stream: convertArrayToReadableStream([call, { type: "finish" as const, finishReason: calls, usage }]),
      },
    });
    return { model, prompt: "Go.", tools: made, stopWhen: stepCountIs(3) };
  };
  const failing = (fault: v1.Fault) => {
    const evidence = [{ what: "engine.exit_code", value: "137" }];
    const error = { reason: "RUN_LOST", message: "the run was lost", fault, evidence };
    const value = { callId: "c", status: v1.CallResponse_Status.FAILED, rendered: "for the model", error };
    return answer(v1.CallStreamResponseSchema, { event: { case: "result", value } });
  };
  const facts = { fault: "INFRASTRUCTURE", "evidence.engine.exit_code": "137" };
  for (const end of [failing(v1.Fault.INFRASTRUCTURE), refusal("RUN_LOST", facts)]) {
    daemon.ends["CallStream"] = [end];
    const once = asked();
    const lost = await thrown(generateText(once));
    assert(lost instanceof InfrastructureError);
    assert.deepEqual([lost.reason, lost.evidence["engine.exit_code"]], ["RUN_LOST", "137"]);
    assert.equal(once.model.doGenerateCalls.length, 1);
    const streamed = asked();
    const shown: unknown[] = [];
    const read = async () => {
      for await (const part of streamText({ ...streamed, onError: () => {} }).fullStream) {
        if (part.type === "tool-result") {
          shown.push(JSON.parse(JSON.stringify(part.output)));
        }
      }
    };
    assert((await thrown(read())) instanceof InfrastructureError);
    assert.equal(streamed.model.doStreamCalls.length, 1);
    assert.deepEqual(shown, ["The sandbox did not answer this call."]);
  }
  // A failure that programs can bring about is an answer.
  daemon.ends["CallStream"] = [failing(v1.Fault.PROGRAM)];
  const { text, steps } = await generateText(asked());
  assert.deepEqual([text, steps[0]?.toolResults[0]?.output], ["done", "for the model"]);
});
