/** The connection to a daemon. */

import { setTimeout as delay } from "node:timers/promises";
import {
  create,
  type DescMessage,
  type DescMethod,
  fromBinary,
  type Message,
  type MessageInitShape,
  type MessageShape,
  toBinary,
} from "@bufbuild/protobuf";
import { MethodOptions_IdempotencyLevel } from "@bufbuild/protobuf/wkt";
import {
  Client as Channel,
  type ClientDuplexStream,
  type ClientReadableStream,
  connectivityState,
  Metadata,
} from "@grpc/grpc-js";
import { DaemonUnreachable, NoConnection, NodeLostError } from "./errors.js";
import { begun, feed, type Requests } from "./feed.js";
import { NODE_METADATA, nodeFor } from "./node.js";
import { Patience, type Settings } from "./settings.js";
import { afterLostAttempt, refused } from "./status.js";
import { currentTrace } from "./trace.js";

/** Options of one request. */
export interface RequestOptions {
  /** Seconds; default: the client's `requestTimeout`, and none for streams. */
  timeout?: number;
  /** Aborting it ends the request, which is rejected with the signal's reason. */
  signal?: AbortSignal;
}

/** Work beside that of its caller. */
export interface Background {
  /** Ends it, and waits for that. */
  end(): Promise<void>;
}

/** A method with messages of these types. */
export type Method<I extends DescMessage, O extends DescMessage> = DescMethod & { input: I; output: O };

// How long `close` waits for the work that cancelled calls have begun, seconds.
const LAST_WAIT = 5;
// How often a channel that connects is looked at, seconds.
const CONNECTING = 0.01;

/** Whether the proto file says that the method changes nothing, or comes to the same if it is done twice. */
export function mayRepeat(method: DescMethod): boolean {
  return method.idempotency !== MethodOptions_IdempotencyLevel.IDEMPOTENCY_UNKNOWN;
}

/** A call with a stream of answers. */
type Answers<M> = ClientReadableStream<M> | ClientDuplexStream<never, M>;

/** One channel. Connects with the first call. */
export class Transport {
  settings: Settings;
  /** The node that requests are for whose ids name none; null: no certain one. */
  node: number | null = null;
  #channel: Channel | null = null;
  // That of the address before.
  #former: Channel | null = null;
  #connected = false;
  // A daemon that answered is a node: the next request may reach another one.
  #isInFleet = false;
  readonly #active = new Set<{ cancel(): void }>();
  readonly #afterwards = new Set<Promise<void>>();
  readonly #backgrounds = new Set<Background>();
  // By run: the end of the last work in its line.
  readonly #turns = new Map<string, Promise<void>>();

  constructor(settings: Settings) {
    this.settings = settings;
  }

  /**
   * One answer. Repeated while the daemon is gone if nothing can happen twice by it: the proto file, a request id or the
   * caller says so.
   */
  async unary<I extends DescMessage, O extends DescMessage>(
    method: Method<I, O>,
    init: MessageInitShape<I>,
    options: RequestOptions & { repeatable?: boolean } = {},
  ): Promise<MessageShape<O>> {
    const request = create(method.input, init);
    const named = "requestId" in request && Boolean(request.requestId);
    // Only the node that took a request knows its id. In a fleet a request that names no node may reach another.
    const isFound = named && (!this.#isInFleet || nodeFor(method.input, request) !== null);
    const repeats = isFound || (options.repeatable ?? mayRepeat(method));
    const isSafe = options.repeatable ?? mayRepeat(method);
    let patience: Patience | null = null;
    // An earlier attempt was lost and may have been carried out, whatever happens to those after it.
    let isSent = false;
    if (!repeats) {
      await this.#reconnected(options.signal);
    }
    for (;;) {
      options.signal?.throwIfAborted();
      try {
        const response = await this.#once(method, request, options);
        this.#connected = true;
        return response;
      } catch (error) {
        options.signal?.throwIfAborted();
        const refusal = refused(error);
        patience ??= this.patience();
        const pause = repeats && this.isLost(refusal) ? patience.pause() : null;
        const isUnsent = refusal instanceof NoConnection && refusal.retrySafe;
        if (pause === null) {
          const id = named && "requestId" in request ? String(request.requestId) : null;
          if (isSent) {
            afterLostAttempt(refusal, isSafe);
          }
          throw this.lost(refusal, id, isSafe || (isUnsent && !isSent));
        }
        isSent ||= !isUnsent;
        await sleep(pause, options.signal);
      }
    }
  }

  /** Waits until a lost connection is there again, for a request that is sent only once. Later, the request itself fails. */
  async #reconnected(signal: AbortSignal | undefined): Promise<void> {
    const until = Date.now() + this.settings.reconnectTimeout * 1000;
    const connected = () => this.#open().getChannel().getConnectivityState(true) === connectivityState.READY;
    while (this.#connected && Date.now() < until && !connected()) {
      await sleep(CONNECTING, signal);
    }
  }

  #once<I extends DescMessage, O extends DescMessage>(
    method: Method<I, O>,
    request: MessageShape<I>,
    options: RequestOptions,
  ): Promise<MessageShape<O>> {
    const { route, encode, decode } = wire(method);
    return new Promise((resolve, reject) => {
      const call = this.#open().makeUnaryRequest(
        route,
        encode,
        decode,
        request,
        this.#metadata(method.input, request),
        deadline(options.timeout ?? this.settings.requestTimeout),
        (error, response) => {
          release();
          if (error === null && response !== undefined) {
            resolve(response);
          } else {
            reject(error);
          }
        },
      );
      const release = this.#hold(call, options.signal);
      call.on("metadata", (metadata: Metadata) => {
        this.#isInFleet ||= metadata.get(NODE_METADATA).length > 0;
      });
    });
  }

  /** Its answers, of this one connection. Leaving it ends it on the daemon's side, too. */
  async *stream<I extends DescMessage, O extends DescMessage>(
    method: Method<I, O>,
    init: MessageInitShape<I>,
    options: RequestOptions = {},
  ): AsyncGenerator<MessageShape<O>, void> {
    options.signal?.throwIfAborted();
    const { route, encode, decode } = wire(method);
    const request = create(method.input, init);
    const metadata = this.#metadata(method.input, request);
    const until = streamDeadline(options);
    yield* this.#answers(
      this.#open().makeServerStreamRequest(route, encode, decode, request, metadata, until),
      options,
    );
  }

  /** One answer to a stream of requests, which is sent once: whether it may be sent again is for the caller to know. */
  async collect<I extends DescMessage, O extends DescMessage>(
    method: Method<I, O>,
    requests: Requests<I>,
    options: RequestOptions = {},
  ): Promise<MessageShape<O>> {
    await this.#reconnected(options.signal);
    options.signal?.throwIfAborted();
    const { route, encode, decode } = wire(method);
    const { first, whole } = await begun(method.input, requests);
    options.signal?.throwIfAborted();
    const metadata = this.#metadata(method.input, first);
    const over = new AbortController();
    try {
      const response = await new Promise<MessageShape<O>>((resolve, reject) => {
        const answered = (error: unknown, answer?: MessageShape<O>) =>
          error === null && answer !== undefined ? resolve(answer) : reject(error);
        const until = streamDeadline(options);
        const call = this.#open().makeClientStreamRequest(route, encode, decode, metadata, until, answered);
        // `answered` is told it, too.
        call.on("error", () => {});
        const release = this.#hold(call, options.signal);
        over.signal.addEventListener("abort", release);
        feed(call, whole, over.signal).catch((error) => {
          reject(error);
          call.cancel();
        });
      });
      this.#connected = true;
      return response;
    } catch (error) {
      options.signal?.throwIfAborted();
      throw refused(error);
    } finally {
      over.abort();
    }
  }

  /** The answers to a stream of requests. */
  async *duplex<I extends DescMessage, O extends DescMessage>(
    method: Method<I, O>,
    requests: Requests<I>,
    options: RequestOptions = {},
  ): AsyncGenerator<MessageShape<O>, void> {
    options.signal?.throwIfAborted();
    const { route, encode, decode } = wire(method);
    const { first, whole } = await begun(method.input, requests);
    options.signal?.throwIfAborted();
    const metadata = this.#metadata(method.input, first);
    const call = this.#open().makeBidiStreamRequest(route, encode, decode, metadata, streamDeadline(options));
    const over = new AbortController();
    const thrown: unknown[] = [];
    feed(call, whole, over.signal).catch((error) => {
      thrown.push(error);
      call.cancel();
    });
    try {
      yield* this.#answers(call, options);
    } catch (error) {
      throw thrown.length > 0 ? thrown[0] : error;
    } finally {
      over.abort();
    }
  }

  async *#answers<M>(call: Answers<M>, options: RequestOptions): AsyncGenerator<M, void> {
    // The iterator throws it. After the loop has been left there is nobody to tell.
    call.on("error", () => {});
    const release = this.#hold(call, options.signal);
    try {
      for await (const response of call.iterator({ destroyOnReturn: false })) {
        this.#connected = true;
        yield response;
      }
    } catch (error) {
      options.signal?.throwIfAborted();
      throw refused(error);
    } finally {
      release();
      call.cancel();
    }
  }

  /** A daemon that answered before no longer does: it may come back. */
  isLost(error: unknown): boolean {
    return this.#connected && error instanceof NoConnection;
  }

  /** The error for a daemon that answered before and did not come back; anything else is of the same class. */
  lost(error: unknown, requestId: string | null, retrySafe: boolean): unknown {
    if (!(this.#connected && error instanceof NoConnection)) {
      return error;
    }
    if (!(error instanceof DaemonUnreachable)) {
      // The daemon no longer takes this client: an attempt before that may have been carried out.
      error.retrySafe = retrySafe;
      return error;
    }
    // Its own `retrySafe` is that of the last attempt alone.
    return new NodeLostError(error.message, { callId: error.callId, requestId, retrySafe });
  }

  patience(): Patience {
    return new Patience(this.settings.reconnectTimeout);
  }

  /** Does the work although its caller has gone. `close` waits for it. */
  afterwards(work: () => Promise<unknown>): void {
    const begun = work().then(
      () => {},
      () => {},
    );
    this.#afterwards.add(begun);
    void begun.then(() => this.#afterwards.delete(begun));
  }

  /** Begins work that `close` ends. */
  background(work: (signal: AbortSignal) => Promise<void>): Background {
    const over = new AbortController();
    const done = work(over.signal).catch(() => {});
    const end = async () => {
      over.abort();
      await done;
    };
    const begun = { end };
    this.#backgrounds.add(begun);
    void done.then(() => this.#backgrounds.delete(begun));
    return begun;
  }

  /** Does work of a run when the work before it has ended, because a person is asked about each once more. */
  async inTurn<T>(runId: string, signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> {
    const before = this.#turns.get(runId);
    const { promise: ended, resolve: end } = settled();
    const turn = before === undefined ? ended : before.then(() => ended);
    this.#turns.set(runId, turn);
    void turn.then(() => {
      if (this.#turns.get(runId) === turn) {
        this.#turns.delete(runId);
      }
    });
    try {
      await unlessAborted(before, signal);
      return await work();
    } finally {
      end();
    }
  }

  /**
   * Has later requests go where those of another client go. Those under way stay with the connection before, but no older
   * one.
   */
  move(to: Transport): void {
    this.#former?.close();
    this.#former = this.#channel;
    this.#channel = null;
    this.settings = to.settings;
    this.node = to.node;
  }

  async close(): Promise<void> {
    await Promise.all([...this.#backgrounds].map((background) => background.end()));
    if (this.#afterwards.size > 0) {
      const end = new AbortController();
      await Promise.race([Promise.all(this.#afterwards), sleep(LAST_WAIT, end.signal).catch(() => {})]);
      end.abort();
    }
    const channels = [this.#channel, this.#former];
    this.#channel = null;
    this.#former = null;
    for (const call of this.#active) {
      call.cancel();
    }
    for (const channel of channels) {
      channel?.close();
    }
  }

  #open(): Channel {
    this.#channel ??= new Channel(this.settings.target, this.settings.credentials, this.settings.channel);
    return this.#channel;
  }

  /** Of this request, or of a stream that begins with it. */
  #metadata(schema: DescMessage, request: Message | undefined): Metadata {
    const metadata = new Metadata();
    const node = (request === undefined ? null : nodeFor(schema, request)) ?? this.node;
    if (node !== null) {
      metadata.set(NODE_METADATA, String(node));
    }
    if (this.settings.authorization !== undefined) {
      metadata.set("authorization", this.settings.authorization);
    }
    const trace = currentTrace();
    if (trace !== undefined) {
      metadata.set("traceparent", trace);
    }
    return metadata;
  }

  /** Lets `close` and the signal end the call, until it is released. */
  #hold(call: { cancel(): void }, signal: AbortSignal | undefined): () => void {
    const abort = () => call.cancel();
    this.#active.add(call);
    signal?.addEventListener("abort", abort, { once: true });
    return () => {
      this.#active.delete(call);
      signal?.removeEventListener("abort", abort);
    };
  }
}

/** Waits for so many seconds. */
export async function sleep(seconds: number, signal?: AbortSignal): Promise<void> {
  try {
    await delay(seconds * 1000, undefined, signal === undefined ? {} : { signal });
  } catch (error) {
    signal?.throwIfAborted();
    throw error;
  }
}

/** A promise, and how it is fulfilled. */
function settled(): { promise: Promise<void>; resolve: () => void } {
  let resolve = () => {};
  const promise = new Promise<void>((fulfil) => {
    resolve = fulfil;
  });
  return { promise, resolve };
}

/** Waits for a promise that is never rejected. Throws when the signal is aborted. */
async function unlessAborted(promise: Promise<void> | undefined, signal: AbortSignal | undefined): Promise<void> {
  signal?.throwIfAborted();
  const aborted = settled();
  signal?.addEventListener("abort", aborted.resolve, { once: true });
  await Promise.race([promise, aborted.promise]);
  signal?.removeEventListener("abort", aborted.resolve);
  signal?.throwIfAborted();
}

/** A method as gRPC takes it. */
function wire<I extends DescMessage, O extends DescMessage>(method: Method<I, O>) {
  return {
    route: `/${method.parent.typeName}/${method.name}`,
    encode: (message: MessageShape<I>) => Buffer.from(toBinary(method.input, message)),
    decode: (bytes: Buffer) => fromBinary(method.output, bytes),
  };
}

function deadline(seconds: number): { deadline: number } {
  return { deadline: Date.now() + seconds * 1000 };
}

/** A stream has no deadline unless the caller gives one. */
function streamDeadline(options: RequestOptions): { deadline?: number } {
  return options.timeout === undefined ? {} : deadline(options.timeout);
}
