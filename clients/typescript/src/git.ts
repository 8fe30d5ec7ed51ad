/** `sandbox.git`. */

import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Caller } from "./caller.js";
import * as results from "./results.js";
import type { GitOutput } from "./types.js";
import type { GitRequestSchema } from "./v1.js";

type Command = NonNullable<MessageInitShape<typeof GitRequestSchema>["command"]>;

export interface GitOptions {
  /** Only these files and directories. */
  paths?: readonly string[];
  /** Git's own, as far as the daemon knows them. */
  flags?: readonly string[];
}

/**
 * The repository whose `.git` is in `/workspace`, worked on from outside: no hook, filter or configuration of it runs.
 *
 * Every method throws `PreconditionFailed` where there is no repository.
 */
export class Git {
  readonly #caller: Caller;

  /** @internal */
  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** As `git status --porcelain=v1 --branch`. */
  async status(): Promise<GitOutput> {
    return await this.#git({ case: "status", value: {} });
  }

  /** The changes that are not staged, or those that are. As `git apply` takes it, unless `flags` say otherwise. */
  async diff(options: GitOptions & { staged?: boolean } = {}): Promise<GitOutput> {
    const { paths = [], flags = [], staged = false } = options;
    const value = { paths: [...paths], flags: staged ? ["--staged", ...flags] : [...flags] };
    return await this.#git({ case: "diff", value });
  }

  /** Commits from a revision (default `HEAD`) or in a range `A..B`, the newest first; `maxCount`: default 100. */
  async log(options: GitOptions & { revision?: string; maxCount?: number } = {}): Promise<GitOutput> {
    const { revision, paths = [], flags = [], maxCount = 100 } = options;
    return await this.#git({ case: "log", value: { revision, maxCount, paths: [...paths], flags: [...flags] } });
  }

  /** A commit with its changes (default `HEAD`), or `REVISION:PATH` for a file as it was. */
  async show(revision = "", options: GitOptions = {}): Promise<GitOutput> {
    const { paths = [], flags = [] } = options;
    return await this.#git({ case: "show", value: { revision, paths: [...paths], flags: [...flags] } });
  }

  /** Stages files or directories, removed ones included. */
  async add(paths: readonly string[]): Promise<GitOutput> {
    return await this.#git({ case: "add", value: { paths: [...paths] } });
  }

  /** Makes a commit of the staged changes. Its id is in `commit`; its author is the profile's. */
  async commit(message: string): Promise<GitOutput> {
    return await this.#git({ case: "commit", value: { message } });
  }

  async #git(command: Command): Promise<GitOutput> {
    return results.git(await this.#caller.result({ kind: { case: "git", value: { command } } }));
  }
}
