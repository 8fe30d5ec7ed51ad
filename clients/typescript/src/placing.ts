/** The choice of a node for a sandbox, and its making there: once, also when an answer is lost. */

import { CofferdamError, NoConnection, NodeLostError, NotFound, RateLimited } from "./errors.js";
import { draw, hasNoAnswer, homeOf, isAway, wasRefused } from "./fleet-nodes.js";
import { Keeping } from "./lease.js";
import type { Member } from "./member.js";
import { type Members, noneAnswers } from "./members.js";
import { nodeOf } from "./node.js";
import { newId, renewed } from "./requests.js";
import { type Connection, type CreateOptions, Sandbox } from "./sandbox.js";
import { Patience } from "./settings.js";
import { afterLostAttempt, mayPass } from "./status.js";
import { sleep } from "./transport.js";

// How often a run that nobody wants any more is looked for, and seconds between.
const ABANDONINGS = 20;
const ABANDONING_PAUSE = 0.1;

type Options = Omit<CreateOptions, keyof Connection>;

/** Gives each sandbox to the least loaded node that makes runs. */
export class Placing {
  readonly #members: Members;
  readonly #patience: number;
  #looking: Promise<void> | null = null;

  constructor(members: Members, patience: number) {
    this.#members = members;
    this.#patience = patience;
  }

  /** For `Fleet.create`. */
  async create(options: Options): Promise<Sandbox> {
    const { requestId = "", issueToken = false } = options;
    const number = nodeOf(homeOf(options.workspace));
    let home = number === null ? null : await this.#members.at(number);
    const name = requestId || `fleet-${newId()}`;
    if (requestId !== "") {
      const holder = await this.#members.holder(requestId);
      home = holder?.wasMade ? holder.member : home;
    }
    const passedOver: CofferdamError[] = [];
    const tried = new Set<Member>();
    for (;;) {
      options.signal?.throwIfAborted();
      const member = await this.#chosen(home, requestId, tried);
      if (member === undefined) {
        break;
      }
      tried.add(member);
      let sandbox: Sandbox | null = null;
      try {
        sandbox = await this.#created(member, name, options);
        if (issueToken) {
          await sandbox.issueToken();
        }
        return sandbox;
      } catch (error) {
        // Its caller has no object that ends the renewing.
        await sandbox?.close();
        const isLost = !(error instanceof CofferdamError) || error.followsLostAttempt;
        if (requestId === "" && (sandbox !== null || isLost)) {
          member.ask.transport.afterwards(() => abandoned(member, name, this.#patience));
        }
        if (sandbox !== null || !wasRefused(error)) {
          throw error;
        }
        if (error instanceof NoConnection) {
          member.failed(error);
        }
        passedOver.push(error);
      } finally {
        member.standing.end();
      }
    }
    // A refusal says more than a node that is away.
    const [first] = passedOver.sort((one, other) => Number(isGone(one)) - Number(isGone(other)));
    const limited = this.#members.present.map(({ failure }) => failure).find((error) => error instanceof RateLimited);
    throw first ?? limited ?? noneAnswers(this.#members.present.map(({ label }) => label));
  }

  /** The node for the next attempt, which counts from now on. Undefined: there is none. */
  async #chosen(home: Member | null, requestId: string, tried: ReadonlySet<Member>): Promise<Member | undefined> {
    if (home !== null && tried.has(home)) {
      return undefined;
    }
    if (home === null && requestId === "") {
      this.#looking ??= this.#look().finally(() => {
        this.#looking = null;
      });
      await this.#looking;
    }
    await home?.look();
    const member = home ?? this.#best(requestId, tried);
    member?.standing.begin();
    return member;
  }

  #best(requestId: string, tried: ReadonlySet<Member>): Member | undefined {
    const untried = this.#members.present.filter((member) => !tried.has(member));
    if (requestId !== "") {
      // The same for all clients, and each node has just answered.
      const rank = (member: Member) => draw(member.number ?? 0, requestId);
      return untried.sort((one, other) => (rank(one) < rank(other) ? -1 : 1))[0];
    }
    const ranked = untried
      .filter((member) => !member.standing.isSuspect)
      .map((member) => ({ member, rank: member.standing.rank() }));
    return ranked.sort((one, other) => compared(one.rank, other.rank))[0]?.member;
  }

  /** Has the facts of each node be fresh, or the node be suspect. */
  async #look(): Promise<void> {
    const members = this.#members.present;
    for (const member of members.filter(({ standing }) => standing.isDue())) {
      // Nobody waits for a node that did not answer before.
      member.ask.transport.afterwards(() => looked(member));
    }
    const areAllSuspect = members.every(({ standing }) => standing.isSuspect);
    await Promise.all(members.filter(({ standing }) => areAllSuspect || standing.isStale).map(looked));
  }

  /** Makes the sandbox at this node. Once an answer was lost, only the node itself can say that it has made none. */
  async #created(member: Member, name: string, options: Options): Promise<Sandbox> {
    const patience = new Patience(this.#patience);
    const lease = renewed(options.lease, options.keepAlive);
    const since = options.requestId ? null : performance.now();
    let wasLost = false;
    for (;;) {
      try {
        const given = { ...options, keepAlive: false, issueToken: false, requestId: name, client: member.ask };
        const made = await Sandbox.create(given);
        return made.on(member.client, lease === null ? null : new Keeping(member.ask, made.runId, lease, since));
      } catch (error) {
        options.signal?.throwIfAborted();
        if (!hasNoAnswer(error)) {
          if (wasLost) {
            afterLostAttempt(error, false);
          }
          throw error;
        }
        wasLost ||= !error.retrySafe;
        if (!wasLost) {
          throw error;
        }
        const pause = patience.pause();
        if (pause === null) {
          const message = `${member.label} was lost, and may have the sandbox: ${error.message}`;
          throw new NodeLostError(message, { requestId: name, retrySafe: false });
        }
        await sleep(pause, options.signal);
      }
    }
  }
}

async function looked(member: Member): Promise<void> {
  try {
    await member.look();
  } catch (error) {
    if (!isAway(error)) {
      throw error;
    }
  }
}

function isGone(error: CofferdamError): boolean {
  return error instanceof NoConnection;
}

function compared(one: readonly number[], other: readonly number[]): number {
  const differing = one.findIndex((value, at) => value !== other[at]);
  return differing < 0 ? 0 : (one[differing] ?? 0) - (other[differing] ?? 0);
}

/** Ends a run that nobody wants any more, and whose id nobody was told. A node that is away is asked for so many seconds. */
async function abandoned(member: Member, name: string, seconds: number): Promise<void> {
  const patience = new Patience(seconds);
  const request = { requestId: name, pageSize: 1 };
  for (let left = ABANDONINGS; left > 0; ) {
    // The daemon may not have begun with it.
    let pause: number | null = ABANDONING_PAUSE;
    try {
      const [run] = (await member.ask.runs.listRuns(request, { timeout: member.timeout })).runs;
      if (run !== undefined) {
        await member.ask.runs.stopRun({ runId: run.runId });
        return;
      }
      left -= 1;
    } catch (error) {
      if (error instanceof NotFound) {
        left -= 1;
      } else {
        // Not now, such as without a log or a connection.
        pause = error instanceof CofferdamError && mayPass(error) ? patience.pause() : null;
      }
    }
    if (pause === null) {
      return;
    }
    await sleep(pause);
  }
}
