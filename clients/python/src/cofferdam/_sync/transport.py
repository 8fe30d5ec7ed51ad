"""The connection to a daemon, and the few things in which the two halves of this package differ.

Written by hand, like its twin in `_async`; everything above it is the same in both.
"""

import threading
import time
from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar

import grpc

from cofferdam._method import Method, Request, Response
from cofferdam._settings import CHANNEL_OPTIONS, Patience, Settings
from cofferdam._status import refused
from cofferdam.errors import DaemonUnreachable

#: Takes a piece of output as text.
OutputCallback: TypeAlias = Callable[[str], None]

Result = TypeVar("Result")

sleep = time.sleep


def tell(callback: OutputCallback, text: str) -> None:
    callback(text)


class Transport:
    """One channel. Connects with the first call; may be used by several threads at once."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._channel: grpc.Channel | None = None
        self._callables: dict[str, Any] = {}
        self._connected = False
        self._opening = threading.Lock()

    def unary(self, method: Method[Request, Response], request: Request, timeout: float | None = None) -> Response:
        """One answer. Repeated while the daemon is gone if nothing can happen twice by it."""
        call = self._callables.get(method.path) or self._callable(method, stream=False)
        timeout = self.settings.request_timeout if timeout is None else timeout
        patience: Patience | None = None
        while True:
            try:
                response: Response = call(request, timeout=timeout, metadata=self.settings.metadata)
            except grpc.RpcError as error:
                refusal = refused(error)
            else:
                self._connected = True
                return response
            patience = patience or self.patience()
            pause = patience.pause() if method.may_repeat(request) and self.is_lost(refusal) else None
            if pause is None:
                raise refusal
            sleep(pause)

    def stream(
        self, method: Method[Request, Response], request: Request, timeout: float | None = None
    ) -> Generator[Response, None, None]:
        """Its answers, of this one connection. Leaving it ends it on the daemon's side, too."""
        call = (self._callables.get(method.path) or self._callable(method, stream=True))(
            request, timeout=timeout, metadata=self.settings.metadata
        )
        try:
            for response in call:
                self._connected = True
                yield response
        except grpc.RpcError as error:
            raise refused(error) from None
        finally:
            call.cancel()

    def is_lost(self, error: Exception) -> bool:
        """A daemon that answered before no longer does: it may come back."""
        return self._connected and isinstance(error, DaemonUnreachable)

    def patience(self) -> Patience:
        return Patience(self.settings.patience)

    def afterwards(self, work: None) -> None:
        """The work is done already: Python evaluates arguments first."""

    def finish(self, work: Result) -> Result:
        """The work is done already."""
        return work

    def _callable(self, method: Method[Any, Any], stream: bool) -> Any:
        with self._opening:
            if self._channel is None:
                self._channel = grpc.insecure_channel(self.settings.endpoint, options=CHANNEL_OPTIONS)
            make = self._channel.unary_stream if stream else self._channel.unary_unary
        made: Any = make(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        self._callables[method.path] = made
        return made

    def close(self) -> None:
        channel, self._channel = self._channel, None
        self._callables.clear()
        if channel is not None:
            channel.close()
