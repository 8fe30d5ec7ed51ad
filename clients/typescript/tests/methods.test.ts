/** A request is repeated by itself only if the proto file says that nothing can happen twice by it. */

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import * as v1 from "@cofferdam/sdk/v1";
import { mayRepeat } from "../src/transport.js";

const PROTO = join(import.meta.dirname, "../../../../proto/cofferdam/v1");

/** All methods of the API, by the descriptors that the package has. */
function methods() {
  const services = Object.values(v1).filter(
    (exported) => typeof exported === "object" && "kind" in exported && exported.kind === "service",
  );
  return services.flatMap((service) => service.methods);
}

test("methods may be repeated as the proto files say", () => {
  const written = new Map<string, boolean>();
  for (const name of readdirSync(PROTO)) {
    const text = readFileSync(join(PROTO, name), "utf8");
    for (const [, method = "", body = ""] of text.matchAll(/^ {2}rpc (\w+)\(.*?\) returns \(.*?\)(;| \{[^}]*\})/gms)) {
      written.set(method, body.includes("idempotency_level"));
    }
  }
  const described = new Map(methods().map((method) => [method.name, mayRepeat(method)]));
  assert.deepEqual([...described].sort(), [...written].sort());
  assert.equal(described.get("StopRun"), true);
  assert.equal(described.get("CreateRun"), false);
});

test("no method that may be repeated takes a stream", () => {
  const repeatable = methods().filter(mayRepeat);
  assert.ok(repeatable.length > 20);
  for (const method of repeatable) {
    assert.match(method.methodKind, /^(unary|server_streaming)$/, method.name);
  }
});
