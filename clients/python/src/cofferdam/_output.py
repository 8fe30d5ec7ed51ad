"""What a command writes, put together by byte offsets: nothing twice, and what is lost is known."""

import codecs


class Output:
    """One stream of a command."""

    def __init__(self) -> None:
        #: Offset of the next byte.
        self.next = 0
        self._pieces: list[bytes] = []
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def take(self, offset: int, data: bytes) -> str:
        """What is new of this piece, as text. A character is told when its last byte is there."""
        data = data[max(0, self.next - offset) :]
        if not data:
            return ""
        # A gap before it: the daemon could not keep that.
        self.next = max(self.next, offset) + len(data)
        self._pieces.append(data)
        return self._decoder.decode(data)

    def rest(self) -> str:
        """What is left of a last character that is not whole."""
        return self._decoder.decode(b"", final=True)

    def whole(self) -> bytes:
        return b"".join(self._pieces)
