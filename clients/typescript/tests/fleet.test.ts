/** A fleet of three nodes that are stand-ins: one that is away, full, drained, or lost in the middle of an answer. */

import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, mock, test } from "node:test";
import { setTimeout as delay, setImmediate as immediate } from "node:timers/promises";
import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import {
  Base,
  Client,
  CommandLost,
  type CommandResult,
  CommandTimedOut,
  DaemonTimedOut,
  DaemonUnreachable,
  Denied,
  Fleet,
  type FleetEvent,
  type Gathered,
  InfrastructureError,
  InvalidArgument,
  type NodeInfo,
  NodeLostError,
  NotFound,
  Overloaded,
  RateLimited,
  type RunInfo,
  RunLost,
  Sandbox,
  type Stream,
  Unavailable,
} from "@cofferdam/sdk";
import * as v1 from "@cofferdam/sdk/v1";
import { Metadata, status } from "@grpc/grpc-js";
import { draw, named, Position, read } from "../src/fleet-nodes.js";
import { compare } from "../src/forks.js";
import type { Member } from "../src/member.js";
import { Members } from "../src/members.js";
import { Clock, merged } from "../src/merge.js";
import { refused } from "../src/status.js";
import { idOf, Node, Refused } from "./nodes.js";
import { eventually } from "./waiting.js";

// Milliseconds, with a margin for a busy machine: less than a fleet here waits for a node that it asks, or has lost.
const IN_TIME = 15_000;
// Seconds.
const NODE_TIMEOUT = 20;
const PROFILE = { profile: "p" };
const NAMELESS = "0198a1b2-0000-4000-8000-000000000001";

// The clock is ahead by so many milliseconds. Pauses take as long as without that.
let ahead = 0;
const HOUR = 3_600_000;
const now = performance.now.bind(performance);
mock.method(performance, "now", () => now() + ahead);

let place: string;
let nodes: Node[];
let one: Node;
let two: Node;
let three: Node;
let fleet: Fleet;

beforeEach(async () => {
  place = mkdtempSync(join(tmpdir(), "fleet-"));
  [one, two, three] = await Promise.all([Node.begin(place, 1), Node.begin(place, 2), Node.begin(place, 3)]);
  nodes = [one, two, three];
  fleet = await opened();
});

afterEach(async () => {
  await fleet.close();
  for (const node of nodes) {
    node.remove();
  }
  rmSync(place, { recursive: true });
});

async function opened(patience = 30, nodeTimeout = NODE_TIMEOUT): Promise<Fleet> {
  const options = { nodeTimeout, reconnectTimeout: patience };
  return await Fleet.open(
    nodes.map(({ listed }) => listed),
    options,
  );
}

const made = () => nodes.map(({ created }) => created);
const endpointOf = (sandbox: Sandbox) => sandbox.client.endpoint;
const stamp = (seconds: number) => timestampFromMs(seconds * 1000);
// Until each node answers.
const complete = (of: Fleet) =>
  eventually(async () => (await of.listRuns()).missing.length === 0, "a node does not answer");
const seen = (events: readonly FleetEvent[]) => events.map(({ node, event }) => [node, event.sequence]);

async function all<T>(stream: Stream<T>): Promise<T[]> {
  const items = [];
  for await (const item of stream) {
    items.push(item);
  }
  return items;
}

async function next<T>(stream: Stream<T>): Promise<T> {
  const { value, done } = await stream.next();
  assert(!done && value !== undefined);
  return value;
}

test("a list has what all nodes have by time", async () => {
  for (const [at, second] of [5, 3, 4, 1, 2].entries()) {
    const node = nodes[at % 3] as Node;
    node.runs.set(`r${at}`, { runId: idOf(node.number, at), createdAt: stamp(second), labels: { at: `${at}` } });
    node.approvals.push({ approvalId: `p${at}`, createdAt: stamp(second), state: v1.Approval_State.PENDING });
    node.alerts.push({ alertId: `a${at}`, raisedAt: stamp(second), severity: v1.Alert_Severity.HIGH });
  }
  const runs = await fleet.listRuns();
  const shown = [...runs].map(({ node, item }) => `${node} ${item.metadata["at"]}`);
  assert.deepEqual(shown, ["1 0", "3 2", "2 1", "2 4", "1 3"]);
  assert.equal((await fleet.listRuns({ metadata: { at: "4" } })).length, 1);
  const approvals = [...(await fleet.approvals())].map(({ item }) => item.approvalId);
  assert.deepEqual(approvals, ["p3", "p4", "p1", "p2", "p0"]);
  const alerts = await fleet.alerts();
  assert.deepEqual(
    alerts.items.map(({ item }) => item.alertId),
    ["a0", "a2", "a1", "a4", "a3"],
  );
  assert.deepEqual([alerts.items[0]?.item.severity, alerts.items[0]?.item.state, alerts.missing], ["high", "", []]);
});

test("a dead node is a warning, and a dead fleet an error", async () => {
  assert.equal((await fleet.listRuns()).missing.length, 0);
  two.kill();
  const { missing } = await fleet.listRuns();
  assert.deepEqual(
    missing.map(({ node, state }) => [node, state]),
    [[2, "unreachable"]],
  );
  const states = async () => (await fleet.nodes()).map(({ state }) => state);
  assert.deepEqual(await states(), ["serving", "unreachable", "serving"]);
  one.kill();
  three.kill();
  await assert.rejects(
    fleet.approvals(),
    (error) => error instanceof DaemonUnreachable && /no node of the fleet answers/.test(error.message),
  );
  assert.deepEqual(await states(), ["unreachable", "unreachable", "unreachable"]);
});

test("a node that cannot answer now is a warning", async () => {
  for (const reason of ["OVERLOADED", "RATE_LIMITED", "INTERNAL", "AUDIT_UNAVAILABLE"]) {
    two.refusesLists = reason;
    const { missing } = await fleet.listRuns();
    assert.deepEqual(
      missing.map(({ node, failure }) => [node, failure]),
      [[2, `refused: ${reason}`]],
    );
  }
  for (const node of nodes) {
    node.refusesLists = "RATE_LIMITED";
  }
  await assert.rejects(fleet.listRuns(), RateLimited);
  for (const node of nodes) {
    node.refusesLooks = "OVERLOADED";
  }
  await assert.rejects(fleet.create(PROFILE), Overloaded);
  two.refusesLooks = "";
  await fleet.create(PROFILE);
  assert.deepEqual(
    nodes.map(({ runs }) => runs.size),
    [0, 1, 0],
  );
});

test("records of a sandbox are whole although its daemon stops", async () => {
  const runId = idOf(1, 1);
  one.runs.set("x", { runId });
  for (const second of [1, 2, 3]) {
    one.record(second);
  }
  one.cuts = 1;
  one.cutReason = "DAEMON_STOPPING";
  const sandbox = await fleet.sandbox(runId);
  const sequences: number[] = [];
  for await (const { sequence } of sandbox.audit.stream({ follow: false })) {
    sequences.push(sequence);
  }
  assert.deepEqual(sequences, [1, 2, 3]);
});

for (const reason of ["", "DAEMON_STOPPING"]) {
  test(`a daemon that stops cuts no list of events short: ${reason || "no reason"}`, async () => {
    for (const second of [1, 2, 3]) {
      one.record(second);
    }
    one.cuts = 1;
    one.cutReason = reason;
    const told: string[] = [];
    const events = await all(fleet.watchEvents({ follow: false, onNode: ({ state }) => told.push(state) }));
    assert.deepEqual(seen(events).map(String), ["1,1", "1,2", "1,3"]);
    assert.deepEqual(told, ["unreachable", "serving"]);
  });
}

test("a watch of a node that was too slow begins anew", async () => {
  one.lags = 1;
  for (const node of nodes) {
    node.runs.set("r", { runId: idOf(node.number, 1), createdAt: stamp(node.number) });
  }
  const told: [number | null, string][] = [];
  await using stream = fleet.watchRuns({ onNode: ({ node, state }) => told.push([node, state]) });
  const shown = [];
  while (shown.length < 3) {
    shown.push((await next(stream)).node);
  }
  assert.deepEqual(shown.sort(), [1, 2, 3]);
  assert.deepEqual(told, [
    [1, "unreachable"],
    [1, "serving"],
  ]);
});

test("a daemon that hangs ends no stream later than its signs of life", async () => {
  one.runs.set("r", { runId: idOf(1, 1) });
  const client = new Client({ endpoint: one.endpoint });
  // An answer to a ping may take three seconds, as the node is of this process, too.
  const brief = { "grpc.keepalive_time_ms": 1000, "grpc.keepalive_timeout_ms": 3000 };
  const value = { ...client.transport.settings.channel, ...brief };
  assert.equal(Object.keys(value).length, Object.keys(client.transport.settings.channel).length);
  Object.defineProperty(client.transport.settings, "channel", { value });
  const stream = client.runs.watchRuns({});
  await stream.next();
  one.mute();
  const begun = performance.now();
  await assert.rejects(stream.next(), DaemonUnreachable);
  assert(performance.now() < begun + IN_TIME);
  await client.close();
});

test("a request that is not answered in time is a failure of the infrastructure", async () => {
  one.silentFor = 60;
  const client = new Client({ endpoint: one.endpoint, requestTimeout: 0.2 });
  const late = await client.runs.listRuns({}).catch((error: unknown) => error);
  assert(late instanceof DaemonTimedOut && late instanceof InfrastructureError);
  assert.deepEqual([late.fault, late.retrySafe], ["infrastructure", false]);
  // The deadline may be over at the daemon first.
  const cancelled = { code: status.CANCELLED, details: "Timeout expired", metadata: new Metadata() };
  assert(refused(Object.assign(new Error(), cancelled)) instanceof DaemonTimedOut);
  await client.close();
});

test("a silent node costs its time once", async () => {
  one.silentFor = three.silentFor = 60;
  await using brief = await opened(30, 4);
  const begun = Date.now();
  const { missing } = await brief.listRuns();
  assert(Date.now() - begun < 2 * 4000);
  assert.deepEqual(
    missing.map(({ node }) => node),
    [1, 3],
  );
  assert.match(missing[0]?.failure ?? "", /does not answer within 4 seconds/);
});

test("a node that says another number is not used", async () => {
  two.says = 7;
  two.runs.set("x", { runId: idOf(7, 1) });
  const runs = await fleet.listRuns();
  assert.deepEqual([runs.length, runs.missing.map(({ node }) => node)], [0, [2]]);
  assert.match((await fleet.nodes())[1]?.failure ?? "", /refused: WRONG_NODE/);
  for (let at = 0; at < 4; at++) {
    await fleet.create(PROFILE);
  }
  assert.equal(two.created, 0);
});

test("nodes without numbers say theirs, and two addresses of one count once", async () => {
  two.runs.set("x", { runId: idOf(2, 1) });
  await using unnumbered = await Fleet.open([one, two, one].map(({ endpoint }) => ({ id: null, endpoint })));
  assert.deepEqual(
    [...(await unnumbered.listRuns())].map(({ node }) => node),
    [2],
  );
  assert.deepEqual(
    (await unnumbered.nodes()).map(({ node }) => node),
    [1, 2],
  );
  assert.equal(endpointOf(await unnumbered.sandbox(two.runs.get("x")?.runId ?? "")), two.endpoint);
});

test("a daemon that says the number of another is no second address", async () => {
  three.says = 2;
  await using unnumbered = await Fleet.open(nodes.map(({ endpoint }) => ({ id: null, endpoint })));
  const [refused, ...others] = (await unnumbered.listRuns()).missing;
  assert.equal(refused?.node, null);
  assert.match(refused.failure, /says that it is node 2, as another daemon at/);
  assert.deepEqual(others, []);
  // Which of them answers first is chance, and no other one takes its place while it answers.
  const places = async () => new Map((await unnumbered.nodes()).map(({ node, endpoint }) => [node, endpoint]));
  const first = await places();
  assert.deepEqual([first.get(2), refused.endpoint].sort(), [two.endpoint, three.endpoint].sort());
  assert.deepEqual(await places(), first);
});

test("a daemon that says a listed number is held against the listed node first", async () => {
  two.silentFor = 0.3;
  two.runs.set("x", { runId: idOf(2, 1) });
  const places = (runs: Gathered<RunInfo>) => [
    [...runs].map(({ node }) => node),
    runs.missing.map(({ endpoint }) => endpoint),
  ];
  {
    await using fleet = await Fleet.open([two.listed, { id: null, endpoint: two.endpoint }]);
    // A second address, although a list alone does not ask the node with the number about itself.
    assert.deepEqual(places(await fleet.listRuns()), [[2], []]);
  }
  three.says = 2;
  const listed = [two.listed, { id: null, endpoint: three.endpoint }];
  {
    await using fleet = await Fleet.open(listed);
    const found = await fleet.listRuns();
    assert.deepEqual(places(found), [[2], [three.endpoint]]);
    assert.match(found.missing[0]?.failure ?? "", /says that it is node 2, as another daemon at/);
  }
  two.silentFor = 0;
  two.kill();
  three.runs.set("y", { runId: idOf(2, 2) });
  await using fleet = await Fleet.open([...listed, one.listed]);
  const found = await fleet.listRuns();
  assert.deepEqual(places(found), [[], [two.endpoint, three.endpoint]]);
  assert.match(found.missing[1]?.failure ?? "", /and that has not answered/);
});

test("a sandbox is found on the node that its id names", async () => {
  const runId = idOf(2, 1);
  two.runs.set("x", { runId });
  three.runs.set("y", { runId: NAMELESS });
  one.kill();
  assert.equal(endpointOf(await fleet.sandbox(runId)), two.endpoint);
  assert.equal(endpointOf(await fleet.sandbox(NAMELESS)), three.endpoint);
  await assert.rejects(fleet.sandbox(idOf(9, 1)), NotFound);
  await assert.rejects(fleet.sandbox(idOf(1, 1)), DaemonUnreachable);
  const unknown = NAMELESS.replace(/.$/, "f");
  await assert.rejects(fleet.sandbox(unknown), DaemonUnreachable);
  await one.start();
  await complete(fleet);
  await assert.rejects(fleet.sandbox(unknown), NotFound);
});

test("the least loaded node gets the next sandbox", async () => {
  [one.usedRuns, two.usedRuns] = [50, 52];
  three.state = v1.Node_State.DRAINING;
  for (let at = 0; at < 6; at++) {
    await fleet.create(PROFILE);
  }
  assert.deepEqual(made(), [4, 2, 0]);
});

test("weights divide sandboxes, and many at once are spread", async () => {
  const weighted = nodes.map(({ listed }, at) => ({ ...listed, weight: at === 0 ? 2 : 1 }));
  await using another = await Fleet.open(weighted);
  const sandboxes = await Promise.all(Array.from({ length: 8 }, () => another.create(PROFILE)));
  assert.deepEqual(made(), [4, 2, 2]);
  assert.equal(new Set(sandboxes.map(({ runId }) => runId)).size, 8);
});

test("a node that refuses is passed over", async () => {
  for (const reason of ["OVERLOADED", "NODE_DRAINED", "IMAGE_MISSING"]) {
    one.refuses = two.refuses = reason;
    three.usedRuns = 90;
    assert.equal(endpointOf(await fleet.create(PROFILE)), three.endpoint);
  }
  three.refuses = "OVERLOADED";
  await one.die();
  await two.die();
  await assert.rejects(fleet.create(PROFILE), Overloaded);
  three.refuses = "INVALID_ARGUMENT";
  await assert.rejects(fleet.create(PROFILE), InvalidArgument);
});

test("a dead node is passed over in time", async () => {
  for (let at = 0; at < 3; at++) {
    await fleet.create(PROFILE);
  }
  await one.die();
  for (let at = 0; at < 20; at++) {
    const begun = Date.now();
    await fleet.create(PROFILE);
    assert(Date.now() - begun < IN_TIME);
  }
  assert.equal(
    made().reduce((sum, number) => sum + number),
    23,
  );
  await two.die();
  await three.die();
  await assert.rejects(fleet.create(PROFILE), DaemonUnreachable);
});

test("a silent node costs one create its time", { timeout: 120_000 }, async () => {
  one.silentFor = 60;
  await using brief = await opened(30, 4);
  const begun = Date.now();
  await brief.create(PROFILE);
  assert(Date.now() - begun < 2 * 4000);
  const asked = one.looks;
  // Also while it is asked again.
  for (let left = 10; left > 0; left -= one.looks > asked ? 1 : 0) {
    const before = Date.now();
    await brief.create(PROFILE);
    assert(Date.now() - before < 4000);
    await delay(50);
  }
  one.silentFor = 0;
  const { created } = one;
  for (const until = Date.now() + 30_000; one.created === created && Date.now() < until; await delay(100)) {
    await brief.create(PROFILE);
  }
  assert(one.created > created);
});

test("a create whose answer was lost is one run when its node is back", async () => {
  two.usedRuns = three.usedRuns = 90;
  one.beforeAnswer = () => {
    ahead += HOUR;
    one.kill();
    one.beforeAnswer = () => {};
    setTimeout(() => one.start(), 700);
  };
  const sandbox = await fleet.create({ ...PROFILE, lease: 3600, keepAlive: true, issueToken: true });
  await eventually(async () => one.renewals === 1, "a lease that may be over is not renewed at once");
  assert.deepEqual(made(), [1, 0, 0]);
  assert.deepEqual(
    [...one.runs.values()].map(({ runId }) => runId),
    [sandbox.runId],
  );
  assert.equal(sandbox.token, "token-1");
});

test("a repetition that is refused goes to no other node", async () => {
  two.usedRuns = three.usedRuns = 90;
  one.beforeAnswer = () => {
    one.kill();
    one.beforeAnswer = () => {
      throw new Refused("NODE_DRAINED", status.UNAVAILABLE);
    };
    setTimeout(() => one.start(), 700);
  };
  await assert.rejects(fleet.create(PROFILE), (error) => error instanceof Unavailable && !error.retrySafe);
  assert.deepEqual(made(), [1, 0, 0]);
  await eventually(async () => one.stopped.length > 0, "the run goes on");
  assert.deepEqual(
    one.stopped,
    [...one.runs.values()].map(({ runId }) => runId),
  );
});

test("a create whose node stays away is found later, and never made twice", async () => {
  two.usedRuns = three.usedRuns = 90;
  one.beforeAnswer = () => one.kill();
  await using impatient = await opened(0.3);
  const lost = await impatient.create(PROFILE).catch((error: unknown) => error);
  assert(lost instanceof NodeLostError && lost.requestId !== null && !lost.retrySafe);
  const requestId = lost.requestId;
  const isUnknown = (error: unknown) => error instanceof NodeLostError && error.requestId === requestId;
  await assert.rejects(impatient.create({ ...PROFILE, requestId }), isUnknown);
  await assert.rejects(impatient.find(requestId), isUnknown);
  one.beforeAnswer = () => {};
  await one.start();
  await complete(impatient);
  const found = await impatient.find(requestId);
  assert.equal((await impatient.create({ ...PROFILE, requestId })).runId, found?.runId);
  assert.deepEqual(made(), [1, 0, 0]);
});

test("a name is one sandbox in the whole fleet", async () => {
  await using another = await opened();
  const fleets = Array.from({ length: 10 }, (_, at) => (at % 2 ? fleet : another));
  const sandboxes = await Promise.all(fleets.map((each) => each.create({ ...PROFILE, requestId: "mine" })));
  assert.equal(new Set(sandboxes.map(({ runId }) => runId)).size, 1);
  assert.equal(
    made().reduce((sum, number) => sum + number),
    1,
  );
  // Also if it is on a node that the name would not choose.
  const [away] = [...nodes].sort((a, b) => (draw(a.number, "other") < draw(b.number, "other") ? 1 : -1));
  const runId = idOf(away?.number ?? 0, 9);
  away?.runs.set("other", { runId });
  assert.equal((await fleet.create({ ...PROFILE, requestId: "other" })).runId, runId);
  assert.equal(await fleet.find("none"), null);
});

test("a node that failed to make a run does not hide the run of the next", async () => {
  const [first] = [...nodes].sort((a, b) => (draw(a.number, "mine") < draw(b.number, "mine") ? -1 : 1));
  assert(first !== undefined);
  const runId = idOf(first.number, 9);
  first.runs.set("mine", { runId, state: v1.Run_State.FAILED });
  assert.equal((await fleet.find("mine"))?.runId, runId);
  first.refusesAgain = true;
  const sandbox = await fleet.create({ ...PROFILE, requestId: "mine" });
  assert.notEqual(endpointOf(sandbox), first.endpoint);
  assert.equal((await fleet.find("mine"))?.runId, sandbox.runId);
  assert.equal((await fleet.create({ ...PROFILE, requestId: "mine" })).runId, sandbox.runId);
  assert.equal(
    made().reduce((sum, number) => sum + number),
    1,
  );
});

test("a lease is renewed at once only of a run that was found, and until its end", async () => {
  two.usedRuns = three.usedRuns = 90;
  await fleet.create({ ...PROFILE, lease: 3600, keepAlive: true });
  one.runs.set("mine", { runId: idOf(1, 9) });
  await fleet.create({ ...PROFILE, requestId: "mine", lease: 3600, keepAlive: true });
  await eventually(async () => one.renewals === 1, "it is not renewed at once");
  const passing = ["DAEMON_STOPPING", "AUDIT_UNAVAILABLE", "RATE_LIMITED", "OVERLOADED", "INTERNAL", "TIMED_OUT"];
  one.refusedRenewals = [...passing, "RUN_NOT_READY"];
  await fleet.create({ ...PROFILE, lease: 0.3, keepAlive: true });
  const all = 1 + passing.length + 1;
  await eventually(async () => one.renewals === all, "a refusal ends the renewing");
  await delay(300);
  assert.equal(one.renewals, all);
  await assert.rejects(fleet.create({ ...PROFILE, keepAlive: true }), InvalidArgument);
});

test("a lease that began a while before the answer is renewed at once", async () => {
  two.usedRuns = three.usedRuns = 90;
  {
    await using client = new Client({ endpoint: one.endpoint });
    const options = { ...PROFILE, lease: 3600, keepAlive: true };
    // Made within a third of its lease.
    await Sandbox.create({ ...options, client });
    one.beforeAnswer = () => {
      ahead += HOUR;
    };
    const late = await Sandbox.create({ ...options, client });
    await eventually(async () => one.renewals === 1, "it is not renewed at once");
    const lateToo = await fleet.create(options);
    await eventually(async () => one.renewals === 2, "it is not renewed at once in a fleet");
    assert.deepEqual(one.renewed, [late.runId, lateToo.runId]);
  }
  await using client = new Client({ endpoint: two.endpoint });
  // The first of them may have been ready for long.
  assert.equal((await client.fork("c", 3, { keepAlive: true })).length, 3);
  await eventually(async () => two.renewals === 3, "forks are not renewed at once");
});

test("a check that was lost with its run has no result", async () => {
  const result = { callId: "c", stdout: "half" } as CommandResult;
  const outcomes = [
    new CommandLost("the node was drained", result, { reason: "RUN_LOST" }),
    new RunLost("the node was drained", { reason: "RUN_LOST" }),
    new CommandTimedOut("too long", result, { reason: "TIMED_OUT" }),
  ];
  const sandboxes = outcomes.map((error, at) => {
    const run = async () => {
      throw error;
    };
    return { runId: `${at}`, commands: { run } } as unknown as Sandbox;
  });
  const runs = outcomes.map((_, at) => create(v1.ComparedRunSchema, { run: { runId: `${at}` } }));
  const compareRuns = async () => create(v1.CompareRunsResponseSchema, { runs });
  const compared = await compare({ checkpoints: { compareRuns } } as unknown as Client, sandboxes, "make test", {});
  assert.deepEqual(
    compared.runs.map(({ check }) => check),
    [null, null, result],
  );
});

test("nobody renews a lease whose sandbox was given to nobody, or whose fleet was closed", async () => {
  for (const node of nodes) {
    node.refusesTokens = true;
  }
  const renewals = () => nodes.reduce((sum, node) => sum + node.renewals, 0);
  // Each tenth of a second. One may be on its way.
  const options = { ...PROFILE, lease: 0.3, keepAlive: true };
  const isOver = async () => {
    const before = renewals();
    await delay(600);
    assert(renewals() <= before + 1);
  };
  await assert.rejects(fleet.create({ ...options, requestId: "mine", issueToken: true }), Unavailable);
  await isOver();
  const ended = renewals();
  await fleet.create(options);
  await eventually(async () => renewals() > ended + 2, "it is not renewed");
  await fleet.close();
  await isOver();
});

test("what begins with a base goes to its node", async () => {
  two.usedRuns = 99;
  const workspace = Base(idOf(2, 1));
  await fleet.create({ ...PROFILE, workspace });
  assert.deepEqual(made(), [0, 1, 0]);
  await assert.rejects(fleet.create({ ...PROFILE, workspace: Base(idOf(9, 1)) }), NotFound);
  two.kill();
  await assert.rejects(fleet.create({ ...PROFILE, workspace }), DaemonUnreachable);
  assert.deepEqual(made(), [0, 1, 0]);
});

test("a create that is aborted leaves no run", async () => {
  two.usedRuns = three.usedRuns = 90;
  const end = new AbortController();
  one.beforeAnswer = async () => {
    end.abort(new TypeError("enough"));
    await delay(300);
  };
  await assert.rejects(fleet.create({ ...PROFILE, signal: end.signal }), new TypeError("enough"));
  await fleet.close();
  assert.deepEqual(
    one.stopped,
    [...one.runs.values()].map(({ runId }) => runId),
  );
  assert.equal(one.stopped.length, 1);
});

test("a create that is aborted while its node is away leaves no run", async () => {
  two.usedRuns = three.usedRuns = 90;
  const end = new AbortController();
  one.beforeAnswer = () => {
    one.kill();
    end.abort(new TypeError("enough"));
  };
  await assert.rejects(fleet.create({ ...PROFILE, signal: end.signal }), new TypeError("enough"));
  await delay(500);
  await one.start();
  await fleet.close();
  assert.equal(one.runs.size, 1);
  assert.deepEqual(
    one.stopped,
    [...one.runs.values()].map(({ runId }) => runId),
  );
});

test("a node that dies meanwhile loses no create, and doubles none", async () => {
  for (const node of nodes) {
    node.beforeAnswer = () => delay(10);
  }
  let left = 100;
  let back: Promise<void> | undefined;
  const sandboxes: Sandbox[] = [];
  const worker = async () => {
    while (left > 0) {
      left -= 1;
      if (left === 75) {
        two.kill();
        back = delay(500).then(() => two.start());
      }
      sandboxes.push(await fleet.create(PROFILE));
    }
  };
  await Promise.all(Array.from({ length: 20 }, worker));
  await back;
  const kept = nodes.flatMap(({ runs }) => [...runs.values()].map(({ runId = "" }) => runId));
  assert.deepEqual(sandboxes.map(({ runId }) => runId).sort(), kept.sort());
  assert.equal(new Set(kept).size, 100);
});

test("events come by time, and go on at a position", async () => {
  for (let second = 1; second <= 300; second++) {
    nodes[second % 3]?.record(second);
  }
  const events = await all(fleet.watchEvents({ follow: false }));
  assert.deepEqual(
    events.map(({ event }) => event.time.getTime() / 1000),
    Array.from({ length: 300 }, (_, at) => at + 1),
  );
  for (const at of [0, 7, 150, 298, 299]) {
    const position = events[at]?.position;
    const rest = await all(fleet.watchEvents({ position, follow: false }));
    assert.deepEqual(seen(rest), seen(events.slice(at + 1)));
  }
});

test("another log and a shorter one are read from their beginning", async () => {
  for (let second = 1; second <= 6; second++) {
    nodes[second % 3]?.record(second);
  }
  const position = (await all(fleet.watchEvents({ follow: false }))).at(-1)?.position;
  one.log = "a".repeat(32);
  one.events = [];
  for (const second of [100, 101, 102]) {
    one.record(second);
  }
  two.events.splice(1);
  const rest = await all(fleet.watchEvents({ position, follow: false }));
  assert.deepEqual(seen(rest).map(String), ["2,1", "1,1", "1,2", "1,3"]);
});

test("a stream goes on when a node is back, and tells of it", async () => {
  for (const node of nodes) {
    for (let second = 0; second < 3; second++) {
      node.record(second);
    }
  }
  const told: [number | null, string][] = [];
  const onNode = ({ node, state }: NodeInfo) => told.push([node, state]);
  const events: FleetEvent[] = [];
  await using stream = fleet.watchEvents({ onNode });
  while (events.length < 9) {
    events.push(await next(stream));
  }
  two.kill();
  one.record(Date.now() / 1000);
  events.push(await next(stream));
  two.record(Date.now() / 1000);
  await two.start();
  events.push(await next(stream));
  three.record(Date.now() / 1000);
  events.push(await next(stream));
  assert.deepEqual(seen(events.slice(9)), [
    [1, 4],
    [2, 4],
    [3, 4],
  ]);
  assert.equal(new Set(seen(events).map(String)).size, 12);
  assert.deepEqual(told, [
    [2, "unreachable"],
    [2, "serving"],
  ]);
  // The position has the node that was away, too.
  const { position } = events.at(-1) as FleetEvent;
  assert.deepEqual(await all(fleet.watchEvents({ position, follow: false })), []);
});

const member = (number: number) => ({ number, timeout: 1, isTwin: false, look: async () => ({}) }) as unknown as Member;

test("events of now are put in order", async () => {
  for (const node of nodes) {
    node.record(1);
  }
  await using stream = fleet.watchEvents();
  const first = [await next(stream), await next(stream), await next(stream)];
  assert.deepEqual(seen(first).map(String).sort(), ["1,1", "2,1", "3,1"]);
  let isInOrder = false;
  // An event waits for a moment, which a busy machine may take to send the next one.
  for (let left = 10; left > 0 && !isInOrder; left--) {
    const now = Date.now() / 1000;
    three.record(now + 0.02);
    await delay(50);
    // It was written before, and comes later.
    one.record(now);
    isInOrder = String([(await next(stream)).node, (await next(stream)).node]) === "1,3";
  }
  assert(isInOrder);
});

test("a node that always sends earlier items hides none of others", async () => {
  const begin = async function* (
    of: Member,
    _info: NodeInfo,
    signal: AbortSignal,
  ): AsyncGenerator<[Date, number], void> {
    for (let at = 1; of.number === 1 || at <= 50; at++) {
      await immediate(undefined, { signal });
      yield [new Date(of.number === 1 ? 1000 : 2000 + at), at];
    }
    await delay(60_000, undefined, { signal });
  };
  const merging = { begin, onNode: undefined, follow: true, patience: 5, longestWait: 200 };
  const others: number[] = [];
  for await (const { member: of, item } of merged([member(1), member(2)], merging, AbortSignal.timeout(20_000))) {
    if (of.number === 2 && others.push(item) === 50) {
      break;
    }
  }
  assert.deepEqual(
    others,
    Array.from({ length: 50 }, (_, at) => at + 1),
  );
});

test("the time of its taker is none that an item waits", async () => {
  const since = performance.now();
  const clock = new Clock();
  const begun = clock.now();
  for (let time = 0; time < 2; time++) {
    clock.leave();
    const left = clock.now();
    await delay(200);
    assert.equal(clock.now(), left);
    clock.back();
  }
  // Both pauses are missing in it.
  assert(clock.now() - begun < performance.now() - since - 300);
  const again = clock.now();
  await delay(210);
  assert(clock.now() >= again + 200);
});

test("a fleet that is gone ends a stream", async () => {
  one.record(1);
  await using impatient = await opened(0.5);
  const stream = impatient.watchEvents();
  assert.deepEqual(seen([await next(stream)]), [[1, 1]]);
  for (const node of nodes) {
    node.kill();
  }
  await assert.rejects(stream.next(), DaemonUnreachable);
  await assert.rejects(all(impatient.watchEvents({ follow: false })), DaemonUnreachable);
});

test("a record that cannot be read is a warning, and an error where all nodes send such", async () => {
  const recordJson = JSON.stringify({ log: two.log });
  const time = stamp(2);
  const records = [
    { sequence: 1n, time, recordJson: "{" },
    { sequence: 1n, time, recordJson: "null" },
    { sequence: 1n, time, recordJson: "{}" },
    { sequence: 1n, recordJson },
    { sequence: 1n, time: { seconds: 10n ** 18n, nanos: 0 }, recordJson },
    { sequence: 2n ** 64n - 1n, time, recordJson },
  ];
  one.record(1);
  three.record(3);
  for (const record of records) {
    two.events = [record];
    const told: (number | null)[] = [];
    const onNode = ({ node, state }: NodeInfo) => state === "unreachable" && told.push(node);
    const shown = [
      [1, 1],
      [3, 1],
    ];
    assert.deepEqual(seen(await all(fleet.watchEvents({ follow: false, onNode }))), shown);
    assert.deepEqual(told, [2], record.recordJson);
    await using stream = fleet.watchEvents({ onNode });
    assert.deepEqual(seen([await next(stream), await next(stream)]).sort(), shown);
    assert.deepEqual(told.slice(0, 2), [2, 2]);
  }
  one.events = two.events;
  three.events = two.events;
  const none = { name: "DaemonUnreachable", message: /no node of the fleet answers: .*has a number/ };
  await assert.rejects(all(fleet.watchEvents({ follow: false })), none);
});

test("a list that cannot be read is a warning", async () => {
  two.runs.set("x", { runId: idOf(2, 1), createdAt: { seconds: 10n ** 18n, nanos: 0 } });
  const { items, missing } = await fleet.listRuns();
  assert.deepEqual([items, missing.map(({ node }) => node)], [[], [2]]);
  three.goesOn = true;
  const [, last] = (await fleet.listRuns()).missing;
  assert.deepEqual([last?.node, last?.failure], [3, "the list of runs has no end"]);
  await assert.rejects(fleet.listRuns({ signal: AbortSignal.abort(new TypeError("enough")) }), new TypeError("enough"));
});

test("a node that refuses a stream ends it", async () => {
  three.denies = true;
  await assert.rejects(all(fleet.watchEvents()), Denied);
});

test("a dead node is left out of a stream that ends", async () => {
  for (const node of nodes) {
    node.record(node.number);
  }
  two.kill();
  const told: (number | null)[] = [];
  const onNode = ({ node }: NodeInfo) => told.push(node);
  const events = await all(fleet.watchEvents({ follow: false, onNode }));
  assert.deepEqual(seen(events), [
    [1, 1],
    [3, 1],
  ]);
  assert.deepEqual(told, [2]);
  await two.start();
  await complete(fleet);
  const position = events.at(-1)?.position;
  assert.deepEqual(seen(await all(fleet.watchEvents({ position, follow: false }))), [[2, 1]]);
});

test("streams without positions are merged, and end when they are left", async () => {
  for (const node of nodes) {
    node.runs.set("r", { runId: idOf(node.number, 1), createdAt: stamp(10 - node.number) });
    node.approvals.push({ approvalId: `p${node.number}`, createdAt: stamp(1), state: v1.Approval_State.PENDING });
    node.alerts.push({ alertId: `a${node.number}`, lastAt: stamp(1) });
  }
  await using runs = fleet.watchRuns();
  const shown = [await next(runs), await next(runs), await next(runs)];
  assert.deepEqual(shown.map(({ node }) => node).sort(), [1, 2, 3]);
  await using approvals = fleet.watchApprovals();
  await using alerts = fleet.watchAlerts();
  const asked = [await next(approvals), await next(approvals), await next(approvals)];
  assert.deepEqual(asked.map(({ item }) => item.approvalId).sort(), ["p1", "p2", "p3"]);
  const raised = [await next(alerts), await next(alerts), await next(alerts)];
  assert.deepEqual(raised.map(({ item }) => item.alertId).sort(), ["a1", "a2", "a3"]);
  const waiting = alerts.next();
  await alerts.close();
  assert.deepEqual(await waiting, { done: true, value: undefined });
});

test("a file is read, and its mistakes are named", async () => {
  const file = join(place, "fleet.yaml");
  const listed = {
    id: 7,
    address: "node-7.example.org:7443",
    server_name: "n7",
    weight: 3,
    agent_check: "192.0.2.7:1",
  };
  writeFileSync(file, JSON.stringify({ nodes: [listed, { id: 8, address: "[2001:db8::8]:7443" }] }));
  const seven = { id: 7, endpoint: "https://node-7.example.org:7443", serverName: "n7", weight: 3 };
  const eight = { id: 8, endpoint: "https://[2001:db8::8]:7443", serverName: undefined, weight: undefined };
  assert.deepEqual(await read(file), [seven, eight]);
  writeFileSync(file, "nodes:\n  - { id: 8, address: '[2001:db8::8]:7443' }\n");
  assert.deepEqual(await read(file), [eight]);
  const mistakes = [
    { id: 0 },
    { id: 65_536 },
    { id: true },
    { id: "7" },
    { address: "node-7.example.org" },
    { address: "http://node-7.example.org:1" },
    { address: null },
    { server_name: "a b" },
    { weight: 0 },
    { weight: 257 },
    { token: "x" },
  ];
  const whole = [{}, { nodes: [] }, { nodes: 7 }, { nodes: [listed, listed] }, { nodes: [listed], more: 1 }, "x"];
  const texts = [...mistakes.map((mistake) => ({ nodes: [{ ...listed, ...mistake }] })), ...whole].map((top) =>
    JSON.stringify(top),
  );
  for (const text of [...texts, "nodes: [", " ".repeat(1024 * 1024 + 1)]) {
    writeFileSync(file, text);
    await assert.rejects(read(file), InvalidArgument, text.slice(0, 200));
  }
  await assert.rejects(read(join(place, "none")), InvalidArgument);
  for (const wrong of [
    "dns:",
    "dns:fleet.example.org:",
    "dns:fleet example:1",
    "dns:[::1]:1",
    "dns:fleet.example.org:0",
  ]) {
    await assert.rejects(named(wrong), InvalidArgument, wrong);
  }
});

test("a name stands for all its addresses", async () => {
  const addresses = ["192.0.2.7", "2001:db8::7", "192.0.2.7"].map((address) => ({ address, family: 4 }));
  const found = await named("dns:fleet.example.org:7443", (async () => addresses) as never);
  assert.deepEqual(await named("dns:fleet.example.org", (async () => addresses) as never), found);
  assert.deepEqual(found, [
    { id: null, endpoint: "https://192.0.2.7:7443", serverName: "fleet.example.org" },
    { id: null, endpoint: "https://[2001:db8::7]:7443", serverName: "fleet.example.org" },
  ]);
  const fails = (async () => {
    throw new Error("ENOTFOUND");
  }) as never;
  await assert.rejects(named("dns:fleet.example.org:7443", fails), DaemonUnreachable);
});

test("a node that is away is found at another address of a name", async () => {
  three.kill();
  const resolve = async () => nodes.map(({ endpoint }) => ({ id: null, endpoint }));
  const members = new Members(await resolve(), NODE_TIMEOUT, { reconnectTimeout: 5 }, resolve, 100);
  const question = async ({ ask }: Member) => (await ask.runs.listRuns({}, { timeout: NODE_TIMEOUT })).runs;
  const missing = async () => (await members.gather(question)).missing.map(({ node }) => node);
  const numbers = async () => (await members.look()).map(({ node, endpoint }) => [node, endpoint]);
  const complete = () => eventually(async () => (await missing()).length === 0, "a node was not found");
  // One that never answered.
  assert.deepEqual(await missing(), [null]);
  await three.moved(`unix:${place}/third.sock`);
  await complete();
  one.kill();
  assert.deepEqual(await missing(), [1]);
  await one.moved(`unix:${place}/first.sock`);
  await complete();
  assert.deepEqual(
    await numbers(),
    nodes.map(({ number, endpoint }) => [number, endpoint]),
  );
  // Two exchange their addresses.
  const [first, second] = [one.endpoint, two.endpoint];
  one.kill();
  two.kill();
  await one.moved(second);
  await two.moved(first);
  await complete();
  assert.deepEqual(
    await numbers(),
    nodes.map(({ number, endpoint }) => [number, endpoint]),
  );
  const [member] = members.present;
  assert.equal(member?.client.endpoint, second);
  assert.equal((await member?.client.runs.listRuns({}))?.runs.length, 0);
  await members.close();
});

test("a second address takes the place of the first one", async () => {
  // Either of them may be the first to answer.
  const endpoints = [one.endpoint, two.endpoint];
  two.says = 1;
  two.instance = one.instance;
  const resolve = async () => endpoints.map((endpoint) => ({ id: null, endpoint }));
  const members = new Members(await resolve(), NODE_TIMEOUT, { reconnectTimeout: 5 }, resolve, 100);
  const [first] = await members.look();
  const [used, other] = first?.endpoint === one.endpoint ? [one, two] : [two, one];
  // A node that refuses by itself is at its address.
  used.refusesLists = "RATE_LIMITED";
  await assert.rejects(
    members.gather(async ({ ask }) => (await ask.runs.listRuns({}, { timeout: NODE_TIMEOUT })).runs),
    RateLimited,
  );
  assert(members.present.every(({ isMissed }) => !isMissed));
  used.kill();
  const isThere = async () => (await members.look())[0]?.endpoint === other.endpoint;
  await eventually(isThere, "the second address was not asked");
  const now = (await members.look()).map(({ node, state }) => [node, state]);
  assert.deepEqual(now, [[1, "serving"]]);
  await members.close();
});

test("a fleet is closed while DNS gives no answer", async () => {
  let isAsked = false;
  const resolve = () => {
    isAsked = true;
    return new Promise<never>(() => {});
  };
  const members = new Members([{ id: null, endpoint: one.endpoint }], NODE_TIMEOUT, {}, resolve, 100);
  one.kill();
  const question = async ({ ask }: Member) => (await ask.runs.listRuns({}, { timeout: NODE_TIMEOUT })).runs;
  await assert.rejects(members.gather(question), DaemonUnreachable);
  assert(isAsked);
  await members.close();
});

test("a node needs an endpoint, and a server name needs TLS", async () => {
  await assert.rejects(Fleet.open([{ id: 1, endpoint: "" }]), InvalidArgument);
  for (const [endpoint, serverName] of [
    ["unix:/x", "a.example.org"],
    ["https://a.example.org:1", "a b"],
  ] as const) {
    await assert.rejects(Fleet.open([{ id: 1, endpoint, serverName }]), InvalidArgument);
  }
  await assert.rejects(Fleet.open([{ id: 1, endpoint: "unix:/x" }], { nodeTimeout: 0 }), InvalidArgument);
});

test("a position forgets nodes that left before it is too long to be read", () => {
  const range = (from: number, to: number) => Array.from({ length: to - from }, (_, at) => from + at);
  const fleet = new Set(range(100, 700));
  const position = new Position();
  const log = "ab".repeat(16);
  for (const node of range(1, 700)) {
    position.saw(node, { log, sequence: node }, fleet);
  }
  const again = new Position(position.written());
  assert.equal(again.written(), position.written());
  const kept = range(1, 700).filter((node) => again.after(node, { log, sequence: node }) > 0);
  assert.deepEqual(kept, range(188, 700));
  // One that left stays as long as there is room.
  const small = new Position();
  for (const node of [1, 2]) {
    small.saw(node, { log, sequence: node }, new Set([2]));
  }
  assert.equal(small.after(1, { log, sequence: 1 }), 1);
});

test("a position that is none is refused", () => {
  const place = new Position();
  const fleet = new Set([1, 2]);
  place.saw(1, { log: "07".repeat(16), sequence: 42 }, fleet);
  const written = place.written();
  const once = Buffer.from(written.slice(3), "base64url");
  const twice = `p1.${Buffer.concat([once, once]).toString("base64url")}`;
  const zero = `p1.${Buffer.alloc(26).toString("base64url")}`;
  const cut = [written.slice(1), written.slice(0, -1), `${written}A`];
  for (const wrong of ["42", "p1", "p2.", "p1.é", "p1.A", twice, zero, `p1.${"A".repeat(100_000)}`, ...cut]) {
    assert.throws(() => new Position(wrong), InvalidArgument, wrong.slice(0, 100));
  }
  place.saw(2, { log: "aa".repeat(16), sequence: 2 ** 40 }, fleet);
  const again = new Position(place.written());
  const after = (node: number, log: string, sequence: number) => again.after(node, { log: log.repeat(16), sequence });
  assert.deepEqual([after(1, "07", 42), after(1, "08", 42), after(1, "07", 41), after(3, "07", 42)], [42, 0, 0, 0]);
  assert.deepEqual([after(2, "aa", 2 ** 41), again.after(2, null)], [2 ** 40, 0]);
  // The other package and `coffer` read and write the same.
  assert.equal(written, "p1.AAEHBwcHBwcHBwcHBwcHBwcHAAAAAAAAACo");
});
