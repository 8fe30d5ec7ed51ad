"""A process that stays, with what a lost connection takes: its output by offset, its end however long that takes.

```text
AttachProcess from the offsets that are here ──output, gap──▶ … ──the process──▶ done
    ▲ lost, or the daemon ends │
    └──────────────────────────┘
```
"""

import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager

from google.protobuf.duration_pb2 import Duration

from cofferdam import _requests, v1
from cofferdam._async.caller import Caller
from cofferdam._async.stdin import now
from cofferdam._async.transport import sleep
from cofferdam._method import Method
from cofferdam._output import Output
from cofferdam._signals import parse
from cofferdam.errors import DaemonUnreachable, NoConnection, NotFound, PreconditionFailed, TimedOut
from cofferdam.types import CommandOutput, PtySize, Signal

RUNNING = v1.Process.State.RUNNING
# Seconds that one request waits for the end of a process, and more for its answer.
LONGEST_WAIT = 600.0
ANSWER_TIMEOUT = 30.0
# Seconds, between such requests.
PAUSE = 0.05
# A signal of which a second one changes nothing.
KILL = Method("/cofferdam.v1.ProcessService/SignalProcess", v1.SignalProcessRequest, v1.SignalProcessResponse, True)


class Reading:
    """The output of a process, from its first byte on. `keep`: it is wanted whole in the end."""

    def __init__(self, *, keep: bool) -> None:
        self.stdout = Output(keep=keep)
        self.stderr = Output(keep=keep)
        #: How it is: set at the end.
        self.process: v1.Process | None = None

    def take(self, event: v1.AttachProcessResponse) -> CommandOutput | None:
        """The new part, if there is one."""
        match event.WhichOneof("event"):
            case "output":
                stream = self._of(event.output.stream)
                data = stream.fresh(event.output.offset, event.output.data)
                return self._piece(stream, data, stream.text(data)) if data else None
            case "gap":
                self._of(event.gap.stream).skip(event.gap.offset + event.gap.bytes)
            case "process":
                self.process = event.process
        return None

    def rest(self) -> list[CommandOutput]:
        """Characters that are not whole."""
        ends = [self._piece(stream, b"", stream.rest()) for stream in (self.stdout, self.stderr)]
        return [end for end in ends if end.text]

    def _of(self, stream: v1.ProcessStream.ValueType) -> Output:
        return self.stderr if stream == v1.ProcessStream.STDERR else self.stdout

    def _piece(self, stream: Output, data: bytes, text: str) -> CommandOutput:
        return CommandOutput("stderr" if stream is self.stderr else "stdout", data, text)


class Process:
    """One process of a run."""

    def __init__(self, caller: Caller, process_id: str) -> None:
        self._caller = caller
        self._rpc = caller.client.processes
        self.transport = caller.client._transport
        self._stdin = caller.client._stdins.of(process_id)
        self.id = process_id

    async def now(self) -> v1.Process:
        return await now(self._rpc, self._caller.run_id, self.id)

    async def read(
        self, reading: Reading, *, follow: bool, until: float | None = None
    ) -> AsyncGenerator[CommandOutput, None]:
        """The output so far, or with `follow` all until its end, over any number of connections. Raises `TimedOut`."""
        patience = self.transport.patience()
        request = v1.AttachProcessRequest(run_id=self._caller.run_id, process_id=self.id, follow=follow)
        while reading.process is None:
            request.stdout_offset, request.stderr_offset = reading.stdout.next, reading.stderr.next
            try:
                async with aclosing(self._rpc.attach_process(request, timeout=left(until))) as events:
                    async for event in events:
                        patience.restore()
                        piece = reading.take(event)
                        if piece is not None:
                            yield piece
                if reading.process is None:
                    raise DaemonUnreachable("the daemon ended the stream")
            except NoConnection as error:
                pause = patience.pause() if self.transport.is_lost(error) else None
                if pause is None:
                    raise self.transport.lost(error, request, retry_safe=True) from None
                await self.transport.reconnect(pause)
            except TimedOut:
                raise self._still_running() from None
        for piece in reading.rest():
            yield piece

    async def ended(self, until: float | None) -> None:
        """Waits for its end. Raises `TimedOut`."""
        while True:
            seconds = min(LONGEST_WAIT, left(until) or LONGEST_WAIT)
            wait = Duration()
            wait.FromNanoseconds(round(seconds * 1e9))
            request = v1.WaitProcessRequest(run_id=self._caller.run_id, process_id=self.id, timeout=wait)
            answer = await self._rpc.wait_process(request, timeout=seconds + ANSWER_TIMEOUT)
            if answer.process.state != RUNNING:
                return
            if until is not None and time.monotonic() >= until:
                raise self._still_running()
            # A daemon that ends says so, too.
            await sleep(PAUSE)

    async def send(self, data: str | bytes, *, close: bool) -> None:
        with self._named():
            await self._stdin.send(self._rpc, self._caller.run_id, self.id, _requests.raw(data), close)

    async def signal(self, signal: Signal | str | int) -> None:
        number = parse(signal)
        request = v1.SignalProcessRequest(run_id=self._caller.run_id, process_id=self.id, signal=number)
        with self._named():
            await self._rpc.signal_process(request)

    async def kill(self) -> bool:
        number = v1.SignalProcessRequest.Signal.KILL
        request = v1.SignalProcessRequest(run_id=self._caller.run_id, process_id=self.id, signal=number)
        try:
            await self.transport.unary(KILL, request)
        except (NotFound, PreconditionFailed):
            return False
        return True

    async def resize(self, size: PtySize) -> None:
        wanted = _requests.terminal_size(size)
        request = v1.ResizeTerminalRequest(run_id=self._caller.run_id, process_id=self.id, size=wanted)
        with self._named():
            await self._rpc.resize_terminal(request)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Errors say which process it is, and how to learn more."""
        try:
            yield
        except PreconditionFailed as error:
            error.call_id = self.id
            error.hint = "`info()` shows the state of the process."
            raise

    def _still_running(self) -> TimedOut:
        hint = "It goes on: wait again, or `kill()` it."
        return TimedOut("the process has not ended", reason="TIMED_OUT", call_id=self.id, hint=hint)


def deadline(timeout: float | None) -> float | None:
    """On this process's own clock."""
    return None if timeout is None else time.monotonic() + _requests.positive("timeout", timeout)


def left(until: float | None) -> float | None:
    """Seconds; never 0, which would be none at all."""
    return None if until is None else max(0.001, until - time.monotonic())


async def start(caller: Caller, operation: v1.Operation) -> Process:
    """A call like any other: policy, approval and record are those of a command."""
    return Process(caller, (await caller.result(operation)).process.process_id)


async def connect(caller: Caller, process_id: str) -> Process:
    """One that was started before. Raises `NotFound`."""
    process = Process(caller, process_id)
    await process.now()
    return process
