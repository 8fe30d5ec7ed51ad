/** Mistakes and attacks of clients, callers and agents. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { inspect } from "node:util";
import {
  ApprovalRequired,
  AuthenticationFailed,
  Cancelled,
  Client,
  CofferdamError,
  CommandTimedOut,
  DaemonUnreachable,
  Denied,
  InvalidArgument,
  NotFound,
  RateLimited,
  Sandbox,
} from "@cofferdam/sdk";
import { shared } from "./daemon.js";
import { collected, eventually } from "./waiting.js";

const SANDBOXES = 100;
const NO_RUN = "01900000-0000-7000-8000-000000000000";

await shared();

/** Rejected with one of these. */
async function refuses(work: Promise<unknown>, ...kinds: (abstract new (...args: never[]) => Error)[]): Promise<void> {
  await assert.rejects(work, (error) => kinds.some((kind) => error instanceof kind));
}

/** Whether the command is gone, at the latest after its time to end by itself. */
async function gone(sandbox: Sandbox, command: string): Promise<void> {
  const runs = async () => (await sandbox.commands.run(["ps", "-o", "args"])).stdout.includes(command);
  await eventually(async () => !(await runs()), `${command} runs on`);
}

describe("an argument that cannot be right is refused before anything is sent", () => {
  for (const endpoint of ["/run/cofferd.sock", "unix:relative.sock", "unix:"]) {
    test(`the endpoint ${endpoint}`, () => {
      assert.throws(() => new Client({ endpoint }), { name: "InvalidArgument", message: /^endpoint/ });
    });
  }
  for (const token of ["a b", "a\nb", "ä", "\0"]) {
    test(`the token ${JSON.stringify(token)}`, () => {
      assert.throws(() => new Client({ token }), { name: "InvalidArgument", message: /^token/ });
    });
  }
  test("an invalid number", async () => {
    for (const timeout of [0, -1, Number.NaN, Number.POSITIVE_INFINITY]) {
      await refuses(Sandbox.create({ profile: "open", timeout }), InvalidArgument);
    }
    await using sandbox = await Sandbox.create({ profile: "open" });
    await refuses(sandbox.files.readLines("a", { start: 1.5 }), InvalidArgument);
    assert.throws(() => sandbox.audit.stream({ after: -1 }), InvalidArgument);
    await refuses(sandbox.tools("toString" as "mcp"), InvalidArgument);
  });
});

test("a token is in no representation", () => {
  const client = new Client({ token: "cft_secret" });
  assert(!inspect(client, { depth: 9, showHidden: true }).includes("secret"));
  assert(!JSON.stringify(client.transport.settings).includes("secret"));
});

test("a bad token is refused although the user may do all", async () => {
  for (const token of ["nonsense", `cft_${"A".repeat(43)}`, "x".repeat(5000)]) {
    await refuses(Sandbox.create({ profile: "open", token }), AuthenticationFailed, Denied);
  }
});

test("a run's own token does its calls and nothing else", async () => {
  await using sandbox = await Sandbox.create({ profile: "open", issueToken: true });
  await using other = await Sandbox.create({ profile: "open" });
  const { runId, token } = sandbox;
  assert(token);
  assert.equal(other.token, null);
  const agent = await Sandbox.connect(runId, { token });
  await agent.files.write("a.txt", "mine");
  assert.equal((await agent.commands.run(["cat", "a.txt"])).stdout, "mine");
  assert((await agent.tools("openai", { dialect: "fs" })).length > 0);
  await refuses(Sandbox.connect(other.runId, { token }), Denied, NotFound);
  await refuses(Sandbox.create({ profile: "open", token }), Denied);
  await refuses(agent.kill(), Denied);
  await sandbox.kill();
  await refuses(Sandbox.connect(runId, { token }), AuthenticationFailed, Denied);
});

test("a run, profile or image that is not there is not found", async () => {
  for (const runId of [NO_RUN, "nonsense"]) {
    await refuses(Sandbox.connect(runId), NotFound, InvalidArgument);
  }
  await refuses(Sandbox.create({ profile: "no-such-profile" }), NotFound);
  const missing = { name: "NotFound", message: /no-such-image/ };
  await assert.rejects(Sandbox.create({ profile: "open", image: "no-such-image" }), missing);
});

test("a rate limit says when it goes through", async () => {
  await using sandbox = await Sandbox.create({ profile: "strict", agentId: "eager" });
  const look = async () => {
    for (let number = 0; number < 200; number++) {
      await sandbox.files.list();
    }
  };
  await assert.rejects(look(), (error) => {
    assert(error instanceof RateLimited);
    assert(error.retryAfter !== null && error.retryAfter > 0 && error.retryAfter <= 60, String(error.retryAfter));
    assert(error.callId);
    return true;
  });
});

test("a callback that throws ends the command", async () => {
  await using sandbox = await Sandbox.create({ profile: "open" });
  for (const broken of [
    () => {
      throw new RangeError("broken");
    },
    () => Promise.reject(new RangeError("broken")),
    () => {
      // As if the daemon were gone, which it is not.
      throw new DaemonUnreachable("broken");
    },
  ]) {
    const begun = Date.now();
    await assert.rejects(sandbox.commands.run("echo begun; exec sleep 77", { onStdout: broken }), /broken/);
    assert(Date.now() - begun < 60_000);
    await gone(sandbox, "sleep 77");
  }
});

test("a call that is aborted ends its command, at any time", async () => {
  await using sandbox = await Sandbox.create({ profile: "open" });
  const end = new AbortController();
  const onStdout = () => end.abort(new RangeError("enough"));
  const run = sandbox.commands.run("echo begun; exec sleep 78", { onStdout, signal: end.signal });
  await assert.rejects(run, /enough/);
  await gone(sandbox, "sleep 78");
  for (let number = 0; number < 30; number++) {
    const signal = AbortSignal.timeout(2 * number);
    await refuses(sandbox.commands.run(["sleep", "79"], { signal }), DOMException);
  }
  await gone(sandbox, "sleep 79");
  await refuses(sandbox.commands.run(["true"], { signal: AbortSignal.abort() }), DOMException);
  await refuses(sandbox.commands.run(["sleep", "79"], { timeout: 0.2 }), CommandTimedOut);
});

test("a signal of the object ends all of its calls and streams", async () => {
  await using sandbox = await Sandbox.create({ profile: "open" });
  const end = new AbortController();
  const bounded = sandbox.withOptions({ signal: end.signal });
  const work = [
    bounded.commands.run(["sleep", "76"]),
    collected(bounded.audit.stream()),
    collected(bounded.approvals.watch()),
    bounded.callTool("read", { file_path: "a" }).then(() => bounded.commands.run(["sleep", "76"])),
  ].map((one) => refuses(one, DOMException));
  await delay(500);
  end.abort();
  await Promise.all(work);
  await gone(sandbox, "sleep 76");
});

test("a sandbox whose making is aborted is none", async () => {
  await using client = new Client();
  const metadata = { test: "aborted" };
  for (let number = 0; number < 8; number++) {
    const signal = AbortSignal.timeout(30 * number);
    try {
      await (await Sandbox.create({ profile: "open", client, metadata, signal })).kill();
    } catch (error) {
      assert(error instanceof DOMException, String(error));
    }
  }
  // Also with a connection of its own, which it closes.
  await refuses(Sandbox.create({ profile: "open", metadata, signal: AbortSignal.timeout(60) }), DOMException);
  const left = async () => await collected(Sandbox.list({ state: null, metadata, client }));
  const over = async () => (await left()).every((run) => ["stopped", "failed"].includes(run.state));
  await eventually(over, "one of them is there");
});

test("a block that is left by an error ends its sandbox", async () => {
  let runId = "";
  const work = async () => {
    await using sandbox = await Sandbox.create({ profile: "open" });
    runId = sandbox.runId;
    throw new RangeError("mine");
  };
  await assert.rejects(work(), /mine/);
  await refuses(Sandbox.connect(runId), NotFound);
});

test("a hundred sandboxes work from one process", async () => {
  await using client = new Client();
  const one = async (number: number) => {
    await using sandbox = await Sandbox.create({ profile: "open", client, agentId: `a${number}` });
    await sandbox.files.write("n.txt", String(number));
    return (await sandbox.commands.run("cat n.txt; sleep 0.2")).stdout;
  };
  const numbers = Array.from({ length: SANDBOXES }, (_, number) => number);
  assert.deepEqual(await Promise.all(numbers.map(one)), numbers.map(String));
});

test("streams that are left end", async () => {
  await using sandbox = await Sandbox.create({ profile: "open" });
  for (let number = 0; number < 20; number++) {
    for await (const event of sandbox.audit.stream()) {
      assert.equal(event.runId, sandbox.runId);
      break;
    }
  }
  await using approvals = sandbox.approvals.watch();
  await sandbox.files.write("a", "x");
  const next = approvals.next();
  await refuses(sandbox.files.remove("a"), ApprovalRequired);
  assert.equal((await next).value?.state, "pending");
  // Also while somebody waits for its next item.
  const last = approvals.next();
  await approvals.return();
  assert.deepEqual(await last, { done: true, value: undefined });
});

test("closing a client ends its calls and streams", async () => {
  await using sandbox = await Sandbox.create({ profile: "open" });
  const client = new Client();
  const same = await Sandbox.connect(sandbox.runId, { client });
  const following = collected(same.audit.stream());
  const refused = refuses(following, Cancelled);
  await same.files.list();
  await client.close();
  await refused;
  assert.equal((await same.info()).state, "ready", "a later call opens another connection");
  await client.close();
});

test("a call is ended by its id from elsewhere", async () => {
  await using sandbox = await Sandbox.create({ profile: "open" });
  const begun = new AbortController();
  const run = sandbox.commands.run("echo begun; sleep 80", { onStdout: () => begun.abort() });
  const refused = assert.rejects(run, { reason: "CANCELLED" });
  await eventually(async () => begun.signal.aborted, "it does not begin");
  const { value: event } = await sandbox.audit.stream({ kinds: ["call_intent"] }).next();
  assert(event);
  assert.equal((await sandbox.calls.get(event.callId)).status, "running");
  assert.equal(await sandbox.calls.cancel(event.callId), true);
  await refused;
  assert.equal(await run.catch((error) => error instanceof CofferdamError && error.callId), event.callId);
  assert.equal(await sandbox.calls.cancel(event.callId), false);
});

test("the whole API is beneath", async () => {
  await using client = new Client();
  assert((await client.policy.getPolicy({})).profiles.includes("open"));
  assert((await client.audit.verifyLog({})).intact);
  assert((await client.host.examineHost({})).findings.length > 0);
  assert.deepEqual((await client.tokens.listTokens({})).tokens, []);
  await refuses(client.processes.listProcesses({ runId: NO_RUN }), NotFound);
  await refuses(client.trash.listTrash({ runId: NO_RUN }), NotFound);
});
