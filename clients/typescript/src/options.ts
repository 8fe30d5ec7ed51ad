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

/** Those of an object that nothing else was said about. */
export function initial(options: Partial<Options>): Options {
  const { waitForApproval = false, onAwaitingApproval = "wait", env = {} } = options;
  return { waitForApproval, onAwaitingApproval, taskId: "", correlationId: "", requestId: "", env };
}

/**
 * Whether a call that could not be made because of reviewers is made anew. One that has a request id cannot be: the refusal
 * is the outcome of that id.
 */
export function outlastsReviewers({ waitForApproval, onAwaitingApproval, requestId }: Options): boolean {
  return waitForApproval && onAwaitingApproval === "wait" && requestId === "";
}
