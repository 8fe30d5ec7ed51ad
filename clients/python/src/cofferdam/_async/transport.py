"""The connection to a daemon, and the few things in which the two halves of this package differ.

Written by hand, like its twin in `_sync`; everything above it is the same in both.
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, Literal, TypeAlias, TypeVar
from weakref import WeakValueDictionary

import grpc
import grpc.aio
from typing_extensions import ParamSpec

from cofferdam._method import Method, Request, Response
from cofferdam._node import names_node
from cofferdam._settings import Patience, Settings
from cofferdam._status import after_lost_attempt, lost, never_left, refused
from cofferdam.errors import CofferdamError, DaemonUnreachable, NoConnection

#: Takes a piece of output as text; may be asynchronous.
AsyncOutputCallback: TypeAlias = Callable[[str], Awaitable[None] | None]
#: Takes a piece of output, raw; may be asynchronous.
AsyncDataCallback: TypeAlias = Callable[[bytes], Awaitable[None] | None]
#: Takes how many bytes have been copied, and of how many (None: nobody knows yet); may be asynchronous.
AsyncProgressCallback: TypeAlias = Callable[[int, int | None], Awaitable[None] | None]

Kind: TypeAlias = Literal["unary_unary", "unary_stream", "stream_unary", "stream_stream"]
Result = TypeVar("Result")
Told = ParamSpec("Told")

Lock = asyncio.Lock
sleep = asyncio.sleep

# How long `close` waits for the work that cancelled calls have begun, seconds.
LAST_WAIT = 5.0


async def tell(callback: Callable[Told, Awaitable[None] | None], *args: Told.args, **kwargs: Told.kwargs) -> None:
    told = callback(*args, **kwargs)
    if inspect.isawaitable(told):
        await told


async def aside(work: Callable[Told, Result], *args: Told.args, **kwargs: Told.kwargs) -> Result:
    """Does work that waits for the disk, without holding up the event loop."""
    return await asyncio.to_thread(work, *args, **kwargs)


async def together(works: Sequence[Callable[[], Coroutine[Any, Any, Result]]]) -> list[Result]:
    """Does works side by side, and returns their results in this order. An error of one ends the others."""
    tasks = [asyncio.ensure_future(work()) for work in works]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def begun(requests: AsyncIterable[Request]) -> tuple[Request | None, AsyncIterator[Request]]:
    """The first request of a stream, and all of them. None for an empty stream."""
    rest = aiter(requests)
    first: Request | None = await anext(rest, None)

    async def whole() -> AsyncIterator[Request]:
        if first is not None:
            yield first
            async for request in rest:
                yield request

    return first, whole()


class Background:
    """Work beside its caller's: a task."""

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.ensure_future(work)
        self._is_ending = False

    async def wait(self, timeout: float | None) -> bool:
        """Whether it has ended by itself, after so many seconds at most. Raises its error."""
        if self._task is not asyncio.current_task():
            await asyncio.wait([self._task], timeout=timeout)
        if not self._task.done() or self._task.cancelled():
            return False
        self._task.result()
        return True

    def cancel(self) -> None:
        """Has it end, once. Not where the work itself calls this: it has to return."""
        if self._task is not asyncio.current_task() and not self._is_ending:
            self._is_ending = True
            self._task.cancel()

    async def end(self) -> None:
        """Ends it, and waits for that."""
        self.cancel()
        if self._task is not asyncio.current_task():
            await asyncio.wait([self._task])

    def when_done(self, callback: Callable[[], None]) -> None:
        self._task.add_done_callback(lambda _: callback())


class Transport:
    """One channel. Connects with the first call, on the event loop of that call."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._channel: grpc.aio.Channel | None = None
        # That of the address before.
        self._former: grpc.aio.Channel | None = None
        self._callables: dict[str, Any] = {}
        self._connected = False
        # A daemon that answered is a node: the next request may reach another one.
        self._is_in_fleet = False
        # By run, as long as one of its calls has or awaits it.
        self._turns: WeakValueDictionary[str, Lock] = WeakValueDictionary()
        self._afterwards: set[asyncio.Task[Any]] = set()
        self._backgrounds: set[Background] = set()

    async def unary(self, method: Method[Request, Response], request: Request, timeout: float | None = None) -> Response:
        """One answer. Repeated while a daemon that answered before is gone, if nothing can happen twice by it."""
        timeout = self.settings.request_timeout if timeout is None else timeout
        patience: Patience | None = None
        # An earlier attempt was lost and may have been carried out, whatever happens to those after it.
        is_sent = False
        while True:
            # Here: the client may move to another address meanwhile.
            call = self._callables.get(method.path) or self._callable(method, "unary_unary")
            attempt = call(request, timeout=timeout, metadata=self.settings.metadata_for(request))
            try:
                response: Response = await attempt
                self._is_in_fleet = self._is_in_fleet or names_node(await attempt.initial_metadata())
            except grpc.aio.AioRpcError as error:
                refusal, is_unsent = refused(error), never_left(error)
                unsent = is_unsent and not is_sent
                may_repeat = method.may_repeat(request, is_in_fleet=self._is_in_fleet) or unsent
            else:
                self._connected = True
                return response
            patience = patience or self.patience()
            pause = patience.pause() if may_repeat and self.is_lost(refusal) else None
            if pause is None:
                refusal = after_lost_attempt(refusal, repeatable=method.repeatable) if is_sent else refusal
                raise self.lost(refusal, request, retry_safe=method.repeatable or unsent)
            is_sent = not unsent
            await self.reconnect(pause)

    async def stream(
        self, method: Method[Request, Response], request: Request, timeout: float | None = None
    ) -> AsyncGenerator[Response, None]:
        """Its answers, of this one connection. Leaving it ends it on the daemon's side, too."""
        call = (self._callables.get(method.path) or self._callable(method, "unary_stream"))(
            request, timeout=timeout, metadata=self.settings.metadata_for(request)
        )
        try:
            async for response in call:
                self._connected = True
                yield response
        except grpc.aio.AioRpcError as error:
            raise refused(error) from None
        finally:
            call.cancel()

    async def client_stream(
        self, method: Method[Request, Response], requests: AsyncIterable[Request], timeout: float | None = None
    ) -> Response:
        """One answer to all of these, on one connection. Raises an error of `requests` itself, too."""
        first, requests = await begun(requests)
        call = (self._callables.get(method.path) or self._callable(method, "stream_unary"))(
            timeout=timeout, metadata=self.settings.metadata_for(first)
        )
        try:
            await self._send(call, requests)
            response: Response = await call
        except grpc.aio.AioRpcError as error:
            raise refused(error) from None
        finally:
            call.cancel()
        self._connected = True
        return response

    async def duplex(
        self, method: Method[Request, Response], requests: AsyncIterable[Request], timeout: float | None = None
    ) -> AsyncGenerator[Response, None]:
        """Answers while requests are sent, on one connection. Raises an error of `requests` itself, too."""
        first, requests = await begun(requests)
        call = (self._callables.get(method.path) or self._callable(method, "stream_stream"))(
            timeout=timeout, metadata=self.settings.metadata_for(first)
        )
        sending = asyncio.ensure_future(self._send(call, requests))
        # Where there is nothing more to send, nothing more is answered.
        sending.add_done_callback(lambda sent: call.cancel() if sent.cancelled() or sent.exception() else None)
        try:
            async for response in call:
                self._connected = True
                yield response
        except grpc.aio.AioRpcError as error:
            raise refused(error) from None
        except asyncio.CancelledError:
            if sending.done() and not sending.cancelled():
                sending.result()
            raise
        finally:
            sending.cancel()
            call.cancel()

    @staticmethod
    async def _send(call: Any, requests: AsyncIterable[Any]) -> None:
        """All of them, or as many as are wanted: the answer says why no more are."""
        async for request in requests:
            try:
                await call.write(request)
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                return
        await call.done_writing()

    def turn(self, run_id: str) -> Lock:
        """Held by calls of a run that are made one after the other, because a person is asked about each once more."""
        return self._turns.setdefault(run_id, Lock())

    def is_lost(self, error: Exception) -> bool:
        """A daemon that answered before no longer does: it may come back."""
        return self._connected and isinstance(error, NoConnection)

    def lost(self, error: CofferdamError, request: object, *, retry_safe: bool) -> CofferdamError:
        """The error for a daemon that answered before and did not come back; any other is of the same class."""
        if not self.is_lost(error):
            return error
        if not isinstance(error, DaemonUnreachable):
            # The daemon no longer takes this client: an attempt before that may have been carried out.
            error.retry_safe = retry_safe
            return error
        return lost(error, getattr(request, "request_id", ""), retry_safe=retry_safe)

    def patience(self) -> Patience:
        return Patience(self.settings.patience)

    async def reconnect(self, pause: float) -> None:
        """Waits so many seconds before the next attempt. Here gRPC makes connections by itself; not so in the twin."""
        await sleep(pause)

    def afterwards(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Does the work although the caller is being cancelled."""
        self._begun(work())

    async def finish(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Does the work to its end. A caller that is cancelled does not wait for it."""
        return await asyncio.shield(self._begun(work))

    def background(self, work: Callable[[], Coroutine[Any, Any, None]]) -> Background:
        """Begins work that `close` ends."""
        begun = Background(work())
        # The event loop does not keep a task that nobody waits for.
        self._backgrounds.add(begun)
        begun.when_done(lambda: self._backgrounds.discard(begun))
        return begun

    def _begun(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        task = asyncio.ensure_future(work)
        self._afterwards.add(task)
        task.add_done_callback(self._afterwards.discard)
        return task

    def _callable(self, method: Method[Any, Any], kind: Kind) -> Any:
        if self._channel is None:
            self._channel = self._open()
        made: Any = getattr(self._channel, kind)(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        self._callables[method.path] = made
        return made

    def _open(self) -> grpc.aio.Channel:
        it = self.settings
        if it.certificates is None:
            return grpc.aio.insecure_channel(it.target, options=it.options)
        files = it.certificates
        credentials = grpc.ssl_channel_credentials(files.ca, files.key, files.cert)
        return grpc.aio.secure_channel(it.target, credentials, options=it.options)

    async def move(self, settings: Settings) -> None:
        """Has later requests go to another address. Those under way stay with the connection before, but no older one."""
        older, self._former, self._channel = self._former, self._channel, None
        self.settings = settings
        self._callables.clear()
        if older is not None:
            await older.close(None)

    async def close(self) -> None:
        backgrounds = list(self._backgrounds)
        for background in backgrounds:
            background.cancel()
        for background in backgrounds:
            await background.end()
        # One of them may be the caller.
        others = {task for task in self._afterwards if task is not asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=LAST_WAIT)
        channels = (self._channel, self._former)
        self._channel = self._former = None
        self._callables.clear()
        for channel in channels:
            if channel is not None:
                await channel.close(None)
