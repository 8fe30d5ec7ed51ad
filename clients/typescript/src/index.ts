/**
 * Cofferdam: a watertight place for coding agents to work.
 *
 * `Client` beneath `Sandbox` has the whole API, with the messages of `@cofferdam/sdk/v1`.
 */

export type { Approvals } from "./approvals.js";
export type { Audit, AuditOptions } from "./audit.js";
export type { Calls } from "./calls.js";
export { Client, type Service } from "./client.js";
export type { BackgroundOptions, Commands, ConnectedOptions, RunOptions, StartOptions } from "./commands.js";
export * from "./errors.js";
export type { Requests } from "./feed.js";
export type {
  Files,
  FrontmatterOptions,
  ListOptions,
  UploadOptions,
  WatchOptions,
  WriteOptions,
} from "./files.js";
export { Fleet, type FleetOptions, type WatchEventsOptions, type WatchNodesOptions } from "./fleet.js";
export type { CompareOptions, ForkOptions, Forks } from "./forks.js";
export type { ForwardOptions, PortForward } from "./forward.js";
export type { Git, GitFetchOptions, GitOptions, GitPullOptions, GitPushOptions } from "./git.js";
export type { CommandHandle, WaitOptions } from "./handle.js";
export type { OnAwaitingApproval } from "./options.js";
export type { Pty, PtyOptions } from "./pty.js";
export {
  type Connection,
  type ConnectOptions,
  type CreateOptions,
  type EditOptions,
  Sandbox,
  type SandboxOptions,
} from "./sandbox.js";
export type { GlobOptions, GrepOptions, Search } from "./search.js";
export type { InterruptOptions, OpenOptions, Session, Sessions, UseOptions } from "./sessions.js";
export type { ClientOptions, Tls } from "./settings.js";
export type { Stream } from "./stream.js";
export { traceContext } from "./trace.js";
export type { TransferOptions } from "./transfer.js";
export type { RequestOptions } from "./transport.js";
export * from "./types.js";
