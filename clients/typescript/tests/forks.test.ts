/** Restores, forks and comparisons: whose changes stay, and what is left of the others. */

import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { Client, Denied, InvalidArgument, NotFound, Overlay, PreconditionFailed, Sandbox } from "@cofferdam/sdk";
import { shared } from "./daemon.js";
import { eventually } from "./waiting.js";

const { endpoint, roots } = await shared();

/** A directory of the host with a file. */
function directory(name: string): string {
  const place = join(roots, name);
  mkdirSync(place);
  writeFileSync(join(place, "a.txt"), "given\n");
  return place;
}

/** Whether the daemon still knows the run. */
async function there(sandbox: Sandbox): Promise<boolean> {
  try {
    await sandbox.info();
    return true;
  } catch (error) {
    assert(error instanceof NotFound, `${error}`);
    return false;
  }
}

async function checkpoints({ client, runId }: Sandbox): Promise<string[]> {
  const { checkpoints } = await client.checkpoints.listCheckpoints({ runId });
  return checkpoints.map(({ checkpointId }) => checkpointId);
}

test("forks begin with the state of the run, and end with their block", async () => {
  await using client = new Client({ endpoint });
  await using sandbox = await Sandbox.create({ profile: "open", client, env: { A: "origin", B: "origin" } });
  await sandbox.files.write("a.txt", "origin\n");
  let ended: Sandbox[];
  {
    await using forks = await sandbox.fork(3, { env: { A: "fork" }, metadata: { b: "2" }, issueTokens: true });
    ended = [...forks];
    assert.deepEqual([forks.length, forks.at(-1), forks.failures], [3, ended[2], []]);
    for (const [number, fork] of ended.entries()) {
      assert.equal(await fork.files.read("a.txt"), "origin\n");
      await fork.files.write("a.txt", `${number}\n`);
      assert.equal((await fork.commands.run("echo $A $B")).stdout, "fork origin\n");
      const { metadata, forkedFrom } = await fork.info();
      assert.deepEqual(metadata, { b: "2" });
      assert.deepEqual(forkedFrom, { checkpointId: forks.checkpoint, runId: sandbox.runId });
      assert(fork.token);
    }
    assert.deepEqual(await Promise.all(ended.map((fork) => fork.files.read("a.txt"))), ["0\n", "1\n", "2\n"]);
    assert.deepEqual(await checkpoints(sandbox), [forks.checkpoint]);
  }
  assert.deepEqual(await Promise.all(ended.map(there)), [false, false, false]);
  assert.deepEqual(await checkpoints(sandbox), []);
  assert.equal(await sandbox.files.read("a.txt"), "origin\n");
});

test("a fork that is kept outlives its block, and the others end also after an error", async () => {
  await using client = new Client({ endpoint });
  await using sandbox = await Sandbox.create({ profile: "open", client });
  const made = await sandbox.fork(2);
  const [kept, other] = [...made];
  assert(kept !== undefined && other !== undefined);
  const block = async () => {
    await using forks = made;
    forks.keep(kept);
    throw new RangeError("of the block");
  };
  await assert.rejects(block, RangeError);
  assert.deepEqual([await there(kept), await there(other)], [true, false]);
  assert.deepEqual(await checkpoints(sandbox), [made.checkpoint]);
  assert.equal(await kept.kill(), true);
  assert.equal(await there(kept), false);
});

test("the best fork is found by a check and accepted", async () => {
  const place = directory("accepted");
  await using sandbox = await Sandbox.create({ profile: "open", workspace: Overlay(place), endpoint });
  await using forks = await sandbox.fork(2);
  for (const [number, fork] of [...forks].entries()) {
    await fork.files.write("a.txt", `${number}\n`.repeat(number + 1));
  }
  const { runs, conflicts, truncated } = await forks.compare("echo checked; [ $(head -n 1 a.txt) = 1 ]");
  assert.deepEqual(
    runs.map(({ total, linesAdded, linesRemoved }) => [total, linesAdded, linesRemoved]),
    [
      [1, 1, 1],
      [1, 2, 1],
    ],
  );
  assert.deepEqual(
    runs.map(({ check }) => [check?.exitCode, check?.stdout]),
    [
      [1, "checked\n"],
      [0, "checked\n"],
    ],
  );
  assert.deepEqual([conflicts.map(({ path, runIds }) => [path, runIds.length]), truncated], [[["a.txt", 2]], false]);
  assert.equal(await forks.at(1)?.accept(), 1);
  assert.equal(readFileSync(join(place, "a.txt"), "utf8"), "1\n1\n");
  await forks.kill();
  assert.deepEqual(await Promise.all([...forks].map(there)), [false, true]);
});

test("changes that cannot be accepted are kept", async () => {
  const place = directory("refused");
  await using sandbox = await Sandbox.create({ profile: "open", workspace: Overlay(place), endpoint });
  await using forks = await sandbox.fork(1);
  const fork = forks.at(0);
  assert(fork !== undefined);
  await fork.files.write("a.txt", "mine\n");
  writeFileSync(join(place, "a.txt"), "changed meanwhile\n");
  await assert.rejects(fork.accept(), PreconditionFailed);
  await forks.kill();
  assert.equal(await fork.accept({ force: true }), 1);
  assert.equal(readFileSync(join(place, "a.txt"), "utf8"), "mine\n");
});

test("runs of a checkpoint are compared also by their ids, and each has its own end of the check", async () => {
  await using client = new Client({ endpoint });
  await using sandbox = await Sandbox.create({ profile: "open", client });
  const checkpoint = await sandbox.checkpoint();
  {
    await using forks = await client.fork(checkpoint, 3);
    const [first, second, third] = [...forks];
    assert(first !== undefined && second !== undefined && third !== undefined);
    await third.stop();
    const { runs } = await client.compare([first, second.runId, third], "sleep 30", { timeout: 0.5 });
    assert.deepEqual(
      runs.map(({ check }) => check?.timedOut),
      [true, true, undefined],
    );
    const signal = AbortSignal.timeout(500);
    await assert.rejects(client.compare([first, second], "sleep 30", { signal }), { name: "TimeoutError" });
  }
  assert.deepEqual(await checkpoints(sandbox), [checkpoint]);
});

test("a check that policy refuses ends the comparison", async () => {
  await using sandbox = await Sandbox.create({ profile: "review", endpoint });
  await using forks = await sandbox.fork(2);
  await assert.rejects(forks.compare("touch a.txt"), Denied);
});

test("a making of forks that is aborted leaves no run", async () => {
  await using client = new Client({ endpoint });
  await using sandbox = await Sandbox.create({ profile: "open", client });
  const metadata = { made: "for nobody, in TypeScript" };
  await assert.rejects(sandbox.fork(4, { metadata, signal: AbortSignal.timeout(50) }), { name: "TimeoutError" });
  await eventually(async () => {
    const left: string[] = [];
    for await (const { runId } of Sandbox.list({ state: null, metadata, client })) {
      left.push(runId);
    }
    return left.length === 0;
  }, "forks are left");
});

test("what cannot be is refused before anything is made", async () => {
  await using sandbox = await Sandbox.create({ profile: "open", endpoint });
  for (const count of [0, -1, 1.5, 2 ** 32, 101]) {
    await assert.rejects(sandbox.fork(count), InvalidArgument);
  }
  const wrong = [{ keepCheckpoints: 2 }, { checkpoints: "turn", keepCheckpoints: 0 }] as const;
  for (const options of wrong) {
    await assert.rejects(Sandbox.create({ profile: "open", endpoint, ...options }), InvalidArgument);
  }
  assert.deepEqual(await checkpoints(sandbox), []);
});

test("the daemon makes checkpoints by itself", async () => {
  await using sandbox = await Sandbox.create({ profile: "open", endpoint, checkpoints: "write", keepCheckpoints: 2 });
  for (const number of [0, 1, 2]) {
    await sandbox.files.write("a.txt", `${number}\n`);
  }
  assert.equal((await checkpoints(sandbox)).length, 2);
});
