/** Changes of files, as listings show them one after the other. */

import type { Caller } from "./caller.js";
import { FileNotFound, LimitExceeded, NotFound, RunNotReady } from "./errors.js";
import { isTemporary } from "./names.js";
import { sleep } from "./transport.js";
import type { FileEvent, FileInfo, Found } from "./types.js";
import { Run_State } from "./v1.js";

const LIVING: readonly (Run_State | undefined)[] = [Run_State.CREATING, Run_State.READY, Run_State.PAUSED];

/** Entries by path. */
export type Listing = ReadonlyMap<string, FileInfo>;

/** Throws `LimitExceeded`: with a part of the entries nobody knows what is new. */
export function listed(path: string, found: Found<FileInfo>): Listing {
  if (found.truncated) {
    const hint = "Watch a smaller directory, or without `recursive`.";
    throw new LimitExceeded(`${path}: has more entries than one listing`, { reason: "READ_LIMIT", hint });
  }
  const entries = found.items.filter((entry) => !isTemporary(entry.name));
  return new Map(entries.map((entry) => [entry.path, entry]));
}

/** The changes between two listings, by path. */
function changes(before: Listing, after: Listing): FileEvent[] {
  const events: FileEvent[] = [];
  const tell = (change: FileEvent["change"], { path, type }: FileInfo) => events.push({ change, path, type });
  for (const old of before.values()) {
    const now = after.get(old.path);
    if (now?.type !== old.type) {
      tell("removed", old);
    }
  }
  for (const now of after.values()) {
    const old = before.get(now.path);
    if (old?.type !== now.type) {
      tell("created", now);
    } else if (now.type !== "directory" && differs(old, now)) {
      tell("modified", now);
    }
  }
  return events.sort((one, other) => (one.path < other.path ? -1 : one.path > other.path ? 1 : 0));
}

function differs(old: FileInfo, now: FileInfo): boolean {
  return old.size !== now.size || old.modified.getTime() !== now.modified.getTime();
}

/** The changes since a listing, until the run has ended. */
export async function* watched(
  caller: Caller,
  before: Listing,
  now: () => Promise<Listing>,
  interval: number,
  ending: AbortSignal,
): AsyncGenerator<FileEvent, void> {
  let last = before;
  for (;;) {
    await sleep(interval, ending);
    try {
      const next = await now();
      yield* changes(last, next);
      last = next;
    } catch (error) {
      if (error instanceof FileNotFound) {
        yield* changes(last, new Map());
        last = new Map();
      } else if (!(error instanceof RunNotReady || error instanceof NotFound)) {
        throw error;
      } else if (!(await lives(caller, ending))) {
        return;
      }
    }
  }
}

/** A run that is paused takes calls again. */
async function lives(caller: Caller, signal: AbortSignal): Promise<boolean> {
  try {
    const { run } = await caller.client.runs.getRun({ runId: caller.runId }, { signal });
    return LIVING.includes(run?.state);
  } catch (error) {
    if (error instanceof NotFound) {
      return false;
    }
    throw error;
  }
}
