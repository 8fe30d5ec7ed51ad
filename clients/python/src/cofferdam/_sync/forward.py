"""`sandbox.forward`: a local address that leads to a server in a sandbox.

Written by hand, like its twin in `_async`: sockets are where they differ.
"""

import socket
import threading
from collections.abc import Callable, Generator
from contextlib import closing, suppress
from types import TracebackType
from typing import TypeAlias

from cofferdam import v1
from cofferdam._status import ended_connection
from cofferdam._sync.client import Client
from cofferdam._sync.transport import Background
from cofferdam.errors import CofferdamError, InvalidArgument

#: Takes the reason why a connection was refused or lost. Another thread calls it.
ErrorCallback: TypeAlias = Callable[[CofferdamError], None]

HOST = "127.0.0.1"
# Bytes that are read from a local program at once.
PIECE = 32 * 1024
# How often the listener looks whether its block has ended, seconds.
LOOK = 0.1


class PortForward:
    """A local address, while its block lasts. Each connection to it is one to the server."""

    def __init__(self, client: Client, run_id: str, port: int, local_port: int, on_error: ErrorCallback | None) -> None:
        """For `sandbox.forward`."""
        if not 0 < port < 65536 or not 0 <= local_port < 65536:
            raise InvalidArgument("port: must be from 1 to 65535, and local_port from 0", reason="INVALID_ARGUMENT")
        self._client = client
        self._start = v1.ForwardStart(run_id=run_id, port=port)
        self._local_port = local_port
        self._on_error = on_error
        self._is_over = threading.Event()
        self._listening: threading.Thread | None = None
        self._lock = threading.Lock()
        self._connections: dict[socket.socket, Background | None] = {}

    def __enter__(self) -> str:
        """Its address, such as `127.0.0.1:40123`."""
        listener = socket.create_server((HOST, self._local_port), backlog=128)
        listener.settimeout(LOOK)
        self._is_over.clear()
        self._listening = threading.Thread(target=self._listen, args=(listener,), name="cofferdam", daemon=True)
        self._listening.start()
        return f"{HOST}:{listener.getsockname()[1]}"

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._is_over.set()
        if self._listening is not None:
            self._listening.join()
        with self._lock:
            connections = dict(self._connections)
        for local, background in connections.items():
            with suppress(OSError):
                local.shutdown(socket.SHUT_RDWR)
            if background is not None:
                background.end()

    def _listen(self, listener: socket.socket) -> None:
        with listener:
            while not self._is_over.is_set():
                try:
                    local, _ = listener.accept()
                except TimeoutError:
                    continue
                local.settimeout(None)
                with self._lock:
                    self._connections[local] = None
                background = self._client._transport.background(lambda local=local: self._serve(local))  # type: ignore[misc]
                with self._lock:
                    if local in self._connections:
                        self._connections[local] = background

    def _serve(self, local: socket.socket) -> None:
        try:
            closed = v1.ForwardClosed()
            with closing(self._client.forward.forward_port(self._requests(local))) as answers:
                for answer in answers:
                    match answer.WhichOneof("event"):
                        case "data":
                            local.sendall(answer.data)
                        case "finished":
                            local.shutdown(socket.SHUT_WR)
                        case "closed" if answer.closed.reason == v1.ForwardClosed.RUN_ENDED:
                            # The status that follows says whose failure that is.
                            closed = answer.closed
                        case "closed":
                            ended_connection(answer.closed)
            ended_connection(closed)
        except CofferdamError as error:
            if self._on_error is not None and not self._is_over.is_set():
                self._on_error(error)
        except OSError:
            # The local program has gone.
            pass
        finally:
            with suppress(OSError):
                # Wakes the thread that reads.
                local.shutdown(socket.SHUT_RDWR)
            local.close()
            with self._lock:
                self._connections.pop(local, None)

    def _requests(self, local: socket.socket) -> Generator[v1.ForwardPortRequest, None, None]:
        yield v1.ForwardPortRequest(start=self._start)
        while data := local.recv(PIECE):
            yield v1.ForwardPortRequest(data=data)
