/** Names of entries of directories, on their way into a run and out of it. */

// Characters that file systems ignore in a name: Unicode's Default_Ignorable_Code_Point.
const IGNORED = /\p{Default_Ignorable_Code_Point}/gu;
// Git obeys what is in its own directory, whatever a file system calls it.
const GIT = new Set([".git", "git~1"]);

/** Whether it is a file that the daemon has not yet written whole. */
export function isTemporary(name: string): boolean {
  return name.startsWith(".cofferdam-tmp-");
}

/**
 * Whether an entry may be copied: git's own files, which git would obey, and programs of packages, may not, and the daemon
 * refuses to write them.
 */
export function mayBeCopied(parts: readonly string[]): boolean {
  return parts.every((name, at) => {
    const folded = foldings(name);
    const isBinary = folded.includes(".bin") && foldings(parts[at - 1] ?? "").includes("node_modules");
    return !folded.some((one) => GIT.has(one)) && !isBinary && !isTemporary(name);
  });
}

/** The names that it has on file systems which fold names. */
function foldings(name: string): string[] {
  const parts = name.replaceAll(IGNORED, "").toLowerCase().split("\\");
  return parts.map((part) => part.replace(/:.*$/s, "").replace(/[ .]+$/, ""));
}

/** The parts of a path beneath a directory; null: it leads out of it. */
export function partsOf(path: string): string[] | null {
  const parts = path.split("/").filter((part) => part !== "" && part !== ".");
  return path.startsWith("/") || path.includes("\0") || parts.includes("..") ? null : parts;
}

/**
 * Whether a link so many levels beneath the top stays beneath it, whatever other links there are: it climbs first, and not
 * too far, and only then descends.
 */
export function staysWithin(levels: number, target: string): boolean {
  const parts = target.split("/").filter((part) => part !== "" && part !== ".");
  const first = parts.findIndex((part) => part !== "..");
  const climbs = first < 0 ? parts.length : first;
  return (
    target !== "" && climbs <= levels && partsOf(`./${parts.slice(climbs).join("/")}`) !== null && target[0] !== "/"
  );
}
