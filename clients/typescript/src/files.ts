/** `sandbox.files`. */

import { type Caller, succeeded } from "./caller.js";
import { InvalidArgument, LimitExceeded, PreconditionFailed } from "./errors.js";
import { count } from "./requests.js";
import * as results from "./results.js";
import type { FileInfo, Found, PatchInfo, RemoveInfo, WriteInfo } from "./types.js";
import { ContentEncoding } from "./v1.js";

// How often a file that changes while it is read is begun anew.
const READINGS = 3;

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
   * daemon reads it whole for each. It must not change meanwhile: after three attempts that is `PreconditionFailed`.
   * Throws `FileNotFound`, `InvalidArgument` for a directory, `SandboxViolation`.
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
      if (piece.length === 0) {
        throw new LimitExceeded(`${path}: ${read.hint}`, { reason: "READ_LIMIT" });
      }
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
   * Throws `PreconditionFailed`, and `LimitExceeded` if the data is more than the profile's `max_write_bytes`.
   */
  async write(path: string, data: string | Uint8Array, options: WriteOptions = {}): Promise<WriteInfo> {
    const value = {
      path,
      content: typeof data === "string" ? data : Buffer.from(data).toString("base64"),
      encoding: typeof data === "string" ? ContentEncoding.UTF8 : ContentEncoding.BASE64,
      createOnly: options.createOnly,
      ifMatchSha256: options.ifMatch,
    };
    return results.written(await this.#caller.result({ kind: { case: "write", value } }));
  }

  /** The entries of a directory, sorted by path. Throws `FileNotFound`, `InvalidArgument` for a file. */
  async list(path = ".", options: ListOptions = {}): Promise<Found<FileInfo>> {
    const { depth = 1, includeHidden = true, includeSymlinks = true, maxEntries = 10_000 } = options;
    const value = { path, depth, includeHidden, includeSymlinks, maxEntries };
    return results.listing(await this.#caller.result({ kind: { case: "list", value } }));
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
    throw new InvalidArgument(`${path}: is no UTF-8 text`, { hint: 'Read it with `format: "bytes"`.' });
  }
}
