/** Options of all calls of a sandbox object. */

/** See `Sandbox.withOptions`. */
export interface Options {
  waitForApproval: boolean;
  taskId: string;
  correlationId: string;
  /** Empty: each call has one of its own. */
  requestId: string;
  env: Readonly<Record<string, string>>;
  signal?: AbortSignal;
}
