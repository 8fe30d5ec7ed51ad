/**
 * The table that all SDKs share.
 *
 * COFFERDAM_TEST_SCENARIOS    a regular expression of the scenarios to play, as `file: name`; all of them without it
 */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { describe, test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import * as sdk from "@cofferdam/sdk";
import { Bind, Clone, CofferdamError, type CreateOptions, Managed, Overlay, Sandbox } from "@cofferdam/sdk";
import { parse } from "yaml";
import { repository, shared } from "./daemon.js";
import { BreakableProxy } from "./proxy.js";
import { camel, check, filled, LOCAL, named, type Scenario, type Values } from "./table.js";
import { collected, first } from "./waiting.js";

const TABLE = join(import.meta.dirname, "../../../scenarios");
const WORKSPACES = { bind: Bind, clone: Clone, overlay: Overlay };

// The arguments that a method takes by position; the others are its options.
const POSITIONS: Readonly<Record<string, readonly string[]>> = {
  "approvals.approve": ["approvalId"],
  "approvals.deny": ["approvalId"],
  "approvals.get": ["approvalId"],
  "approvals.list": ["state"],
  callTool: ["name", "arguments"],
  "calls.cancel": ["callId"],
  "calls.get": ["callId"],
  "calls.wait": ["callId"],
  "commands.connect": ["processId"],
  "commands.kill": ["processId"],
  "commands.run": ["cmd"],
  "commands.sendStdin": ["processId", "data"],
  connect: ["runId"],
  edit: ["path", "old", "new"],
  extend: ["timeout"],
  "files.download": ["path", "local"],
  "files.exists": ["path"],
  "files.list": ["path"],
  "files.read": ["path"],
  "files.readLines": ["path"],
  "files.remove": ["path"],
  "files.updateFrontmatter": ["path"],
  "files.upload": ["local", "path"],
  "files.watch": ["path"],
  "files.write": ["path", "data"],
  "git.add": ["paths"],
  "git.commit": ["message"],
  "git.show": ["revision"],
  insert: ["path", "afterLine", "text"],
  patch: ["change"],
  "pty.kill": ["processId"],
  "pty.resize": ["processId", "size"],
  "pty.sendStdin": ["processId", "data"],
  resize: ["size"],
  run: ["command"],
  "search.glob": ["pattern"],
  "search.grep": ["pattern"],
  sendSignal: ["signal"],
  sendStdin: ["data"],
  compare: ["check"],
  fork: ["count"],
  restore: ["checkpoint"],
  "sessions.get": ["sessionId"],
  tools: ["format"],
  type: ["text"],
};

const CHOSEN = new RegExp(process.env["COFFERDAM_TEST_SCENARIOS"] ?? "");

const { endpoint, roots } = await shared();
for (const file of readdirSync(TABLE).filter((name) => name.endsWith(".yaml"))) {
  const scenarios = parse(readFileSync(join(TABLE, file), "utf8")) as Scenario[];
  const chosen = [...scenarios.entries()].filter(([, { name }]) => CHOSEN.test(`${basename(file, ".yaml")}: ${name}`));
  if (chosen.length === 0) {
    continue;
  }
  describe(file, () => {
    for (const [number, scenario] of chosen) {
      test(scenario.name, () => play(scenario, join(roots, `${file}-${number}`)));
    }
  });
}

async function play(scenario: Scenario, place: string): Promise<void> {
  const saved: Values = { [LOCAL]: `${place}-local` };
  localFiles(scenario, saved);
  await using connection = await connected(scenario, `${place}.sock`);
  await using sandbox = await Sandbox.create({ ...wanted(scenario, place), endpoint: connection?.endpoint });
  for (const [number, step] of scenario.steps.entries()) {
    const where = `step ${number + 1}, ${step.call ?? ""}`;
    if (step.directory !== undefined) {
      assert.equal(existsSync(filled(step.directory, saved) as string), step.exists, where);
      continue;
    }
    if (step.local !== undefined) {
      const [found, expected] = [step.local, step.same_as ?? ""].map((name) => join(saved[LOCAL] as string, name));
      assert(isDeepStrictEqual(content(found as string), content(expected as string)), `${where}: they differ`);
      continue;
    }
    if (step.record !== undefined) {
      const events = await collected(sandbox.audit.stream({ follow: false }));
      check(JSON.stringify(events), filled(step.record, saved), where);
      continue;
    }
    if (step.next !== undefined) {
      const { value } = await (saved[step.next] as AsyncIterator<unknown>).next();
      check(value, filled(step.gives, saved), where);
      if (step.save !== undefined) {
        saved[step.save] = value;
      }
      continue;
    }
    if (step.first !== undefined) {
      check(await first(saved[step.first] as AsyncIterable<unknown>), step.gives, where);
      continue;
    }
    if (step.rest !== undefined) {
      const items = await collected(saved[step.rest] as AsyncIterable<unknown>);
      check(items, filled(step.gives, saved), where);
      continue;
    }
    const object = step.options === undefined ? sandbox : sandbox.withOptions(named(step.options));
    const target = step.of === undefined ? object : saved[step.of];
    const values = named(filled(step.with ?? {}, saved) as Values);
    const heard = new Map(Object.keys(step.hears ?? {}).map((name) => [name, ""]));
    for (const name of heard.keys()) {
      values[camel(name)] = (text: string) => heard.set(name, heard.get(name) + text);
    }
    const found = await outcome(target, camel(step.call), values, step.raises?.kind, where);
    if (step.raises !== undefined) {
      const { kind: _, ...attributes } = filled(step.raises, saved) as Values;
      check(found, attributes, where);
    } else if ("gives" in step) {
      check(found, filled(step.gives, saved), where);
    }
    for (const [name, text] of heard) {
      check(text, filled(step.hears?.[name], saved), `${where}, ${name}`);
    }
    if (step.save !== undefined) {
      saved[step.save] = found;
    }
  }
}

/** The files of this host. */
function localFiles(scenario: Scenario, saved: Values): void {
  for (const [name, value] of Object.entries(scenario.local ?? {})) {
    const file = join(saved[LOCAL] as string, name);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, filled(value, saved) as string | Uint8Array);
  }
}

/** A file, or a directory with all that is in it. */
function content(path: string): unknown {
  if (!statSync(path).isDirectory()) {
    return readFileSync(path);
  }
  return Object.fromEntries(readdirSync(path).map((name) => [name, content(join(path, name))]));
}

/** A connection that breaks again and again, if one is wanted. */
async function connected(scenario: Scenario, path: string): Promise<BreakableProxy | null> {
  if (scenario.connection === undefined) {
    return null;
  }
  const proxy = await BreakableProxy.start(path, endpoint);
  proxy.cutAfterSent = scenario.connection.cut_after;
  return proxy;
}

/** The result, or the error if one is expected. */
async function outcome(target: unknown, name: string, values: Values, kind: string | undefined, where: string) {
  const taken = POSITIONS[name] ?? [];
  const positions = taken.map((argument) => values[argument]);
  const options = Object.fromEntries(Object.entries(values).filter(([argument]) => !taken.includes(argument)));
  const [method = "", part] = name.split(".").reverse();
  const object = part === undefined ? target : Reflect.get(target as object, part);
  // A method of its class is called by its object, as in Python.
  const owner = Reflect.has(object as object, method) ? object : (object as object).constructor;
  const call = async () => await Reflect.get(owner as object, method).call(owner, ...positions, options);
  if (kind === undefined) {
    return await call();
  }
  const Kind = Reflect.get(sdk, kind);
  assert(Kind, `${where}: no such error as ${kind}`);
  try {
    await call();
  } catch (error) {
    assert(error instanceof Kind && error instanceof CofferdamError, `${where}: ${error}`);
    return error;
  }
  assert.fail(`${where}: throws nothing`);
}

/** The arguments of `create`, with a workspace of these files. */
function wanted(scenario: Scenario, place: string): CreateOptions {
  const { workspace = "managed", ...rest } = scenario.sandbox ?? {};
  const options: CreateOptions = { profile: "open", ...named(rest) };
  if (workspace === "managed" || workspace === "kept") {
    return { ...options, workspace: workspace === "kept" ? Managed({ keep: true }) : Managed() };
  }
  mkdirSync(place);
  for (const [path, content] of Object.entries(scenario.files ?? {})) {
    const file = join(place, path);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, content);
  }
  if (scenario.repository) {
    repository(place);
  }
  execFileSync("chown", ["-R", "4321:4321", place]);
  return { ...options, workspace: WORKSPACES[workspace](place) };
}
