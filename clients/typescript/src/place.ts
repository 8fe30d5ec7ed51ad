/** Local files and directories that appear whole under their names, or not at all. */

import { randomUUID } from "node:crypto";
import { type FileHandle, mkdir, mkdtemp, open, rename, rm } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { type Unpacked, unpack } from "./archive.js";
import type { Sink } from "./download.js";
import { AlreadyExists } from "./errors.js";
import type { DownloadBegun } from "./v1.js";

/** A file that comes. Made beside the one that it becomes. */
export class ComingFile implements Sink, AsyncDisposable {
  readonly #to: string;
  readonly #path: string;
  #file: FileHandle | null = null;

  constructor(to: string) {
    this.#to = resolve(to);
    this.#path = join(dirname(this.#to), `.${basename(this.#to).slice(0, 100)}-${randomUUID()}`);
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
    await rename(this.#path, this.#to);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#file?.close();
    await rm(this.#path, { force: true });
  }
}

/** A directory that comes, as an archive. Made beside the one that it becomes, and closed to others. */
export class ComingDirectory implements Sink, AsyncDisposable {
  readonly #to: string;
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
      this.#within = await mkdtemp(join(dirname(this.#to), ".coming-"));
    }
    // What came over a connection that was lost is not the beginning of what comes now.
    await this.#archive?.close();
    this.#archive = await open(join(this.#within, "archive"), "w", 0o600);
  }

  async take(data: Uint8Array): Promise<void> {
    await this.#archive?.writeFile(data);
  }

  /** Unpacks it, and gives it its name. */
  async place(): Promise<Unpacked> {
    const within = this.#within ?? "";
    const tree = join(within, "tree");
    await mkdir(tree, { mode: this.#mode });
    const unpacked = await unpack(join(within, "archive"), tree);
    try {
      await rename(tree, this.#to);
    } catch (error) {
      const code = error instanceof Error && "code" in error ? error.code : "";
      if (code === "ENOTEMPTY" || code === "EEXIST" || code === "ENOTDIR") {
        throw new AlreadyExists(`${this.#to} is there, and is no empty directory`, { reason: "ALREADY_EXISTS" });
      }
      throw error;
    }
    return unpacked;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#archive?.close();
    if (this.#within !== null) {
      await rm(this.#within, { recursive: true, force: true });
    }
  }
}
