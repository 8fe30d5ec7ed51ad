"""The output of a command, put together by byte offsets: nothing twice, and gaps are known."""

import codecs


class Output:
    """One stream of a command."""

    def __init__(self) -> None:
        #: Offset of the next byte.
        self.next = 0
        self._pieces: list[bytes] = []
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def take(self, offset: int, data: bytes) -> str:
        """The new part of this piece, as text. A character comes with its last byte."""
        data = data[max(0, self.next - offset) :]
        if not data:
            return ""
        # After a gap, which the daemon could not keep.
        self.next = max(self.next, offset) + len(data)
        self._pieces.append(data)
        return self._decoder.decode(data)

    def rest(self) -> str:
        """The rest of a last character that is not whole."""
        return self._decoder.decode(b"", final=True)

    def whole(self) -> bytes:
        return b"".join(self._pieces)
