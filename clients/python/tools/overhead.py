"""What this package costs a call, over a raw stub on the same connection: medians, in milliseconds.

    overhead.py [CALLS]     with a daemon at COFFERDAM_ENDPOINT

The raw stub makes the same request (`CallStream`) and reads its stream to the end. Both are called in turn, so that what
else the machine does falls on both alike.
"""

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

import grpc
import grpc.aio

from cofferdam import AsyncClient, AsyncSandbox, Client, Sandbox, v1

METHOD = "/cofferdam.v1.ToolService/CallStream"


def read_request(run_id: str) -> v1.CallRequest:
    operation = v1.Operation(read=v1.ReadRequest(path="a.txt", encoding=v1.ContentEncoding.CONTENT_ENCODING_BASE64))
    return v1.CallRequest(run_id=run_id, operation=operation)


def report(kind: str, raw: list[float], ours: list[float]) -> None:
    raw_ms, ours_ms = statistics.median(raw) * 1e3, statistics.median(ours) * 1e3
    print(f"{kind:5}  raw stub {raw_ms:.3f} ms   files.read {ours_ms:.3f} ms   overhead {ours_ms - raw_ms:+.3f} ms")


def blocking(calls: int) -> None:
    with Client() as client, Sandbox.create(profile="open", client=client) as sandbox:
        sandbox.files.write("a.txt", "hi\n")
        channel = grpc.insecure_channel(client.endpoint)
        stub = channel.unary_stream(
            METHOD,
            request_serializer=v1.CallRequest.SerializeToString,
            response_deserializer=v1.CallStreamResponse.FromString,
        )

        def raw() -> None:
            for _ in stub(read_request(sandbox.run_id)):
                pass

        def ours() -> None:
            sandbox.files.read("a.txt")

        times: dict[Callable[[], None], list[float]] = {raw: [], ours: []}
        for _ in range(calls):
            for one, measured in times.items():
                begun = time.perf_counter()
                one()
                measured.append(time.perf_counter() - begun)
        report("sync", times[raw], times[ours])


async def asynchronous(calls: int) -> None:
    async with AsyncClient() as client, await AsyncSandbox.create(profile="open", client=client) as sandbox:
        await sandbox.files.write("a.txt", "hi\n")
        async with grpc.aio.insecure_channel(client.endpoint) as channel:
            stub = channel.unary_stream(
                METHOD,
                request_serializer=v1.CallRequest.SerializeToString,
                response_deserializer=v1.CallStreamResponse.FromString,
            )

            async def raw() -> None:
                async for _ in stub(read_request(sandbox.run_id)):
                    pass

            async def ours() -> None:
                await sandbox.files.read("a.txt")

            times: dict[Callable[[], Awaitable[None]], list[float]] = {raw: [], ours: []}
            for _ in range(calls):
                for one, measured in times.items():
                    begun = time.perf_counter()
                    await one()
                    measured.append(time.perf_counter() - begun)
            report("async", times[raw], times[ours])


calls = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
blocking(calls)
asyncio.run(asynchronous(calls))
