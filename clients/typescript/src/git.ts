/** `sandbox.git`. */

import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Caller } from "./caller.js";
import * as results from "./results.js";
import type { GitOutput } from "./types.js";
import { GitPull_Mode, type GitRequestSchema } from "./v1.js";

type Command = NonNullable<MessageInitShape<typeof GitRequestSchema>["command"]>;

export interface GitOptions {
  /** Only these files and directories. */
  paths?: readonly string[];
  /** Git's own, as far as the daemon knows them. */
  flags?: readonly string[];
}

export interface GitFetchOptions {
  remote?: string;
  refs?: readonly string[];
  tags?: boolean;
  /** Only so many commits of each history. */
  depth?: number;
}

export interface GitPullOptions {
  remote?: string;
  branch?: string;
  /** Make a merge commit if the current branch has commits of its own. */
  merge?: boolean;
}

export interface GitPushOptions {
  remote?: string;
  /** `LOCAL` or `LOCAL:REMOTE`; default `HEAD`. */
  refs?: readonly string[];
  delete?: boolean;
  /** The id that a reference must have at the remote before, by the name that `refs` gives it there. */
  expected?: Readonly<Record<string, string>>;
  /** Lose commits that only the remote has. Each reference needs its `expected` id. */
  force?: boolean;
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

  /**
   * Gets commits of a remote (default `origin`), which is a name or an https URL: all branches, or `refs`. Not allowed by every
   * profile. `updates` has the references that have moved: `refs/remotes/NAME/BRANCH`, or `refs/fetched/heads/BRANCH` for a URL.
   */
  async fetch(options: GitFetchOptions = {}): Promise<GitOutput> {
    const { remote = "origin", refs = [], tags = false, depth } = options;
    return await this.#git({ case: "fetch", value: { remote, refs: [...refs], tags, depth } });
  }

  /**
   * Fetches a branch (default: the current one's name) and brings the current branch and the files to it. Without `merge`, the
   * current branch may have no commits of its own. Throws `PreconditionFailed`, and changes nothing, if there are conflicts or
   * changes in the way.
   */
  async pull(options: GitPullOptions = {}): Promise<GitOutput> {
    const { remote = "origin", branch = "", merge = false } = options;
    const mode = merge ? GitPull_Mode.MERGE : GitPull_Mode.FF_ONLY;
    return await this.#git({ case: "pull", value: { remote, branch, mode } });
  }

  /** Gives commits to a remote. A reference is `LOCAL` or `LOCAL:REMOTE`; with `delete` it is the one to delete. */
  async push(options: GitPushOptions = {}): Promise<GitOutput> {
    const { remote = "origin", refs = ["HEAD"], expected = {}, force = false } = options;
    const pushed = (ref: string) => {
      const at = options.delete ? -1 : ref.indexOf(":");
      const local = options.delete ? "" : at < 0 ? ref : ref.slice(0, at);
      const remoteRef = options.delete ? ref : at < 0 ? "" : ref.slice(at + 1);
      return { local, remoteRef, expected: expected[remoteRef || local] ?? "", delete: local === "" };
    };
    return await this.#git({ case: "push", value: { remote, refs: refs.map(pushed), force } });
  }

  async #git(command: Command): Promise<GitOutput> {
    return results.git(await this.#caller.result({ kind: { case: "git", value: { command } } }));
  }
}
