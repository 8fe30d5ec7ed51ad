/** The tools for the AI SDK, in whole runs with a scripted model. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { AwaitingApproval, Sandbox } from "@cofferdam/sdk";
import { tools } from "@cofferdam/sdk/ai";
import { generateText, stepCountIs } from "ai";
import { MockLanguageModelV3 } from "ai/test";
import { shared } from "./daemon.js";
import { collected, eventually } from "./waiting.js";

await shared();

type Turn = Awaited<ReturnType<MockLanguageModelV3["doGenerate"]>>;

const USAGE: Turn["usage"] = {
  inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 1, text: 1, reasoning: 0 },
};

/** A model that makes these calls, one a turn, and then says that it is done. */
function scripted(calls: [string, object][]): MockLanguageModelV3 {
  return parallel(calls.map((call) => [call]));
}

/** The same with several calls a turn. */
function parallel(steps: [string, object][][]): MockLanguageModelV3 {
  const turns = steps.map(
    (calls, step): Turn => ({
      content: calls.map(([toolName, input], number) => ({
        type: "tool-call",
        toolCallId: `c${step}-${number}`,
        toolName,
        input: JSON.stringify(input),
      })),
      finishReason: { unified: "tool-calls", raw: undefined },
      usage: USAGE,
      warnings: [],
    }),
  );
  const done: Turn = {
    content: [{ type: "text", text: "done" }],
    finishReason: { unified: "stop", raw: undefined },
    usage: USAGE,
    warnings: [],
  };
  return new MockLanguageModelV3({ doGenerate: [...turns, done] });
}

test("a model reads, edits and runs, and every outcome is an answer", async () => {
  await using sandbox = await Sandbox.create({ profile: "open" });
  await sandbox.files.write("a.txt", "one\n");
  const model = scripted([
    ["read_file", { path: "a.txt" }],
    ["edit_file", { path: "a.txt", command: "str_replace", old_str: "one", new_str: "two" }],
    ["bash_command", { command: "wc", args: ["-l", "a.txt"] }],
    ["read_file", { path: "none.txt" }],
    ["bash_command", { command: "rm", args: ["a.txt"] }],
  ]);
  const made = await tools(sandbox, { dialect: "native" });
  const { text, steps } = await generateText({ model, prompt: "Mend it.", tools: made, stopWhen: stepCountIs(9) });
  assert.equal(text, "done");
  const answers = steps.flatMap((step) => step.toolResults.map((result) => String(result.output)));
  assert.equal(answers.length, 5);
  const expected = [/one/, /two/, /1 a\.txt/, /none\.txt/, /not allowed/];
  for (const [number, pattern] of expected.entries()) {
    assert.match(answers[number] ?? "", pattern);
  }
  assert.equal(await sandbox.files.read("a.txt"), "two\n");
  // The model was told the names and schemas that the policy leaves to it.
  const listed = (await sandbox.tools("mcp", { dialect: "native" })).map((tool) => tool["name"]);
  assert.deepEqual(
    model.doGenerateCalls[0]?.tools?.map((tool) => tool.name),
    listed,
  );
});

test("a call that needs consent is an answer, or waits for the person", async () => {
  await using sandbox = await Sandbox.create({ profile: "strict", agentId: "ai" });
  const write: [string, object] = ["fs.write", { path: "a.txt", content: "hi\n" }];
  const run = async (of: Sandbox) => {
    const made = await tools(of, { dialect: "fs" });
    const options = { prompt: "Write.", tools: made, stopWhen: stepCountIs(3) };
    const { steps } = await generateText({ model: scripted([write]), ...options });
    return String(steps[0]?.toolResults[0]?.output);
  };
  assert.match(await run(sandbox), /approv/i);
  const [asked] = await sandbox.approvals.list();
  assert(asked);
  await sandbox.approvals.deny(asked.approvalId);
  // The run is frozen for the question, and goes on a moment after the answer.
  await eventually(async () => (await sandbox.info()).state === "ready", "it stays frozen");
  const waiting = run(sandbox.withOptions({ waitForApproval: true }));
  const asks = eventually(async () => (await sandbox.approvals.list()).length > 0, "no reviewer is asked");
  assert.equal(await Promise.race([asks, waiting]), undefined, "it was answered before anybody was asked");
  const [again] = await sandbox.approvals.list();
  assert(again);
  await sandbox.approvals.approve(again.approvalId);
  assert.doesNotMatch(await waiting, /approv/i);
});

test("parallel calls wait for their reviewer, and each is made once", async () => {
  await using sandbox = await Sandbox.create({ profile: "build", agentId: "ai", waitForApproval: true });
  const words = ["one", "two", "three", "four", "denied"];
  const calls = words.map((word): [string, object] => {
    const script = `echo ${word} >> log; echo ran-${word}`;
    return ["exec", { command: "sh", args: ["-c", script] }];
  });
  const made = await tools(sandbox, { dialect: "exec" });
  const run = generateText({ model: parallel([calls]), prompt: "Go.", tools: made, stopWhen: stepCountIs(3) });
  const wait = eventually(async () => (await sandbox.approvals.list()).length === words.length, "they do not wait");
  assert.equal(await Promise.race([wait, run]), undefined, "it was answered before anybody was asked");
  const asked = await sandbox.approvals.list();
  await Promise.all(
    asked.map(({ approvalId, preview }) =>
      preview.includes("denied")
        ? sandbox.approvals.deny(approvalId, { comment: "not today" })
        : sandbox.approvals.approve(approvalId),
    ),
  );
  // Each call that is made changes the files that consent to the others covers.
  let ended = false;
  const done = run.finally(() => {
    ended = true;
  });
  const goOn = eventually(async () => {
    for (const { approvalId } of await sandbox.approvals.list()) {
      await sandbox.approvals.approve(approvalId);
    }
    return ended;
  }, "they do not end");
  const { steps, text } = await done;
  await goOn;
  assert.equal(text, "done");
  const answers = steps[0]?.toolResults.map((result) => String(result.output)) ?? [];
  assert.equal(answers.length, words.length);
  for (const [number, word] of words.entries()) {
    assert.match(answers[number] ?? "", word === "denied" ? /not today/ : new RegExp(`ran-${word}`));
  }
  assert.deepEqual((await sandbox.files.read("log")).split("\n").sort(), ["", "four", "one", "three", "two"]);
  const kinds = ["approval_requested", "approval_decided", "call_receipt"];
  const counts = new Map(kinds.map((kind) => [kind, new Set<string>()]));
  for await (const { kind, callId } of sandbox.audit.stream({ follow: false, kinds })) {
    assert(!counts.get(kind)?.has(callId), `${kind} twice for one call`);
    counts.get(kind)?.add(callId);
  }
  const [requested = new Set(), decided, receipts = new Set()] = kinds.map((kind) => counts.get(kind));
  assert.deepEqual(decided, requested);
  assert(asked.every(({ callId }) => requested.has(callId)));
  assert(requested.size <= 2 * words.length - 2, `${requested.size} questions`);
  assert([...requested].every((callId) => receipts.has(callId)));
});

test("a call outlasts the reviewer of another one", async () => {
  await using sandbox = await Sandbox.create({ profile: "open", waitForApproval: true });
  await sandbox.files.write("a.txt", "x");
  const removing = sandbox.files.remove("a.txt");
  await eventually(async () => (await sandbox.approvals.list()).length === 1, "no reviewer is asked");
  const beside = sandbox.commands.run(["echo", "done"], { timeout: 1 });
  const refusal = eventually(async () => {
    const receipts = await collected(sandbox.audit.stream({ follow: false, kinds: ["call_receipt"] }));
    return receipts.some(({ record }) => JSON.stringify(record["outcome"]).includes("AWAITING_APPROVAL"));
  }, "the call has no end of its own");
  assert.equal(await Promise.race([refusal, beside]), undefined, "it did not wait");
  // A refusal is the outcome of its request id.
  const once = sandbox.withOptions({ requestId: "once" });
  await assert.rejects(once.commands.run(["true"], { timeout: 1 }), AwaitingApproval);
  const [asked] = await sandbox.approvals.list();
  assert(asked);
  await sandbox.approvals.approve(asked.approvalId);
  await removing;
  assert.equal((await beside).stdout, "done\n");
});

test("a generation that is aborted ends its calls", async () => {
  await using sandbox = await Sandbox.create({ profile: "open" });
  const model = scripted([["exec", { command: "sleep", args: ["75"] }]]);
  const signal = AbortSignal.timeout(500);
  const made = await tools(sandbox, { dialect: "exec" });
  await assert.rejects(
    generateText({ model, prompt: "Sleep.", tools: made, abortSignal: signal, stopWhen: stepCountIs(3) }),
  );
  const runs = async () => (await sandbox.commands.run(["ps", "-o", "args"])).stdout.includes("sleep 75");
  await eventually(async () => !(await runs()), "it runs on");
});
