/** Where the daemon is, who asks, and how patiently. */

import { InvalidArgument } from "./errors.js";

const DEFAULT_ENDPOINT = "unix:/run/cofferdam/cofferd.sock";
const ENDPOINT_VARIABLE = "COFFERDAM_ENDPOINT";
const TOKEN_VARIABLE = "COFFERDAM_TOKEN";

// A whole file of 8 MiB as base64 is the largest answer; the daemon has limits of its own.
const LARGEST_MESSAGE = 64 * 1024 * 1024;

/** A daemon that restarts is back within a second: no reason to wait longer for the next attempt. */
export const CHANNEL_OPTIONS = {
  "grpc.max_receive_message_length": LARGEST_MESSAGE,
  "grpc.max_send_message_length": LARGEST_MESSAGE,
  "grpc.initial_reconnect_backoff_ms": 100,
  "grpc.max_reconnect_backoff_ms": 1000,
  "grpc.enable_http_proxy": 0,
  // The SDK repeats calls itself: it knows which ones it may.
  "grpc.enable_retries": 0,
  // Each client has a connection of its own, and closes it.
  "grpc.use_local_subchannel_pool": 1,
} as const;

/** Options of a client; see `Client`. */
export interface ClientOptions {
  endpoint?: string;
  token?: string;
  requestTimeout?: number;
  reconnectTimeout?: number;
}

/** The settings of a client. Validated once, here. */
export class Settings {
  readonly endpoint: string;
  readonly requestTimeout: number;
  readonly reconnectTimeout: number;
  readonly #token: string | undefined;

  /** The arguments, else the environment, else the defaults. */
  constructor(options: ClientOptions) {
    this.endpoint = socket(options.endpoint || process.env[ENDPOINT_VARIABLE] || DEFAULT_ENDPOINT);
    this.requestTimeout = options.requestTimeout ?? 60;
    this.reconnectTimeout = options.reconnectTimeout ?? 30;
    this.#token = options.token || process.env[TOKEN_VARIABLE] || undefined;
    if (this.#token !== undefined && !/^[\x21-\x7e]+$/.test(this.#token)) {
      throw new InvalidArgument("token: has characters that no token has");
    }
  }

  get authorization(): string | undefined {
    return this.#token === undefined ? undefined : `Bearer ${this.#token}`;
  }
}

function socket(endpoint: string): string {
  if (!endpoint.startsWith("unix:")) {
    const said = JSON.stringify(endpoint);
    throw new InvalidArgument(`endpoint: ${said} is no Unix socket; one looks like ${DEFAULT_ENDPOINT}`);
  }
  const path = endpoint.slice("unix:".length).replace(/^\/{2,}/, "/");
  if (!path.startsWith("/")) {
    throw new InvalidArgument("endpoint: the path of a socket must be absolute");
  }
  return `unix:${path}`;
}

/** How long a daemon that went away is waited for, from when it was first missed. Seconds. */
export class Patience {
  readonly #seconds: number;
  #until: number | null = null;
  #pause = 0.05;

  constructor(seconds: number) {
    this.#seconds = seconds;
  }

  /** Seconds until the next attempt; null: no more attempts. */
  pause(): number | null {
    const now = performance.now() / 1000;
    this.#until ??= now + this.#seconds;
    if (now >= this.#until) {
      return null;
    }
    const pause = this.#pause;
    this.#pause = Math.min(pause * 1.6, 1);
    return Math.min(pause, Math.max(this.#until - now, 0.001));
  }

  /** The daemon answers. */
  restore(): void {
    this.#until = null;
    this.#pause = 0.05;
  }
}
