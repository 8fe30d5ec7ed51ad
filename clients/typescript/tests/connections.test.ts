/** Connections and daemons that are lost in the middle: nothing is lost with them, and nothing happens twice. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { constants, createServer } from "node:http2";
import { join } from "node:path";
import { after, test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import {
  type AuditEvent,
  Client,
  CommandInterrupted,
  CommandLost,
  DaemonUnreachable,
  InfrastructureError,
  NodeLostError,
  RunLost,
  RunNotReady,
  Sandbox,
} from "@cofferdam/sdk";
import { Daemon, shared } from "./daemon.js";
import { BreakableProxy } from "./proxy.js";
import { collected } from "./waiting.js";

const STREAMS = 50;
// Milliseconds, with a margin for a busy machine: less than the patience of a client.
const IN_TIME = 20_000;

const { endpoint } = await shared();
const place = mkdtempSync("/var/tmp/cofferdam-proxy-");
let proxies = 0;
after(() => rmSync(place, { recursive: true }));

async function proxied(): Promise<BreakableProxy> {
  proxies += 1;
  return await BreakableProxy.start(join(place, `${proxies}.sock`), endpoint);
}

/** The error with which a promise is rejected. */
async function thrown(work: Promise<unknown>): Promise<unknown> {
  const done = await work.then(
    () => null,
    (error: unknown) => error,
  );
  assert(done !== null, "it was not rejected");
  return done;
}

test("output comes whole over connections that break", async () => {
  await using proxy = await proxied();
  await using sandbox = await Sandbox.create({ profile: "open", endpoint: proxy.endpoint });
  proxy.cutAfter = 400_000;
  proxy.cuts = 4;
  let heard = "";
  const script = "i=0; while [ $i -lt 300000 ]; do echo $i; i=$((i+1)); done; echo x >> /workspace/count";
  const onStdout = (text: string) => {
    heard += text;
  };
  const result = await sandbox.commands.run(script, { onStdout });
  assert(result.stdout === Array.from({ length: 300_000 }, (_, number) => `${number}\n`).join(""));
  assert(heard === result.stdout);
  assert.equal(proxy.cuts, 0, "it was cut less often than it should have been");
  assert(proxy.connections >= 5);
  assert.equal(await sandbox.files.read("count"), "x\n");
});

test("a call whose answer is lost happens once", async () => {
  await using proxy = await proxied();
  await using sandbox = await Sandbox.create({ profile: "open", endpoint: proxy.endpoint });
  for (let number = 0; number < 10; number++) {
    // From one byte on: the request arrives, its answer does not.
    proxy.cut();
    proxy.cutAfter = 1;
    proxy.cuts = 2;
    await sandbox.commands.run("echo x >> count");
  }
  assert.equal(await sandbox.files.read("count"), "x\n".repeat(10));
  for (let number = 0; number < 5; number++) {
    proxy.cut();
    proxy.cuts = 2;
    await sandbox.files.write(`new${number}`, "x", { createOnly: true });
  }
});

test("a call is cut at any byte of its answer and happens once", async () => {
  await using proxy = await proxied();
  await using sandbox = await Sandbox.create({ profile: "open", endpoint: proxy.endpoint });
  const lengths = Array.from({ length: 40 }, (_, number) => 20 + number * 25);
  for (const length of lengths) {
    proxy.cut();
    proxy.cutAfter = length;
    proxy.cuts = 1;
    const result = await sandbox.commands.run("echo x >> count; echo said; echo err >&2");
    assert.deepEqual([result.stdout, result.stderr, result.exitCode], ["said\n", "err\n", 0], `after ${length} bytes`);
  }
  proxy.cuts = 0;
  assert.equal(await sandbox.files.read("count"), "x\n".repeat(lengths.length));
});

test("a run is made once", async () => {
  await using proxy = await proxied();
  await using client = new Client({ endpoint: proxy.endpoint });
  const metadata = { test: "once" };
  assert.deepEqual(await collected(Sandbox.list({ metadata, client })), []);
  proxy.cut();
  proxy.cutAfter = 1;
  proxy.cuts = 2;
  await using sandbox = await Sandbox.create({ profile: "open", metadata, client });
  assert.equal(proxy.cuts, 0);
  const runs = await collected(Sandbox.list({ metadata, client }));
  assert.deepEqual(
    runs.map((run) => run.runId),
    [sandbox.runId],
  );
});

test("a missing daemon is reported at once", async () => {
  const begun = Date.now();
  await assert.rejects(Sandbox.create({ profile: "open", endpoint: `unix:${place}/none.sock` }), (error) => {
    assert(error instanceof DaemonUnreachable);
    assert.match(String(error), /COFFERDAM_ENDPOINT/);
    return true;
  });
  assert(Date.now() - begun < IN_TIME);
});

test("a stream that is reset is a lost connection", async () => {
  let code = 0;
  const server = createServer();
  server.on("stream", (stream) => {
    // It is told its own reset.
    stream.on("error", () => {});
    stream.close(code);
  });
  server.unref().listen(`${place}/reset.sock`);
  await once(server, "listening");
  await using client = new Client({ endpoint: `unix:${place}/reset.sock` });
  for (code of [constants.NGHTTP2_NO_ERROR, constants.NGHTTP2_INTERNAL_ERROR, constants.NGHTTP2_REFUSED_STREAM]) {
    await assert.rejects(client.runs.getRun({}), DaemonUnreachable, `unary, code ${code}`);
    await assert.rejects(client.runs.watchRuns({}).next(), DaemonUnreachable, `stream, code ${code}`);
  }
  server.close();
});

test("a daemon that does not come back is given up", async () => {
  await using mortal = await Daemon.start();
  await using client = new Client({ endpoint: mortal.endpoint, reconnectTimeout: 1 });
  const sandbox = await Sandbox.create({ profile: "open", client });
  await mortal.end();
  const begun = Date.now();
  const lost = await thrown(sandbox.files.list());
  assert(lost instanceof NodeLostError && lost instanceof InfrastructureError && lost instanceof DaemonUnreachable);
  assert(lost.retrySafe, "it only reads");
  assert(Date.now() - begun >= 1000 && Date.now() - begun < IN_TIME);
  const command = await thrown(sandbox.commands.run("echo x >> count"));
  assert(command instanceof NodeLostError && !command.retrySafe && command.requestId !== null);
  assert(await sandbox.failedByInfrastructure());
  await mortal.launch();
  assert.equal(await sandbox.isRunning(), false);
});

test("a lost sandbox is no result and never comes back as another", async () => {
  await using mortal = await Daemon.start();
  await using client = new Client({ endpoint: mortal.endpoint });
  const options = { profile: "open", requestId: "once", client };
  const sandbox = await Sandbox.create(options);
  assert.equal(await sandbox.failedByInfrastructure(), false);
  const onStdout = () => mortal.killContainers();
  const lost = await thrown(sandbox.commands.run("echo begun; sleep 60", { onStdout }));
  assert(lost instanceof CommandLost && lost instanceof InfrastructureError);
  assert(lost.result.failedByInfrastructure && !lost.retrySafe);
  assert.deepEqual([lost.reason, lost.evidence["engine.exit_code"]], ["RUN_LOST", "137"]);
  while (["ready", "stopping"].includes((await sandbox.info()).state)) {
    await delay(20);
  }
  const { state, failureReason, fault } = await sandbox.info();
  assert.deepEqual([state, failureReason, fault], ["failed", "RUN_LOST", "infrastructure"]);
  assert(await sandbox.failedByInfrastructure());
  const refused = await thrown(sandbox.files.list());
  assert(refused instanceof RunLost && refused.retrySafe);
  // The same name is the same sandbox, which has ended.
  const again = await Sandbox.create(options);
  assert.equal(again.runId, sandbox.runId);
  await assert.rejects(again.commands.run("true"), RunLost);
  assert.equal((await Sandbox.find("once", { client }))?.runId, sandbox.runId);
  assert.equal(await Sandbox.find("another", { client }), null);
  await sandbox.kill();
  // Ended by request, it is no failure.
  const stopped = await Sandbox.create({ profile: "open", client });
  await client.runs.stopRun({ runId: stopped.runId });
  const late = await thrown(stopped.files.list());
  assert(late instanceof RunNotReady && !(late instanceof InfrastructureError), String(late));
});

test("a command that loses its daemon says so and the sandbox goes on", async () => {
  await using mortal = await Daemon.start();
  await using sandbox = await Sandbox.create({ profile: "open", endpoint: mortal.endpoint });
  const heard: string[] = [];
  let restarted = Promise.resolve();
  const onStdout = (text: string) => {
    heard.push(text);
    restarted = mortal.end("SIGKILL").then(() => mortal.launch());
  };
  const run = sandbox.commands.run("echo x >> count; echo begun; sleep 30", { onStdout });
  await assert.rejects(run, (error) => {
    assert(error instanceof CommandInterrupted);
    assert.match(error.hint, /before you repeat it/);
    assert.equal(error.result.stdout, "begun\n");
    assert(error.callId);
    return true;
  });
  await restarted;
  assert.deepEqual(heard, ["begun\n"]);
  assert.equal(await sandbox.files.read("count"), "x\n");
  assert.equal((await sandbox.info()).restarts, 1);
});

test("a reviewer may answer the next daemon", async () => {
  await using mortal = await Daemon.start();
  await using sandbox = await Sandbox.create({ profile: "open", endpoint: mortal.endpoint, waitForApproval: true });
  await sandbox.files.write("a.txt", "x");
  const removed = sandbox.files.remove("a.txt");
  let [asked] = await sandbox.approvals.list();
  while (asked === undefined) {
    await delay(20);
    [asked] = await sandbox.approvals.list();
  }
  // It is kept by now, and not only shown.
  while ((await sandbox.calls.get(asked.callId)).status !== "pending_approval") {
    await delay(20);
  }
  await mortal.end("SIGKILL");
  await mortal.launch();
  // A decision is sent once: not on the connection that is lost.
  const ids = (await sandbox.approvals.list()).map(({ approvalId }) => approvalId);
  assert.deepEqual(ids, [asked.approvalId]);
  await sandbox.approvals.approve(asked.approvalId);
  assert.equal((await removed).path, "/workspace/a.txt");
  assert.equal(await sandbox.files.exists("a.txt"), false);
});

test("fifty audit streams lose nothing over a restart", async () => {
  await using mortal = await Daemon.start();
  await using client = new Client({ endpoint: mortal.endpoint });
  await using sandbox = await Sandbox.create({ profile: "open", client });
  const follow = async () => {
    const seen: AuditEvent[] = [];
    for await (const event of sandbox.audit.stream()) {
      seen.push(event);
      if (event.kind === "call_intent" && JSON.stringify(event.record).includes("last.txt")) {
        break;
      }
    }
    return seen;
  };
  const followers = Promise.all(Array.from({ length: STREAMS }, follow));
  const write = async (letter: string) => {
    for (let number = 0; number < 5; number++) {
      await sandbox.files.write(`${letter}${number}`, "x");
    }
  };
  await write("a");
  await mortal.end("SIGKILL");
  await mortal.launch();
  await write("b");
  await sandbox.files.write("last.txt", "x");
  const all = await followers;
  const log = await collected(sandbox.audit.stream({ follow: false }));
  for (const seen of all) {
    assert.deepEqual(seen, log.slice(0, seen.length));
    assert(seen.filter((event) => event.kind === "call_receipt").length >= 10);
  }
});

test("a graceful stop of the daemon ends the run", async () => {
  await using mortal = await Daemon.start();
  await using sandbox = await Sandbox.create({ profile: "open", endpoint: mortal.endpoint });
  await mortal.end();
  await mortal.launch();
  await assert.rejects(sandbox.files.list(), RunNotReady);
});

test("a sandbox can be closed however its run ended", async () => {
  await using mortal = await Daemon.start();
  let launched: Promise<void> | undefined;
  const ends: Record<string, (sandbox: Sandbox) => Promise<unknown>> = {
    fails: async (sandbox) => {
      mortal.killContainers();
      while (!["stopping", "failed"].includes((await sandbox.info()).state)) {
        await delay(1);
      }
    },
    "has stopped": (sandbox) => sandbox.stop(),
    "is deleted": async (sandbox) => {
      await sandbox.stop();
      await sandbox.client.runs.deleteRun({ runId: sandbox.runId, deleteWorkspace: true });
    },
    expires: async (sandbox) => {
      while ((await sandbox.info()).state === "ready") {
        await delay(10);
      }
    },
    restarts: async () => {
      await mortal.end("SIGKILL");
      launched = delay(300).then(() => mortal.launch());
    },
  };
  for (const [end, happens] of Object.entries(ends)) {
    let place: string;
    {
      // Long enough for a file to be written on a busy machine.
      const timeout = end === "expires" ? 6 : undefined;
      await using sandbox = await Sandbox.create({ profile: "harness", timeout, endpoint: mortal.endpoint });
      await sandbox.files.write("a.txt", "a");
      place = join(mortal.place, "state", "workspaces", sandbox.runId);
      assert(existsSync(place));
      await happens(sandbox);
      // By several at once, and once more at the end.
      await Promise.all([sandbox.kill(), sandbox.kill()]);
    }
    assert(!existsSync(place), end);
    await launched;
  }
});
