/** Waiting for the state that a test expects. */

import assert from "node:assert/strict";
import { setTimeout as delay } from "node:timers/promises";

const PATIENCE = 60_000;

/** Waits until it holds. */
export async function eventually(holds: () => Promise<boolean>, message: string): Promise<void> {
  const until = Date.now() + PATIENCE;
  while (!(await holds())) {
    assert(Date.now() < until, message);
    await delay(50);
  }
}

/** The first item, as soon as it is there. */
export async function first<T>(items: AsyncIterable<T>): Promise<T | undefined> {
  for await (const item of items) {
    return item;
  }
  return undefined;
}

/** All items of a stream that ends. */
export async function collected<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) {
    found.push(item);
  }
  return found;
}
