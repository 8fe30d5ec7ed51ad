"""`sandbox.forward`: a local address that leads to a server in a sandbox.

Written by hand, like its twin in `_sync`: sockets are where they differ.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from types import TracebackType
from typing import TypeAlias

from cofferdam import v1
from cofferdam._async.client import AsyncClient
from cofferdam._status import ended_connection
from cofferdam.errors import CofferdamError, InvalidArgument

#: Takes the reason why a connection was refused or lost.
ErrorCallback: TypeAlias = Callable[[CofferdamError], None]

HOST = "127.0.0.1"
# Bytes that are read from a local program at once.
PIECE = 32 * 1024


class PortForward:
    """A local address, while its block lasts. Each connection to it is one to the server."""

    def __init__(self, client: AsyncClient, run_id: str, port: int, local_port: int, on_error: ErrorCallback | None) -> None:
        """For `sandbox.forward`."""
        if not 0 < port < 65536 or not 0 <= local_port < 65536:
            raise InvalidArgument("port: must be from 1 to 65535, and local_port from 0", reason="INVALID_ARGUMENT")
        self._client = client
        self._start = v1.ForwardStart(run_id=run_id, port=port)
        self._local_port = local_port
        self._on_error = on_error
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> str:
        """Its address, such as `127.0.0.1:40123`."""
        self._server = await asyncio.start_server(self._accepted, HOST, self._local_port)
        return f"{HOST}:{self._server.sockets[0].getsockname()[1]}"

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
        connections = list(self._connections)
        for connection in connections:
            connection.cancel()
        if connections:
            await asyncio.wait(connections)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.ensure_future(self._serve(reader, writer))
        # The event loop does not keep a task that nobody waits for.
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            closed = v1.ForwardClosed()
            async with aclosing(self._client.forward.forward_port(self._requests(reader))) as answers:
                async for answer in answers:
                    match answer.WhichOneof("event"):
                        case "data":
                            writer.write(answer.data)
                            await writer.drain()
                        case "finished":
                            writer.write_eof()
                        case "closed" if answer.closed.reason == v1.ForwardClosed.RUN_ENDED:
                            # The status that follows says whose failure that is.
                            closed = answer.closed
                        case "closed":
                            ended_connection(answer.closed)
            ended_connection(closed)
        except CofferdamError as error:
            if self._on_error is not None:
                self._on_error(error)
        except OSError:
            # The local program has gone.
            pass
        finally:
            with suppress(OSError):
                writer.close()

    async def _requests(self, reader: asyncio.StreamReader) -> AsyncGenerator[v1.ForwardPortRequest, None]:
        yield v1.ForwardPortRequest(start=self._start)
        while data := await reader.read(PIECE):
            yield v1.ForwardPortRequest(data=data)
