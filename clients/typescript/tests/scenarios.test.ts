/** The table that all SDKs share. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, test } from "node:test";
import * as sdk from "@cofferdam/sdk";
import { Bind, Clone, CofferdamError, type CreateOptions, Managed, Overlay, Sandbox } from "@cofferdam/sdk";
import { parse } from "yaml";
import { repository, shared } from "./daemon.js";
import { camel, check, filled, named, type Scenario, type Values } from "./table.js";

const TABLE = join(import.meta.dirname, "../../../scenarios");
const WORKSPACES = { bind: Bind, clone: Clone, overlay: Overlay };

// The arguments that a method takes by position; the others are its options.
const POSITIONS: Readonly<Record<string, readonly string[]>> = {
  "approvals.approve": ["approvalId"],
  "approvals.deny": ["approvalId"],
  "approvals.get": ["approvalId"],
  "approvals.list": ["state"],
  callTool: ["name", "arguments"],
  "calls.get": ["callId"],
  "calls.wait": ["callId"],
  "commands.connect": ["processId"],
  "commands.kill": ["processId"],
  "commands.run": ["cmd"],
  "commands.sendStdin": ["processId", "data"],
  edit: ["path", "old", "new"],
  "files.exists": ["path"],
  "files.list": ["path"],
  "files.read": ["path"],
  "files.readLines": ["path"],
  "files.remove": ["path"],
  "files.updateFrontmatter": ["path"],
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
  "search.glob": ["pattern"],
  "search.grep": ["pattern"],
  sendSignal: ["signal"],
  sendStdin: ["data"],
  tools: ["format"],
};

const { roots } = await shared();
for (const file of readdirSync(TABLE).filter((name) => name.endsWith(".yaml"))) {
  describe(file, () => {
    for (const [number, scenario] of (parse(readFileSync(join(TABLE, file), "utf8")) as Scenario[]).entries()) {
      test(scenario.name, () => play(scenario, join(roots, `${file}-${number}`)));
    }
  });
}

async function play(scenario: Scenario, place: string): Promise<void> {
  const saved: Values = {};
  await using sandbox = await Sandbox.create(wanted(scenario, place));
  for (const [number, step] of scenario.steps.entries()) {
    if (step.directory !== undefined) {
      assert.equal(existsSync(filled(step.directory, saved) as string), step.exists, `step ${number + 1}`);
      continue;
    }
    const where = `step ${number + 1}, ${step.call}`;
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

/** The result, or the error if one is expected. */
async function outcome(target: unknown, name: string, values: Values, kind: string | undefined, where: string) {
  const taken = POSITIONS[name] ?? [];
  const positions = taken.map((argument) => values[argument]);
  const options = Object.fromEntries(Object.entries(values).filter(([argument]) => !taken.includes(argument)));
  const [method = "", part] = name.split(".").reverse();
  const object = part === undefined ? target : Reflect.get(target as object, part);
  const call = async () => await Reflect.get(object as object, method).call(object, ...positions, options);
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
