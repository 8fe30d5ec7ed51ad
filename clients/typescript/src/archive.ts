/**
 * Directories as tar archives.
 *
 * Trust boundary: an archive that comes out of a run is hostile. It is unpacked into a new directory that nobody else can
 * enter. Links are made last, when everything else is written, so no name leads through one. A name that is absolute or has
 * `..`, a device, or a name that comes twice refuses the whole archive. Git's own files are left out: git here would obey them.
 */

import { createReadStream, createWriteStream, readlinkSync, type Stats } from "node:fs";
import { link, mkdir, open, symlink } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createTarDecoder, type ParsedTarEntry } from "modern-tar";
import { packTar } from "modern-tar/fs";
import { InvalidArgument, SandboxViolation } from "./errors.js";
import { mayBeCopied, partsOf, staysWithin } from "./names.js";
import { changed } from "./upload.js";

// As many as the daemon packs and unpacks.
const MOST_ENTRIES = 250_000;
const MOST_LEVELS = 128;
const KINDS: ReadonlySet<string> = new Set(["file", "directory", "symlink", "link"]);

/** What was unpacked. */
export interface Unpacked {
  entries: number;
  /** Bytes of all files. */
  size: number;
  leftOut: number;
}

/** Packs the content of a directory, without what the daemon would refuse, and returns how many entries were left out. */
export async function pack(directory: string, archive: string, signal?: AbortSignal): Promise<number> {
  let leftOut = 0;
  const filter = (path: string, stat: Stats) => {
    const taken = isTaken(relative(directory, path), path, stat);
    leftOut += taken ? 0 : 1;
    return taken;
  };
  // Users of this host are none of the sandbox's.
  const nobody = { uid: 0, gid: 0, uname: "", gname: "" };
  const packed = packTar(directory, {
    filter,
    map: (header) => ({ ...header, ...nobody, mode: (header.mode ?? 0) & 0o777 }),
  });
  try {
    await pipeline(packed, createWriteStream(archive, { mode: 0o600 }), { signal });
  } catch (error) {
    signal?.throwIfAborted();
    throw error instanceof Error && "code" in error ? error : changed(directory);
  }
  return leftOut;
}

/** Whether an entry is packed. Those above it are. */
function isTaken(name: string, path: string, stat: Stats): boolean {
  const parts = name.split("/");
  if (stat.isSymbolicLink()) {
    return mayBeCopied(parts) && staysWithin(parts.length - 1, readlinkSync(path));
  }
  return mayBeCopied(parts) && (stat.isFile() || stat.isDirectory());
}

/** Unpacks an archive into `top`, a new directory that nobody else can enter. */
export async function unpack(archive: string, top: string): Promise<Unpacked> {
  const unpacking = new Unpacking(top);
  const bytes = Readable.toWeb(createReadStream(archive)) as ReadableStream<Uint8Array>;
  try {
    for await (const entry of bytes.pipeThrough(createTarDecoder({ strict: true }))) {
      await unpacking.entry(entry);
    }
    await unpacking.links();
  } catch (error) {
    if (error instanceof Error && !("code" in error) && !("reason" in error)) {
      throw new InvalidArgument(`the archive of the sandbox is broken: ${error.message}`);
    }
    throw error;
  }
  return unpacking.unpacked;
}

class Unpacking {
  readonly unpacked: Unpacked = { entries: 0, size: 0, leftOut: 0 };
  readonly #top: string;
  // Each a function that makes it. Other names of files come before links, so that they are of files.
  readonly #names: (() => Promise<void>)[] = [];
  readonly #links: (() => Promise<void>)[] = [];

  constructor(top: string) {
    this.#top = top;
  }

  async entry({ header, body }: ParsedTarEntry): Promise<void> {
    const { name, type = "file", linkname = "", mode = 0 } = header;
    const parts = beneath(name);
    const path = join(this.#top, ...parts);
    if (!KINDS.has(type)) {
      throw new SandboxViolation(`${shown(name)} of the archive is a ${type}`);
    }
    if (!mayBeCopied(parts) || (type === "symlink" && !staysWithin(parts.length - 1, linkname))) {
      this.unpacked.leftOut += 1;
      await body.cancel();
      return;
    }
    this.#take();
    const directory = type === "directory";
    await mkdir(directory ? path : dirname(path), {
      recursive: true,
      mode: directory ? (mode & 0o777) | 0o700 : 0o777,
    });
    if (type === "file") {
      await this.#file(path, mode & 0o777, body);
      return;
    }
    await body.cancel();
    if (type === "symlink") {
      this.#links.push(() => symlink(linkname, path));
    } else if (type === "link") {
      const target = join(this.#top, ...beneath(linkname));
      this.#names.push(() => link(target, path));
    }
  }

  #take(): void {
    this.unpacked.entries += 1;
    if (this.unpacked.entries > MOST_ENTRIES) {
      throw new InvalidArgument(`the archive of the sandbox has more than ${MOST_ENTRIES} entries`);
    }
  }

  async links(): Promise<void> {
    for (const make of [...this.#names, ...this.#links]) {
      await make();
    }
  }

  async #file(path: string, mode: number, body: ReadableStream<Uint8Array>): Promise<void> {
    const file = await open(path, "wx", mode | 0o200);
    try {
      for await (const piece of body) {
        await file.writeFile(piece);
        this.unpacked.size += piece.length;
      }
    } finally {
      await file.close();
    }
  }
}

/** The parts of a name beneath the top. */
function beneath(name: string): string[] {
  const parts = partsOf(name);
  if (parts === null) {
    throw new SandboxViolation(`the name ${shown(name)} of the archive leads out of it`);
  }
  if (parts.length > MOST_LEVELS) {
    throw new InvalidArgument(`the archive of the sandbox has more than ${MOST_LEVELS} levels`);
  }
  return parts;
}

function shown(name: string): string {
  return JSON.stringify(name.slice(0, 200));
}
