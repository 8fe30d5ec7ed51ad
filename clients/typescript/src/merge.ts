/**
 * Streams of all nodes as one, by time.
 *
 * ```text
 * node 1 ── stream ──▶ next item ─┐
 * node 2 ── stream ──▶ next item ─┼─▶ the oldest first ──▶
 * node 3 ── lost, again … ────────┘
 * ```
 *
 * A node is read no faster than the items are taken. An item is held for `HOLD` from its own time on unless each other node
 * shows a later one, is lost, or has an end. So items come in the order of their times, except those that a node sends later
 * than that.
 */

import { DaemonUnreachable } from "./errors.js";
import { isAway } from "./fleet-nodes.js";
import type { Member } from "./member.js";
import { Patience } from "./settings.js";
import { sleep } from "./transport.js";
import type { NodeCallback, NodeInfo } from "./types.js";

// Milliseconds.
const HOLD = 250;
const STEP = 20;
// Seconds.
const FIRST_PAUSE = 0.25;
const LONGEST_PAUSE = 5;
// For the facts of a node before its stream: nobody waits for them but the stream itself.
export const BEGIN_TIMEOUT = 5;

/** Begins the stream of a node, from where it was lost: each item with its time. */
export type Beginning<T> = (member: Member, info: NodeInfo, signal: AbortSignal) => AsyncIterable<[Date, T]>;

export interface Merging<T> {
  begin: Beginning<T>;
  onNode: NodeCallback | undefined;
  follow: boolean;
  /** Seconds. */
  patience: number;
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
      if (!isAway(error)) {
        throw error;
      }
      if (!isLost) {
        isLost = true;
        yield { kind: "lost", info: member.unreachable(error) };
      }
      if (!merging.follow && (!answered || patience.pause() === null)) {
        return;
      }
    }
    await sleep(pause, signal);
    pause = Math.min(2 * pause, LONGEST_PAUSE);
  }
}

/** The stream of one node, and its next item. */
class Feed<T> {
  readonly member: Member;
  head: { time: number; item: T } | null = null;
  isLost = false;
  hasEnded = false;
  readonly #items: AsyncGenerator<Passed<T>, void>;
  readonly #ring: () => void;
  /** Changes of the node that nobody was told. */
  readonly changes: NodeInfo[] = [];
  #error: { thrown: unknown } | null = null;
  #isReading = false;
  /** Since when it has had no item to show; null: it has one, or its stream has not begun. */
  #silentSince: number | null = null;

  constructor(member: Member, items: AsyncGenerator<Passed<T>, void>, ring: () => void) {
    this.member = member;
    this.#items = items;
    this.#ring = ring;
    this.#read();
  }

  /** Throws the error of a node that refuses. */
  check(): void {
    if (this.#error !== null) {
      throw this.#error.thrown;
    }
  }

  /** Its item. The next one is read. */
  take(): T | undefined {
    const item = this.head?.item;
    this.head = null;
    this.#silentSince = performance.now();
    this.#read();
    return item;
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
    if (this.#isReading || this.hasEnded) {
      return;
    }
    this.#isReading = true;
    this.#items.next().then(
      ({ value, done }) => {
        this.#isReading = false;
        if (done || value === undefined) {
          this.hasEnded = true;
        } else if (value.kind === "item") {
          this.head = value;
        } else {
          if (value.kind === "lost" || this.isLost) {
            this.changes.push(value.info);
          }
          this.isLost = value.kind === "lost";
          this.#silentSince = performance.now();
          this.#read();
        }
        this.#ring();
      },
      (thrown: unknown) => {
        this.hasEnded = true;
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
  const ring = () => bell.ring();
  const feeds = members.map((member) => new Feed(member, passed(member, merging, both), ring));
  try {
    for (;;) {
      signal.throwIfAborted();
      for (const feed of feeds) {
        feed.check();
        for (const info of feed.changes.splice(0)) {
          await merging.onNode?.(info);
        }
      }
      const ready = feeds.filter((feed) => feed.head !== null);
      const [first] = ready.sort((one, other) => (one.head?.time ?? 0) - (other.head?.time ?? 0));
      if (first !== undefined && !isHeld(first.head?.time ?? 0, feeds, merging.follow)) {
        missed.restore();
        const item = first.take();
        if (item !== undefined) {
          yield { member: first.member, item };
        }
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
          throw new DaemonUnreachable("no node of the fleet answers");
        }
      }
      await bell.wait(STEP);
    }
    if (feeds.every((feed) => feed.isLost)) {
      throw new DaemonUnreachable("no node of the fleet answers");
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
