"""The cost of this package per call, over raw stubs, in milliseconds: medians of the time that passes, and of this process's
processor time, which other work on the machine changes less.

    overhead.py [CALLS]     with a daemon at COFFERDAM_ENDPOINT

A read over `Call`, and a command over `CallStream`. The two ways of each are taken in turn, so that other work of the
machine falls on both alike.
"""

import asyncio
import statistics
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import grpc
import grpc.aio

from cofferdam import AsyncClient, AsyncSandbox, Client, Sandbox, v1

SERVICE = "/cofferdam.v1.ToolService"
PAIRS = (("Call", "files.read"), ("CallStream", "commands.run"))


def read_request(run_id: str) -> v1.CallRequest:
    operation = v1.Operation(read=v1.ReadRequest(path="a.txt", encoding=v1.ContentEncoding.CONTENT_ENCODING_BASE64))
    return v1.CallRequest(run_id=run_id, operation=operation)


def command_request(run_id: str) -> v1.CallRequest:
    operation = v1.Operation(exec=v1.ExecRequest(command="true"))
    return v1.CallRequest(run_id=run_id, request_id=uuid.uuid4().hex, operation=operation)


def stubs(channel: Any) -> tuple[Any, Any]:
    encode = v1.CallRequest.SerializeToString
    stream = channel.unary_stream(
        f"{SERVICE}/CallStream", request_serializer=encode, response_deserializer=v1.CallStreamResponse.FromString
    )
    unary = channel.unary_unary(
        f"{SERVICE}/Call", request_serializer=encode, response_deserializer=v1.CallResponse.FromString
    )
    return stream, unary


class Times:
    """Of the ways to make the same call."""

    def __init__(self, names: Iterable[str]) -> None:
        self._passed: dict[str, list[float]] = {name: [] for name in names}
        self._worked: dict[str, list[float]] = {name: [] for name in names}

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        passed, worked = time.perf_counter(), time.process_time()
        yield
        self._passed[name].append(time.perf_counter() - passed)
        self._worked[name].append(time.process_time() - worked)

    def report(self, kind: str) -> None:
        for kind_of_time, times in (("passed", self._passed), ("worked", self._worked)):
            medians = {name: statistics.median(measured) * 1e3 for name, measured in times.items()}
            for stub, ours in PAIRS:
                over = f"{medians[ours] - medians[stub]:+.3f}"
                print(f"{kind:5} {kind_of_time}: {ours} {medians[ours]:.3f}   {over} over {stub} ({medians[stub]:.3f})")


def blocking(calls: int) -> None:
    with Client() as client, Sandbox.create(profile="open", client=client) as sandbox:
        sandbox.files.write("a.txt", "hi\n")
        stream, unary = stubs(grpc.insecure_channel(client.endpoint))
        ways: Mapping[str, Callable[[], object]] = {
            "Call": lambda: unary(read_request(sandbox.run_id)),
            "files.read": lambda: sandbox.files.read("a.txt"),
            "CallStream": lambda: list(stream(command_request(sandbox.run_id))),
            "commands.run": lambda: sandbox.commands.run(["true"]),
        }
        times = Times(ways)
        for _ in range(calls):
            for name, way in ways.items():
                with times.of(name):
                    way()
        times.report("sync")


async def asynchronous(calls: int) -> None:
    async with AsyncClient() as client, await AsyncSandbox.create(profile="open", client=client) as sandbox:
        await sandbox.files.write("a.txt", "hi\n")
        async with grpc.aio.insecure_channel(client.endpoint) as channel:
            stream, unary = stubs(channel)

            async def streamed() -> object:
                return [event async for event in stream(command_request(sandbox.run_id))]

            ways: Mapping[str, Callable[[], Awaitable[object]]] = {
                "Call": lambda: unary(read_request(sandbox.run_id)),
                "files.read": lambda: sandbox.files.read("a.txt"),
                "CallStream": streamed,
                "commands.run": lambda: sandbox.commands.run(["true"]),
            }
            times = Times(ways)
            for _ in range(calls):
                for name, way in ways.items():
                    with times.of(name):
                        await way()
            times.report("async")


number = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
blocking(number)
asyncio.run(asynchronous(number))
