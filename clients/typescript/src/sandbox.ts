/** `Sandbox`: a run, with a hardened container and a workspace. */

import { Approvals } from "./approvals.js";
import { Audit } from "./audit.js";
import { Caller, either } from "./caller.js";
import { Calls } from "./calls.js";
import { Client } from "./client.js";
import { Commands } from "./commands.js";
import { DaemonUnreachable, Denied, InvalidArgument, NotFound, RateLimited, Unavailable } from "./errors.js";
import { Files } from "./files.js";
import { type ForkOptions, type Forks, fork } from "./forks.js";
import { type ForwardOptions, PortForward } from "./forward.js";
import { Git } from "./git.js";
import { Keeping } from "./lease.js";
import { initial, type OnAwaitingApproval, type Options } from "./options.js";
import { Pty } from "./pty.js";
import * as requests from "./requests.js";
import * as results from "./results.js";
import { Search } from "./search.js";
import { Sessions } from "./sessions.js";
import type { Tls } from "./settings.js";
import { leftNothing } from "./status.js";
import { Stream } from "./stream.js";
import { sleep } from "./transport.js";
import {
  type Companion,
  type Diff,
  type EditInfo,
  type Every,
  type Limits,
  Managed,
  type ModelUsage,
  type PatchInfo,
  type RunInfo,
  type RunState,
  type ToolOutput,
  type Workspace,
} from "./types.js";
import { type CallResponse, ListToolsRequest_Format, Run_State } from "./v1.js";

// Seconds. Making a container is the engine's, which may have others to make first.
const CREATE_TIMEOUT = 300;
// How often a run that nobody wants any more is looked for, and seconds between.
const ABANDONINGS = 20;
const ABANDONING_PAUSE = 0.1;

const FORMATS = {
  openai: ListToolsRequest_Format.OPENAI,
  anthropic: ListToolsRequest_Format.ANTHROPIC,
  mcp: ListToolsRequest_Format.MCP,
} as const;

const STATES: Readonly<Record<RunState, Run_State>> = {
  creating: Run_State.CREATING,
  ready: Run_State.READY,
  paused: Run_State.PAUSED,
  stopping: Run_State.STOPPING,
  stopped: Run_State.STOPPED,
  failed: Run_State.FAILED,
};

/** The daemon: a client that stays open, or where to connect. Default: see `Client`. */
export interface Connection {
  client?: Client;
  endpoint?: string;
  token?: string;
  tls?: string | Tls;
}

export interface ConnectOptions extends Connection {
  /** For each command of this object, beside its own. The profile says which names are allowed. */
  env?: Readonly<Record<string, string>>;
  /**
   * Wait for a person where one has to consent, instead of `ApprovalRequired`. A call that was approved after another one had
   * changed its files asks once more.
   */
  waitForApproval?: boolean;
  /**
   * Behaviour of a call that finds the run frozen for a reviewer of another call: `wait` in the order of arrival, as long as
   * its own timeout allows (with `waitForApproval` and no `requestId` until the reviewer has decided), or `raise`
   * `AwaitingApproval` at once. Default: `wait`.
   */
  onAwaitingApproval?: OnAwaitingApproval;
}

export interface CreateOptions extends ConnectOptions {
  /** The policy that decides on its calls, such as `review`, `build` or `open`. */
  profile: string;
  /** One that the engine has and the profile allows. Default: the profile's. */
  image?: string;
  /** `Managed()`, `Bind(path)`, `Clone(repository)`, `Overlay(path)`, `Base(baseId)` or `Checkpoint(id)`. Default: `Managed()`. */
  workspace?: Workspace;
  /** Seconds until the daemon stops it. Default: never. */
  timeout?: number;
  /** Seconds without a call until the daemon stops it. Default: never. */
  idleTimeout?: number;
  /** Seconds without `keepAlive()` until the daemon stops it, at least 1. Default: never. */
  lease?: number;
  /** Renew the lease in the background until `kill`, `stop` or `close`, and so as long as this process lives. */
  keepAlive?: boolean;
  /**
   * Secret variables of all its commands, also of those of other clients. Their values are in no record, answer or log. The
   * profile says which names are allowed.
   */
  secretEnv?: Readonly<Record<string, string>>;
  /** Directories of the container, such as `/logs`, that are to be there and its own: for profiles with `root: writable-layer`. */
  writablePaths?: readonly string[];
  /**
   * Rules that its connections have to pass beside those of the profile, in the same form; `{}` for none, and
   * `{ only: ["files.example.org"] }` for those of the profile for these hosts.
   */
  egress?: Readonly<Record<string, unknown>>;
  /** At most 64 labels, to find it again. */
  metadata?: Readonly<Record<string, string>>;
  /** For whom it is, in the record. Rate limits of an agent count all sandboxes that name the same one. Default: `sdk`. */
  agentId?: string;
  /** Default: the profile's. */
  role?: string;
  /** Lower limits than the profile's. */
  limits?: Limits;
  /** A directory of the host to show as `/pkg`. */
  pkgPath?: string;
  /**
   * Containers beside it, such as databases of its tests, which its commands reach by their names. The profile says which
   * images they may have. Default: the profile's.
   */
  companions?: readonly Companion[];
  /** When the daemon makes checkpoints by itself. Default: never. */
  checkpoints?: Every;
  /** So many of these checkpoints are kept, 1 to 100; the oldest is deleted first. Default: 10. */
  keepCheckpoints?: number;
  /** Have the daemon make a `token` for an agent that may do this run's calls and nothing else. */
  issueToken?: boolean;
  /**
   * A name of your own for this request, at most 128 characters. The same request with the same name is the same sandbox, also
   * after a lost connection and from another process, and also after that has ended. The name is free once the run is
   * deleted, as `kill` does unless the workspace stays. `Sandbox.find` finds it. Default: none, and each call makes another
   * sandbox.
   */
  requestId?: string;
  /** Aborting it ends the making, and the run that the daemon may have made; see `create`. */
  signal?: AbortSignal;
}

export interface SandboxOptions {
  /**
   * Wait for a person where one has to consent, instead of `ApprovalRequired`. A call that was approved after another one had
   * changed its files asks once more.
   */
  waitForApproval?: boolean;
  /**
   * Behaviour of a call that finds the run frozen for a reviewer of another call: `wait` in the order of arrival, as long as
   * its own timeout allows (with `waitForApproval` and no `requestId` until the reviewer has decided), or `raise`
   * `AwaitingApproval` at once. Default: `wait`.
   */
  onAwaitingApproval?: OnAwaitingApproval;
  /** For the record, at most 128 characters. */
  taskId?: string;
  /** For the record, at most 128 characters. */
  correlationId?: string;
  /**
   * Of the one call that is made with it, at most 128 characters. The same call again, also by another client, does nothing
   * twice: it has the outcome of the first one, for an hour after its end. Not for uploads. Default: each call has an id of its own.
   */
  requestId?: string;
  /** Instead of the one before. */
  env?: Readonly<Record<string, string>>;
  /** Aborting it ends all calls and streams of this object. */
  signal?: AbortSignal;
}

export interface EditOptions {
  /** All places instead of exactly one. */
  replaceAll?: boolean;
  /** `PreconditionFailed` unless the file's SHA-256 is this. */
  ifMatch?: string;
}

/** How a sandbox came to be; `kill` acts on it. */
interface Origin {
  ownsClient: boolean;
  deleteWorkspace: boolean;
  token: string | null;
  keeping: Keeping | null;
  /** The family that ends it, if there is one. */
  forks?: Forks;
  /** Resolves when the last of those who end the sandbox has done so. */
  ending?: Promise<void>;
}

/**
 * A place for one agent to work in.
 *
 * ```ts
 * await using sandbox = await Sandbox.create({ profile: "build", image: "cofferdam/dev" });
 * await sandbox.files.write("a.py", "print(6 * 7)");
 * console.log((await sandbox.commands.run(["python3", "a.py"])).stdout);
 * ```
 *
 * Each call goes through the daemon's policy and is on record. Every error is a `CofferdamError`, with the stable `reason`,
 * the `callId` and a `hint`; a tool that fails throws, too (`FileNotFound`, `PreconditionFailed` …), only an exit code other
 * than 0 is no error. While the daemon is away, calls wait for it for the client's `reconnectTimeout`; no call is done twice.
 *
 * Leaving the block of `await using` is `kill()`.
 */
export class Sandbox implements AsyncDisposable {
  readonly approvals: Approvals;
  readonly audit: Audit;
  readonly calls: Calls;
  readonly commands: Commands;
  readonly files: Files;
  readonly git: Git;
  readonly pty: Pty;
  readonly search: Search;
  readonly sessions: Sessions;
  /** Its id, a UUIDv7; `connect` takes it. */
  readonly runId: string;
  /** The whole API, on the same connection. */
  readonly client: Client;
  readonly #caller: Caller;
  readonly #origin: Origin;

  private constructor(client: Client, runId: string, options: Options, origin: Origin) {
    this.client = client;
    this.runId = runId;
    this.#origin = origin;
    this.#caller = new Caller(client, runId, options);
    this.approvals = new Approvals(this.#caller);
    this.audit = new Audit(this.#caller);
    this.calls = new Calls(this.#caller);
    this.commands = new Commands(this.#caller);
    this.files = new Files(this.#caller);
    this.git = new Git(this.#caller);
    this.pty = new Pty(this.#caller);
    this.search = new Search(this.#caller);
    this.sessions = new Sessions(this.#caller);
  }

  /**
   * Makes a sandbox and returns when it is ready.
   *
   * Throws `DaemonUnreachable`, `NotPermitted`, `NotFound` (profile, image), `Denied`, `Overloaded`, `Unavailable` (the
   * engine). Aborted, or without an answer, it ends the run that the daemon may have made, unless that has a `requestId`.
   * Behind a balancer another node may be asked than the one that made the run: give a `lease` with `keepAlive` there, so
   * that a lost run ends by itself.
   */
  static async create(options: CreateOptions): Promise<Sandbox> {
    const { workspace = Managed(), issueToken = false, signal, lease, requestId = "" } = options;
    const renewed = requests.renewed(lease, options.keepAlive);
    const request = {
      // The daemon makes the run's id, which names its node. This id finds the run if the answer is lost.
      requestId: requestId || `sdk-${requests.newId()}`,
      profile: options.profile,
      image: options.image,
      workspace: requests.workspace(workspace),
      pkgPath: options.pkgPath,
      agentId: options.agentId ?? "sdk",
      role: options.role,
      limits: requests.limits(options.limits),
      ttl: requests.duration("timeout", options.timeout),
      idleTimeout: requests.duration("idleTimeout", options.idleTimeout),
      lease: requests.duration("lease", lease),
      secretEnv: { ...options.secretEnv },
      writablePaths: [...(options.writablePaths ?? [])],
      checkpoints: requests.automatic(options.checkpoints, options.keepCheckpoints),
      companions: (options.companions ?? []).map(requests.companion),
      egressJson: options.egress === undefined ? "" : JSON.stringify(options.egress),
      labels: { ...options.metadata },
      issueToken,
    };
    const { client, ownsClient } = connection(options);
    const origin: Origin = { ownsClient, deleteWorkspace: !requests.stays(workspace), token: null, keeping: null };
    let runId = "";
    const begun = performance.now();
    try {
      const made = await client.runs.createRun(request, { timeout: CREATE_TIMEOUT, signal });
      runId = results.runInfo(made.run).runId;
      if (issueToken && made.token === "") {
        // It is told once: a repetition does not have it.
        throw new DaemonUnreachable("the connection was lost, and the run's token with it");
      }
      origin.token = made.token || null;
      if (renewed !== null) {
        origin.keeping = new Keeping(client, runId, renewed, requestId === "" ? begun : null);
      }
      return new Sandbox(client, runId, initial(options), origin);
    } catch (error) {
      // A run that has a name can be asked for again.
      if (requestId === "" && !leftNothing(error)) {
        client.transport.afterwards(() => abandon(client, request.requestId, runId));
      }
      if (ownsClient) {
        // It waits for that; the caller does not.
        void client.close();
      }
      throw error;
    }
  }

  /**
   * The sandbox that `create` was asked for by this `requestId`, if this daemon has it, also one that has ended.
   *
   * One node answers, behind a balancer any of them, so that null says nothing about the others: `Fleet.find` asks each.
   */
  static async find(requestId: string, options: ConnectOptions = {}): Promise<Sandbox | null> {
    const { client, ownsClient } = connection(options);
    let found: Sandbox | null = null;
    try {
      const { runs } = await client.runs.listRuns({ requestId, pageSize: 1 });
      const [run] = runs;
      if (run !== undefined) {
        const origin: Origin = { ownsClient, deleteWorkspace: false, token: null, keeping: null };
        found = new Sandbox(client, run.runId, initial(options), origin);
      }
    } finally {
      if (found === null && ownsClient) {
        await client.close();
      }
    }
    return found;
  }

  /**
   * A sandbox that is there already. Changes nothing in it: its `timeout` and its state stay as they are.
   *
   * A run's own token can be the `token`. `kill()` leaves the workspace. Throws `NotFound` where there is no such run.
   */
  static async connect(runId: string, options: ConnectOptions = {}): Promise<Sandbox> {
    const { client, ownsClient } = connection(options);
    const origin: Origin = { ownsClient, deleteWorkspace: false, token: null, keeping: null };
    const sandbox = new Sandbox(client, runId, initial(options), origin);
    try {
      try {
        await sandbox.info();
      } catch (error) {
        if (!(error instanceof Denied)) {
          throw error;
        }
        // A run's own token may not ask that.
        await sandbox.tools();
      }
    } catch (error) {
      await sandbox.close();
      throw error;
    }
    return sandbox;
  }

  /**
   * A run of which no more than the id is known, on a client that stays open.
   *
   * @internal
   */
  static ofClient(
    client: Client,
    runId: string,
    facts: Partial<Options> & { token?: string | null; keeping?: Keeping | null } = {},
  ): Sandbox {
    const { token = null, keeping = null } = facts;
    return new Sandbox(client, runId, initial(facts), { ownsClient: false, deleteWorkspace: true, token, keeping });
  }

  /**
   * The same sandbox on another connection to its daemon, which stays open. `keeping`: the renewing of its lease.
   *
   * @internal
   */
  on(client: Client, keeping: Keeping | null): Sandbox {
    return new Sandbox(client, this.runId, this.#caller.options, { ...this.#origin, ownsClient: false, keeping });
  }

  /** @internal */
  join(forks: Forks): void {
    this.#origin.forks = forks;
  }

  /** The runs that the caller may see, newest first: in this state (default: `ready`; null: any), with this metadata. */
  static list(
    options: Connection & {
      state?: RunState | null;
      metadata?: Readonly<Record<string, string>>;
      signal?: AbortSignal;
    } = {},
  ): Stream<RunInfo> {
    const { state = "ready", metadata = {} } = options;
    const { client, ownsClient } = connection(options);
    const make = async function* (signal: AbortSignal): AsyncGenerator<RunInfo, void> {
      try {
        let pageToken = "";
        do {
          const request = { pageSize: 1000, pageToken, state: state === null ? undefined : STATES[state] };
          const page = await client.runs.listRuns(request, { signal });
          for (const run of page.runs) {
            if (Object.entries(metadata).every(([name, value]) => run.labels[name] === value)) {
              yield results.runInfo(run);
            }
          }
          pageToken = page.nextPageToken;
        } while (pageToken !== "");
      } finally {
        if (ownsClient) {
          await client.close();
        }
      }
    };
    return new Stream(make, options.signal);
  }

  /** The run's own token, if `create` was told to make one, or `issueToken`. It is told once and kept nowhere else. */
  get token(): string | null {
    return this.#origin.token;
  }

  /** The same sandbox, for calls with other options; options that are not named stay. */
  withOptions(options: SandboxOptions): Sandbox {
    const before = this.#caller.options;
    const merged = {
      waitForApproval: options.waitForApproval ?? before.waitForApproval,
      onAwaitingApproval: options.onAwaitingApproval ?? before.onAwaitingApproval,
      taskId: options.taskId ?? before.taskId,
      correlationId: options.correlationId ?? before.correlationId,
      requestId: options.requestId ?? before.requestId,
      env: options.env ?? before.env,
      signal: either(options.signal, before.signal),
    };
    return new Sandbox(this.client, this.runId, merged, this.#origin);
  }

  /**
   * Replaces the text `old`, which must be in the file exactly once, by `replacement`; whole or not at all.
   *
   * A text that is not there, or there more than once, is `PreconditionFailed`; the message has the lines.
   */
  async edit(path: string, old: string, replacement: string, options: EditOptions = {}): Promise<EditInfo> {
    const value = { oldStr: old, newStr: replacement, replaceAll: options.replaceAll };
    const edit = { path, ifMatchSha256: options.ifMatch, change: { case: "strReplace", value } } as const;
    return results.edited(await this.#caller.result({ kind: { case: "edit", value: edit } }));
  }

  /** Inserts lines after a line, from 1; 0: at the beginning. */
  async insert(path: string, afterLine: number, text: string, options: { ifMatch?: string } = {}): Promise<EditInfo> {
    const value = { afterLine: requests.count("afterLine", afterLine), text };
    const edit = { path, ifMatchSha256: options.ifMatch, change: { case: "insert", value } } as const;
    return results.edited(await this.#caller.result({ kind: { case: "edit", value: edit } }));
  }

  /**
   * Changes several files, all or none of them. At most 3 MiB.
   *
   * `change`: a unified diff, or the envelope `*** Begin Patch`. Throws `PreconditionFailed` where it does not fit.
   */
  async patch(change: string): Promise<PatchInfo> {
    return results.patched(await this.#caller.result(requests.patch(change)));
  }

  /**
   * The tools that the agent may use, as a vendor's API takes them, without those that policy denies.
   *
   * `dialect`: names and shapes of the tools: `code` (the default), `native`, `fs`, `exec`, `gateway`, `forge` or `editor`.
   */
  async tools(
    format: keyof typeof FORMATS = "openai",
    options: { dialect?: string } = {},
  ): Promise<Record<string, unknown>[]> {
    if (!Object.hasOwn(FORMATS, format)) {
      throw new InvalidArgument(`format: must be openai, anthropic or mcp, not ${format}`);
    }
    const request = { runId: this.runId, dialect: options.dialect ?? "code", format: FORMATS[format] };
    return JSON.parse((await this.client.tools.listTools(request)).toolsJson);
  }

  /**
   * Makes a call as a model wrote it, and returns the answer for the model.
   *
   * `args`: an object, or its JSON as it came. A call that fails, is denied or waits for a person is an answer for the
   * model as well: nothing is thrown for it.
   */
  async callTool(
    name: string,
    args: Readonly<Record<string, unknown>> | string,
    options: { dialect?: string; signal?: AbortSignal } = {},
  ): Promise<ToolOutput> {
    return results.toolOutput(await this.answerOf(name, args, options));
  }

  /** @internal As `callTool`, with the answer as the daemon gave it. */
  async answerOf(
    name: string,
    args: Readonly<Record<string, unknown>> | string,
    options: { dialect?: string; signal?: AbortSignal },
  ): Promise<CallResponse> {
    const argumentsJson = typeof args === "string" ? args : JSON.stringify(args);
    const dialect = { dialect: options.dialect ?? "code", name, argumentsJson };
    return (await this.#caller.call({ dialect }, { signal: options.signal })).response;
  }

  /**
   * A local address for a TCP server in it, where the profile says `forward: allow`.
   *
   * ```ts
   * await using web = await sandbox.forward(8000); // http://127.0.0.1:40123 leads to port 8000
   * ```
   *
   * Every program and user of this host can use the address until it is closed; each connection is on record.
   *
   * `port`: where the server listens, on the sandbox's loopback or on all addresses. `onError` is given `PreconditionFailed`
   * where nothing listens, `Denied`, `Overloaded`, `RunNotReady` and others. Throws `InvalidArgument`.
   */
  async forward(port: number, options: ForwardOptions = {}): Promise<PortForward> {
    return await PortForward.open(this.client, this.runId, port, options);
  }

  /** The run as it is now. Throws `NotFound`. */
  async info(): Promise<RunInfo> {
    return results.runInfo((await this.client.runs.getRun({ runId: this.runId })).run);
  }

  /**
   * What one of its companions has written, raw, as it comes. Throws `NotFound` where there is no such companion.
   *
   * `tailBytes`: at most so many of the last bytes until now, up to 1 MiB. Default: 64 KiB. `follow`: go on with what it
   * writes, until it or the sandbox ends.
   */
  companionLogs(
    companion: string,
    options: { tailBytes?: number; follow?: boolean; signal?: AbortSignal } = {},
  ): Stream<Uint8Array> {
    const { client, runId } = this;
    const tailBytes = requests.unsigned("tailBytes", options.tailBytes ?? 0);
    const request = { runId, companion, tailBytes, follow: options.follow };
    const make = async function* (signal: AbortSignal): AsyncGenerator<Uint8Array, void> {
      for await (const part of client.runs.readCompanionLogs(request, { signal })) {
        yield part.data;
      }
    };
    return new Stream(make, either(options.signal, this.#caller.options.signal));
  }

  /** What it has used of models, where its profile counts that. Throws `NotFound`. */
  async usage(): Promise<ModelUsage> {
    return results.modelUsage(await this.client.usage.getUsage({ runId: this.runId }));
  }

  /**
   * The host, its engine or the daemon has ended the sandbox, or its node is gone: a result of it says nothing.
   *
   * False while it lives, and where its programs, its own time or a client ended it. `info()` has the evidence. The handle
   * never stands for another run. Throws `NotPermitted` and `CertificateRefused` where this client is not let in: that says
   * nothing about the sandbox.
   */
  async failedByInfrastructure(): Promise<boolean> {
    try {
      return (await this.info()).failedByInfrastructure;
    } catch (error) {
      if (error instanceof DaemonUnreachable) {
        return true;
      }
      throw error;
    }
  }

  /** Whether it takes calls, or will after a pause. */
  async isRunning(): Promise<boolean> {
    try {
      return ["ready", "paused"].includes((await this.info()).state);
    } catch (error) {
      return none(error);
    }
  }

  /** Renews its `lease`; nothing else does. Throws `PreconditionFailed` if it has none, `RunNotReady` if it has ended. */
  async keepAlive(): Promise<RunInfo> {
    return results.runInfo((await this.client.runs.keepAliveRun({ runId: this.runId })).run);
  }

  /**
   * Makes a token for an agent that may do this run's calls and nothing else. From then on it is `token`.
   *
   * The one that the run had before opens nothing from then on. Throws `RunNotReady` if the run has ended.
   */
  async issueToken(): Promise<string> {
    const { token } = await this.client.runs.issueRunToken({ runId: this.runId });
    this.#origin.token = token;
    return token;
  }

  /**
   * Gives it a longer `timeout`, in seconds from when it was ready. The same again changes nothing.
   *
   * Throws `PreconditionFailed` for a shorter one, `InvalidArgument` for more than the daemon allows, `RunNotReady` if it has
   * ended.
   */
  async extend(timeout: number): Promise<RunInfo> {
    const ttl = requests.duration("timeout", timeout);
    return results.runInfo((await this.client.runs.extendRun({ runId: this.runId, ttl })).run);
  }

  /** Makes all of its commands stand still, and refuses calls, until `resume`. `timeout` goes on meanwhile. */
  async pause(): Promise<RunInfo> {
    return results.runInfo((await this.client.runs.pauseRun({ runId: this.runId })).run);
  }

  /** Takes `pause` back. It stays paused while an approval or an alert holds it. */
  async resume(): Promise<RunInfo> {
    return results.runInfo((await this.client.runs.resumeRun({ runId: this.runId })).run);
  }

  /** The changes in an `Overlay`, on a `Base` or of a fork, against the files beneath as they are now. */
  async diff(): Promise<Diff> {
    return results.diff(await this.client.runs.diffRun({ runId: this.runId }));
  }

  /**
   * Ends the run, applies its changes to what it began on, and returns how many paths changed.
   *
   * For an `Overlay`, and for a fork: then to the directory, workspace or clone of the run that the family came from. Throws
   * `PreconditionFailed`, and applies nothing, where a change has an `objection`; `force` applies these, too. A fork whose
   * changes could not be applied is kept as by `Forks.keep`.
   */
  async accept(options: { force?: boolean } = {}): Promise<number> {
    this.#origin.forks?.beginAccept(this);
    await this.stop();
    const request = { runId: this.runId, force: options.force };
    const { applied } = await this.client.runs.acceptRun(request, { timeout: CREATE_TIMEOUT });
    this.#origin.forks?.endAccept(this);
    return Number(applied);
  }

  /**
   * Copies what the run has changed until now, and returns the checkpoint's id. Its commands are frozen meanwhile.
   *
   * The memory of processes is not in it. Throws `PreconditionFailed` for a `Bind`, or where a file cannot be read.
   */
  async checkpoint(options: { label?: string } = {}): Promise<string> {
    const request = { runId: this.runId, label: options.label };
    const made = await this.client.checkpoints.checkpointRun(request, { timeout: CREATE_TIMEOUT });
    return made.checkpoint?.checkpointId ?? "";
  }

  /**
   * Gives the run the files of one of its checkpoints, or of the one on which it began.
   *
   * Its commands, processes and sessions are ended first. Returns the id of a checkpoint of the state before, with which this
   * is undone. Throws `NotFound` for another run's, and `RunNotReady` where the run has ended.
   */
  async restore(checkpoint: string): Promise<string> {
    const request = { runId: this.runId, checkpointId: checkpoint };
    const made = await this.client.checkpoints.restoreRun(request, { timeout: CREATE_TIMEOUT });
    return results.present(made.before).checkpointId;
  }

  /**
   * Makes 1 to 100 sandboxes that begin with the state of this one, and returns when each is ready or has failed.
   *
   * ```ts
   * await using forks = await sandbox.fork(8);
   * await forks.at(0)?.commands.run("make");
   * ```
   *
   * Leaving the block ends and deletes the forks that were neither kept (`forks.keep(fork)`) nor accepted. Each has its own
   * id, record, approvals, limits and changes. Processes, consents and secrets are not inherited. Those that could not be made
   * are in `forks.failures`.
   *
   * Throws `PreconditionFailed` for a `Bind`, `Denied`, `Overloaded`, and others.
   */
  async fork(count: number, options: ForkOptions = {}): Promise<Forks> {
    const origin = { case: "runId", value: this.runId } as const;
    return await fork(this.client, origin, count, options, this.#caller.options, this.#origin.keeping !== null);
  }

  /** Deletes the changes of an `Overlay` or on a `Base`. The run must have ended: `stop` it. */
  async discard(): Promise<void> {
    await this.client.runs.discardRun({ runId: this.runId });
  }

  /**
   * Ends the run: its calls are cancelled and its container is removed. The workspace stays.
   *
   * False: it had ended already, or there is no such run.
   */
  async stop(): Promise<boolean> {
    await this.#letGo();
    try {
      if (["stopped", "failed"].includes((await this.info()).state)) {
        return false;
      }
      await this.client.runs.stopRun({ runId: this.runId });
      return true;
    } catch (error) {
      return none(error);
    }
  }

  /**
   * Ends the run, and deletes it with its workspace where that is wanted. Closes a connection of its own.
   *
   * `deleteWorkspace`: default: as the `keep` of `create`'s workspace says. A bound directory is never deleted, and changes
   * of an overlay stay until they are accepted or discarded. The audit log keeps its records.
   * False: it had ended already, or there is no such run.
   */
  async kill(options: { deleteWorkspace?: boolean } = {}): Promise<boolean> {
    // Ends take turns: the first one closes the connection, and the next opens another.
    const { ending } = this.#origin;
    let over = () => {};
    this.#origin.ending = new Promise<void>((resolve) => {
      over = resolve;
    });
    await ending;
    try {
      const stopped = await this.stop();
      if (options.deleteWorkspace ?? this.#origin.deleteWorkspace) {
        await this.client.runs.deleteRun({ runId: this.runId, deleteWorkspace: true }).catch(none);
      }
      return stopped;
    } finally {
      await this.close().finally(over);
    }
  }

  /** Closes the connection if it is this sandbox's own. The run goes on, as long as its `lease` lets it. */
  async close(): Promise<void> {
    await this.#letGo();
    if (this.#origin.ownsClient) {
      await this.client.close();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }

  /** Renews the lease no longer. */
  async #letGo(): Promise<void> {
    const { keeping } = this.#origin;
    this.#origin.keeping = null;
    await keeping?.end();
  }
}

function connection(options: Connection): { client: Client; ownsClient: boolean } {
  const { client, endpoint, token, tls } = options;
  return client === undefined
    ? { client: new Client({ endpoint, token, tls }), ownsClient: true }
    : { client, ownsClient: false };
}

/**
 * Ends a run that nobody wants any more: this one, or that of a request whose answer was lost.
 *
 * A request without an id of a node may reach any node of a fleet, so that not every attempt asks the one that has the run.
 * Behind a balancer none of them may. There is no list of nodes here to ask one after the other.
 */
async function abandon(client: Client, requestId: string, known: string): Promise<void> {
  let runId = known;
  for (let attempt = 0; attempt < ABANDONINGS; attempt++) {
    try {
      if (runId === "") {
        const { runs } = await client.runs.listRuns({ requestId, pageSize: 1 });
        runId = runs[0]?.runId ?? "";
      }
      if (runId !== "") {
        await client.runs.stopRun({ runId });
        return;
      }
    } catch (error) {
      // Not now, such as without a log: that is perhaps why it is abandoned.
      if (!(error instanceof NotFound || error instanceof RateLimited || error instanceof Unavailable)) {
        throw error;
      }
    }
    // The daemon may not have begun with it.
    await sleep(ABANDONING_PAUSE);
  }
}

/** False for a thing that is not there; any other error is thrown. */
function none(error: unknown): false {
  if (error instanceof NotFound) {
    return false;
  }
  throw error;
}
