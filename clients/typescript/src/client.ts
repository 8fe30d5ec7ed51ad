/** A connection, and the whole API on it. */

import type { DescMessage, DescMethod, DescService, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import type { Requests } from "./feed.js";
import { type CompareOptions, compare, type ForkOptions, type Forks, fork } from "./forks.js";
import { initial } from "./options.js";
import type { Sandbox } from "./sandbox.js";
import { type ClientOptions, Settings } from "./settings.js";
import { Stdins } from "./stdin.js";
import { Stream } from "./stream.js";
import { type RequestOptions, Transport } from "./transport.js";
import type { Comparison } from "./types.js";
import * as v1 from "./v1.js";

type Unary<I extends DescMessage, O extends DescMessage> = (
  request: MessageInitShape<I>,
  options?: RequestOptions,
) => Promise<MessageShape<O>>;

type Streaming<I extends DescMessage, O extends DescMessage> = (
  request: MessageInitShape<I>,
  options?: RequestOptions,
) => Stream<MessageShape<O>>;

type Collecting<I extends DescMessage, O extends DescMessage> = (
  requests: Requests<I>,
  options?: RequestOptions,
) => Promise<MessageShape<O>>;

type Duplex<I extends DescMessage, O extends DescMessage> = (
  requests: Requests<I>,
  options?: RequestOptions,
) => Stream<MessageShape<O>>;

interface ByKind<I extends DescMessage, O extends DescMessage> {
  unary: Unary<I, O>;
  server_streaming: Streaming<I, O>;
  client_streaming: Collecting<I, O>;
  bidi_streaming: Duplex<I, O>;
}

/** The methods of a service: each takes the fields of its request, or a stream of such requests. */
export type Service<S extends DescService> = {
  readonly [K in keyof S["method"]]: ByKind<
    S["method"][K]["input"],
    S["method"][K]["output"]
  >[S["method"][K]["methodKind"]];
};

function service<S extends DescService>(desc: S, transport: Transport): Service<S> {
  const methods: Record<string, unknown> = {};
  for (const method of desc.methods) {
    methods[method.localName] = called(method, transport);
  }
  return methods as Service<S>;
}

function called(method: DescMethod, transport: Transport) {
  type Fields = Record<string, unknown>;
  type Many = Iterable<Fields> | AsyncIterable<Fields>;
  switch (method.methodKind) {
    case "unary":
      return (request: Fields, options?: RequestOptions) => transport.unary(method, request, options);
    case "client_streaming":
      return (requests: Many, options?: RequestOptions) => transport.collect(method, requests, options);
    case "server_streaming":
      return (request: Fields, options: RequestOptions = {}) =>
        new Stream((signal) => transport.stream(method, request, { ...options, signal }), options.signal);
    case "bidi_streaming":
      return (requests: Many, options: RequestOptions = {}) =>
        new Stream((signal) => transport.duplex(method, requests, { ...options, signal }), options.signal);
  }
}

/**
 * The API of one daemon, method by method, with the messages of `@cofferdam/sdk/v1`.
 *
 * `Sandbox` is made of it. Every method takes its request or an iterable of requests, `timeout` (seconds) and `signal`, and
 * throws `CofferdamError`s.
 */
export class Client implements AsyncDisposable {
  readonly alerts: Service<typeof v1.AlertService>;
  readonly approvals: Service<typeof v1.ApprovalService>;
  readonly audit: Service<typeof v1.AuditService>;
  readonly egress: Service<typeof v1.EgressService>;
  readonly files: Service<typeof v1.FileService>;
  readonly forward: Service<typeof v1.ForwardService>;
  readonly host: Service<typeof v1.HostService>;
  readonly images: Service<typeof v1.ImageService>;
  readonly limits: Service<typeof v1.LimitService>;
  readonly permissions: Service<typeof v1.PermissionService>;
  readonly policy: Service<typeof v1.PolicyService>;
  readonly processes: Service<typeof v1.ProcessService>;
  readonly runs: Service<typeof v1.RunService>;
  readonly sessions: Service<typeof v1.SessionService>;
  readonly terminals: Service<typeof v1.TerminalService>;
  readonly tools: Service<typeof v1.ToolService>;
  readonly tokens: Service<typeof v1.TokenService>;
  readonly bases: Service<typeof v1.BaseService>;
  readonly checkpoints: Service<typeof v1.CheckpointService>;
  readonly trash: Service<typeof v1.TrashService>;
  readonly backups: Service<typeof v1.BackupService>;
  readonly console: Service<typeof v1.ConsoleService>;
  readonly daemon: Service<typeof v1.DaemonService>;
  readonly node: Service<typeof v1.NodeService>;
  readonly passkeys: Service<typeof v1.PasskeyService>;
  readonly push: Service<typeof v1.PushService>;
  readonly usage: Service<typeof v1.UsageService>;
  /** @internal */
  readonly transport: Transport;
  /** @internal */
  readonly stdins = new Stdins();

  /**
   * Connects with the first call.
   *
   * `endpoint`: such as `unix:/run/cofferdam/cofferd.sock`, `https://cofferd.example.org:7443`, or on this host
   * `http://127.0.0.1:7443`; default: `COFFERDAM_ENDPOINT`, else this path.
   * `token`: default: `COFFERDAM_TOKEN`, else none: then the daemon goes by the client's certificate, or on a socket by the
   * user of this process.
   * `tls`: for https: a directory with ca.pem, cert.pem and key.pem, as `coffer tls init` makes one for each client (without
   * the last two: for a client with a token), or these files by name; default: `COFFERDAM_TLS`.
   * `serverName`: the name in the daemon's certificate; default: the host of `endpoint`.
   * `requestTimeout`: seconds for one answer, where no command and no person is waited for; default 60.
   * `reconnectTimeout`: seconds for which a daemon that went away is waited for; default 30. 0: it is not.
   *
   * Throws `InvalidArgument` for an endpoint or token that cannot be one, and for files that cannot be read.
   */
  constructor(options: ClientOptions = {}) {
    this.transport = new Transport(new Settings(options));
    this.alerts = service(v1.AlertService, this.transport);
    this.approvals = service(v1.ApprovalService, this.transport);
    this.audit = service(v1.AuditService, this.transport);
    this.egress = service(v1.EgressService, this.transport);
    this.files = service(v1.FileService, this.transport);
    this.forward = service(v1.ForwardService, this.transport);
    this.host = service(v1.HostService, this.transport);
    this.images = service(v1.ImageService, this.transport);
    this.limits = service(v1.LimitService, this.transport);
    this.permissions = service(v1.PermissionService, this.transport);
    this.policy = service(v1.PolicyService, this.transport);
    this.processes = service(v1.ProcessService, this.transport);
    this.runs = service(v1.RunService, this.transport);
    this.sessions = service(v1.SessionService, this.transport);
    this.terminals = service(v1.TerminalService, this.transport);
    this.tools = service(v1.ToolService, this.transport);
    this.tokens = service(v1.TokenService, this.transport);
    this.bases = service(v1.BaseService, this.transport);
    this.checkpoints = service(v1.CheckpointService, this.transport);
    this.trash = service(v1.TrashService, this.transport);
    this.backups = service(v1.BackupService, this.transport);
    this.console = service(v1.ConsoleService, this.transport);
    this.daemon = service(v1.DaemonService, this.transport);
    this.node = service(v1.NodeService, this.transport);
    this.passkeys = service(v1.PasskeyService, this.transport);
    this.push = service(v1.PushService, this.transport);
    this.usage = service(v1.UsageService, this.transport);
  }

  /** Where the daemon is. */
  get endpoint(): string {
    return this.transport.settings.endpoint;
  }

  /**
   * Makes sandboxes that begin with the files of a checkpoint, under the profile of its run; see `Sandbox.fork`.
   *
   * Its run may have ended, but not been deleted: the checkpoint ends with it. Throws `NotFound`.
   */
  async fork(checkpoint: string, count: number, options: ForkOptions = {}): Promise<Forks> {
    return await fork(this, { case: "checkpointId", value: checkpoint }, count, options, initial({}), false);
  }

  /**
   * What runs have changed and took for it, and the outcome of a check in each, in the order of `runs`.
   *
   * `runs`: 2 to 100 sandboxes, or their ids, each on an `Overlay` or a `Base`, or a fork.
   * `check`: a command as in `commands.run`, in all of them at once, when the changes were compared. It goes through policy
   * and is on record; what it writes stays. None of its outcomes is an error, also if it is ended early.
   *
   * Throws `NotFound`, `InvalidArgument`, and what policy says to the check, such as `CommandNotAllowed`.
   */
  async compare(
    runs: readonly (Sandbox | string)[],
    check?: string | readonly string[],
    options: CompareOptions = {},
  ): Promise<Comparison> {
    return await compare(this, runs, check, options);
  }

  /** Closes the connection, and ends all that is under way on it. A later call opens another one. */
  async close(): Promise<void> {
    await this.transport.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}
