/** Forks of a run, and the comparison of several runs. */

import { either } from "./caller.js";
import type { Client } from "./client.js";
import {
  CommandError,
  DaemonUnreachable,
  InvalidArgument,
  NotFound,
  PreconditionFailed,
  RateLimited,
  RunNotReady,
  Unavailable,
} from "./errors.js";
import { Keeping } from "./lease.js";
import type { Options } from "./options.js";
import * as requests from "./requests.js";
import * as results from "./results.js";
import { Sandbox } from "./sandbox.js";
import { leftNothing } from "./status.js";
import { sleep } from "./transport.js";
import type { CommandResult, Comparison, ForkFailure, Limits } from "./types.js";

// Seconds. The answer comes when all forks are ready, and each may need a container.
const FORK_TIMEOUT = 600;
// How often forks that nobody wants any more are asked for, and seconds between.
const ABANDONINGS = 20;
const ABANDONING_PAUSE = 0.1;
// Seconds. A comparison reads all that the runs have changed.
const COMPARE_TIMEOUT = 300;

export interface ForkOptions {
  /** For all commands of the forks, by any client, instead of a variable of the same name. */
  env?: Readonly<Record<string, string>>;
  /** The same with secret values. Those of the run are not inherited. */
  secretEnv?: Readonly<Record<string, string>>;
  /** Labels, in addition to those of the run. */
  metadata?: Readonly<Record<string, string>>;
  /** Lower limits than those of the run. */
  limits?: Limits;
  /** Seconds until the daemon stops a fork. Default: as for the run. */
  timeout?: number;
  /** Seconds without `keepAlive()` until the daemon stops a fork. Default: as for the run. */
  lease?: number;
  /** Renew the leases in the background. Default: as the sandbox does; false for a checkpoint. */
  keepAlive?: boolean;
  /** Have the daemon make a `token` for each fork. */
  issueTokens?: boolean;
  /** Aborting it ends the making; no run is left behind. */
  signal?: AbortSignal;
}

export interface CompareOptions {
  /** Seconds for the check in each run. Default: the profile's. */
  timeout?: number;
  /** Aborting it ends the comparison and the checks. */
  signal?: AbortSignal;
}

/**
 * Sandboxes that began with the state of one run or checkpoint: those that are ready, in the order of their making.
 *
 * ```ts
 * await using forks = await sandbox.fork(4);
 * for (const [number, fork] of [...forks].entries()) {
 *   await fork.files.write("answer.txt", `${number}`);
 * }
 * const { runs } = await forks.compare("make test");
 * const winner = [...forks].find((_, at) => runs[at]?.check?.ok);
 * await winner?.accept();
 * ```
 *
 * Leaving the block of `await using` is `kill()`.
 */
export class Forks implements Iterable<Sandbox>, AsyncDisposable {
  /** Those that could not be made, by reason. */
  readonly failures: readonly ForkFailure[];
  /** Id of the checkpoint on which all of them began. */
  readonly checkpoint: string;
  readonly #client: Client;
  readonly #sandboxes: readonly Sandbox[];
  readonly #ownsCheckpoint: boolean;
  readonly #kept = new Set<string>();
  readonly #accepted = new Set<string>();

  /** @internal */
  constructor(
    client: Client,
    sandboxes: readonly Sandbox[],
    facts: { failures: readonly ForkFailure[]; checkpoint: string; ownsCheckpoint: boolean },
  ) {
    this.#client = client;
    this.#sandboxes = sandboxes;
    this.#ownsCheckpoint = facts.ownsCheckpoint;
    this.failures = facts.failures;
    this.checkpoint = facts.checkpoint;
  }

  get length(): number {
    return this.#sandboxes.length;
  }

  /** One of them, from 0; a negative number counts from the end. */
  at(index: number): Sandbox | undefined {
    return this.#sandboxes.at(index);
  }

  [Symbol.iterator](): Iterator<Sandbox> {
    return this.#sandboxes[Symbol.iterator]();
  }

  /** Has `kill()` of the family leave this one alone: it goes on until a `kill()` or `stop()` of its own. */
  keep(sandbox: Sandbox): void {
    this.#kept.add(sandbox.runId);
  }

  /**
   * What each of them has changed, and the outcome of a check in each, in the order of this sequence; see `Client.compare`.
   *
   * There have to be two of them at least.
   */
  async compare(check?: string | readonly string[], options: CompareOptions = {}): Promise<Comparison> {
    return await compare(this.#client, this.#sandboxes, check, options);
  }

  /**
   * Ends and deletes those that were neither kept nor accepted, and their changes, all at once.
   *
   * A checkpoint that was made for these forks alone goes with them, unless one was kept.
   */
  async kill(): Promise<void> {
    const losers = this.#sandboxes.filter(({ runId }) => !this.#kept.has(runId) && !this.#accepted.has(runId));
    for (const ended of await Promise.allSettled(losers.map((loser) => loser.kill({ deleteWorkspace: true })))) {
      if (ended.status === "rejected") {
        throw ended.reason;
      }
    }
    if (this.#ownsCheckpoint && this.#kept.size === 0) {
      await this.#client.checkpoints.deleteCheckpoint({ checkpointId: this.checkpoint }).catch(gone);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }

  /**
   * Keeps it: its changes must not go if they cannot be applied.
   *
   * @internal
   */
  beginAccept(sandbox: Sandbox): void {
    this.keep(sandbox);
  }

  /** @internal */
  endAccept(sandbox: Sandbox): void {
    this.#kept.delete(sandbox.runId);
    this.#accepted.add(sandbox.runId);
  }
}

/** Makes the forks of a run, or of a checkpoint. `keepAlive`: unless the options say so. */
export async function fork(
  client: Client,
  origin: { case: "runId" | "checkpointId"; value: string },
  count: number,
  options: ForkOptions,
  object: Options,
  keepAlive: boolean,
): Promise<Forks> {
  if (!(Number.isInteger(count) && count > 0 && count < 2 ** 32)) {
    throw new InvalidArgument(`count: must be a positive number, not ${count}`);
  }
  const { env = {}, secretEnv = {}, issueTokens = false } = options;
  const request = {
    requestId: `sdk-${requests.newId()}`,
    origin,
    count,
    env: { ...env },
    secretEnv: { ...secretEnv },
    labels: { ...options.metadata },
    limits: requests.limits(options.limits),
    ttl: requests.duration("timeout", options.timeout),
    lease: requests.duration("lease", options.lease),
    issueTokens,
  };
  const make = (signal?: AbortSignal) => client.checkpoints.forkRun(request, { timeout: FORK_TIMEOUT, signal });
  // A variable of a call would replace that of the fork.
  const own = Object.entries(object.env).filter(([name]) => !(name in env || name in secretEnv));
  const { waitForApproval, onAwaitingApproval } = object;
  const initial = { waitForApproval, onAwaitingApproval, env: Object.fromEntries(own) };
  try {
    const made = await make(either(options.signal, object.signal));
    if (issueTokens && made.forks.some(({ token }) => token === "")) {
      throw new DaemonUnreachable("the connection was lost, and the tokens of the forks with it");
    }
    const sandboxes = made.forks.map(({ run, token }) => {
      const { runId, lease } = results.runInfo(run);
      const renewed = lease !== null && (options.keepAlive ?? keepAlive);
      // It began when this fork was ready, and the answer came when all were.
      const keeping = renewed ? new Keeping(client, runId, lease, null) : null;
      return Sandbox.ofClient(client, runId, { ...initial, token: token || null, keeping });
    });
    const failures = made.failures.map(({ reason, message, count }) => ({ reason, message, count }));
    const checkpoint = results.present(made.checkpoint).checkpointId;
    const forks = new Forks(client, sandboxes, { failures, checkpoint, ownsCheckpoint: origin.case === "runId" });
    for (const sandbox of sandboxes) {
      sandbox.join(forks);
    }
    return forks;
  } catch (error) {
    if (!leftNothing(error)) {
      client.transport.afterwards(async () => {
        const { forks } = await abandoned(make);
        const unknown = forks.map(({ run }) => Sandbox.ofClient(client, results.runInfo(run).runId));
        await Promise.allSettled(unknown.map((sandbox) => sandbox.kill({ deleteWorkspace: true })));
      });
    }
    throw error;
  }
}

/** The answer about forks that nobody wants any more: the same request has their ids in it, and makes no others. */
async function abandoned<T>(make: () => Promise<T>): Promise<T> {
  for (let left = ABANDONINGS; ; left--) {
    try {
      return await make();
    } catch (error) {
      // Not now, such as without a log: that is perhaps why they are abandoned.
      if (left === 1 || !(error instanceof RateLimited || error instanceof Unavailable)) {
        throw error;
      }
    }
    await sleep(ABANDONING_PAUSE);
  }
}

/** What these runs have changed, and the outcome of a check in each. */
export async function compare(
  client: Client,
  runs: readonly (Sandbox | string)[],
  check: string | readonly string[] | undefined,
  options: CompareOptions,
): Promise<Comparison> {
  const { timeout, signal } = options;
  const sandboxes = runs.map((run) => (typeof run === "string" ? Sandbox.ofClient(client, run) : run));
  const runIds = sandboxes.map(({ runId }) => runId);
  const response = await client.checkpoints.compareRuns({ runIds }, { timeout: COMPARE_TIMEOUT, signal });
  if (check === undefined) {
    return results.comparison(response, []);
  }
  // A check that policy refuses ends the others.
  const end = new AbortController();
  const signals = either(signal, end.signal);
  const checking = sandboxes.map((sandbox) => checked(sandbox, check, { timeout, signal: signals }));
  try {
    return results.comparison(response, await Promise.all(checking));
  } finally {
    end.abort();
    await Promise.allSettled(checking);
  }
}

async function checked(
  sandbox: Sandbox,
  check: string | readonly string[],
  options: CompareOptions,
): Promise<CommandResult | null> {
  try {
    return await sandbox.commands.run(check, options);
  } catch (error) {
    if (error instanceof CommandError) {
      // A check that never ends is a result like any other, and half a one of a run that was lost is none.
      return error.reason === "RUN_LOST" ? null : error.result;
    }
    if (error instanceof RunNotReady) {
      return null;
    }
    throw error;
  }
}

/** It was deleted before, or a run that somebody else has begun needs it. */
function gone(error: unknown): void {
  if (!(error instanceof NotFound || error instanceof PreconditionFailed)) {
    throw error;
  }
}
