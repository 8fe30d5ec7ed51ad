/** Local files and directories that appear whole under their names, or not at all. */

import { randomUUID } from "node:crypto";
import type { Stats } from "node:fs";
import { type FileHandle, lstat, mkdir, mkdtemp, open, readdir, realpath, rename, rm } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { type Unpacked, unpack } from "./archive.js";
import type { Sink } from "./download.js";
import { AlreadyExists } from "./errors.js";
import type { DownloadBegun } from "./v1.js";

/** A file that comes. Made beside the one that it becomes. */
export class ComingFile implements Sink {
  readonly #to: string;
  readonly #path: string;
  #file: FileHandle | null = null;

  constructor(to: string) {
    this.#to = resolve(to);
    this.#path = join(dirname(this.#to), `.cofferdam-${randomUUID()}`);
  }

  async begin({ mode }: DownloadBegun): Promise<void> {
    if (this.#file === null) {
      await mkdir(dirname(this.#to), { recursive: true });
      this.#file = await open(this.#path, "wx", (mode & 0o777) | 0o200);
    }
  }

  async take(data: Uint8Array): Promise<void> {
    await this.#file?.writeFile(data);
  }

  /** Gives it its name. */
  async place(): Promise<void> {
    await this.#file?.sync();
    if ((await statusOf(this.#to))?.isDirectory()) {
      throw clash(this.#to);
    }
    await rename(this.#path, this.#to);
  }

  /** Removes what is not in its place. */
  async close(): Promise<void> {
    await this.#file?.close();
    await rm(this.#path, { force: true });
  }
}

/** A directory that comes, as an archive. It is unpacked where nobody else can enter, and moved when all of it is there. */
export class ComingDirectory implements Sink {
  #to: string;
  #within: string | null = null;
  #archive: FileHandle | null = null;
  #mode = 0o755;

  constructor(to: string) {
    this.#to = resolve(to);
  }

  async begin({ mode }: DownloadBegun): Promise<void> {
    this.#mode = (mode & 0o777) | 0o700;
    if (this.#within === null) {
      await mkdir(dirname(this.#to), { recursive: true });
      const there = await statusOf(this.#to);
      this.#to = there === null ? this.#to : await realpath(this.#to);
      if (there !== null && !(await lstat(this.#to)).isDirectory()) {
        throw clash(this.#to);
      }
      // Of the same file system.
      const beside = there === null ? dirname(this.#to) : this.#to;
      this.#within = await mkdtemp(join(beside, ".cofferdam-"));
    }
    // What came over a connection that was lost is not the beginning of what comes now.
    await this.#archive?.close();
    this.#archive = await open(join(this.#within, "archive"), "w", 0o600);
  }

  async take(data: Uint8Array): Promise<void> {
    await this.#archive?.writeFile(data);
  }

  /** Unpacks it, and moves all that is in it to its place. */
  async place(): Promise<Unpacked> {
    const within = this.#within ?? "";
    const tree = join(within, "tree");
    await mkdir(tree, { mode: this.#mode });
    const unpacked = await unpack(join(within, "archive"), tree);
    for (const [from, to] of await moves(tree, this.#to)) {
      await rename(from, to);
    }
    return unpacked;
  }

  /** Removes what is not in its place. */
  async close(): Promise<void> {
    await this.#archive?.close();
    if (this.#within !== null) {
      await rm(this.#within, { recursive: true, force: true });
    }
  }
}

/** What has to be moved where, so that all of one directory is in another, beside what is there. */
async function moves(from: string, to: string): Promise<[string, string][]> {
  const there = await statusOf(to);
  const comes = await lstat(from);
  if (there === null || (!comes.isDirectory() && !there.isDirectory())) {
    return [[from, to]];
  }
  if (!comes.isDirectory() || !there.isDirectory()) {
    throw clash(to);
  }
  const found: [string, string][] = [];
  for (const name of await readdir(from)) {
    for (const move of await moves(join(from, name), join(to, name))) {
      found.push(move);
    }
  }
  return found;
}

function clash(to: string): AlreadyExists {
  const message = `${to}: a directory and something else cannot replace each other`;
  return new AlreadyExists(message, { reason: "ALREADY_EXISTS" });
}

/** null: there is none. */
async function statusOf(path: string): Promise<Stats | null> {
  try {
    return await lstat(path);
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") {
      return null;
    }
    throw error;
  }
}
