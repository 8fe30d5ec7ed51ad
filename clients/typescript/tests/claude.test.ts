/** `spawnClaudeCodeProcess`, with a program in place of Claude Code that speaks as it does: lines of JSON. */

import assert from "node:assert/strict";
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { Sandbox } from "@cofferdam/sdk";
import { type ClaudeSpawnOptions, type SpawnedProcess, spawnClaudeCodeProcess } from "@cofferdam/sdk/claude";
import { shared } from "./daemon.js";
import { eventually } from "./waiting.js";

await shared();

const image = process.env["COFFERDAM_TEST_IMAGE"];
const PROGRAM = `
import json, os, sys
print(json.dumps({"type": "system", "cwd": os.getcwd(), "env": sorted(os.environ), "args": sys.argv[1:]}), flush=True)
print("a warning", file=sys.stderr, flush=True)
for line in sys.stdin:
    asked = json.loads(line)["message"]
    print(json.dumps({"type": "assistant", "message": asked * 2}), flush=True)
print(json.dumps({"type": "result"}), flush=True)
sys.exit(int(os.environ.get("CODE", "0")))
`;

/** As the Claude Agent SDK asks: with this host's environment and directory. */
function asked(options: Partial<ClaudeSpawnOptions> = {}): ClaudeSpawnOptions {
  const { signal } = new AbortController();
  const env = { ...process.env, CODE: "7" };
  return { command: "python3", args: ["-c", PROGRAM, "--verbose"], cwd: process.cwd(), env, signal, ...options };
}

async function exit(child: SpawnedProcess): Promise<unknown[]> {
  return await once(child, "exit");
}

/** A child process of Node.js satisfies the interface; so it goes for those who expect one. */
type Expected = Pick<ChildProcess, "killed" | "exitCode" | "signalCode">;

test("a conversation by lines of JSON comes to its end", async () => {
  await using sandbox = await Sandbox.create({ profile: "harness", image, env: { MINE: "yes" } });
  const child = spawnClaudeCodeProcess(sandbox, { env: ["CODE"], tag: "claude" })(asked());
  const like: Expected = child;
  assert.deepEqual([like.killed, like.exitCode, like.signalCode], [false, null, null]);
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const next = async () => JSON.parse((await lines.next()).value ?? "null");
  const ended = exit(child);
  const system = await next();
  assert.deepEqual([system.type, system.cwd, system.args], ["system", "/workspace", ["--verbose"]]);
  assert(system.env.includes("CODE") && system.env.includes("MINE"));
  assert(!system.env.includes("COFFERDAM_ENDPOINT"), "nothing of this host that is not named");
  for (const word of ["one", "ä", "x".repeat(500_000)]) {
    child.stdin.write(`${JSON.stringify({ message: word })}\n`);
    assert.equal((await next()).message, word + word);
  }
  assert.equal((await sandbox.commands.list({ tag: "claude" })).length, 1);
  child.stdin.end();
  assert.equal((await next()).type, "result");
  assert.deepEqual(await ended, [7, null]);
  assert.deepEqual([like.killed, like.exitCode, like.signalCode], [false, 7, null]);
  assert.equal(child.kill("SIGTERM"), false);
  assert.equal(await text(child.stderr), "a warning\n", "also after its end");
});

test("it is ended by a signal and by its abortion", async () => {
  await using sandbox = await Sandbox.create({ profile: "harness", image });
  const spawn = spawnClaudeCodeProcess(sandbox, { cwd: "/state" });
  const child = spawn(asked());
  assert.equal(child.kill("SIGWINCH"), false);
  const lines = createInterface({ input: child.stdout });
  const [system] = (await once(lines, "line")) as [string];
  assert.equal(JSON.parse(system).cwd, "/state");
  assert.equal(child.kill("SIGTERM"), true);
  assert.equal(child.killed, true);
  assert.deepEqual(await exit(child), [null, "SIGTERM"]);
  // Before it has begun, and by a program that does not listen.
  const controller = new AbortController();
  const deaf = spawn(asked({ command: "sh", args: ["-c", "trap '' TERM; sleep 1000"], signal: controller.signal }));
  controller.abort();
  assert.deepEqual(await exit(deaf), [null, "SIGKILL"]);
  const aborted = spawn(asked({ signal: AbortSignal.abort() }));
  assert.deepEqual(await exit(aborted), [null, "SIGKILL"]);
  const alive = async () => (await sandbox.commands.list()).some((one) => one.state === "running");
  await eventually(async () => !(await alive()), "one lives");
});

test("a program that cannot begin is an error, and input of an ended one is dropped", async () => {
  await using sandbox = await Sandbox.create({ profile: "harness", image });
  const missing = spawnClaudeCodeProcess(sandbox)(asked({ command: "claude" }));
  missing.stdin.on("error", () => {});
  missing.stdin.write("x");
  const [error] = await once(missing, "error");
  assert.match(String(error), /claude/);
  assert.equal(await text(missing.stdout), "");
  await using strict = await Sandbox.create({ profile: "open", image });
  const [refused] = await once(spawnClaudeCodeProcess(strict)(asked()), "error");
  assert.equal(refused.reason, "PERMISSION_DENIED");
  const brief = spawnClaudeCodeProcess(sandbox)(asked({ command: "true", args: [] }));
  const written: Promise<unknown> = new Promise((resolve) => brief.stdin.write("x".repeat(1000), resolve));
  assert.deepEqual(await exit(brief), [0, null]);
  await written;
});
