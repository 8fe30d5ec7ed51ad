"""How far a transfer is, for its caller."""

from cofferdam._async.transport import AsyncProgressCallback, tell


class Progress:
    """Tells a callback, and knows its errors: they are no answers of the daemon."""

    def __init__(self, callback: AsyncProgressCallback | None) -> None:
        self._callback = callback
        self.error: BaseException | None = None

    async def tell(self, done: int, total: int | None) -> None:
        if self._callback is None:
            return
        try:
            await tell(self._callback, done, total)
        except BaseException as error:
            self.error = error
            raise
