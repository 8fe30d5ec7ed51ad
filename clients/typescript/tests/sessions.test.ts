/** Sessions and leases: over connections that break, daemons that are killed, and clients that go away. */

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import { Client, Denied, InvalidArgument, NotFound, PreconditionFailed, RunNotReady, Sandbox } from "@cofferdam/sdk";
import { between } from "../src/output.js";
import { Daemon, shared } from "./daemon.js";
import { BreakableProxy } from "./proxy.js";
import { eventually } from "./waiting.js";

const { endpoint } = await shared();
const place = mkdtempSync("/var/tmp/cofferdam-sessions-");
after(() => rmSync(place, { recursive: true }));

test("each command of a session runs once over connections that break", async () => {
  await using proxy = await BreakableProxy.start(join(place, "proxy.sock"), endpoint);
  await using sandbox = await Sandbox.create({ profile: "harness", endpoint: proxy.endpoint });
  const session = await sandbox.sessions.open();
  await session.run("n=0");
  const lengths = Array.from({ length: 30 }, (_, number) => 20 + 15 * number);
  for (const [at, length] of lengths.entries()) {
    proxy.cut();
    proxy.cutAfter = length;
    proxy.cuts = 1;
    const { state, output } = await session.run("n=$((n+1)); echo $n");
    assert.deepEqual([state, output], ["done", `${at + 1}\n`], `after ${length} bytes`);
  }
});

test("a session outlives its daemon, and a command in it, too", async () => {
  await using mortal = await Daemon.start();
  await using sandbox = await Sandbox.create({ profile: "harness", endpoint: mortal.endpoint });
  const session = await sandbox.sessions.open({ tag: "lasting" });
  await session.run("cd /state; x=kept");
  const begun = await session.run("echo begun; read line; echo $line", { expect: ["begun"] });
  assert.equal(begun.state, "matched");
  await mortal.end("SIGKILL");
  await mortal.launch();
  assert.equal((await session.info()).state, "busy");
  const typed = await session.type("typed\n");
  assert.match(typed.output, /typed\n/);
  assert(typed.state === "done", typed.state);
  const again = await sandbox.sessions.get(session.sessionId);
  assert.equal((await again.run("pwd; echo $x")).output, "/state\nkept\n");
});

test("large session output arrives complete", async () => {
  await using sandbox = await Sandbox.create({ profile: "harness" });
  const session = await sandbox.sessions.open();
  const { output, omittedBytes, exitCode } = await session.run("seq 1 100000");
  assert(output === Array.from({ length: 100_000 }, (_, number) => `${number + 1}\n`).join(""));
  assert.deepEqual([omittedBytes, exitCode], [0, 0]);
});

test("a session is closed with its block, and everything in it ends", async () => {
  await using sandbox = await Sandbox.create({ profile: "harness" });
  let id: string;
  {
    await using session = await sandbox.sessions.open();
    id = session.sessionId;
    await session.run("sleep 1000 &");
  }
  const session = await sandbox.sessions.get(id);
  const { state, process } = await session.info();
  assert.deepEqual([state, process.state, process.cmd, process.pty], ["closed", "ended", [], true]);
  await assert.rejects(session.run("true"), PreconditionFailed);
  assert.equal((await session.interrupt()).state, "ended");
  assert.equal((await sandbox.commands.run("ps -o args | grep -c '[s]leep 1000'")).stdout, "0\n");
});

test("an aborted wait leaves the session's command running", async () => {
  await using sandbox = await Sandbox.create({ profile: "harness" });
  const session = await sandbox.sessions.open();
  const end = new AbortController();
  const run = session.run("echo $$ > /state/begun; read line; echo $line", { signal: end.signal });
  const refused = assert.rejects(run, /enough/);
  await eventually(async () => await sandbox.files.exists("/state/begun"), "it does not begin");
  end.abort(new RangeError("enough"));
  await refused;
  const rest = await session.type("on\n");
  assert.deepEqual([rest.state, rest.output], ["done", "on\n"]);
});

test("a command is not a session, and a profile can forbid sessions", async () => {
  await using sandbox = await Sandbox.create({ profile: "harness" });
  const command = await sandbox.commands.run(["sleep", "1000"], { background: true });
  await assert.rejects(sandbox.sessions.get(command.processId), NotFound);
  await assert.rejects(sandbox.sessions.open({ timeout: -1 }), InvalidArgument);
  await using open = await Sandbox.create({ profile: "open" });
  await assert.rejects(open.sessions.open(), Denied);
});

test("a lease is renewed as long as its sandbox object wants it", async () => {
  await using client = new Client({ endpoint });
  const options = { profile: "open", lease: 6, client } as const;
  const kept = await Sandbox.create({ ...options, keepAlive: true });
  await using left = await Sandbox.create(options);
  await eventually(async () => (await left.info()).state === "stopped", "it does not end");
  assert.equal((await left.info()).endCause, "lease");
  await assert.rejects(left.keepAlive(), RunNotReady);
  const { state, leaseEndsAt, start, coldBecause } = await kept.info();
  assert.deepEqual([state, start, coldBecause], ["ready", "cold", "no-pool"]);
  assert(leaseEndsAt !== null && leaseEndsAt.getTime() > Date.now());
  await kept.close();
  await eventually(async () => (await kept.info()).endCause === "lease", "it is renewed after close()");
  await assert.rejects(Sandbox.create({ profile: "open", keepAlive: true }), InvalidArgument);
});

test("a directory that is asked for is the run's own", async () => {
  const secretEnv = { API_TOKEN: "tide-4711-harbour" };
  await using sandbox = await Sandbox.create({ profile: "harness", writablePaths: ["/logs/app"], secretEnv });
  const { writablePaths, secretEnv: names } = await sandbox.info();
  assert.deepEqual([writablePaths, names], [["/logs/app"], ["API_TOKEN"]]);
  assert.equal((await sandbox.commands.run("echo x > /logs/app/x && cat /logs/app/x")).stdout, "x\n");
});

test("omission keeps characters whole", () => {
  const text = Buffer.from("aé€😀z");
  for (let start = 0; start <= text.length; start++) {
    for (let end = start; end <= text.length; end++) {
      const before = between(text.subarray(0, start), { after: false, before: true });
      const after = between(text.subarray(end), { after: true, before: false });
      const shown = before.text + after.text;
      assert.ok(!shown.includes("\ufffd"), shown);
      assert.equal(Buffer.byteLength(shown) + before.cut + after.cut + end - start, text.length);
    }
  }
  assert.equal(between(Buffer.from([0xff]), { after: false, before: false }).text, "\ufffd");
});
