/** `sandbox.forward`: a local address that leads to a server in a sandbox. */

import { once } from "node:events";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import type { Client } from "./client.js";
import { CofferdamError, InvalidArgument } from "./errors.js";
import { endedConnection } from "./status.js";
import { ForwardClosed_Reason } from "./v1.js";

const HOST = "127.0.0.1";
// Most bytes in a message to the daemon.
const PIECE = 32 * 1024;

export interface ForwardOptions {
  /** Default: any that is free. */
  localPort?: number;
  /** Is given the reason why a connection was refused or lost. */
  onError?: (error: CofferdamError) => void;
}

/** A local address until it is closed. Each connection to it is one to the server. */
export class PortForward implements AsyncDisposable {
  /** Such as `127.0.0.1:40123`. */
  readonly address: string;
  readonly #server: Server;
  readonly #end: AbortController;
  readonly #connections: Set<Promise<void>>;

  private constructor(server: Server, end: AbortController, connections: Set<Promise<void>>) {
    this.#server = server;
    this.#end = end;
    this.#connections = connections;
    this.address = `${HOST}:${(server.address() as AddressInfo).port}`;
  }

  /** @internal */
  static async open(client: Client, runId: string, port: number, options: ForwardOptions): Promise<PortForward> {
    const { localPort = 0, onError } = options;
    const isPort = (number: number, least: number) => Number.isInteger(number) && number >= least && number < 65536;
    if (!isPort(port, 1) || !isPort(localPort, 0)) {
      throw new InvalidArgument("port: must be from 1 to 65535, and localPort from 0");
    }
    const end = new AbortController();
    const connections = new Set<Promise<void>>();
    const server = createServer({ allowHalfOpen: true, noDelay: true }, (local) => {
      const connection = serve(client, { runId, port }, local, end.signal).catch((error) => {
        // Else the local program has gone, or the forwarding has ended.
        if (error instanceof CofferdamError && !end.signal.aborted) {
          onError?.(error);
        }
      });
      connections.add(connection);
      void connection.finally(() => connections.delete(connection));
    });
    server.listen(localPort, HOST);
    await once(server, "listening");
    return new PortForward(server, end, connections);
  }

  /** Ends it, and all connections. */
  async close(): Promise<void> {
    this.#end.abort();
    this.#server.close();
    await Promise.all(this.#connections);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

/** Serves one connection of a local program. */
async function serve(
  client: Client,
  start: { runId: string; port: number },
  local: Socket,
  signal: AbortSignal,
): Promise<void> {
  // Reading and writing throw it.
  local.on("error", () => {});
  const abort = () => local.destroy();
  signal.addEventListener("abort", abort, { once: true });
  try {
    let reason = ForwardClosed_Reason.REASON_UNSPECIFIED;
    for await (const { event } of client.forward.forwardPort(requests(start, local), { signal })) {
      if (event.case === "data") {
        await write(local, event.value);
      } else if (event.case === "finished") {
        local.end();
      } else if (event.case === "closed" && event.value.reason === ForwardClosed_Reason.RUN_ENDED) {
        // The status that follows says whose failure that is.
        ({ reason } = event.value);
      } else if (event.case === "closed") {
        endedConnection(event.value.reason);
      }
    }
    endedConnection(reason);
  } finally {
    signal.removeEventListener("abort", abort);
    local.destroySoon();
  }
}

async function* requests(start: { runId: string; port: number }, local: Socket) {
  yield { event: { case: "start" as const, value: start } };
  // The socket stays open for what the server sends after that.
  for await (const data of local.iterator({ destroyOnReturn: false })) {
    for (let at = 0; at < data.length; at += PIECE) {
      yield { event: { case: "data" as const, value: data.subarray(at, at + PIECE) } };
    }
  }
}

/** Writes, and waits until the program takes more. */
async function write(local: Socket, data: Uint8Array): Promise<void> {
  if (local.destroyed) {
    throw new Error("the local program has gone");
  }
  if (!local.write(data)) {
    const over = new AbortController();
    try {
      await Promise.race([
        once(local, "drain", { signal: over.signal }),
        once(local, "close", { signal: over.signal }).then(() =>
          Promise.reject(new Error("the local program has gone")),
        ),
      ]);
    } finally {
      over.abort();
    }
  }
}
