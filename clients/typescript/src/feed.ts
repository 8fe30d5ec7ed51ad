/** Streams of requests, no faster than the daemon takes them. */

import { once } from "node:events";
import { create, type DescMessage, type MessageInitShape, type MessageShape } from "@bufbuild/protobuf";

/** Requests in the order in which they are sent. */
export type Requests<I extends DescMessage> = Iterable<MessageInitShape<I>> | AsyncIterable<MessageInitShape<I>>;

/** The sending half of a call. */
interface Sink<M> extends NodeJS.EventEmitter {
  write(message: M): boolean;
  end(): void;
}

/** The first request of a stream, if there is one, and all of them. Rejected with what the requests themselves throw. */
export async function begun<I extends DescMessage>(
  schema: I,
  requests: Requests<I>,
): Promise<{ first: MessageShape<I> | undefined; whole: AsyncGenerator<MessageShape<I>, void> }> {
  const whole = made(schema, requests);
  const { value: first } = await whole.next();
  return { first: first || undefined, whole: first ? followed(first, whole) : whole };
}

async function* made<I extends DescMessage>(schema: I, requests: Requests<I>) {
  for await (const request of requests) {
    yield create(schema, request);
  }
}

async function* followed<M>(first: M, rest: AsyncGenerator<M, void>): AsyncGenerator<M, void> {
  yield first;
  yield* rest;
}

/** Sends all of them, unless the call is over before. Rejected with what the requests themselves throw. */
export async function feed<M>(call: Sink<M>, requests: AsyncIterable<M>, over: AbortSignal): Promise<void> {
  for await (const request of requests) {
    if (over.aborted) {
      return;
    }
    if (!call.write(request)) {
      await once(call, "drain", { signal: over }).catch(() => {});
    }
  }
  if (!over.aborted) {
    call.end();
  }
}
