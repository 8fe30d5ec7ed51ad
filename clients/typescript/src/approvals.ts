/** `sandbox.approvals`. */

import { type Caller, either } from "./caller.js";
import * as results from "./results.js";
import { resumed } from "./resumed.js";
import { Stream } from "./stream.js";
import type { ApprovalInfo, ApprovalState } from "./types.js";
import { Approval_State, DecideApprovalRequest_Decision as Decision } from "./v1.js";

const STATES: Readonly<Record<ApprovalState, Approval_State>> = {
  pending: Approval_State.PENDING,
  approved: Approval_State.APPROVED,
  denied: Approval_State.DENIED,
  expired: Approval_State.EXPIRED,
  cancelled: Approval_State.CANCELLED,
};

/**
 * Calls of this sandbox that need a person's consent, and the decisions on them.
 *
 * To decide takes the API role `approver`, and nobody decides on their own calls unless the daemon's configuration has
 * `approvals.allow_self_approval`: otherwise `Denied`.
 */
export class Approvals {
  readonly #caller: Caller;

  /** @internal */
  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** Those in this state (default: `pending`), oldest first; null: all. */
  async list(state: ApprovalState | null = "pending"): Promise<readonly ApprovalInfo[]> {
    const request = { runId: this.#caller.runId, state: state === null ? undefined : STATES[state] };
    return (await this.#rpc.listApprovals(request, this.#options)).approvals.map(results.approval);
  }

  /** One of them. Throws `NotFound`. */
  async get(approvalId: string): Promise<ApprovalInfo> {
    return results.approval((await this.#rpc.getApproval({ approvalId }, this.#options)).approval);
  }

  /** Consents: the call runs by itself then. It is still `pending` where more approvers have to consent. */
  async approve(approvalId: string, options: { comment?: string } = {}): Promise<ApprovalInfo> {
    return await this.#decide(approvalId, Decision.APPROVE, options.comment);
  }

  /** Refuses; the agent is told the comment. */
  async deny(approvalId: string, options: { comment?: string } = {}): Promise<ApprovalInfo> {
    return await this.#decide(approvalId, Decision.DENY, options.comment);
  }

  /** The pending ones, then each change, without end. After a lost connection the pending ones come again. */
  watch(options: { signal?: AbortSignal } = {}): Stream<ApprovalInfo> {
    const { client, runId } = this.#caller;
    const make = async function* (signal: AbortSignal): AsyncGenerator<ApprovalInfo, void> {
      const begin = () => client.approvals.watchApprovals({ runId }, { signal });
      for await (const change of resumed(client.transport, begin, () => false, signal)) {
        yield results.approval(change.approval);
      }
    };
    return new Stream(make, either(options.signal, this.#caller.options.signal));
  }

  get #rpc() {
    return this.#caller.client.approvals;
  }

  get #options() {
    return { signal: this.#caller.options.signal };
  }

  async #decide(approvalId: string, decision: Decision, comment: string | undefined): Promise<ApprovalInfo> {
    const request = { approvalId, decision, comment };
    return results.approval((await this.#rpc.decideApproval(request, this.#options)).approval);
  }
}
