/** Options of all calls of a sandbox object. */

/** See `Sandbox.withOptions`. */
export interface Options {
  waitForApproval: boolean;
  taskId: string;
  correlationId: string;
  env: Readonly<Record<string, string>>;
  signal?: AbortSignal;
}
