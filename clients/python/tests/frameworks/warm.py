"""Runs that get a container which waited."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from cofferdam import RunInfo

# Seconds.
PATIENCE = 60.0
#: Causes that the next run with the same image does not have.
PASSING = ("first-of-its-kind", "none-waits")


async def soon_starts_warm(live: Callable[[], Awaitable[RunInfo]]) -> None:
    """Makes one run after the other, until one finds a container. `live` makes a run, ends it, and says how it was made."""
    end = time.monotonic() + PATIENCE
    while (run := await live()).start != "warm":
        assert run.start == "cold"
        assert run.cold_because in PASSING
        assert time.monotonic() < end, f"no run with {run.image} is warm: {run.cold_because}"
        await asyncio.sleep(1)
