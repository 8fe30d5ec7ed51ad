/** Streams: of changes, and of requests. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http2";
import { test } from "node:test";
import {
  Client,
  DaemonUnreachable,
  FileNotFound,
  InvalidArgument,
  LimitExceeded,
  NotFound,
  Sandbox,
} from "@cofferdam/sdk";
import { shared } from "./daemon.js";

const { endpoint } = await shared();

test("changes are seen by kind, and none that is none", async () => {
  await using sandbox = await Sandbox.create({ profile: "harness" });
  await sandbox.commands.run("mkdir -p d/e f && touch d/same d/gone d/turned d/e/deep");
  await using changes = await sandbox.files.watch("d", { recursive: true, interval: 0.1 });
  await using flat = await sandbox.files.watch("d", { interval: 0.1 });
  // One change each, whenever it is seen.
  const script = "rm gone turned && mkdir turned && : > new && echo x >> e/deep && ln -s new link && rmdir ../f";
  await sandbox.commands.run(`cd d && ${script}`);
  const seen: string[] = [];
  for await (const { change, path, type } of changes) {
    seen.push(`${change} ${type} ${path.replace("/workspace/d/", "")}`);
    if (seen.length === 6) {
      break;
    }
  }
  const expected = ["modified file e/deep", "removed file gone", "created symlink link", "created file new"];
  assert.deepEqual(seen.sort(), [...expected, "removed file turned", "created directory turned"].sort());
  const beside = await flat.next();
  assert.notEqual(beside.value?.path, "/workspace/d/e/deep");
  // The directory itself goes.
  await sandbox.commands.run("rm -r d/e");
  await using again = await sandbox.files.watch("d", { interval: 0.1 });
  await sandbox.commands.run("rm -r d");
  const left: string[] = [];
  for await (const { change, path, type } of again) {
    left.push(`${change} ${type} ${path.replace("/workspace/d/", "")}`);
    if (left.length === 4) {
      break;
    }
  }
  const gone = ["removed directory turned", "removed file new", "removed file same", "removed symlink link"];
  assert.deepEqual(left.sort(), gone);
});

test("watching ends with its loop, its signal and its sandbox", async () => {
  await using sandbox = await Sandbox.create({ profile: "open" });
  const closed = await sandbox.files.watch();
  const pending = closed.next();
  await closed.close();
  assert.deepEqual(await pending, { done: true, value: undefined });
  const end = new AbortController();
  const aborted = await sandbox.files.watch(".", { signal: end.signal });
  const refused = assert.rejects(aborted.next(), /enough/);
  end.abort(new RangeError("enough"));
  await refused;
  await assert.rejects(sandbox.files.watch("none"), FileNotFound);
  await assert.rejects(sandbox.files.watch(".", { interval: 0.01 }), InvalidArgument);
  const changes = await sandbox.files.watch(".", { interval: 0.1 });
  await sandbox.pause();
  const waiting = changes.next();
  await sandbox.resume();
  await sandbox.files.write("a", "x");
  assert.equal((await waiting).value?.path, "/workspace/a");
  const last = changes.next();
  await sandbox.stop();
  assert.equal((await last).done, true);
});

test("a directory that is too large is not watched by half", async () => {
  await using sandbox = await Sandbox.create({ profile: "harness" });
  await sandbox.commands.run("mkdir many && cd many && seq 1 10001 | xargs touch");
  await assert.rejects(sandbox.files.watch("many"), LimitExceeded);
});

test("methods with a stream of requests are there", async () => {
  await using client = new Client({ endpoint });
  await using sandbox = await Sandbox.create({ profile: "harness", client });
  const { runId } = sandbox;
  const pieces = [
    { piece: { case: "begin", value: { runId, path: "a", sizeBytes: 6n } } },
    { piece: { case: "data", value: Buffer.from("one") } },
    { piece: { case: "data", value: Buffer.from("two") } },
  ] as const;
  const answer = await client.files.uploadFile(pieces);
  assert.equal(answer.result?.bytesWritten, 6n);
  assert.equal(await sandbox.files.read("a"), "onetwo");
  // Nothing but the beginning is taken: the others are not waited for.
  const endless = (async function* () {
    const runId = "01900000-0000-7000-8000-000000000000";
    yield { piece: { case: "begin", value: { runId, path: "a", sizeBytes: 6n } } } as const;
    await new Promise(() => {});
  })();
  await assert.rejects(client.files.uploadFile(endless), NotFound);
  const broken = (async function* () {
    yield pieces[0];
    throw new RangeError("enough");
  })();
  await assert.rejects(client.files.uploadFile(broken), /enough/);
  let shown = "";
  const command = ["sh", "-c", "read line; echo got $line"];
  const typed = (async function* () {
    yield { event: { case: "start", value: { runId, command } } } as const;
    yield { event: { case: "input", value: Buffer.from("hello\n") } } as const;
    await new Promise(() => {});
  })();
  for await (const { event } of client.terminals.openTerminal(typed)) {
    shown += event.case === "output" ? Buffer.from(event.value).toString() : "";
  }
  assert.match(shown, /got hello/);
});

test("a stream of requests whose connection is lost ends with that, wherever it is", async () => {
  const place = mkdtempSync("/var/tmp/cofferdam-lost-");
  const server = createServer();
  let most = 0;
  server.on("stream", (stream) => {
    let taken = 0;
    stream.on("error", () => {});
    stream.on("data", (data) => {
      taken += data.length;
      if (taken > most) {
        stream.session?.destroy();
      }
    });
  });
  server.unref().listen(`${place}/lost.sock`);
  await once(server, "listening");
  const endless = async function* (size: number) {
    for (;;) {
      yield { piece: { case: "data", value: Buffer.alloc(size) } } as const;
    }
  };
  for (most of [0, 20, 1_000, 20_000]) {
    for (const size of [10, 16_384]) {
      // Of its own: one that has lost its connection waits before the next.
      await using client = new Client({ endpoint: `unix:${place}/lost.sock` });
      await assert.rejects(client.files.uploadFile(endless(size)), DaemonUnreachable, `${size} at ${most}`);
    }
  }
  server.close();
  rmSync(place, { recursive: true });
});
