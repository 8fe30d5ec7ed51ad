# Generated from the asynchronous half by tools/unasync.py: change that half.
"""How far a transfer is, for its caller."""

from cofferdam._sync.transport import ProgressCallback, tell


class Progress:
    """Tells a callback, and knows its errors: they are no answers of the daemon."""

    def __init__(self, callback: ProgressCallback | None) -> None:
        self._callback = callback
        self.error: BaseException | None = None

    def tell(self, done: int, total: int | None) -> None:
        if self._callback is None:
            return
        try:
            tell(self._callback, done, total)
        except BaseException as error:
            self.error = error
            raise
