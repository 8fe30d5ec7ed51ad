/** Companions of a sandbox: how they are asked for, what is known of them, and what they write. */

import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Client, CofferdamError, type Companion, InvalidArgument, Sandbox } from "@cofferdam/sdk";
import { companion } from "../src/requests.js";
import { Daemon } from "./daemon.js";
import { collected, eventually } from "./waiting.js";

// From dist/tests.
const HARNESS = fileURLToPath(new URL("../../../../crates/policy/policies/harness.yaml", import.meta.url));
const SERVE = "mkdir /tmp/site && cd /tmp/site && echo 42 >given.txt && exec python3 -m http.server 8000";
const FETCH =
  "python3 -c 'import urllib.request; print(urllib.request.urlopen(\"http://files:8000/given.txt\").read().decode())'";

const image = process.env["COFFERDAM_TEST_IMAGE"] ?? "";
const files: Companion = { name: "files", image, command: ["sh", "-c", SERVE], ready: 8000, readyTimeout: 30 };

const policy = mkdtempSync("/var/tmp/cofferdam-beside-");
let daemon: Daemon;

/** A daemon whose profile `beside` is the shipped `harness`, with companions of the image. */
before(async () => {
  chmodSync(policy, 0o755);
  const [, harness = ""] = readFileSync(HARNESS, "utf8").split("\n  harness:\n");
  const companions = `    companions: { images: ['${image}'], max: 2, memory_mib: 512 }\n`;
  const roles = `roles: { director: { allow: "*" } }\n`;
  writeFileSync(join(policy, "beside.yaml"), `profiles:\n  beside:\n${harness}${companions}${roles}`);
  daemon = await Daemon.start({ config: [`policy_dir: ${policy}`] });
});

after(async () => {
  await daemon[Symbol.asyncDispose]();
  rmSync(policy, { recursive: true });
});

test("commands reach a companion, whose state and log are known", async () => {
  await using client = new Client({ endpoint: daemon.endpoint });
  await using sandbox = await Sandbox.create({ profile: "beside", image, companions: [files], client });
  assert.equal((await sandbox.commands.run(FETCH)).stdout.trim(), "42");
  const [info] = (await sandbox.info()).companions;
  assert(info);
  assert.deepEqual(
    [info.name, info.image, info.state, info.exitCode, info.ports],
    ["files", image, "ready", null, [8000]],
  );
  assert.notEqual(info.imageDigest, "");
  assert.notEqual(info.address, "");
  // The engine may get the line after its answer.
  await eventually(async () => {
    const log = Buffer.concat(await collected(sandbox.companionLogs("files"))).toString();
    return log.includes("GET /given.txt");
  }, "its log has no request");
  let followed = "";
  for await (const part of sandbox.companionLogs("files", { follow: true })) {
    followed += Buffer.from(part).toString();
    if (followed.includes("GET /given.txt")) {
      break;
    }
  }
  await assert.rejects(sandbox.companionLogs("other").next(), CofferdamError);
});

test("other images are refused", async () => {
  await using client = new Client({ endpoint: daemon.endpoint });
  const companions = [{ name: "db", image: "postgres:15", ports: [5432] }];
  await assert.rejects(
    Sandbox.create({ profile: "beside", image, companions, client }),
    (error) => error instanceof CofferdamError && error.message.includes("postgres:15"),
  );
});

test("arguments become a request", () => {
  const given: Companion = {
    name: "db",
    image: "postgres:15",
    command: ["postgres"],
    env: { A: "1" },
    secretEnv: { B: "2" },
    ready: ["pg_isready"],
    readyTimeout: 1.5,
    readyInterval: 0.25,
    memoryMib: 512,
    ports: [5432],
    dependsOn: ["cache"],
  };
  assert.deepEqual(companion(given), {
    name: "db",
    image: "postgres:15",
    command: ["postgres"],
    env: { A: "1" },
    secretEnv: { B: "2" },
    ready: {
      check: { case: "command", value: { args: ["pg_isready"] } },
      timeoutSeconds: 2,
      intervalMilliseconds: 250,
    },
    memoryMib: 512,
    egressJson: "",
    ports: [5432],
    dependsOn: ["cache"],
  });
  const bad: Partial<Companion>[] = [
    { readyTimeout: 5 },
    { ready: 1, readyTimeout: 0 },
    { ready: -1 },
    { ports: [0.5] },
    { memoryMib: 2 ** 32 },
  ];
  for (const options of bad) {
    assert.throws(() => companion({ name: "a", image: "b", ...options }), InvalidArgument, JSON.stringify(options));
  }
});
