"""What every peer of the benchmark does: lives, one after the other, each as long as a line of standard input asks for one.

A life is: create a sandbox, run `true` in it, read a file of 4 KiB, destroy it. The answer to the line `life` is a line of JSON
with the nanoseconds of each step. A peer that cannot do it answers with `error`, and ends.

    PEER.py IMAGE WORKSPACE    WORKSPACE is a directory of the host with the file `file`, mounted at /workspace
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

PATH = "/workspace/file"
BYTES = 4096


class Peer(Protocol):
    """The four steps, in this order."""

    async def create(self) -> None: ...
    async def run_true(self) -> None: ...
    async def read(self) -> int:
        """Reads `PATH`; the number of bytes."""
        ...

    async def destroy(self) -> None: ...


async def timed(step: Callable[[], Awaitable[object]]) -> tuple[int, object]:
    began = time.perf_counter_ns()
    result = await step()
    return time.perf_counter_ns() - began, result


async def live(peer: Peer) -> dict[str, int]:
    created, _ = await timed(peer.create)
    try:
        ran, _ = await timed(peer.run_true)
        read, length = await timed(peer.read)
    except BaseException:
        await peer.destroy()
        raise
    destroyed, _ = await timed(peer.destroy)
    if length != BYTES:
        raise RuntimeError(f"it read {length} bytes of {BYTES}")
    return {"create": created, "true": ran, "read": read, "destroy": destroyed}


def serve(make: Callable[[str, str], Peer]) -> None:
    """Answers lines until there are no more. Only answers go to standard output."""
    answers, sys.stdout = sys.stdout, sys.stderr
    image, workspace = sys.argv[1:]
    for line in sys.stdin:
        if line.strip() != "life":
            raise SystemExit(f"{line.strip()}: not a request")
        try:
            answer: dict[str, object] = dict(asyncio.run(live(make(image, workspace))))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        if "error" in answer:
            raise SystemExit(1)
