/** The scenarios that all SDKs share: values and conditions of the table. */

import assert from "node:assert/strict";
import { join } from "node:path";

export type Values = Record<string, unknown>;

export interface Step {
  call: string;
  of?: string;
  next?: string;
  first?: string;
  rest?: string;
  directory?: unknown;
  exists?: boolean;
  local?: string;
  same_as?: string;
  record?: unknown;
  with?: Values;
  options?: Values;
  gives?: unknown;
  raises?: Values & { kind: string };
  hears?: Record<string, unknown>;
  save?: string;
}

export interface Scenario {
  name: string;
  sandbox?: Values & { workspace?: "bind" | "clone" | "overlay" | "managed" | "kept" };
  files?: Record<string, string>;
  repository?: boolean;
  local?: Record<string, unknown>;
  connection?: { cut_after: number };
  steps: Step[];
}

/** A name of the table as this SDK writes it. */
export function camel(name: string): string {
  return name.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

/** Arguments with names of this SDK; their values as they are. */
export function named(values: Values): Values {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [camel(name), value]));
}

// Beneath this name, what is saved has the directory of the scenario's local files.
export const LOCAL = "$local";

/** With `{$saved: name.attribute}`, `{$repeat: [text, times]}` and others replaced by their values. */
export function filled(value: unknown, saved: Values): unknown {
  if (Array.isArray(value)) {
    return value.map((inner) => filled(inner, saved));
  }
  if (!isValues(value)) {
    return value;
  }
  if (typeof value["$saved"] === "string") {
    return value["$saved"].split(".").reduce<unknown>((found, part) => (found as Values)[camel(part)], saved);
  }
  if (Array.isArray(value["$repeat"])) {
    const [text, times] = value["$repeat"] as [string, number];
    return text.repeat(times);
  }
  if (typeof value["$local"] === "string") {
    return join(saved[LOCAL] as string, value["$local"]);
  }
  if (typeof value["$bytes"] === "string") {
    return new Uint8Array(Buffer.from(value["$bytes"], "hex"));
  }
  if (Array.isArray(value["$size"])) {
    const [rows, cols] = value["$size"] as [number, number];
    return { rows, cols };
  }
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, filled(inner, saved)]));
}

/** A mapping names attributes or keys; a list is all of a sequence; `$…` are conditions. */
export function check(found: unknown, expected: unknown, where: string): void {
  if (expected instanceof Uint8Array) {
    assert(found instanceof Uint8Array, `${where}: no bytes`);
    assert.deepEqual(Buffer.from(found), Buffer.from(expected), where);
  } else if (Array.isArray(expected)) {
    const items = [...(found as Iterable<unknown>)];
    assert.equal(items.length, expected.length, `${where}: ${JSON.stringify(items)}`);
    for (const [at, inner] of expected.entries()) {
      check(items[at], inner, `${where}[${at}]`);
    }
  } else if (isValues(expected)) {
    for (const [key, inner] of Object.entries(expected)) {
      if (key === "$contains") {
        assert((found as string).includes(inner as string), `${where}: ${inner} is not in ${found}`);
      } else if (key === "$lacks") {
        assert(!(found as string).includes(inner as string), `${where}: ${inner} is in it`);
      } else if (key === "$matches") {
        assert.match(found as string, new RegExp(inner as string), where);
      } else if (key === "$length") {
        assert.equal((found as unknown[]).length, inner, `${where}: its length`);
      } else {
        assert(found !== null && typeof found === "object", `${where}: no object`);
        const name = key in found ? key : camel(key);
        assert(name in found, `${where}: has no ${name}`);
        check((found as Values)[name], inner, `${where}.${name}`);
      }
    }
  } else {
    // Not assert.equal: some texts have megabytes.
    assert(
      found === expected,
      `${where}: ${JSON.stringify(found)?.slice(0, 300)} is not ${JSON.stringify(expected)?.slice(0, 300)}`,
    );
  }
}

function isValues(value: unknown): value is Values {
  return typeof value === "object" && value !== null && !(value instanceof Uint8Array);
}
