"""The output of a command, put together by byte offsets: nothing twice, and gaps are known."""

import codecs


class Output:
    """One stream of a command. `keep`: it is wanted whole in the end."""

    def __init__(self, *, keep: bool = True) -> None:
        #: Offset of the next byte.
        self.next = 0
        self._keep = keep
        self._pieces: list[bytes] = []
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def take(self, offset: int, data: bytes) -> str:
        """The new part of this piece, as text. A character comes with its last byte."""
        return self.text(self.fresh(offset, data))

    def fresh(self, offset: int, data: bytes) -> bytes:
        """The new part of this piece."""
        data = data[max(0, self.next - offset) :]
        if data:
            # After a gap, which the daemon could not keep.
            self.next = max(self.next, offset) + len(data)
            if self._keep:
                self._pieces.append(data)
        return data

    def text(self, data: bytes) -> str:
        """The text that it adds to the one so far."""
        return self._decoder.decode(data)

    def skip(self, end: int) -> None:
        """There is nothing before this offset."""
        self.next = max(self.next, end)

    def rest(self) -> str:
        """The rest of a last character that is not whole."""
        return self._decoder.decode(b"", final=True)

    def whole(self) -> bytes:
        return b"".join(self._pieces)


def between(data: bytes, *, after: bool, before: bool) -> tuple[str, int]:
    """What stands after and before something that is left out, as text, and how many bytes are left out with it: those of
    characters that the cuts go through."""
    start = 0
    while after and start < min(3, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data[start:], final=not before)
    return text, start + len(decoder.getstate()[0])


def head(data: bytes, most: int) -> str:
    """At most the first `most` bytes, as text."""
    return between(data[:most], after=False, before=len(data) > most)[0]


def tail(data: bytes, most: int) -> str:
    """At most the last `most` bytes, as text."""
    return between(data[max(0, len(data) - most) :], after=len(data) > most, before=False)[0]
