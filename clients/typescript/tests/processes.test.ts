/** Commands in the background: over connections that break, daemons that are killed, and callbacks that misbehave. */

import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import {
  ApprovalRequired,
  Client,
  type CommandOutput,
  Overloaded,
  PreconditionFailed,
  Sandbox,
  TimedOut,
} from "@cofferdam/sdk";
import { Daemon, shared } from "./daemon.js";
import { BreakableProxy } from "./proxy.js";
import { collected, eventually } from "./waiting.js";

const LINES = 100_000;
const STREAMS = 50;
const counting = (lines: number) => `i=0; while [ $i -lt ${lines} ]; do echo $i; i=$((i+1)); done`;
const counted = (lines: number) => Array.from({ length: lines }, (_, number) => `${number}\n`).join("");

const { endpoint } = await shared();
const place = mkdtempSync("/var/tmp/cofferdam-proxy-");
let proxies = 0;
after(() => rmSync(place, { recursive: true }));

async function proxied(): Promise<BreakableProxy> {
  proxies += 1;
  return await BreakableProxy.start(join(place, `${proxies}.sock`), endpoint);
}

const text = (pieces: CommandOutput[]) => pieces.map((piece) => piece.text).join("");

test("output comes whole over connections that break", async () => {
  await using proxy = await proxied();
  await using sandbox = await Sandbox.create({ profile: "harness", endpoint: proxy.endpoint });
  const handle = await sandbox.commands.run(counting(LINES), { background: true });
  proxy.cut();
  proxy.cutAfter = 100_000;
  proxy.cuts = 4;
  const pieces = await collected(handle);
  assert(text(pieces) === counted(LINES));
  assert(Buffer.concat(pieces.map((piece) => piece.data)).toString() === counted(LINES));
  assert.equal(proxy.cuts, 0, "it was cut less often than it should have been");
  assert.equal(handle.exitCode, 0);
  proxy.cut();
  proxy.cuts = 2;
  let heard = "";
  const onStdout = (piece: string) => {
    heard += piece;
  };
  const result = await handle.wait({ onStdout });
  assert(heard === counted(LINES) && result.stdout === heard);
  assert.equal(result.omittedBytes, 0);
});

test("input comes once over connections that break", async () => {
  await using proxy = await proxied();
  await using sandbox = await Sandbox.create({ profile: "harness", endpoint: proxy.endpoint });
  const handle = await sandbox.commands.run(["cat"], { background: true, stdinOpen: true });
  for (let number = 0; number < 20; number++) {
    // From one byte on: the request arrives, its answer does not.
    proxy.cut();
    proxy.cutAfter = 1 + 20 * number;
    proxy.cuts = 1;
    await handle.sendStdin(`${number}\n`);
  }
  proxy.cuts = 0;
  await handle.sendStdin("x".repeat(1_000_000));
  await handle.closeStdin();
  assert((await handle.wait()).stdout === counted(20) + "x".repeat(1_000_000));
});

test("senders at the same time take turns", async () => {
  await using sandbox = await Sandbox.create({ profile: "harness" });
  const handle = await sandbox.commands.run(["cat"], { background: true, stdinOpen: true });
  const lines = Array.from({ length: 100 }, (_, number) => `${number}\n`);
  await Promise.all(
    lines.map(async (line, at) => {
      await (at % 2 === 0 ? handle.sendStdin(line) : sandbox.commands.sendStdin(handle.pid, line));
    }),
  );
  await handle.closeStdin();
  assert.deepEqual((await handle.wait()).stdout.match(/.*\n/g)?.sort(), [...lines].sort());
});

test("a command need not read its input", async () => {
  await using sandbox = await Sandbox.create({ profile: "harness" });
  const stdin = new Uint8Array(5_000_000);
  const handle = await sandbox.commands.run(["true"], { background: true, stdin });
  assert.equal((await handle.wait()).exitCode, 0);
});

test("a command that is never given out ends", async () => {
  await using sandbox = await Sandbox.create({ profile: "harness" });
  const end = new AbortController();
  const bounded = sandbox.withOptions({ signal: end.signal });
  const start = bounded.commands.run(["sleep", "1000"], { background: true, stdin: new Uint8Array(3_000_000) });
  const refused = assert.rejects(start, /enough/);
  await eventually(async () => (await sandbox.commands.list()).length > 0, "it does not begin");
  end.abort(new RangeError("enough"));
  await refused;
  const [found] = await sandbox.commands.list();
  assert(found);
  const handle = await sandbox.commands.connect(found.processId);
  assert.equal((await handle.wait({ timeout: 20 })).endedBy, "killed");
  // Aborted at any time, none is left.
  for (let number = 0; number < 20; number++) {
    const signal = AbortSignal.timeout(number);
    await sandbox.commands.run(["sleep", "1000"], { background: true, signal }).then(
      (begun) => begun.kill(),
      (error) => assert(error instanceof DOMException, String(error)),
    );
  }
  const alive = async () => (await sandbox.commands.list()).some((one) => one.state === "running");
  await eventually(async () => !(await alive()), "one lives");
});

test("output beyond the part that is kept is counted", async () => {
  await using sandbox = await Sandbox.create({ profile: "harness" });
  const size = 150_000_000;
  const handle = await sandbox.commands.run(`head -c ${size} /dev/zero`, { background: true });
  const { omittedBytes, stdoutBytes } = await handle.wait();
  assert(omittedBytes > 0);
  assert.equal(stdoutBytes.length + omittedBytes, size);
});

test("a handle outlives its client", async () => {
  const first = await Sandbox.create({ profile: "harness" });
  const script = "echo early; read line; echo $line";
  const { processId } = await first.commands.run(script, { background: true, stdinOpen: true });
  await first.close();
  await using second = await Sandbox.connect(first.runId);
  let heard = "";
  const onStdout = (piece: string) => {
    heard += piece;
  };
  const handle = await second.commands.connect(processId, { onStdout });
  await handle.sendStdin("late\n");
  assert.equal((await handle.wait()).stdout, "early\nlate\n");
  assert.equal(heard, "early\nlate\n", "all callbacks are over when it is waited for");
});

test("a callback that throws ends callbacks and not the command", async () => {
  await using sandbox = await Sandbox.create({ profile: "harness" });
  const onStdout = () => Promise.reject(new RangeError("broken"));
  const handle = await sandbox.commands.run("echo up; exec sleep 1000", { background: true, onStdout });
  await assert.rejects(handle.wait(), /broken/);
  await assert.rejects(handle.wait({ timeout: 5 }), /broken/);
  assert.equal((await handle.info()).state, "running");
  handle.disconnect();
  assert.equal(await handle.kill(), true);
  assert.equal((await handle.wait()).endedBy, "killed");
});

test("a handle that is disconnected hears no more", async () => {
  await using sandbox = await Sandbox.create({ profile: "harness" });
  const heard: string[] = [];
  const onStdout = (piece: string) => {
    heard.push(piece);
    handle.disconnect();
  };
  const script = "echo up; read line; echo $line";
  const handle = await sandbox.commands.run(script, { background: true, stdinOpen: true, onStdout });
  await eventually(async () => heard.length > 0, "it hears nothing");
  await handle.sendStdin("more\n");
  assert.equal((await handle.wait()).stdout, "up\nmore\n");
  assert.deepEqual(heard, ["up\n"]);
});

test("signals end waiting, callbacks and iterations, and no command", async () => {
  await using sandbox = await Sandbox.create({ profile: "harness" });
  const end = new AbortController();
  const bounded = sandbox.withOptions({ signal: end.signal });
  const onStdout = () => end.abort(new RangeError("enough"));
  const handle = await bounded.commands.run("echo up; read line; echo $line", {
    background: true,
    stdinOpen: true,
    onStdout,
  });
  await assert.rejects(handle.wait(), /enough/);
  await assert.rejects(collected(handle), /enough/);
  await assert.rejects(handle.sendStdin("no\n"), /enough/);
  const same = await sandbox.commands.connect(handle.processId);
  await assert.rejects(same.wait({ signal: AbortSignal.timeout(200) }), DOMException);
  await assert.rejects(same.wait({ timeout: 0.2, onStdout: () => {} }), TimedOut);
  for await (const piece of same) {
    assert.equal(piece.text, "up\n");
    break;
  }
  await same.sendStdin("on\n");
  assert.equal((await same.wait()).stdout, "up\non\n");
});

test("a block that is left ends its command", async () => {
  await using sandbox = await Sandbox.create({ profile: "harness" });
  let processId: string;
  {
    await using handle = await sandbox.commands.run(["sleep", "1000"], { background: true });
    assert.equal((await handle.info()).state, "running");
    processId = handle.processId;
  }
  const handle = await sandbox.commands.connect(processId);
  assert.equal((await handle.wait({ timeout: 20 })).exitCode, 137);
});

test("there are only so many readers", async () => {
  await using sandbox = await Sandbox.create({ profile: "harness" });
  const handle = await sandbox.commands.run("echo up; sleep 1000", { background: true });
  const readers = Array.from({ length: 16 }, () => handle[Symbol.asyncIterator]());
  const first = await Promise.all(readers.map((reader) => reader.next()));
  assert(first.every(({ value }) => value?.text === "up\n"));
  await assert.rejects(handle[Symbol.asyncIterator]().next(), Overloaded);
  await Promise.all(readers.map((reader) => reader.return()));
  const reads = async () => {
    await using reader = handle[Symbol.asyncIterator]();
    return await reader.next().then(
      ({ value }) => value?.text === "up\n",
      () => false,
    );
  };
  await eventually(reads, "they still read");
});

test("fifty streams lose no byte over a daemon that is killed", async () => {
  await using mortal = await Daemon.start();
  await using client = new Client({ endpoint: mortal.endpoint });
  await using sandbox = await Sandbox.create({ profile: "harness", client });
  const script = `echo head; read line; ${counting(20_000)}; read line`;
  const expected = `head\n${counted(20_000)}`;
  let heads = 0;
  let relaunched = () => {};
  const back = new Promise<void>((resolve) => {
    relaunched = resolve;
  });
  const one = async () => {
    let heard = "";
    const onStdout = (piece: string) => {
      heads += heard === "" ? 1 : 0;
      heard += piece;
    };
    const handle = await sandbox.commands.run(script, { background: true, stdinOpen: true, onStdout });
    await handle.sendStdin("go\n");
    await back;
    await handle.sendStdin("end\n");
    const result = await handle.wait({ timeout: 120 });
    assert.equal(result.exitCode, 0);
    assert(heard === result.stdout && heard === expected);
  };
  const work = Promise.all(Array.from({ length: STREAMS }, one));
  await eventually(async () => heads === STREAMS, "not all have begun");
  await mortal.end("SIGKILL");
  await mortal.launch();
  relaunched();
  await work;
});

test("a person may be asked first", async () => {
  const policy = mkdtempSync("/var/tmp/cofferdam-policy-");
  after(() => rmSync(policy, { recursive: true }));
  const profile = [
    "profiles:",
    "  asks:",
    "    workspace: read-write",
    "    operations: { process: ask, exec: allow, shell: allow }",
    "    exec: { default: allow }",
    "    approvals: { freeze: false }",
    'roles: { worker: { allow: "*" } }',
  ];
  writeFileSync(join(policy, "asks.yaml"), `${profile.join("\n")}\n`);
  await using daemon = await Daemon.start({ config: [`policy_dir: ${policy}`] });
  await using sandbox = await Sandbox.create({ profile: "asks", endpoint: daemon.endpoint });
  let callId = "";
  await assert.rejects(sandbox.commands.run("echo done", { background: true }), (error) => {
    assert(error instanceof ApprovalRequired && error.callId !== null);
    callId = error.callId;
    return true;
  });
  const [asked] = await sandbox.approvals.list();
  assert(asked?.callId === callId);
  await sandbox.approvals.approve(asked.approvalId);
  assert.equal((await sandbox.calls.wait(callId)).result, callId);
  assert.equal((await (await sandbox.commands.connect(callId)).wait()).stdout, "done\n");
});

test("a terminal is heard while it is typed at", async () => {
  await using sandbox = await Sandbox.create({ profile: "harness", image: process.env["COFFERDAM_TEST_IMAGE"] });
  let shown = "";
  const onData = (data: Uint8Array) => {
    shown += Buffer.from(data).toString("latin1");
  };
  const shows = async (expected: string, after = "") => {
    await eventually(async () => shown.slice(shown.indexOf(after)).includes(expected), `${expected} is not shown`);
  };
  const pty = await sandbox.pty.create({ size: { rows: 30, cols: 100 }, onData });
  // What is typed, and a size that is set, while bash makes its prompt may be lost.
  await shows("$ ");
  await pty.sendStdin("stty size; echo $0\n");
  await shows("$ ", "30 100\r\nbash");
  await sandbox.pty.resize(pty.pid, { rows: 20, cols: 90 });
  // Once it answers it has the terminal. Ctrl-C before that may reach a shell alone, which then waits for its command.
  await pty.sendStdin("stty size; cat\n");
  await shows("20 90\r\n");
  await pty.sendStdin("here\n");
  await shows("here\r\nhere\r\n");
  await sandbox.pty.sendStdin(pty.pid, "\x03");
  await shows("$ ", "^C");
  await pty.sendStdin("echo $((6 * 7))\n");
  await shows("$ ", "42");
  await pty.sendStdin("exit 4\n");
  const result = await pty.wait();
  assert.equal(result.exitCode, 4);
  assert.equal(Buffer.from(result.stdoutBytes).toString("latin1"), shown);
  await assert.rejects(sandbox.pty.sendStdin(pty.pid, "late"), PreconditionFailed);
});
