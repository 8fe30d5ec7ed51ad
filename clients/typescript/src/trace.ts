/** The context of a trace, which goes with each request as `traceparent` of W3C Trace Context. */

import { AsyncLocalStorage } from "node:async_hooks";
import { InvalidArgument } from "./errors.js";

const TRACEPARENT = /^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/;
// Where `@opentelemetry/api` 1.x registers itself, so that all of its copies in a program are one.
const OPENTELEMETRY = Symbol.for("opentelemetry.js.api.1");

const given = new AsyncLocalStorage<string>();

/** The part of `@opentelemetry/api` that is used. */
interface OpenTelemetry {
  context?: { active(): unknown };
  propagation?: { inject(context: unknown, carrier: Record<string, unknown>): void };
}

/**
 * Requests that `work` makes belong to this trace, such as `00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`.
 *
 * Without it, the active span of OpenTelemetry is sent, if the program has one. Throws `InvalidArgument` for a text that is no
 * `traceparent`.
 */
export function traceContext<T>(traceparent: string, work: () => T): T {
  if (!TRACEPARENT.test(traceparent)) {
    const message = "traceparent: looks like 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    throw new InvalidArgument(message, { reason: "INVALID_ARGUMENT" });
  }
  return given.run(traceparent, work);
}

/** What the next request sends. */
export function currentTrace(): string | undefined {
  const own = given.getStore();
  if (own !== undefined) {
    return own;
  }
  const api = (globalThis as Record<symbol, unknown>)[OPENTELEMETRY] as OpenTelemetry | undefined;
  if (api?.context === undefined || api.propagation === undefined) {
    return undefined;
  }
  // The propagator of the program. What else it injects, such as baggage, is not sent.
  const carrier: Record<string, unknown> = {};
  api.propagation.inject(api.context.active(), carrier);
  const { traceparent } = carrier;
  return typeof traceparent === "string" && TRACEPARENT.test(traceparent) ? traceparent : undefined;
}
