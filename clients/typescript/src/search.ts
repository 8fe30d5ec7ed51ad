/** `sandbox.search`. */

import type { Caller } from "./caller.js";
import * as results from "./results.js";
import type { Found, Match } from "./types.js";

export interface GrepOptions {
  /** A file or directory; default: `/workspace`. */
  path?: string;
  /** `pattern` is a regular expression (Rust's syntax: no look-around, and none takes forever). */
  regex?: boolean;
  ignoreCase?: boolean;
  /** Only files whose path matches. */
  glob?: string;
  /** Lines of context before a match, 0 to 20. */
  before?: number;
  /** Lines of context after a match, 0 to 20. */
  after?: number;
  /** 1 to 1,000, the default; `truncated` says if there are more. */
  maxMatches?: number;
  /** Also hidden files and files that ignore files exclude. */
  includeIgnored?: boolean;
}

export interface GlobOptions {
  /** A directory; default: `/workspace`. */
  path?: string;
  /** Also hidden files and files that ignore files exclude. */
  includeIgnored?: boolean;
  /** 1 to 10,000, the default; `truncated` says if there are more. */
  maxResults?: number;
}

/** Finds files by their text or name, as ripgrep does, without a program in the image. */
export class Search {
  readonly #caller: Caller;

  /** @internal */
  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** Lines with this text in a file or beneath a directory. Binary files are never searched. */
  async grep(pattern: string, options: GrepOptions = {}): Promise<Found<Match>> {
    const { ignoreCase: caseInsensitive, path = ".", before = 0, after = 0, maxMatches = 1000, ...rest } = options;
    const value = { pattern, caseInsensitive, path, before, after, maxMatches, ...rest };
    return results.matches(await this.#caller.result({ kind: { case: "grep", value } }));
  }

  /**
   * Files whose path beneath `path` matches: `*`, `**`, `?`, `{a,b}`, `[…]`. A pattern that begins with `/workspace/` is for the
   * path from there. Where nothing is found, `hint` says what was left out.
   */
  async glob(pattern: string, options: GlobOptions = {}): Promise<Found<string>> {
    const { path = ".", maxResults = 10_000, includeIgnored } = options;
    const value = { pattern, path, maxResults, includeIgnored };
    return results.globbed(await this.#caller.result({ kind: { case: "glob", value } }));
  }
}
