/**
 * A cofferd that a test starts and ends, and the one that most tests share.
 *
 * COFFERDAM_TEST_COFFERD    the program
 * COFFERDAM_TEST_ENDPOINT   a daemon that runs already, which most tests share, and
 * COFFERDAM_TEST_ROOTS      its workspace root; without them each file of tests starts its own
 * COFFERDAM_TEST_TOKEN      a token that it takes, where it asks for one
 * COFFERDAM_TEST_IMAGE      an image with bash and Python
 */

import assert from "node:assert/strict";
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, fstatSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import type { Socket } from "node:net";
import { dirname, join } from "node:path";
import { after } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";

const PATIENCE = 60_000;
// From dist/tests.
const LEASH = fileURLToPath(new URL("../../../../tests/harness/leash.sh", import.meta.url));
const READY = " ready socket=";

/** A cofferd with a directory of its own. */
export class Daemon implements AsyncDisposable {
  readonly place = mkdtempSync("/var/tmp/cofferdam-sdk-");
  readonly roots = join(this.place, "roots");
  readonly endpoint = `unix:${this.place}/cofferd.sock`;
  #child: ChildProcess | null = null;
  #leash: ChildProcess | null = null;

  /** `config`: further lines of its configuration; `tcp`: keys of `listen.tcp`. */
  static async start(further: { config?: string[]; tcp?: string } = {}): Promise<Daemon> {
    const daemon = new Daemon();
    mkdirSync(daemon.roots);
    const config = [
      "listen:",
      `  unix: { path: ${daemon.place}/cofferd.sock, mode: "0660" }`,
      ...(further.tcp === undefined ? [] : [`  tcp: { ${further.tcp} }`]),
      `state_dir: ${daemon.place}/state`,
      `workspace_roots: [${daemon.roots}]`,
      "approvals: { allow_self_approval: true }",
      ...(further.config ?? []),
    ];
    writeFileSync(join(daemon.place, "cofferd.yaml"), `${config.join("\n")}\n`);
    await daemon.launch();
    return daemon;
  }

  /** Starts it, and waits until it says that it is ready. */
  async launch(): Promise<void> {
    const path = join(this.place, "log");
    const log = openSync(path, "a");
    const before = fstatSync(log).size;
    const program = process.env["COFFERDAM_TEST_COFFERD"];
    assert(program, "COFFERDAM_TEST_COFFERD names no cofferd");
    const child = spawn(program, ["--config", join(this.place, "cofferd.yaml")], { stdio: ["ignore", log, log] });
    this.#child = child;
    this.#release();
    // Ends the daemon where these tests are killed.
    this.#leash = spawn("setsid", ["sh", LEASH, String(child.pid), this.place], {
      stdio: ["pipe", "ignore", "ignore"],
    });
    this.#leash.unref();
    (this.#leash.stdin as Socket).unref();
    const until = Date.now() + PATIENCE;
    while (!readFileSync(path).subarray(before).includes(READY)) {
      assert(child.exitCode === null && Date.now() < until, readFileSync(path, "utf8"));
      await delay(20);
    }
  }

  /** Tells the watcher of the daemon before that there is nothing more to end. */
  #release(): void {
    this.#leash?.stdin?.end("\n");
    this.#leash = null;
  }

  /** The output of `coffer` with this daemon. */
  coffer(...words: string[]): string {
    return coffer("--endpoint", this.endpoint, ...words);
  }

  /** Where it listens on TCP. */
  get port(): number {
    const found = [...readFileSync(join(this.place, "log"), "utf8").matchAll(/listens on TCP.*address=\S+:(\d+)/g)];
    return Number(found.at(-1)?.[1]);
  }

  /** Kills all containers of its runs, as a kernel out of memory may. */
  killContainers(): void {
    const label = `label=io.cofferdam.instance=${readFileSync(join(this.place, "state", "instance"), "utf8").trim()}`;
    const containers = lines(execFileSync("docker", ["ps", "--quiet", "--filter", label], { encoding: "utf8" }));
    execFileSync("docker", ["kill", ...containers], { stdio: "ignore" });
  }

  async end(how: NodeJS.Signals = "SIGTERM"): Promise<void> {
    const child = this.#child;
    assert(child);
    this.#child = null;
    const exit = once(child, "exit");
    child.kill(how);
    await exit;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#child !== null) {
      await this.end();
    }
    const instance = join(this.place, "state", "instance");
    if (existsSync(instance)) {
      const label = `label=io.cofferdam.instance=${readFileSync(instance, "utf8").trim()}`;
      for (const container of lines(execFileSync("docker", ["ps", "-aq", "--filter", label], { encoding: "utf8" }))) {
        execFileSync("docker", ["rm", "-f", container], { stdio: "ignore" });
      }
    }
    const mounts = lines(readFileSync("/proc/self/mountinfo", "utf8")).map((line) => line.split(" ")[4] ?? "");
    for (const mount of mounts.filter((at) => at.startsWith(`${this.place}/`)).reverse()) {
      execFileSync("umount", ["-l", mount]);
    }
    this.#release();
    rmSync(this.place, { recursive: true });
  }
}

/** The `coffer` beside the `cofferd`. */
export function coffer(...words: string[]): string {
  const program = join(dirname(process.env["COFFERDAM_TEST_COFFERD"] ?? ""), "coffer");
  return execFileSync(program, words, { encoding: "utf8" }).trim();
}

function lines(text: string): string[] {
  return text.split("\n").filter((line) => line !== "");
}

/** The daemon that most tests share, as a user's environment names it. */
export async function shared(): Promise<{ endpoint: string; roots: string }> {
  delete process.env["COFFERDAM_TOKEN"];
  const token = process.env["COFFERDAM_TEST_TOKEN"];
  if (token !== undefined) {
    process.env["COFFERDAM_TOKEN"] = token;
  }
  const endpoint = process.env["COFFERDAM_TEST_ENDPOINT"];
  const roots = process.env["COFFERDAM_TEST_ROOTS"];
  if (endpoint !== undefined && roots !== undefined) {
    process.env["COFFERDAM_ENDPOINT"] = endpoint;
    return { endpoint, roots };
  }
  const daemon = await Daemon.start();
  after(() => daemon[Symbol.asyncDispose]());
  process.env["COFFERDAM_ENDPOINT"] = daemon.endpoint;
  return daemon;
}

/** Makes a git repository of a directory, with one commit of all that is in it. */
export function repository(place: string): void {
  for (const command of [
    ["init", "-q", "-b", "main"],
    ["add", "-A"],
    ["commit", "-q", "-m", "first"],
  ]) {
    execFileSync("git", ["-c", "user.name=Test", "-c", "user.email=test@example.org", ...command], { cwd: place });
  }
}
