"""The connection to a daemon, and the few things in which the two halves of this package differ.

Written by hand, like its twin in `_sync`; everything above it is the same in both.
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import Any, TypeAlias, TypeVar

import grpc
import grpc.aio

from cofferdam._method import Method, Request, Response
from cofferdam._settings import CHANNEL_OPTIONS, Patience, Settings
from cofferdam._status import refused
from cofferdam.errors import DaemonUnreachable

#: Takes a piece of output as text; may be asynchronous.
AsyncOutputCallback: TypeAlias = Callable[[str], Awaitable[None] | None]

Result = TypeVar("Result")

sleep = asyncio.sleep

# How long `close` waits for the work that cancelled calls have begun, seconds.
LAST_WAIT = 5.0


async def tell(callback: AsyncOutputCallback, text: str) -> None:
    told = callback(text)
    if inspect.isawaitable(told):
        await told


class Transport:
    """One channel. Connects with the first call, on the event loop of that call."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._channel: grpc.aio.Channel | None = None
        self._callables: dict[str, Any] = {}
        self._connected = False
        self._afterwards: set[asyncio.Task[Any]] = set()

    async def unary(self, method: Method[Request, Response], request: Request, timeout: float | None = None) -> Response:
        """One answer. Repeated while the daemon is gone if nothing can happen twice by it."""
        call = self._callables.get(method.path) or self._callable(method, stream=False)
        timeout = self.settings.request_timeout if timeout is None else timeout
        patience: Patience | None = None
        while True:
            try:
                response: Response = await call(request, timeout=timeout, metadata=self.settings.metadata)
            except grpc.aio.AioRpcError as error:
                refusal = refused(error)
            else:
                self._connected = True
                return response
            patience = patience or self.patience()
            pause = patience.pause() if method.may_repeat(request) and self.is_lost(refusal) else None
            if pause is None:
                raise refusal
            await sleep(pause)

    async def stream(
        self, method: Method[Request, Response], request: Request, timeout: float | None = None
    ) -> AsyncGenerator[Response, None]:
        """Its answers, of this one connection. Leaving it ends it on the daemon's side, too."""
        call = (self._callables.get(method.path) or self._callable(method, stream=True))(
            request, timeout=timeout, metadata=self.settings.metadata
        )
        try:
            async for response in call:
                self._connected = True
                yield response
        except grpc.aio.AioRpcError as error:
            raise refused(error) from None
        finally:
            call.cancel()

    def is_lost(self, error: Exception) -> bool:
        """A daemon that answered before no longer does: it may come back."""
        return self._connected and isinstance(error, DaemonUnreachable)

    def patience(self) -> Patience:
        return Patience(self.settings.patience)

    def afterwards(self, work: Coroutine[Any, Any, None]) -> None:
        """Does the work although the caller is being cancelled."""
        self._begun(work)

    async def finish(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Does the work to its end. A caller that is cancelled does not wait for it."""
        return await asyncio.shield(self._begun(work))

    def _begun(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        task = asyncio.ensure_future(work)
        self._afterwards.add(task)
        task.add_done_callback(self._afterwards.discard)
        return task

    def _callable(self, method: Method[Any, Any], stream: bool) -> Any:
        if self._channel is None:
            self._channel = grpc.aio.insecure_channel(self.settings.endpoint, options=CHANNEL_OPTIONS)
        make = self._channel.unary_stream if stream else self._channel.unary_unary
        made: Any = make(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        self._callables[method.path] = made
        return made

    async def close(self) -> None:
        # One of them may be the caller.
        others = {task for task in self._afterwards if task is not asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=LAST_WAIT)
        channel, self._channel = self._channel, None
        self._callables.clear()
        if channel is not None:
            await channel.close(None)
