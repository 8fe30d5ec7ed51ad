"""What the SDK adds to a call: `sandbox.files.read` of 4 KiB against the same read by a stub of grpcio, in turns.

    overhead.py [--calls N] [--profile sync|aio] [--also COMMAND…]

`tests/bench/sdk.sh` starts it. It has a daemon of its own; COFFERDAM_TEST_COFFERD names the program. `--profile` shows where
the time of one half goes, in place of times. `--also` runs a command after that, with COFFERDAM_ENDPOINT, and with the run's
id, the file's name and the number of calls as further arguments.
"""

import argparse
import asyncio
import cProfile
import os
import pstats
import subprocess
import time
from statistics import median, quantiles

import grpc
import grpc.aio
from daemon import Daemon

from cofferdam import AsyncSandbox, Sandbox, v1

CALL = "/cofferdam.v1.ToolService/Call"
NAME, CONTENT = "four-kib.txt", "0123456789abcde\n" * 256
# Calls before those that count.
WARM = 200


class Times:
    """Nanoseconds of calls."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stub: list[int] = []
        self.sdk: list[int] = []

    def __str__(self) -> str:
        """Milliseconds. What is added is the median of the differences of calls that followed each other."""
        added = median(sdk - stub for sdk, stub in zip(self.sdk[WARM:], self.stub[WARM:], strict=True))
        return f"{self.name:<28}{shown(self.stub[WARM:])}{shown(self.sdk[WARM:])}{added / 1e6:>10.3f}"


def shown(times: list[int]) -> str:
    return f"{median(times) / 1e6:>9.3f} {quantiles(times, n=100)[98] / 1e6:>8.3f}"


def request(run_id: str) -> v1.CallRequest:
    return v1.CallRequest(run_id=run_id, operation=v1.Operation(read=v1.ReadRequest(path=NAME)))


def sync(endpoint: str, run_id: str, calls: int) -> Times:
    times = Times("Python, grpcio")
    sandbox = Sandbox.connect(run_id, endpoint=endpoint)
    with grpc.insecure_channel(endpoint) as channel:
        call = channel.unary_unary(
            CALL, request_serializer=v1.CallRequest.SerializeToString, response_deserializer=v1.CallResponse.FromString
        )

        def of_stub() -> None:
            began = time.perf_counter_ns()
            content = call(request(run_id), timeout=60).result.read.content
            times.stub.append(time.perf_counter_ns() - began)
            assert content == CONTENT

        def of_sdk() -> None:
            began = time.perf_counter_ns()
            content = sandbox.files.read(NAME)
            times.sdk.append(time.perf_counter_ns() - began)
            assert content == CONTENT

        for number in range(WARM + calls):
            for one in (of_stub, of_sdk) if number % 2 else (of_sdk, of_stub):
                one()
    sandbox.close()
    return times


async def aio(endpoint: str, run_id: str, calls: int) -> Times:
    times = Times("Python, grpc.aio")
    sandbox = await AsyncSandbox.connect(run_id, endpoint=endpoint)
    async with grpc.aio.insecure_channel(endpoint) as channel:
        call = channel.unary_unary(
            CALL, request_serializer=v1.CallRequest.SerializeToString, response_deserializer=v1.CallResponse.FromString
        )

        async def of_stub() -> None:
            began = time.perf_counter_ns()
            content = (await call(request(run_id), timeout=60)).result.read.content
            times.stub.append(time.perf_counter_ns() - began)
            assert content == CONTENT

        async def of_sdk() -> None:
            began = time.perf_counter_ns()
            content = await sandbox.files.read(NAME)
            times.sdk.append(time.perf_counter_ns() - began)
            assert content == CONTENT

        for number in range(WARM + calls):
            for one in (of_stub, of_sdk) if number % 2 else (of_sdk, of_stub):
                await one()
    await sandbox.close()
    return times


def profile(half: str, endpoint: str, run_id: str, calls: int) -> None:
    profiler = cProfile.Profile()
    profiler.enable()
    if half == "sync":
        sync(endpoint, run_id, calls)
    else:
        asyncio.run(aio(endpoint, run_id, calls))
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(40)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--calls", type=int, default=5_000)
    parser.add_argument("--profile", choices=["sync", "aio"])
    parser.add_argument("--also", nargs=argparse.REMAINDER, default=[])
    asked = parser.parse_args()
    daemon = Daemon()
    try:
        sandbox = Sandbox.create(profile="open", endpoint=daemon.endpoint)
        sandbox.files.write(NAME, CONTENT)
        whose = (daemon.endpoint, sandbox.run_id, asked.calls)
        if asked.profile:
            profile(asked.profile, *whose)
        else:
            print(f"{'read of 4 KiB, ms':<28}{'stub':>9} {'p99':>8}{'SDK':>9} {'p99':>8}{'added':>10}")
            print(sync(*whose))
            print(asyncio.run(aio(*whose)), flush=True)
        if asked.also:
            command = [*asked.also, sandbox.run_id, NAME, str(asked.calls)]
            subprocess.run(command, env={**os.environ, "COFFERDAM_ENDPOINT": daemon.endpoint}, check=True)
        sandbox.kill()
    finally:
        daemon.remove()


main()
