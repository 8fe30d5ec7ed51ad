/** `sandbox.files`. */

import { mkdtemp, open, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pack } from "./archive.js";
import { type Caller, either, succeeded } from "./caller.js";
import { receive } from "./download.js";
import { InvalidArgument, LimitExceeded, PreconditionFailed } from "./errors.js";
import { ComingDirectory, ComingFile } from "./place.js";
import { count, positive, raw } from "./requests.js";
import * as results from "./results.js";
import { Stream } from "./stream.js";
import type { TransferOptions } from "./transfer.js";
import type { FileEvent, FileInfo, Found, PatchInfo, RemoveInfo, TransferInfo, WriteInfo } from "./types.js";
import { ofBytes, ofFile, Upload } from "./upload.js";
import { ContentEncoding } from "./v1.js";
import { listed, watched } from "./watch.js";

// How often a file that changes while it is read is begun anew.
const READINGS = 3;
// Bytes of a file from which on it goes as a stream, and not as a call's own content.
const LARGE = 1_000_000;
// Levels that one listing has.
const DEEPEST = 16;
// Seconds between two listings.
const INTERVAL = 1;
const SHORTEST_INTERVAL = 0.1;

export interface WriteOptions {
  /** `PreconditionFailed` if there is a file. */
  createOnly?: boolean;
  /** `PreconditionFailed` unless the file's SHA-256 is this. */
  ifMatch?: string;
}

export interface ListOptions {
  /** How many levels, 1 to 16; default 1. */
  depth?: number;
  /** Default: true. */
  includeHidden?: boolean;
  /** Default: true. */
  includeSymlinks?: boolean;
  /** 1 to 10,000, the default; `truncated` says if there are more. */
  maxEntries?: number;
}

export interface UploadOptions extends TransferOptions, WriteOptions {
  /** Permission bits of the file, such as 0o755. Default: those of the local file. Neither it nor the guards are for directories. */
  mode?: number;
}

export interface WatchOptions {
  /** Also what is beneath the directories in it, at most 16 levels. Default: false. */
  recursive?: boolean;
  /** Seconds between two listings, at least 0.1. Default: 1. */
  interval?: number;
  /** Aborting it ends the watching. */
  signal?: AbortSignal;
}

export interface FrontmatterOptions {
  /** Set these. */
  variables?: Readonly<Record<string, unknown>>;
  /** Added to their lists. */
  stepsCompleted?: readonly string[];
  decisions?: readonly Readonly<Record<string, unknown>>[];
  artifacts?: readonly string[];
  currentNodeId?: string;
  updatedAt?: string;
  /** `PreconditionFailed` unless the file's SHA-256 is this. */
  ifMatch?: string;
}

/**
 * Reads and writes files beneath `/workspace`, `/state` and `/pkg`. Relative paths are those of `/workspace`.
 *
 * A file operation is a call like any other: policy decides on it, and the audit log has it. Only commands reach paths
 * outside of these three places.
 */
export class Files {
  readonly #caller: Caller;

  /** @internal */
  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /**
   * The whole file. `text` is UTF-8, and a file that is not is `InvalidArgument`.
   *
   * A file larger than the profile's `max_read_bytes` (50,000 bytes unless it says otherwise) takes several calls, and the
   * daemon reads it whole for each; one of more than 1,000,000 bytes comes as a stream, at most the profile's `max_transfer_bytes`. It
   * must not change meanwhile: after three attempts that is `PreconditionFailed`.
   * Throws `FileNotFound`, `InvalidArgument` for a directory, `SandboxViolation`, `LimitExceeded`.
   */
  async read(path: string, options?: { format?: "text" }): Promise<string>;
  async read(path: string, options: { format: "bytes" }): Promise<Uint8Array>;
  async read(path: string, options: { format?: "text" | "bytes" } = {}): Promise<string | Uint8Array> {
    for (let reading = 0; reading < READINGS; reading++) {
      const data = await this.#readUnchanged(path);
      if (data !== null) {
        return options.format === "bytes" ? data : decoded(path, data);
      }
    }
    throw new PreconditionFailed(`${path}: the file changes while it is read`, { reason: "PRECONDITION_FAILED" });
  }

  async #readUnchanged(path: string): Promise<Uint8Array | null> {
    const pieces: Uint8Array[] = [];
    let length = 0;
    let sha256 = "";
    for (;;) {
      const value = { path, encoding: ContentEncoding.BASE64, offset: length > 0 ? BigInt(length) : undefined };
      const read = await this.#caller.result({ kind: { case: "read", value } });
      if (pieces.length > 0 && read.sha256 !== sha256) {
        return null;
      }
      const piece = results.content(read);
      sha256 = read.sha256;
      pieces.push(piece);
      length += piece.length;
      if (length >= Number(read.sizeBytes)) {
        return Buffer.concat(pieces);
      }
      if (Number(read.sizeBytes) > LARGE) {
        return await this.#streamed(path, piece);
      }
      if (piece.length === 0) {
        throw new LimitExceeded(`${path}: ${read.hint}`, { reason: "READ_LIMIT" });
      }
    }
  }

  /** The rest of a large file; null: it has changed. */
  async #streamed(path: string, before: Uint8Array): Promise<Uint8Array | null> {
    const pieces = [before];
    const sink = { begin: () => {}, take: (data: Uint8Array) => pieces.push(data) };
    try {
      await receive(this.#caller, "file", path, sink, { before });
      return Buffer.concat(pieces);
    } catch (error) {
      if (error instanceof PreconditionFailed) {
        return null;
      }
      throw error;
    }
  }

  /**
   * Lines `start` to `end`, from 1, both included; default: all.
   *
   * Throws `LimitExceeded` if they are more than the profile lets one call read. Otherwise throws like `read`.
   */
  async readLines(path: string, options: { start?: number; end?: number } = {}): Promise<string> {
    const startLine = count("start", options.start ?? 1);
    const value = { path, startLine, endLine: count("end", options.end) };
    const read = await this.#caller.result({ kind: { case: "read", value } });
    if (read.truncated || read.binary) {
      throw new LimitExceeded(`${path}: ${read.hint}`, { reason: "READ_LIMIT" });
    }
    return read.content;
  }

  /**
   * Creates or overwrites a file, whole or not at all. Missing directories are made.
   *
   * More than 1,000,000 bytes go as a stream. Throws `PreconditionFailed`, and `LimitExceeded` if the data is more than the profile's
   * `max_write_bytes`, or as a stream its `max_transfer_bytes`.
   */
  async write(path: string, data: string | Uint8Array, options: WriteOptions = {}): Promise<WriteInfo> {
    const { createOnly, ifMatch: ifMatchSha256 } = options;
    const bytes = raw(data);
    if (bytes.length > LARGE) {
      const target = { path, createOnly, ifMatchSha256 };
      return results.written(await new Upload(this.#caller, "file", ofBytes(bytes), target, {}).done());
    }
    const value = {
      path,
      content: typeof data === "string" ? data : Buffer.from(data).toString("base64"),
      encoding: typeof data === "string" ? ContentEncoding.UTF8 : ContentEncoding.BASE64,
      createOnly,
      ifMatchSha256,
    };
    return results.written(await this.#caller.result({ kind: { case: "write", value } }));
  }

  /**
   * Copies a local file, or a directory with all beneath it, into the sandbox, where it becomes `path`.
   *
   * A file appears whole or not at all, and goes on after a lost connection or daemon where it stopped. A directory is packed
   * first, beneath the system's temporary directory; its entries are put beside those that `path` has. Git's own files, devices
   * and links that may lead out of it are left out. One call either way, of at most the profile's `max_transfer_bytes`.
   * Throws `PreconditionFailed` where the local file or the one in the sandbox changes meanwhile, `LimitExceeded`,
   * `SandboxViolation`, `ApprovalRequired`, and errors of the local file system as Node.js has them.
   */
  async upload(local: string, path: string, options: UploadOptions = {}): Promise<TransferInfo> {
    const found = await stat(local);
    if (found.isDirectory()) {
      return await this.#uploadDirectory(local, path, options);
    }
    if (!found.isFile()) {
      // The size of a FIFO or a device is unknown.
      throw new InvalidArgument(`local: ${local} is neither a file nor a directory`);
    }
    const { createOnly, ifMatch: ifMatchSha256 } = options;
    const file = await open(local);
    try {
      const { mode = found.mode & 0o777 } = options;
      const target = { path, mode, createOnly, ifMatchSha256 };
      const upload = new Upload(this.#caller, "file", await ofFile(file, local, options.signal), target, options);
      return results.uploaded(await upload.done(), "file", 0);
    } finally {
      await file.close();
    }
  }

  async #uploadDirectory(local: string, path: string, options: UploadOptions): Promise<TransferInfo> {
    if (options.mode !== undefined || options.createOnly || options.ifMatch !== undefined) {
      throw new InvalidArgument("mode, createOnly, ifMatch: are for files");
    }
    const place = await mkdtemp(join(tmpdir(), "cofferdam-"));
    try {
      const archive = join(place, "archive");
      const leftOut = await pack(local, archive, options.signal);
      const file = await open(archive);
      try {
        const upload = new Upload(
          this.#caller,
          "archive",
          await ofFile(file, local, options.signal),
          { path },
          options,
        );
        return results.uploaded(await upload.done(), "directory", leftOut);
      } finally {
        await file.close();
      }
    } finally {
      await rm(place, { recursive: true, force: true });
    }
  }

  /**
   * Copies a file or a directory out of the sandbox, in one call.
   *
   * `local`: what the file becomes, with its permission bits; or the directory that the content of a directory is put into,
   * beside what is there. Missing directories are made. A file appears whole or not at all, and so does each file of a
   * directory. Over a lost connection a file goes on where it stopped, and a directory begins anew.
   *
   * What comes out of a sandbox is hostile: nothing is written outside of `local`, and no link is followed or made that may
   * lead out of it. Left out are git's own files, which git here would obey, and such links. An archive with names that lead
   * out, or with devices, is `SandboxViolation`, and nothing of it is there.
   *
   * Throws `FileNotFound`, `PreconditionFailed` where it changes meanwhile, `AlreadyExists` where something else is in the
   * place of a directory, `LimitExceeded`, `SandboxViolation`, and errors of the local file system as Node.js has them.
   */
  async download(path: string, local: string, options: TransferOptions = {}): Promise<TransferInfo> {
    const file = new ComingFile(local);
    try {
      const ended = await receive(this.#caller, "file", path, file, options);
      await file.place();
      return results.downloaded(ended, { type: "file", size: Number(ended.sizeBytes), entries: 1, leftOut: 0 });
    } catch (error) {
      if (!(error instanceof InvalidArgument && error.details["is"] === "directory")) {
        throw error;
      }
    } finally {
      await file.close();
    }
    const directory = new ComingDirectory(local);
    try {
      const ended = await receive(this.#caller, "archive", path, directory, options);
      const { leftOut, ...facts } = await directory.place();
      return results.downloaded(ended, { type: "directory", ...facts, leftOut: leftOut + Number(ended.leftOut) });
    } finally {
      await directory.close();
    }
  }

  /**
   * Changes of the entries of a directory, from now on.
   *
   * ```ts
   * for await (const { change, path } of await sandbox.files.watch("src", { recursive: true })) {
   *   console.log(change, path);
   * }
   * ```
   *
   * The daemon has no such call: the directory is listed again after each interval, while somebody waits for a change. Each
   * listing is a call like any other: policy decides on it, it counts for rate limits, and the audit log has it. A change is
   * one of type, size or time, and times are whole seconds: a file that changes twice within a second and keeps its size
   * is seen once, and what comes and goes between two listings is not seen. A directory is only seen to come and go.
   *
   * It ends with its sandbox, with `close()`, and with the signal. Paused, it waits.
   * Throws `FileNotFound`, and `LimitExceeded` where there are more than 10,000 entries.
   */
  async watch(path = ".", options: WatchOptions = {}): Promise<Stream<FileEvent>> {
    const { recursive = false, interval = INTERVAL, signal } = options;
    if (positive("interval", interval) < SHORTEST_INTERVAL) {
      throw new InvalidArgument(`interval: must be at least ${SHORTEST_INTERVAL} seconds, not ${interval}`);
    }
    const depth = recursive ? DEEPEST : 1;
    const now = async (ending?: AbortSignal) => listed(path, await this.#list(path, { depth }, ending));
    const before = await now(signal);
    const make = (ending: AbortSignal) => watched(this.#caller, before, () => now(ending), interval, ending);
    return new Stream(make, either(signal, this.#caller.options.signal));
  }

  /** The entries of a directory, sorted by path. Throws `FileNotFound`, `InvalidArgument` for a file. */
  async list(path = ".", options: ListOptions = {}): Promise<Found<FileInfo>> {
    return await this.#list(path, options);
  }

  async #list(path: string, options: ListOptions, signal?: AbortSignal): Promise<Found<FileInfo>> {
    const { depth = 1, includeHidden = true, includeSymlinks = true, maxEntries = 10_000 } = options;
    const value = { path, depth, includeHidden, includeSymlinks, maxEntries };
    return results.listing(await this.#caller.result({ kind: { case: "list", value } }, signal));
  }

  /** Whether there is a file or directory. Throws `SandboxViolation` for a path that leads outside. */
  async exists(path: string): Promise<boolean> {
    const value = { path, maxEntries: 1 };
    const { response } = await this.#caller.call({ operation: { kind: { case: "list", value } } });
    if (response.error?.reason === "NOT_FOUND") {
      return false;
    }
    // It was looked at, and is no directory.
    if (response.error?.reason !== "INVALID_ARGUMENT") {
      succeeded(response, true);
    }
    return true;
  }

  /**
   * Removes a file or an empty directory, to the run's trash. In most profiles a person has to approve that.
   *
   * `ifMatch`: `PreconditionFailed` unless the file's SHA-256 is this. Throws `FileNotFound`.
   */
  async remove(path: string, options: { ifMatch?: string } = {}): Promise<RemoveInfo> {
    const value = { path, ifMatchSha256: options.ifMatch };
    return results.removed(await this.#caller.result({ kind: { case: "delete", value } }));
  }

  /**
   * Changes the YAML front matter of a Markdown file; its body stays as it is, byte for byte.
   *
   * Throws `InvalidArgument` with the reason `INVALID_FRONTMATTER` if the front matter is not valid.
   */
  async updateFrontmatter(path: string, options: FrontmatterOptions): Promise<PatchInfo> {
    const { variables, stepsCompleted = [], decisions = [], artifacts = [] } = options;
    const value = {
      path,
      ifMatchSha256: options.ifMatch,
      variablesSetJson: variables && JSON.stringify(variables),
      stepsCompletedAppend: [...stepsCompleted],
      decisionLogAppendJson: decisions.map((decision) => JSON.stringify(decision)),
      artifactsAppend: [...artifacts],
      currentNodeId: options.currentNodeId,
      updatedAt: options.updatedAt,
    };
    const change = { case: "updateFrontmatter", value } as const;
    return results.patched(await this.#caller.result({ kind: { case: "patch", value: { change } } }));
  }
}

function decoded(path: string, data: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data);
  } catch {
    throw new InvalidArgument(`${path}: is not UTF-8 text`, { hint: 'Read it with `format: "bytes"`.' });
  }
}
