/** Files and directories that are copied: over connections that break, daemons that are killed, and out of hostile runs. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import {
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, test } from "node:test";
import {
  AlreadyExists,
  ApprovalRequired,
  Client,
  DaemonUnreachable,
  InvalidArgument,
  LimitExceeded,
  PreconditionFailed,
  Sandbox,
  SandboxViolation,
} from "@cofferdam/sdk";
import { Daemon, shared } from "./daemon.js";
import { namesIn } from "./names.js";
import { BreakableProxy } from "./proxy.js";
import { collected, eventually } from "./waiting.js";

const MIB = 1024 * 1024;
const { endpoint } = await shared();
const place = mkdtempSync("/var/tmp/cofferdam-transfers-");
let places = 0;
after(() => rmSync(place, { recursive: true }));

/** A new directory of this host. */
function scratch(): string {
  places += 1;
  const made = join(place, String(places));
  mkdirSync(made);
  return made;
}

/** Bytes that do not repeat soon. */
function bytes(length: number): Buffer {
  const words = new Uint32Array(Math.ceil(length / 4)).map((_, at) => Math.imul(at, 2_654_435_761));
  return Buffer.from(words.buffer, 0, length);
}

test("an upload goes on under the next daemon, and so does a download", async () => {
  await using mortal = await Daemon.start();
  await using sandbox = await Sandbox.create({ profile: "harness", endpoint: mortal.endpoint });
  const here = scratch();
  const content = bytes(30 * MIB);
  writeFileSync(join(here, "large"), content);
  const restarts: Promise<void>[] = [];
  const onProgress = (done: number, total: number | null) => {
    assert.equal(total, content.length);
    if (done > total / 2 && restarts.length === 0) {
      restarts.push(mortal.end("SIGKILL").then(() => mortal.launch()));
    }
  };
  const sent = await sandbox.files.upload(join(here, "large"), "large", { onProgress });
  assert.equal(restarts.length, 1);
  await Promise.all(restarts.splice(0));
  assert.equal(sent.size, content.length);
  const came = await sandbox.files.download("large", join(here, "back"), { onProgress });
  assert.equal(restarts.length, 1);
  await Promise.all(restarts);
  assert.equal(came.sha256, sent.sha256);
  assert(readFileSync(join(here, "back")).equals(content));
  assert.equal((await sandbox.info()).restarts, 2);
});

test("an upload whose answer is lost is written once", async () => {
  await using proxy = await BreakableProxy.start(join(place, "answers.sock"), endpoint);
  await using sandbox = await Sandbox.create({ profile: "harness", endpoint: proxy.endpoint });
  const here = scratch();
  writeFileSync(join(here, "small"), "content\n");
  const lengths = Array.from({ length: 50 }, (_, number) => 20 + 10 * number);
  for (const length of lengths) {
    proxy.cut();
    // Of the answers alone, at another byte each time.
    proxy.cutAfter = length;
    proxy.cuts = 1;
    const written = await sandbox.files.upload(join(here, "small"), `new${length}`, { createOnly: true });
    assert.deepEqual([written.path, written.size], [`/workspace/new${length}`, 8], `after ${length} bytes`);
  }
  proxy.cuts = 0;
  await using client = new Client({ endpoint });
  const other = await Sandbox.connect(sandbox.runId, { client });
  proxy.mute();
  const sending = sandbox.files.upload(join(here, "small"), "muted");
  await eventually(async () => await other.files.exists("muted"), "it does not arrive");
  proxy.cut();
  assert.deepEqual((await sending).path, "/workspace/muted");
  const events = await collected(sandbox.audit.stream({ follow: false, kinds: ["call_receipt"] }));
  const writes = events.filter((event) => event.operation === "write");
  assert.equal(writes.length, lengths.length + 1, "one was written twice");
});

test("a download goes on over connections that break, and a directory begins anew", async () => {
  await using proxy = await BreakableProxy.start(join(place, "pieces.sock"), endpoint);
  await using sandbox = await Sandbox.create({ profile: "harness", endpoint: proxy.endpoint });
  const content = bytes(20 * MIB);
  await sandbox.files.write("tree/large", content);
  proxy.cut();
  proxy.cutAfter = 5 * MIB;
  proxy.cuts = 3;
  const here = scratch();
  await sandbox.files.download("tree/large", join(here, "large"));
  assert.equal(proxy.cuts, 0, "it was cut less often than it should have been");
  assert(readFileSync(join(here, "large")).equals(content));
  proxy.cut();
  proxy.cuts = 1;
  await sandbox.files.download("tree", join(here, "tree"));
  assert.equal(proxy.cuts, 0);
  assert(readFileSync(join(here, "tree", "large")).equals(content));
  assert.deepEqual(readdirSync(here).sort(), ["large", "tree"]);
});

test("refused uploads of any size report the refusal", async () => {
  await using sandbox = await Sandbox.create({ profile: "open" });
  const here = scratch();
  writeFileSync(join(here, "large"), bytes(16 * MIB));
  writeFileSync(join(here, "larger"), "");
  truncateSync(join(here, "larger"), 65 * MIB);
  const upload = (name: string, path: string, options = {}) => sandbox.files.upload(join(here, name), path, options);
  await upload("large", "large");
  await assert.rejects(upload("large", "large", { createOnly: true }), PreconditionFailed);
  await assert.rejects(upload("large", "large", { ifMatch: "0".repeat(64) }), PreconditionFailed);
  await assert.rejects(upload("large", "../large"), SandboxViolation);
  await assert.rejects(upload("large", ".git/hooks/pre-commit"), SandboxViolation);
  await assert.rejects(upload("larger", "larger"), LimitExceeded);
  await assert.rejects(upload("large", "mode", { mode: 0o4755 }), InvalidArgument);
  await assert.rejects(sandbox.files.upload(here, "tree", { mode: 0o644 }), InvalidArgument);
  await assert.rejects(sandbox.files.upload("/dev/zero", "zero"), InvalidArgument);
  await assert.rejects(upload("none", "none"), { code: "ENOENT" });
  assert.deepEqual(
    (await sandbox.files.list()).items.map((entry) => entry.name),
    ["large"],
  );
});

test("a transfer that its caller ends leaves nothing", async () => {
  await using sandbox = await Sandbox.create({ profile: "harness" });
  const here = scratch();
  const content = bytes(16 * MIB);
  writeFileSync(join(here, "large"), content);
  await sandbox.files.upload(join(here, "large"), "there");
  // Not taken for a connection that is lost.
  const thrown = new DaemonUnreachable("enough");
  const throwing = {
    onProgress: () => {
      throw thrown;
    },
  };
  const aborting = () => {
    const end = new AbortController();
    return { signal: end.signal, onProgress: () => end.abort(thrown) };
  };
  for (const options of [throwing, aborting()]) {
    await assert.rejects(sandbox.files.upload(join(here, "large"), "new", options), thrown);
  }
  const truncating = { onProgress: () => truncateSync(join(here, "large"), 5) };
  await assert.rejects(sandbox.files.upload(join(here, "large"), "new", truncating), PreconditionFailed);
  assert.equal(await sandbox.files.exists("new"), false);
  writeFileSync(join(here, "old"), "old");
  for (const options of [throwing, aborting()]) {
    await assert.rejects(sandbox.files.download("there", join(here, "old"), options), thrown);
  }
  assert.equal(readFileSync(join(here, "old"), "utf8"), "old");
  assert.deepEqual(readdirSync(here).sort(), ["large", "old"]);
});

test("copying a file that changes is refused", async () => {
  await using proxy = await BreakableProxy.start(join(place, "changes.sock"), endpoint);
  await using sandbox = await Sandbox.create({ profile: "harness", endpoint: proxy.endpoint });
  await sandbox.files.write("large", bytes(16 * MIB));
  const here = scratch();
  let changed = false;
  const onProgress = async () => {
    if (!changed) {
      changed = true;
      await sandbox.commands.run("head -c 16777216 /dev/zero > other && mv other large");
      proxy.cut();
    }
  };
  await assert.rejects(sandbox.files.download("large", join(here, "large"), { onProgress }), PreconditionFailed);
  assert.deepEqual(readdirSync(here), []);
});

test("large contents are read and written", async () => {
  await using sandbox = await Sandbox.create({ profile: "open" });
  const text = "ä0123456789\n".repeat(300_000);
  const written = await sandbox.files.write("large", text, { createOnly: true });
  assert.equal(written.sha256Before, null);
  assert((await sandbox.files.read("large")) === text);
  assert(Buffer.from(await sandbox.files.read("large", { format: "bytes" })).equals(Buffer.from(text)));
  await assert.rejects(sandbox.files.write("large", text, { createOnly: true }), PreconditionFailed);
  const again = await sandbox.files.write("large", `${text}\n`, { ifMatch: written.sha256 });
  assert.equal(again.sha256Before, written.sha256);
  await assert.rejects(sandbox.files.write("larger", new Uint8Array(64 * MIB + 1)), LimitExceeded);
});

test("a person is asked for an upload", async () => {
  await using sandbox = await Sandbox.create({ profile: "review", agentId: "asked" });
  const here = scratch();
  writeFileSync(join(here, "a"), "content");
  await assert.rejects(sandbox.files.upload(join(here, "a"), "a"), (error) => {
    assert(error instanceof ApprovalRequired);
    assert(error.callId !== null && error.approvalId !== "");
    return true;
  });
  await assert.rejects(sandbox.files.write("b", bytes(2 * MIB)), ApprovalRequired);
});

test("a person consents to an upload, once", async () => {
  await using proxy = await BreakableProxy.start(join(place, "consents.sock"), endpoint);
  await using sandbox = await Sandbox.create({ profile: "review", agentId: "asking", endpoint: proxy.endpoint });
  const here = scratch();
  writeFileSync(join(here, "a"), "content");
  const waiting = sandbox.withOptions({ waitForApproval: true }).files.upload(join(here, "a"), "a");
  await eventually(async () => (await sandbox.approvals.list()).length === 1, "no reviewer is asked");
  // The upload is used by its call: it is no other that has to be asked for.
  const before = proxy.connections;
  proxy.cut();
  await eventually(async () => proxy.connections > before, "the upload does not ask on");
  const [asked, ...others] = await sandbox.approvals.list();
  assert.equal(others.length, 0);
  await sandbox.approvals.approve(asked?.approvalId ?? "");
  assert.equal((await waiting).size, 7);
  assert.equal(await sandbox.files.read("a"), "content");
});

test("a person is asked for an upload once, over daemons that are killed", async () => {
  await using mortal = await Daemon.start();
  await using sandbox = await Sandbox.create({ profile: "review", agentId: "asking", endpoint: mortal.endpoint });
  const here = scratch();
  writeFileSync(join(here, "a"), "content");
  const waiting = sandbox.withOptions({ waitForApproval: true }).files.upload(join(here, "a"), "a");
  await eventually(async () => (await sandbox.approvals.list()).length === 1, "no reviewer is asked");
  const [asked] = await sandbox.approvals.list();
  await mortal.end("SIGKILL");
  await mortal.launch();
  // The client finds its call again, and asks for no other.
  await new Promise((resolve) => setTimeout(resolve, 1000));
  const ids = (await sandbox.approvals.list()).map(({ approvalId }) => approvalId);
  assert.deepEqual(ids, [asked?.approvalId]);
  await sandbox.approvals.approve(asked?.approvalId ?? "");
  assert.equal((await waiting).size, 7);
  assert.equal(await sandbox.files.read("a"), "content");
  const events = await collected(sandbox.audit.stream({ follow: false, kinds: ["call_intent"] }));
  assert.equal(events.filter((event) => event.operation === "write").length, 1);
});

test("a tree is uploaded without the files that the daemon refuses", async () => {
  await using sandbox = await Sandbox.create({ profile: "harness" });
  const here = scratch();
  for (const [name, content] of Object.entries({ "sub/a": "a", "sub/.git/config": "x", "b c/\u{1f30a}": "b" })) {
    mkdirSync(dirname(join(here, name)), { recursive: true });
    writeFileSync(join(here, name), content, { mode: 0o755 });
  }
  symlinkSync("sub/a", join(here, "good"));
  symlinkSync("../..", join(here, "sub", "bad"));
  symlinkSync("/etc/passwd", join(here, "worse"));
  linkSync(join(here, "sub/a"), join(here, "sub/same"));
  execFileSync("mkfifo", [join(here, "pipe")]);
  const temporary = scratch();
  process.env["TMPDIR"] = temporary;
  const sent = await sandbox.files.upload(here, "there/tree");
  assert.deepEqual([sent.type, sent.entries, sent.leftOut], ["directory", 6, 4]);
  const script = "cd there/tree && find . | LC_ALL=C sort && cat good && stat -c %a good sub/a";
  const found = ["", "/b c", "/b c/\u{1f30a}", "/good", "/sub", "/sub/a", "/sub/same"].map((name) => `.${name}\n`);
  assert.equal((await sandbox.commands.run(script)).stdout, `${found.join("")}a777\n755\n`);
  assert.equal(tmpdir(), temporary);
  assert.deepEqual(readdirSync(temporary), []);
});

test("a tree out of a hostile run leads nowhere", async () => {
  await using sandbox = await Sandbox.create({ profile: "harness" });
  const script = [
    "mkdir -p t/sub/deep t/.git/hooks t/sub/.GIT t/node_modules/.bin 't/back\\slash' && cd t",
    "echo x > sub/file && chmod 755 sub/file && ln sub/file sub/same && echo x > 'C:name' && echo x > 'a\\b'",
    "echo x > .git/hooks/post-checkout && echo x > sub/.GIT/config && echo x > node_modules/.bin/tsc",
    "ln -s / root; ln -s ../.. up; ln -s sub/file good; ln -s ../file sub/deep/good",
    // By names it stays within; by the link before it, it does not.
    "ln -s ../.. sub/deep/top; ln -s sub/deep/top/.. out; mkfifo pipe",
  ];
  assert.equal((await sandbox.commands.run(script.join("\n"))).stderr, "");
  const here = scratch();
  const came = await sandbox.files.download("t", join(here, "t"));
  const names = namesIn(join(here, "t"));
  const kept = ["C:name", "a\\b", "back\\slash", "good", "node_modules", "sub", "sub/deep", "sub/deep/good"];
  assert.deepEqual(names, [...kept, "sub/deep/top", "sub/file", "sub/same"]);
  assert.equal(came.entries, names.length);
  assert(came.leftOut >= 6, String(came.leftOut));
  assert.equal(lstatSync(join(here, "t/sub/file")).mode & 0o777, 0o755);
  assert.deepEqual(readdirSync(here), ["t"]);
});

test("a tree is merged into existing files, and never through a link", async () => {
  await using sandbox = await Sandbox.create({ profile: "harness" });
  await sandbox.commands.run("mkdir -p t/a t/b && echo new > t/a/x && echo new > t/b/y");
  const here = scratch();
  mkdirSync(join(here, "t/a"), { recursive: true });
  writeFileSync(join(here, "t/a/x"), "old");
  writeFileSync(join(here, "t/a/z"), "old");
  await sandbox.files.download("t", join(here, "t"));
  const found = namesIn(join(here, "t"));
  assert.deepEqual(found, ["a", "a/x", "a/z", "b", "b/y"]);
  assert.equal(readFileSync(join(here, "t/a/x"), "utf8"), "new\n");
  // A file in the place of a directory: nothing is changed.
  rmSync(join(here, "t/b"), { recursive: true });
  writeFileSync(join(here, "t/b"), "mine");
  writeFileSync(join(here, "t/a/x"), "mine");
  await assert.rejects(sandbox.files.download("t", join(here, "t")), AlreadyExists);
  await assert.rejects(sandbox.files.download("t", join(here, "t/b")), AlreadyExists);
  await assert.rejects(sandbox.files.download("t/a/x", join(here, "t/a")), AlreadyExists);
  assert.equal(readFileSync(join(here, "t/a/x"), "utf8"), "mine");
  assert.deepEqual(readdirSync(join(here, "t")).sort(), ["a", "b"]);
});

test("a file of any size is written and read under harness", async () => {
  await using sandbox = await Sandbox.create({ profile: "harness", endpoint });
  for (const size of [1_400_000, 2_000_000, 2_752_513, 3_670_017, 4_200_000, 20 * MIB]) {
    for (const content of [Buffer.alloc(size, 1), bytes(size)]) {
      await sandbox.files.write("f", content);
      assert.ok(content.equals(await sandbox.files.read("f", { format: "bytes" })), `${size} bytes`);
    }
    const text = "\u0001é".repeat(size / 3);
    await sandbox.files.write("f", text);
    assert.ok((await sandbox.files.read("f")) === text, `${size} bytes of text`);
  }
});
