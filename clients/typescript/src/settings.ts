/** Where the daemon is, who asks, and how patiently. */

import { existsSync, readFileSync } from "node:fs";
import { BlockList, isIP } from "node:net";
import { join } from "node:path";
import { type ChannelCredentials, type ChannelOptions, credentials } from "@grpc/grpc-js";
import { InvalidArgument } from "./errors.js";

const DEFAULT_ENDPOINT = "unix:/run/cofferdam/cofferd.sock";
const ENDPOINT_VARIABLE = "COFFERDAM_ENDPOINT";
const TOKEN_VARIABLE = "COFFERDAM_TOKEN";
const TLS_VARIABLE = "COFFERDAM_TLS";
const NAME = /^[A-Za-z0-9_.-]{1,253}$/;
// Seconds between two attempts of a call while its run waits for a person.
const LONGEST_PAUSE = 15;

// Far more than any message of the daemon has.
const LARGEST_MESSAGE = 64 * 1024 * 1024;

/**
 * A daemon that restarts is back within a second. Attempts come more often than the shortest `reconnectTimeout` that makes
 * sense, or a daemon that is back is given up with the error of the last attempt.
 */
const CHANNEL_OPTIONS = {
  "grpc.max_receive_message_length": LARGEST_MESSAGE,
  "grpc.max_send_message_length": LARGEST_MESSAGE,
  "grpc.initial_reconnect_backoff_ms": 100,
  "grpc.max_reconnect_backoff_ms": 250,
  "grpc.enable_http_proxy": 0,
  // The SDK repeats calls itself: it knows which ones it may.
  "grpc.enable_retries": 0,
  // Each client has a connection of its own, and closes it.
  "grpc.use_local_subchannel_pool": 1,
  // Signs of life: a network may lose a connection without a word, and a daemon may hang, also at a Unix socket.
  "grpc.keepalive_time_ms": 30_000,
  "grpc.keepalive_timeout_ms": 20_000,
} as const;

/**
 * Files that prove who the daemon and its client are, for an `https` endpoint; `coffer tls init` makes them.
 *
 * They are read once, when the client is made: a client that outlives its certificate has to be made again.
 */
export interface Tls {
  /** Who must have signed the daemon's certificate. Default: an authority that Node.js trusts. */
  ca?: string;
  /** The client's certificate. Default: none, which is for a client that has a token. */
  cert?: string;
  /** Its key. */
  key?: string;
}

/** Options of a client; see `Client`. */
export interface ClientOptions {
  endpoint?: string;
  token?: string;
  tls?: string | Tls;
  serverName?: string;
  requestTimeout?: number;
  reconnectTimeout?: number;
}

/** The settings of a client. Validated once, here. */
export class Settings {
  /** As the user writes it. */
  readonly endpoint: string;
  /** As gRPC takes it. */
  readonly target: string;
  readonly serverName: string | undefined;
  readonly requestTimeout: number;
  readonly reconnectTimeout: number;
  readonly #credentials: ChannelCredentials;
  readonly #token: string | undefined;

  /** The arguments, else the environment, else the defaults. */
  constructor(options: ClientOptions) {
    this.endpoint = options.endpoint || process.env[ENDPOINT_VARIABLE] || DEFAULT_ENDPOINT;
    this.#credentials = credentials.createInsecure();
    if (this.endpoint.startsWith("https://")) {
      this.target = authority(this.endpoint);
      this.#credentials = trusted(options.tls ?? (process.env[TLS_VARIABLE] || {}));
    } else if (options.tls !== undefined) {
      throw new InvalidArgument("tls: is for an endpoint that begins with https://");
    } else if (this.endpoint.startsWith("http://")) {
      this.target = authority(this.endpoint);
      if (!isThisHost(new URL(this.endpoint).hostname)) {
        throw new InvalidArgument(`endpoint: ${this.endpoint} is not this host: use https for other hosts`);
      }
    } else {
      this.endpoint = socket(this.endpoint);
      this.target = this.endpoint;
    }
    this.serverName = options.serverName;
    if (this.serverName !== undefined && !(this.endpoint.startsWith("https://") && NAME.test(this.serverName))) {
      throw new InvalidArgument("serverName: is a host name, for an endpoint that begins with https://");
    }
    this.requestTimeout = options.requestTimeout ?? 60;
    this.reconnectTimeout = options.reconnectTimeout ?? 30;
    this.#token = options.token || process.env[TOKEN_VARIABLE] || undefined;
    if (this.#token !== undefined && !/^[\x21-\x7e]+$/.test(this.#token)) {
      throw new InvalidArgument("token: has characters that a token cannot have");
    }
  }

  get authorization(): string | undefined {
    return this.#token === undefined ? undefined : `Bearer ${this.#token}`;
  }

  get credentials(): ChannelCredentials {
    return this.#credentials;
  }

  /** Options of the channel. */
  get channel(): ChannelOptions {
    const name = this.serverName;
    const named = name === undefined ? {} : { "grpc.ssl_target_name_override": name, "grpc.default_authority": name };
    return { ...CHANNEL_OPTIONS, ...named };
  }
}

/** Host and port. */
function authority(endpoint: string): string {
  const [, host, port] = /^https?:\/\/([\w.-]+|\[[\da-fA-F:.]+\]):(\d{1,5})\/?$/.exec(endpoint) ?? [];
  if (host === undefined || Number(port) > 65_535 || (host.startsWith("[") && isIP(host.slice(1, -1)) !== 6)) {
    const example = "https://cofferd.example.org:7443";
    throw new InvalidArgument(`endpoint: one over a network looks like ${example}, not ${JSON.stringify(endpoint)}`);
  }
  return `${host}:${port}`;
}

function isThisHost(name: string): boolean {
  const loopback = new BlockList();
  loopback.addSubnet("127.0.0.0", 8, "ipv4");
  loopback.addAddress("::1", "ipv6");
  const host = name.replace(/^\[|\]$/g, "");
  return host === "localhost" || (isIP(host) !== 0 && loopback.check(host, isIP(host) === 6 ? "ipv6" : "ipv4"));
}

function trusted(tls: string | Tls): ChannelCredentials {
  const { ca, cert, key } = typeof tls === "string" ? filesOf(tls) : tls;
  if ((cert === undefined) !== (key === undefined)) {
    throw new InvalidArgument("tls: give both a certificate and its key");
  }
  try {
    return credentials.createSsl(content(ca), content(key), content(cert));
  } catch (error) {
    throw error instanceof InvalidArgument ? error : new InvalidArgument("tls: the files hold no certificate and key");
  }
}

/** A directory with an authority alone is for a client that has a token. */
function filesOf(directory: string): Tls {
  const ca = join(directory, "ca.pem");
  const cert = join(directory, "cert.pem");
  return existsSync(cert) ? { ca, cert, key: join(directory, "key.pem") } : { ca };
}

function content(file: string | undefined): Buffer | null {
  try {
    return file === undefined ? null : readFileSync(file);
  } catch (error) {
    const code = error instanceof Error && "code" in error ? error.code : error;
    throw new InvalidArgument(`tls: ${file} cannot be read: ${code}`);
  }
}

function socket(endpoint: string): string {
  if (!endpoint.startsWith("unix:")) {
    const said = JSON.stringify(endpoint);
    throw new InvalidArgument(
      `endpoint: ${said} looks neither like ${DEFAULT_ENDPOINT} nor like https://example.org:7443`,
    );
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

/** Pauses between the attempts of a call while its run waits for a person. Each attempt is on record and counts. */
export class Pauses {
  #next = 1;

  /** Seconds until the next attempt. */
  next(): number {
    const pause = this.#next;
    this.#next = Math.min(2 * pause, LONGEST_PAUSE);
    return pause;
  }
}
