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
