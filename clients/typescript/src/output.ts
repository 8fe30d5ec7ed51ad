/** The output of a command, put together by byte offsets: nothing twice, and gaps are known. */

/** One stream of a command. */
export class Output {
  /** Offset of the next byte. */
  next = 0;
  readonly #keep: boolean;
  readonly #pieces: Uint8Array[] = [];
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });

  /** `keep`: it is wanted whole in the end. */
  constructor(keep = true) {
    this.#keep = keep;
  }

  /** The new part of this piece, as text. A character comes with its last byte. */
  take(offset: number, data: Uint8Array): string {
    return this.text(this.fresh(offset, data));
  }

  /** The new part of this piece. */
  fresh(offset: number, data: Uint8Array): Uint8Array {
    const fresh = data.subarray(Math.max(0, this.next - offset));
    if (fresh.length > 0) {
      // After a gap, which the daemon could not keep.
      this.next = Math.max(this.next, offset) + fresh.length;
      if (this.#keep) {
        this.#pieces.push(fresh);
      }
    }
    return fresh;
  }

  /** The text that it adds to the one so far. */
  text(data: Uint8Array): string {
    return this.#decoder.decode(data, { stream: true });
  }

  /** There is nothing before this offset. */
  skip(end: number): void {
    this.next = Math.max(this.next, end);
  }

  /** The rest of a last character that is not whole. */
  rest(): string {
    return this.#decoder.decode();
  }

  whole(): Uint8Array {
    return Buffer.concat(this.#pieces);
  }
}

/**
 * Decodes a piece of output before or after an omission, without the characters that the omission cuts in two. `cut` is
 * the number of their bytes in the piece.
 */
export function between(data: Uint8Array, gap: { after: boolean; before: boolean }): { text: string; cut: number } {
  const byte = (at: number) => data[at] ?? 0;
  const continues = (at: number) => (byte(at) & 0xc0) === 0x80;
  let start = 0;
  while (gap.after && start < Math.min(3, data.length) && continues(start)) {
    start++;
  }
  let end = data.length;
  for (let back = 1; gap.before && back <= Math.min(3, data.length - start); back++) {
    const first = data.length - back;
    if (!continues(first)) {
      const length = byte(first) >= 0xf0 ? 4 : byte(first) >= 0xe0 ? 3 : byte(first) >= 0xc0 ? 2 : 1;
      end = length > back ? first : end;
      break;
    }
  }
  const text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(data.subarray(start, end));
  return { text, cut: start + data.length - end };
}
