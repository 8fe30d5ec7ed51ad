/** Options of all calls of a sandbox object. */

/** What a call does that finds its run waiting for a reviewer of another call. */
export type OnAwaitingApproval = "wait" | "raise";

/** See `Sandbox.withOptions`. */
export interface Options {
  waitForApproval: boolean;
  onAwaitingApproval: OnAwaitingApproval;
  taskId: string;
  correlationId: string;
  /** Empty: each call has one of its own. */
  requestId: string;
  env: Readonly<Record<string, string>>;
  signal?: AbortSignal;
}
