// Talks to a model by the stock package of openai for Node.js: the commands of openai_sdk.py.

import { execFileSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

import OpenAI from "openai";

const WORK = process.env.WORK ?? "/workspace/project";
const client = new OpenAI({ baseURL: `${process.env.MODEL_URL}/v1`, apiKey: "worth-nothing" });
const tools = ["read_file", "edit_file", "run_tests"].map((name) => ({
  type: "function",
  function: { name, parameters: { type: "object", properties: {} } },
}));

function run(name, { path, old, new: text }) {
  if (name === "read_file") return readFileSync(`${WORK}/${path}`, "utf8");
  if (name === "edit_file") {
    writeFileSync(`${WORK}/${path}`, readFileSync(`${WORK}/${path}`, "utf8").replace(old, text));
    return "edited";
  }
  try {
    execFileSync("python3", ["-B", "test_sums.py"], { cwd: WORK, stdio: "pipe" });
    return "passed";
  } catch (error) {
    return `failed: ${error.stderr}`;
  }
}

/** Returns the message and the tokens (input, output) of one answer. */
async function ask(messages, streams) {
  const options = { model: "chat-1", messages, tools, max_completion_tokens: 64 };
  const answer = streams
    ? await client.chat.completions
        .stream({ ...options, stream_options: { include_usage: true } })
        .finalChatCompletion()
    : await client.chat.completions.create(options);
  return [answer.choices[0].message, [answer.usage.prompt_tokens, answer.usage.completion_tokens]];
}

async function repair(streams) {
  const messages = [{ role: "user", content: "The tests fail. Repair the function." }];
  for (let turn = 0; turn < 8; turn += 1) {
    const [message] = await ask(messages, streams);
    if (!message.tool_calls?.length) return message.content;
    messages.push({ role: "assistant", content: message.content, tool_calls: message.tool_calls });
    for (const { id, function: call } of message.tool_calls) {
      messages.push({ role: "tool", tool_call_id: id, content: run(call.name, JSON.parse(call.arguments)) });
    }
  }
  throw new Error("the repair does not end");
}

const question = (number) => [{ role: "user", content: `number ${number}` }];

async function count(calls) {
  const sums = [0, 0];
  for (let number = 0; number < calls; number += 1) {
    const [, tokens] = await ask(question(number), number % 2 === 1);
    tokens.forEach((value, index) => { sums[index] += value; });
  }
  return JSON.stringify(sums);
}

/** Asks until a request is refused, and says what the program sees of it. */
async function refused() {
  for (let number = 0; ; number += 1) {
    try {
      await ask(question(number), number % 2 === 1);
    } catch (error) {
      return JSON.stringify({ passed: number, status: error.status, message: error.message });
    }
  }
}

/** Leaves streams after their first event. */
async function leave(calls) {
  const most = Number(process.env.MOST ?? 64);
  for (let number = 0; number < calls; number += 1) {
    const options = { model: "chat-1", messages: question(number), max_tokens: most, stream: true };
    for await (const _ of await client.chat.completions.create(options)) break;
  }
  return "left";
}

const [command, argument] = process.argv.slice(2);
const commands = {
  repair: () => repair(argument === "stream"),
  count: () => count(Number(argument)),
  refused,
  leave: () => leave(Number(argument)),
};
console.log(await commands[command]());
if (process.env.AWAIT) {
  writeFileSync(`${process.env.AWAIT}.waits`, "");
  while (!existsSync(process.env.AWAIT)) await sleep(50);
}
