"""The connection to a daemon, and the few things in which the two halves of this package differ.

Written by hand, like its twin in `_async`; everything above it is the same in both.
"""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, Generic, Literal, TypeAlias, TypeVar
from weakref import WeakSet, WeakValueDictionary

import grpc
from typing_extensions import ParamSpec

from cofferdam._method import Method, Request, Response
from cofferdam._node import names_node
from cofferdam._settings import Patience, Settings
from cofferdam._status import after_lost_attempt, lost, never_left, refused
from cofferdam.errors import Cancelled, CofferdamError, DaemonUnreachable, NoConnection

#: Takes a piece of output as text.
OutputCallback: TypeAlias = Callable[[str], None]
#: Takes a piece of output, raw.
DataCallback: TypeAlias = Callable[[bytes], None]
#: Takes how many bytes have been copied, and of how many (None: nobody knows yet).
ProgressCallback: TypeAlias = Callable[[int, int | None], None]

Kind: TypeAlias = Literal["unary_unary", "unary_stream", "stream_unary", "stream_stream"]
Result = TypeVar("Result")
Told = ParamSpec("Told")

Lock = threading.Lock

# How long a caller that was interrupted waits for the work that it leaves, and `close` for that of all callers, seconds.
LAST_WAIT = 5.0
# Before another attempt also where a connection is there already, seconds.
SHORTEST_PAUSE = 0.05
HEALTH = "/grpc.health.v1.Health/Check"

_LOG = logging.getLogger(__name__)


def sleep(seconds: float) -> None:
    background = Background.current()
    if background is None:
        time.sleep(seconds)
    else:
        background.sleep(seconds)


def tell(callback: Callable[Told, None], *args: Told.args, **kwargs: Told.kwargs) -> None:
    callback(*args, **kwargs)


def aside(work: Callable[Told, Result], *args: Told.args, **kwargs: Told.kwargs) -> Result:
    """Does work that waits for the disk."""
    return work(*args, **kwargs)


class Background:
    """Work beside its caller's: a thread. Ending it ends the stream that the work reads."""

    _here = threading.local()

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._error: BaseException | None = None
        self._call: Any = None
        self._holding = threading.Lock()
        self._is_ending = threading.Event()
        # Not the thread's own: an interrupted `join` has Python before 3.13 take it for one that has ended.
        self._is_over = threading.Event()
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name="cofferdam", daemon=True)
        self._thread.start()

    @classmethod
    def current(cls) -> "Background | None":
        """The one whose work calls this."""
        return getattr(cls._here, "it", None)

    def _run(self) -> None:
        self._here.it = self
        try:
            self._work()
        except BaseException as error:
            self._error = error
        finally:
            self._is_over.set()

    def hold(self, call: Any) -> None:
        """The work reads this stream now."""
        with self._holding:
            self._call = call
            if self._is_ending.is_set():
                call.cancel()

    def sleep(self, seconds: float) -> None:
        if self._is_ending.wait(seconds):
            raise Cancelled("it was ended")

    @property
    def lives(self) -> bool:
        # A process that was forked has no threads of the one before.
        return not self._is_over.is_set() and self._process == os.getpid()

    def wait(self, timeout: float | None) -> bool:
        """Whether it has ended by itself, after so many seconds at most. Raises its error."""
        self._join(timeout)
        if self.lives or self._is_ending.is_set():
            return False
        if self._error is not None:
            raise self._error
        return True

    def cancel(self) -> None:
        """Has it end. Not where the work itself calls this: it has to return."""
        if self._thread is threading.current_thread():
            return
        with self._holding:
            self._is_ending.set()
            if self._call is not None:
                self._call.cancel()

    def end(self) -> None:
        """Ends it, and waits for that."""
        self.cancel()
        self._join(None)

    def _join(self, timeout: float | None) -> None:
        if self.lives and self._thread is not threading.current_thread():
            self._is_over.wait(timeout)


def together(works: Sequence[Callable[[], Result]]) -> list[Result]:
    """Does works side by side, and returns their results in this order. An error of one ends the others."""
    results: dict[int, Result] = {}

    def do(number: int, work: Callable[[], Result]) -> None:
        results[number] = work()

    begun: list[Background] = []
    try:
        begun.extend(Background(partial(do, number, work)) for number, work in enumerate(works))
        for background in begun:
            background.wait(None)
    except BaseException:
        for background in begun:
            background.cancel()
        for background in begun:
            background.end()
        raise
    return [results[number] for number in range(len(begun))]


class Sending(Generic[Request]):
    """The requests of a stream. gRPC takes them on a thread of its own, and keeps an error of theirs to itself."""

    def __init__(self, requests: Iterable[Request]) -> None:
        self._requests = iter(requests)
        self._error: BaseException | None = None
        #: Known before the call is made; None for an empty stream.
        self.first: Request | None = next(self._requests, None)
        self._is_first = self.first is not None

    def __iter__(self) -> Iterator[Request]:
        return self

    def __next__(self) -> Request:
        if self._is_first and self.first is not None:
            self._is_first = False
            return self.first
        try:
            return next(self._requests)
        except StopIteration:
            raise
        except BaseException as error:
            self._error = error
            raise

    def check(self) -> None:
        """Raises the error."""
        if self._error is not None:
            raise self._error


class Transport:
    """One channel. Connects with the first call; may be used by several threads at once."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._channel: grpc.Channel | None = None
        # That of the address before.
        self._former: grpc.Channel | None = None
        self._callables: dict[str, Any] = {}
        self._connected = False
        # A daemon that answered is a node: the next request may reach another one.
        self._is_in_fleet = False
        # By run, as long as one of its calls has or awaits it.
        self._turns: WeakValueDictionary[str, Lock] = WeakValueDictionary()
        self._opening = threading.Lock()
        self._backgrounds: WeakSet[Background] = WeakSet()
        self._afterwards: WeakSet[Background] = WeakSet()

    def unary(self, method: Method[Request, Response], request: Request, timeout: float | None = None) -> Response:
        """One answer. Repeated while a daemon that answered before is gone, if nothing can happen twice by it."""
        timeout = self.settings.request_timeout if timeout is None else timeout
        patience: Patience | None = None
        # An earlier attempt was lost and may have been carried out, whatever happens to those after it.
        is_sent = False
        while True:
            # Here: the client may move to another address meanwhile.
            call = self._callables.get(method.path) or self._callable(method, "unary_unary")
            try:
                metadata = self.settings.metadata_for(request)
                response: Response
                response, answered = call.with_call(request, timeout=timeout, metadata=metadata)
                self._is_in_fleet = self._is_in_fleet or names_node(answered.initial_metadata())
            except grpc.RpcError as error:
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
            self.reconnect(pause)

    def stream(
        self, method: Method[Request, Response], request: Request, timeout: float | None = None
    ) -> Generator[Response, None, None]:
        """Its answers, of this one connection. Leaving it ends it on the daemon's side, too."""
        call = (self._callables.get(method.path) or self._callable(method, "unary_stream"))(
            request, timeout=timeout, metadata=self.settings.metadata_for(request)
        )
        background = Background.current()
        if background is not None:
            background.hold(call)
        try:
            for response in call:
                self._connected = True
                yield response
        except grpc.RpcError as error:
            raise refused(error) from None
        finally:
            call.cancel()

    def client_stream(
        self, method: Method[Request, Response], requests: Iterable[Request], timeout: float | None = None
    ) -> Response:
        """One answer to all of these, on one connection. Raises an error of `requests` itself, too."""
        sending = Sending(requests)
        call = (self._callables.get(method.path) or self._callable(method, "stream_unary")).future(
            sending, timeout=timeout, metadata=self.settings.metadata_for(sending.first)
        )
        try:
            response: Response = call.result()
        except grpc.RpcError as error:
            sending.check()
            raise refused(error) from None
        finally:
            call.cancel()
        self._connected = True
        return response

    def duplex(
        self, method: Method[Request, Response], requests: Iterable[Request], timeout: float | None = None
    ) -> Generator[Response, None, None]:
        """Answers while requests are sent, on one connection. Raises an error of `requests` itself, too."""
        sending = Sending(requests)
        call = (self._callables.get(method.path) or self._callable(method, "stream_stream"))(
            sending, timeout=timeout, metadata=self.settings.metadata_for(sending.first)
        )
        background = Background.current()
        if background is not None:
            background.hold(call)
        try:
            for response in call:
                self._connected = True
                yield response
        except grpc.RpcError as error:
            sending.check()
            raise refused(error) from None
        finally:
            call.cancel()

    def turn(self, run_id: str) -> Lock:
        """Held by calls of a run that are made one after the other, because a person is asked about each once more."""
        # `setdefault` of such a dictionary is no single step: two threads could get a lock each.
        with self._opening:
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

    def reconnect(self, pause: float) -> None:
        """Waits for a connection for so many seconds at most, before the next attempt.

        Older versions of gRPC (1.68 is one) get on with a connection only while somebody waits for something of its channel:
        without that each one is given up when its time is over.
        """
        begun = time.monotonic()
        sleep(min(pause, SHORTEST_PAUSE))
        channel, left = self._channel, begun + pause - time.monotonic()
        if channel is not None and left > 0:
            check: Any = channel.unary_unary(HEALTH)
            # Whatever the answer is: there is a connection.
            with suppress(grpc.RpcError):
                check(b"", timeout=left, metadata=self.settings.metadata, wait_for_ready=True)

    def afterwards(self, work: Callable[[], None]) -> None:
        """Does the work that a failed or interrupted caller leaves, on another thread.

        A caller that fails waits for the end of the work, and one that was interrupted for `LAST_WAIT` seconds. The next
        Ctrl-C ends either wait. Work that goes on after the wait is a warning in the log.
        """
        is_interrupted = not isinstance(sys.exc_info()[1], Exception)
        try:
            begun = Background(partial(copy_context().run, work))
        except RuntimeError:
            # An interpreter that ends starts no thread.
            work()
            return
        with self._opening:
            self._afterwards.add(begun)
        try:
            with suppress(Exception):
                begun.wait(LAST_WAIT if is_interrupted else None)
        finally:
            if begun.lives:
                _LOG.warning(
                    "cofferdam: the daemon has not confirmed that it ended the interrupted work. The attempts go on while "
                    "this program runs and its client is open. A lease ends a run in every case."
                )

    def finish(self, work: Result) -> Result:
        """The work is done already."""
        return work

    def background(self, work: Callable[[], None]) -> Background:
        """Begins work that `close` ends."""
        begun = Background(work)
        with self._opening:
            self._backgrounds.add(begun)
        return begun

    def _callable(self, method: Method[Any, Any], kind: Kind) -> Any:
        with self._opening:
            if self._channel is None:
                self._channel = self._open()
            made: Any = getattr(self._channel, kind)(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.response.FromString,
            )
            self._callables[method.path] = made
        return made

    def _open(self) -> grpc.Channel:
        it = self.settings
        if it.certificates is None:
            return grpc.insecure_channel(it.target, options=it.options)
        files = it.certificates
        credentials = grpc.ssl_channel_credentials(files.ca, files.key, files.cert)
        return grpc.secure_channel(it.target, credentials, options=it.options)

    def move(self, settings: Settings) -> None:
        """Has later requests go to another address. Those under way stay with the connection before, but no older one."""
        with self._opening:
            older, self._former, self._channel = self._former, self._channel, None
            self.settings = settings
            self._callables.clear()
        if older is not None:
            older.close()

    def close(self) -> None:
        with self._opening:
            backgrounds, afterwards = list(self._backgrounds), list(self._afterwards)
        for background in backgrounds:
            background.cancel()
        for background in backgrounds:
            background.end()
        until = time.monotonic() + LAST_WAIT
        for last in afterwards:
            # One of them may be the caller.
            with suppress(Exception):
                last.wait(max(0.0, until - time.monotonic()))
            last.cancel()
        with self._opening:
            channels = (self._channel, self._former)
            self._channel = self._former = None
            self._callables.clear()
        for channel in channels:
            if channel is not None:
                channel.close()
