/** A connection that can be cut: between a client and a daemon, both on Unix sockets. */

import { once } from "node:events";
import { createConnection, createServer, type Socket } from "node:net";

/** Passes bytes on, until it is told to cut. */
export class BreakableProxy implements AsyncDisposable {
  /** How many connections were made. */
  connections = 0;
  /** Cut each connection after so many bytes from the daemon, so many times. */
  cutAfter = 0;
  cuts = 0;
  /** Cut each connection after so many bytes from the client; 0: none. */
  cutAfterSent = 0;
  readonly endpoint: string;
  readonly #path: string;
  readonly #target: string;
  readonly #pairs = new Set<[Socket, Socket]>();
  readonly #muted = new Set<Socket>();
  readonly #server = createServer((client) => this.#accept(client));

  private constructor(path: string, endpoint: string) {
    this.#path = path;
    this.endpoint = `unix:${path}`;
    this.#target = endpoint.slice("unix:".length);
  }

  static async start(path: string, endpoint: string): Promise<BreakableProxy> {
    const proxy = new BreakableProxy(path, endpoint);
    proxy.#server.listen(proxy.#path);
    await once(proxy.#server, "listening");
    return proxy;
  }

  #accept(client: Socket): void {
    this.connections += 1;
    const daemon = createConnection(this.#target);
    const pair: [Socket, Socket] = [client, daemon];
    this.#pairs.add(pair);
    this.#pass(daemon, client, pair, (passed) => {
      const ends = this.cuts > 0 && this.cutAfter > 0 && passed > this.cutAfter;
      this.cuts -= ends ? 1 : 0;
      return ends;
    });
    this.#pass(client, daemon, pair, (passed) => this.cutAfterSent > 0 && passed > this.cutAfterSent);
    for (const end of pair) {
      end.on("error", () => this.#close(pair));
      end.on("close", () => this.#close(pair));
    }
  }

  #pass(from: Socket, to: Socket, pair: [Socket, Socket], ends: (passed: number) => boolean): void {
    let passed = 0;
    from.on("data", (data) => {
      passed += data.length;
      if (ends(passed)) {
        this.#close(pair);
      } else if (!this.#muted.has(from) && !to.write(data)) {
        from.pause();
        to.once("drain", () => from.resume());
      }
    });
  }

  #close(pair: [Socket, Socket]): void {
    this.#pairs.delete(pair);
    for (const end of pair) {
      end.destroy();
    }
  }

  /** From now on the connections that there are carry nothing from the daemon. */
  mute(): void {
    for (const [, daemon] of this.#pairs) {
      this.#muted.add(daemon);
    }
  }

  /** Every connection that there is. */
  cut(): void {
    for (const pair of this.#pairs) {
      this.#close(pair);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close();
    this.cut();
  }
}
