/** The context of a trace: given, of OpenTelemetry, or none. */

import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { InvalidArgument, traceContext } from "@cofferdam/sdk";
import { currentTrace } from "../src/trace.js";

const TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const OPENTELEMETRY = Symbol.for("opentelemetry.js.api.1");
const program = globalThis as Record<symbol, unknown>;

/** As `@opentelemetry/api` registers itself, with a propagator that injects this. */
function opentelemetry(injected: Record<string, unknown>): void {
  const inject = (_: unknown, carrier: Record<string, unknown>) => Object.assign(carrier, injected);
  program[OPENTELEMETRY] = { context: { active: () => ({}) }, propagation: { inject } };
}

afterEach(() => {
  delete program[OPENTELEMETRY];
});

test("nothing is sent outside of a trace", () => {
  assert.equal(currentTrace(), undefined);
  program[OPENTELEMETRY] = {};
  assert.equal(currentTrace(), undefined);
});

test("a given context is sent by all that the work awaits", async () => {
  await traceContext(TRACEPARENT, async () => {
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal(currentTrace(), TRACEPARENT);
  });
  assert.equal(currentTrace(), undefined);
});

test("the active span of OpenTelemetry is sent", () => {
  opentelemetry({ traceparent: TRACEPARENT, baggage: "user=1" });
  assert.equal(currentTrace(), TRACEPARENT);
  const other = TRACEPARENT.replace("4bf9", "4bfa");
  assert.equal(traceContext(other, currentTrace), other);
  opentelemetry({ b3: "0" });
  assert.equal(currentTrace(), undefined);
  opentelemetry({ traceparent: `${TRACEPARENT}\n` });
  assert.equal(currentTrace(), undefined);
});

test("other texts are refused", () => {
  for (const text of [
    "",
    "x",
    `${TRACEPARENT}\n`,
    TRACEPARENT.toUpperCase(),
    `00-${"0".repeat(32)}-${"1".repeat(16)}-01`,
  ]) {
    assert.throws(() => traceContext(text, () => {}), InvalidArgument);
  }
});
