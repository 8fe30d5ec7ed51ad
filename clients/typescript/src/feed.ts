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

/** Sends all of them, unless the call is over before. Rejected with what the requests themselves throw. */
export async function feed<I extends DescMessage>(
  call: Sink<MessageShape<I>>,
  schema: I,
  requests: Requests<I>,
  over: AbortSignal,
): Promise<void> {
  for await (const request of requests) {
    if (over.aborted) {
      return;
    }
    if (!call.write(create(schema, request))) {
      await once(call, "drain", { signal: over }).catch(() => {});
    }
  }
  if (!over.aborted) {
    call.end();
  }
}
