"""Sandboxes that are ready before a step of rollouts asks for them."""

import queue
import threading
import time
import uuid
from contextlib import suppress
from typing import Any

import ray
from ray.experimental.sandbox.backend.base import SandboxStatus
from ray.experimental.sandbox.exceptions import SandboxError, SandboxTimeoutError

from cofferdam.errors import InfrastructureError
from cofferdam.integrations._ray_backend import CofferdamRuntime
from cofferdam.integrations._ray_settings import Handover

#: Most sandboxes that wait.
MOST = 256
# Seconds between attempts to make a sandbox, where the daemon says none: first and longest.
PAUSE, LONGEST_PAUSE = 0.5, 10.0


class PrefetchActor:
    """Keeps so many sandboxes ready at the daemon of its node. Place it there, and take them from the same node.

    A sandbox that waits has its lease renewed here. It ends with this actor, one lease later at most.
    """

    def __init__(self, image: str, ahead: int, *, makers: int = 4, **options: Any) -> None:
        """`ahead`: sandboxes that wait, `makers`: of them that are made at the same time. `options`: as of `create`."""
        if not 1 <= ahead <= MOST or not 1 <= makers <= ahead:
            raise ValueError(f"ahead is 1 to {MOST}, and makers 1 to ahead")
        if options.get("request_id") is not None:
            raise ValueError("request_id: is of one sandbox, and these are several")
        self._image, self._options = image, options
        self._runtime = CofferdamRuntime()
        self._ready: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._room = threading.Semaphore(ahead)
        self._closing = threading.Event()
        self._error: Exception | None = None
        self._makers = [threading.Thread(target=self._make, name="prefetch", daemon=True) for _ in range(makers)]
        for maker in self._makers:
            maker.start()

    def waiting(self) -> int:
        """Returns the number of sandboxes that are ready."""
        return self._ready.qsize()

    def take(self, timeout: float = 60.0) -> Handover:
        """Gives the oldest away, for `CofferdamRuntime.attach`. Another one is made in its place.

        Raises why none could be made, else `SandboxTimeoutError`, when none is ready in `timeout` seconds.
        """
        end = time.monotonic() + timeout
        while not self._closing.is_set():
            try:
                instance_id = self._ready.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                error = self._error
                if error is not None:
                    raise error from None
                raise SandboxTimeoutError(f"No sandbox was ready in {timeout:g} seconds.") from None
            self._room.release()
            # One that was lost while it waited is nobody's failure.
            if self._runtime.get_status(instance_id) is SandboxStatus.RUNNING:
                with suppress(SandboxError):
                    return self._runtime.release(instance_id)
            self._end(instance_id)
        raise SandboxError("The sandboxes are closed.")

    def close(self) -> None:
        """Ends the sandboxes that wait."""
        self._closing.set()
        for _ in self._makers:
            self._room.release()
        for maker in self._makers:
            maker.join()
        while True:
            try:
                self._end(self._ready.get_nowait())
            except queue.Empty:
                return

    def _make(self) -> None:
        pause, request_id, repeated = PAUSE, _new_id(), False
        while self._room.acquire() and not self._closing.is_set():
            try:
                self._ready.put(self._runtime.create(self._image, request_id=request_id, **self._options))
                self._error, pause, request_id, repeated = None, PAUSE, _new_id(), False
            except Exception as error:
                # Of any kind: a maker that ended would leave fewer of them, and at last none.
                self._error = error
                self._room.release()
                # Once more the same request: its sandbox may be there, and only the answer was lost.
                again = isinstance(error, (InfrastructureError, SandboxTimeoutError)) and not repeated
                request_id, repeated = (request_id, True) if again else (_new_id(), False)
                told = error.retry_after if isinstance(error, InfrastructureError) else None
                self._closing.wait(told or pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    def _end(self, instance_id: str) -> None:
        # Else its lease ends it.
        with suppress(SandboxError):
            self._runtime.delete(instance_id)


def _new_id() -> str:
    return f"prefetch-{uuid.uuid4()}"


Prefetch = ray.remote(num_cpus=0, max_restarts=-1)(PrefetchActor)
