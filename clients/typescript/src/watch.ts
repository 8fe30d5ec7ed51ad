/** Changes of files, as listings show them one after the other. */

import { LimitExceeded } from "./errors.js";
import type { FileEvent, FileInfo, Found } from "./types.js";

/** Entries by path. */
export type Listing = ReadonlyMap<string, FileInfo>;

/** Throws `LimitExceeded`: with a part of the entries nobody knows what is new. */
export function listed(path: string, found: Found<FileInfo>): Listing {
  if (found.truncated) {
    const hint = "Watch a smaller directory, or without `recursive`.";
    throw new LimitExceeded(`${path}: has more entries than one listing`, { reason: "READ_LIMIT", hint });
  }
  return new Map(found.items.map((entry) => [entry.path, entry]));
}

/** The changes between two listings, by path. */
export function changes(before: Listing, after: Listing): FileEvent[] {
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
