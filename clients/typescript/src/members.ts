/** All nodes of a fleet, and questions to them side by side. */

import { DaemonUnreachable, Denied, NodeLostError, NotFound, RateLimited } from "./errors.js";
import { checked, isAway, type Numbers } from "./fleet-nodes.js";
import { Member } from "./member.js";
import { Moving } from "./moving.js";
import type { ClientOptions } from "./settings.js";
import { type FleetNode, Gathered, type NodeInfo, type OfNode } from "./types.js";
import { type Run, Run_State } from "./v1.js";

/** A node with a run. */
interface Holder {
  member: Member;
  runId: string;
  /** False for a run that its node failed to make. */
  wasMade: boolean;
}

/** Asks one node. */
type Question<T> = (member: Member) => Promise<readonly T[]>;

/** The nodes in the order of their list. */
export class Members {
  readonly #all: readonly Member[];
  readonly #numbers = new Map<number, Member>();

  /** `resolve`: the addresses of the name that the fleet is, as they are now; null: it is none. `rest`: see `Moving`. */
  constructor(
    nodes: readonly FleetNode[],
    timeout: number,
    options: ClientOptions,
    resolve: (() => Promise<readonly FleetNode[]>) | null,
    rest?: number,
  ) {
    this.#all = checked(nodes).map((node) => new Member(node, this.#numbers, timeout, options));
    if (resolve !== null) {
      const made = (node: FleetNode) => new Member(node, new Map(), timeout, options);
      const moving = new Moving(resolve, made, this.#all, rest);
      for (const member of this.#all) {
        member.whenAway = (away) => moving.begin(away);
      }
    }
  }

  get present(): readonly Member[] {
    return this.#all.filter((member) => !member.isTwin);
  }

  /** Those that are known. */
  get numbers(): Numbers {
    return this.#numbers;
  }

  /** The node of this number. Throws `NotFound`. */
  async at(number: number): Promise<Member> {
    const found = () => this.present.find((member) => member.number === number);
    if (found() === undefined) {
      // One whose number is not known yet may be it.
      await this.look();
    }
    const member = found();
    if (member === undefined) {
      throw new NotFound(`node ${number} is not one of this fleet, or does not answer`, { reason: "NOT_FOUND" });
    }
    return member;
  }

  /** All of them as they are now. */
  async look(signal?: AbortSignal): Promise<readonly NodeInfo[]> {
    const look = async (member: Member) => {
      try {
        return { member, info: await member.look({ signal }) };
      } catch (error) {
        if (!isAway(error)) {
          throw error;
        }
        return { member, info: member.unreachable(error) };
      }
    };
    const found = await Promise.all(this.present.map(look));
    return found.filter(({ member }) => !member.isTwin).map(({ info }) => info);
  }

  /** The answers of all nodes, and the nodes without one. */
  async gather<T>(question: Question<T>, signal?: AbortSignal): Promise<Gathered<T>> {
    const missing: NodeInfo[] = [];
    const limited: RateLimited[] = [];
    const ask = async (member: Member): Promise<readonly OfNode<T>[]> => {
      try {
        if (member.number === null) {
          await member.look({ signal });
        }
        const items = member.isTwin ? [] : await question(member);
        return items.map((item) => ({ node: member.number ?? 0, item }));
      } catch (error) {
        signal?.throwIfAborted();
        const judged = member.judged(error);
        if (!isAway(judged)) {
          throw judged;
        }
        if (judged instanceof RateLimited) {
          limited.push(judged);
        }
        member.failed(judged);
        missing.push(member.unreachable(judged));
        return [];
      }
    };
    const members = this.present;
    const answers = await Promise.all(members.map(ask));
    if (missing.length === members.length) {
      // A refusal says more than a node that is away.
      throw limited[0] ?? noneAnswers(missing.map(({ failure }) => failure));
    }
    const place = ({ endpoint }: NodeInfo) => members.findIndex((member) => member.endpoint === endpoint);
    missing.sort((one, other) => place(one) - place(other));
    return new Gathered(answers.flat(), missing);
  }

  /**
   * The node with the run of this request, and the run's id. Throws `NodeLostError` where it cannot be known.
   *
   * A node on which the making of the run failed shows that, too. It comes last: the next node was asked then.
   */
  async holder(requestId: string): Promise<Holder | null> {
    const found = await this.gather(async (member) => {
      const { runs } = await member.ask.runs.listRuns({ requestId, pageSize: 1 }, { timeout: member.timeout });
      return runs.map((run) => ({ member, runId: run.runId, wasMade: wasMade(run) }));
    });
    const holders = found.items.map(({ item }) => item);
    const first = holders.find((holder) => holder.wasMade);
    if (first === undefined && found.missing.length > 0) {
      const message = `a node that does not answer may have the sandbox ${JSON.stringify(requestId)}: ${told(found.missing)}`;
      throw new NodeLostError(message, { requestId, retrySafe: true });
    }
    return first ?? holders[0] ?? null;
  }

  /** The node with a run whose id names none. */
  async keeper(runId: string): Promise<Member> {
    const found = await this.gather(async (member) => {
      try {
        await member.ask.runs.getRun({ runId }, { timeout: member.timeout });
        return [member];
      } catch (error) {
        if (error instanceof NotFound || error instanceof Denied) {
          return [];
        }
        throw error;
      }
    });
    const [first] = found.items;
    if (first !== undefined) {
      return first.item;
    }
    const message = `no node that answers has the run ${JSON.stringify(runId)}`;
    throw found.missing.length > 0
      ? new DaemonUnreachable(`${message}: ${told(found.missing)}`, { retrySafe: true })
      : new NotFound(message, { reason: "NOT_FOUND" });
  }

  async close(): Promise<void> {
    await Promise.all(this.#all.map((member) => member.close()));
  }
}

function wasMade(run: Run): boolean {
  return run.state !== Run_State.FAILED || run.readyAt !== undefined;
}

function told(missing: readonly NodeInfo[]): string {
  return missing
    .slice(0, 5)
    .map(({ failure }) => failure)
    .join("; ");
}

export function noneAnswers(failures: readonly string[]): DaemonUnreachable {
  const listed = failures.slice(0, 5).join("; ") + (failures.length > 5 ? "; …" : "");
  return new DaemonUnreachable(`no node of the fleet answers: ${listed}`, { retrySafe: true });
}
