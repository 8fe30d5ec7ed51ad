/** Streams that end at once when they are left, even while somebody waits for their next item. */

/** Items as they come: `for await`. Leaving the loop, or `return()`, ends the stream on the daemon's side, too. */
export class Stream<T> implements AsyncIterableIterator<T>, AsyncDisposable {
  readonly #end = new AbortController();
  readonly #items: AsyncGenerator<T, void>;

  /** `make` is given a signal that ends its work: the caller's, or that of this stream. */
  constructor(make: (signal: AbortSignal) => AsyncGenerator<T, void>, signal?: AbortSignal) {
    this.#items = make(signal === undefined ? this.#end.signal : AbortSignal.any([this.#end.signal, signal]));
  }

  async next(): Promise<IteratorResult<T, void>> {
    try {
      return await this.#items.next();
    } catch (error) {
      if (this.#end.signal.aborted) {
        return { done: true, value: undefined };
      }
      throw error;
    }
  }

  async return(): Promise<IteratorResult<T, void>> {
    this.#end.abort();
    return await this.#items.return();
  }

  /** Ends it, as leaving its loop does. */
  async close(): Promise<void> {
    await this.return();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}
