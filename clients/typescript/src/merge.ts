/**
 * Streams of all nodes as one, by time.
 *
 * ```text
 * node 1 ── stream ──▶ box ─┐
 * node 2 ── stream ──▶ box ─┼─▶ the oldest first item ──▶
 * node 3 ── lost, again … ──┘
 * ```
 *
 * A node is read no faster than the items are taken. An item is held for `HOLD` from its own time on unless each other node
 * shows a later one, is lost, or has an end. So items come in the order of their times, except those that a node sends later
 * than that.
 *
 * A stream that goes on trusts no node with the others: an item that was here for `LONGEST_WAIT` comes next, and with it
 * those of its node that were here as long. So a node that always sends earlier items does not hide those of others.
 */

import { DaemonUnreachable } from "./errors.js";
import { isAway } from "./fleet-nodes.js";
import type { Member } from "./member.js";
import { noneAnswers } from "./members.js";
import { Patience } from "./settings.js";
import { sleep } from "./transport.js";
import type { NodeCallback, NodeInfo } from "./types.js";

// Milliseconds.
const HOLD = 250;
const STEP = 20;
/** For which earlier items of other nodes come before one that is here. The time of its taker does not count. */
const LONGEST_WAIT = 5000;
// Seconds.
const FIRST_PAUSE = 0.25;
const LONGEST_PAUSE = 5;
// For the facts of a node before its stream: nobody waits for them but the stream itself.
export const BEGIN_TIMEOUT = 5;

/** Items of a node that wait. */
const WAITING = 64;

/** Begins the stream of a node, from where it was lost: each item with its time. */
export type Beginning<T> = (member: Member, info: NodeInfo, signal: AbortSignal) => AsyncIterable<[Date, T]>;

export interface Merging<T> {
  begin: Beginning<T>;
  onNode: NodeCallback | undefined;
  follow: boolean;
  /** Seconds. */
  patience: number;
  /** Milliseconds; default: `LONGEST_WAIT`. */
  longestWait?: number;
}

type Passed<T> = { kind: "item"; time: number; item: T } | { kind: "begun" | "lost"; info: NodeInfo };

/** What a node's stream gives, which goes on when the node is back. */
async function* passed<T>(member: Member, merging: Merging<T>, signal: AbortSignal): AsyncGenerator<Passed<T>, void> {
  const patience = new Patience(merging.patience);
  let pause = FIRST_PAUSE;
  let answered = false;
  let isLost = false;
  for (;;) {
    try {
      const info = await member.look({ timeout: Math.max(member.timeout, BEGIN_TIMEOUT), signal });
      if (member.isTwin) {
        return;
      }
      isLost = false;
      yield { kind: "begun", info };
      for await (const [time, item] of merging.begin(member, info, signal)) {
        pause = FIRST_PAUSE;
        answered = true;
        patience.restore();
        yield { kind: "item", time: time.getTime(), item };
      }
      if (!merging.follow) {
        return;
      }
      throw new DaemonUnreachable("the daemon ended the stream");
    } catch (error) {
      signal.throwIfAborted();
      const judged = member.judged(error, BEGIN_TIMEOUT);
      if (!isAway(judged)) {
        throw judged;
      }
      if (!isLost) {
        isLost = true;
        yield { kind: "lost", info: member.unreachable(judged) };
      }
      if (!merging.follow && (!answered || patience.pause() === null)) {
        return;
      }
    }
    await sleep(pause, signal);
    pause = Math.min(2 * pause, LONGEST_PAUSE);
  }
}

/** Milliseconds that items have to wait. It stands still while their taker does something else. */
export class Clock {
  #away: number | null = null;
  #before = 0;

  now(): number {
    return (this.#away ?? performance.now()) - this.#before;
  }

  /** The taker goes. */
  leave(): void {
    this.#away = performance.now();
  }

  /** The taker asks for the next item. */
  back(): void {
    if (this.#away !== null) {
      this.#before += performance.now() - this.#away;
      this.#away = null;
    }
  }
}

/** The next item of a node. */
interface Head<T> {
  time: number;
  came: number;
  item: T;
}

/** The stream of one node, and its next item. */
class Feed<T> {
  readonly member: Member;
  head: Head<T> | null = null;
  isLost = false;
  /** Why it is lost. */
  failure = "";
  hasEnded = false;
  readonly #items: AsyncGenerator<Passed<T>, void>;
  readonly #ring: () => void;
  readonly #clock: Clock;
  /** What has come and was not looked at. */
  readonly #box: (Head<T> | Exclude<Passed<T>, { kind: "item" }>)[] = [];
  /** Changes of the node that nobody was told. */
  readonly changes: NodeInfo[] = [];
  #error: { thrown: unknown } | null = null;
  #isReading = false;
  /** Nothing more comes into the box. */
  #isRead = false;
  /** Since when it has had no item to show; null: it has one, or its stream has not begun. */
  #silentSince: number | null = null;

  constructor(member: Member, items: AsyncGenerator<Passed<T>, void>, clock: Clock, ring: () => void) {
    this.member = member;
    this.#items = items;
    this.#clock = clock;
    this.#ring = ring;
    this.#read();
  }

  /** Looks for the next item, and throws the error of a node that refuses. */
  show(): void {
    while (this.head === null && !this.hasEnded) {
      const next = this.#box.shift();
      if (next === undefined) {
        if (this.#error !== null) {
          throw this.#error.thrown;
        }
        this.hasEnded = this.#isRead;
        break;
      }
      if ("came" in next) {
        this.head = next;
      } else {
        if (next.kind === "lost" || this.isLost) {
          this.changes.push(next.info);
        }
        this.isLost = next.kind === "lost";
        this.failure = next.info.failure;
        this.#silentSince = performance.now();
      }
    }
    this.#read();
  }

  /** Its item is taken. */
  taken(): void {
    this.head = null;
    this.#silentSince = performance.now();
  }

  /** The node is heard, and has no item now. */
  get isSilent(): boolean {
    return this.head === null && !this.isLost && !this.hasEnded;
  }

  /** An item that is older than those of others may still come. */
  get mayShowEarlier(): boolean {
    return this.isSilent && (this.#silentSince === null || performance.now() < this.#silentSince + HOLD);
  }

  async end(): Promise<void> {
    await this.#items.return();
  }

  #read(): void {
    if (this.#isReading || this.#isRead || this.#box.length >= WAITING) {
      return;
    }
    this.#isReading = true;
    this.#items.next().then(
      ({ value, done }) => {
        this.#isReading = false;
        if (done || value === undefined) {
          this.#isRead = true;
        } else if (value.kind === "item") {
          this.#box.push({ time: value.time, came: this.#clock.now(), item: value.item });
        } else {
          this.#box.push(value);
        }
        this.#read();
        this.#ring();
      },
      (thrown: unknown) => {
        this.#isRead = true;
        this.#error = { thrown };
        this.#ring();
      },
    );
  }
}

/** The items of all nodes, the oldest first. Throws `DaemonUnreachable` when all are lost for `patience` seconds. */
export async function* merged<T>(
  members: readonly Member[],
  merging: Merging<T>,
  signal: AbortSignal,
): AsyncGenerator<{ member: Member; item: T }, void> {
  const end = new AbortController();
  const both = AbortSignal.any([signal, end.signal]);
  const bell = new Bell();
  const missed = new Patience(merging.patience);
  const clock = new Clock();
  const ring = () => bell.ring();
  const feeds = members.map((member) => new Feed(member, passed(member, merging, both), clock, ring));
  const longestWait = merging.longestWait ?? LONGEST_WAIT;
  try {
    for (;;) {
      signal.throwIfAborted();
      for (const feed of feeds) {
        feed.show();
        for (const info of feed.changes.splice(0)) {
          await merging.onNode?.(info);
        }
      }
      const ready = feeds.flatMap((feed) => (feed.head === null ? [] : [{ feed, head: feed.head }]));
      const [longest] = ready.toSorted((one, other) => one.head.came - other.head.came);
      const isOverdue = merging.follow && longest !== undefined && clock.now() >= longest.head.came + longestWait;
      const first = isOverdue ? longest : ready.sort((one, other) => one.head.time - other.head.time)[0];
      if (first !== undefined && (isOverdue || !isHeld(first.head.time, feeds, merging.follow))) {
        missed.restore();
        first.feed.taken();
        clock.leave();
        yield { member: first.feed.member, item: first.head.item };
        clock.back();
        // The next item of this node may be there already.
        await Promise.resolve();
        continue;
      }
      if (first === undefined) {
        if (feeds.every((feed) => feed.hasEnded)) {
          break;
        }
        if (!merging.follow || !feeds.every((feed) => feed.isLost || feed.hasEnded)) {
          missed.restore();
        } else if (missed.pause() === null) {
          throw noneAnswers(feeds.map(({ failure }) => failure).filter(Boolean));
        }
      }
      await bell.wait(STEP);
    }
    if (feeds.every((feed) => feed.isLost)) {
      throw noneAnswers(feeds.map(({ failure }) => failure).filter(Boolean));
    }
  } finally {
    end.abort();
    await Promise.all(feeds.map((feed) => feed.end().catch(() => {})));
  }
}

/** True if an item of this time has to wait for the next items of other nodes. */
function isHeld(time: number, feeds: readonly Feed<unknown>[], follow: boolean): boolean {
  const silent = feeds.filter((feed) => feed.isSilent);
  if (!follow) {
    return silent.length > 0;
  }
  // The clock of a node may be ahead of that of others: such an item waits no longer than others.
  const age = Date.now() - time;
  return silent.some((feed) => feed.mayShowEarlier) || (silent.length > 0 && 0 <= age && age < HOLD);
}

/** Wakes one who waits. */
class Bell {
  #wake: () => void = () => {};
  #isRung = false;

  ring(): void {
    this.#isRung = true;
    this.#wake();
  }

  /** Waits for so many milliseconds at most. */
  async wait(most: number): Promise<void> {
    if (!this.#isRung) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, most);
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
    this.#isRung = false;
    this.#wake = () => {};
  }
}
