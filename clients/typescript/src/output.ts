/** The output of a command, put together by byte offsets: nothing twice, and gaps are known. */

/** One stream of a command. */
export class Output {
  /** Offset of the next byte. */
  next = 0;
  readonly #pieces: Uint8Array[] = [];
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });

  /** The new part of this piece, as text. A character comes with its last byte. */
  take(offset: number, data: Uint8Array): string {
    const fresh = data.subarray(Math.max(0, this.next - offset));
    if (fresh.length === 0) {
      return "";
    }
    // After a gap, which the daemon could not keep.
    this.next = Math.max(this.next, offset) + fresh.length;
    this.#pieces.push(fresh);
    return this.#decoder.decode(fresh, { stream: true });
  }

  /** The rest of a last character that is not whole. */
  rest(): string {
    return this.#decoder.decode();
  }

  whole(): Uint8Array {
    return Buffer.concat(this.#pieces);
  }
}
