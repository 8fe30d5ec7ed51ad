/** Names in directories of this host. */

import { readdirSync } from "node:fs";
import { join } from "node:path";

/** All that is in a directory and beneath it, by path. No link is followed. */
export function namesIn(directory: string): string[] {
  const entries = readdirSync(directory, { withFileTypes: true });
  const beneath = entries.filter((entry) => entry.isDirectory());
  const deeper = beneath.flatMap(({ name }) => namesIn(join(directory, name)).map((inner) => join(name, inner)));
  return [...entries.map((entry) => entry.name), ...deeper].sort();
}
