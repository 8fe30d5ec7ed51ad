/** Streams that go on after a lost connection or daemon. */

import { DaemonUnreachable, Unavailable } from "./errors.js";
import { sleep, type Transport } from "./transport.js";

/**
 * The items of the stream that `begin` makes, and makes again when it is lost, or has ended and is not `whole`. It is for
 * `begin` to go on from the last item that was given.
 */
export async function* resumed<T>(
  transport: Transport,
  begin: () => AsyncIterable<T>,
  whole: () => boolean,
  signal: AbortSignal,
): AsyncGenerator<T, void> {
  const patience = transport.patience();
  for (;;) {
    try {
      for await (const item of begin()) {
        patience.restore();
        yield item;
      }
      if (whole()) {
        return;
      }
      throw new DaemonUnreachable("the daemon ended the stream");
    } catch (error) {
      // A daemon that stops says so, and comes back.
      const stops = error instanceof Unavailable && error.reason === "DAEMON_STOPPING";
      const pause = stops || transport.isLost(error) ? patience.pause() : null;
      if (pause === null) {
        // It only reads.
        throw signal.aborted ? error : transport.lost(error, null, true);
      }
      await sleep(pause, signal);
    }
  }
}
