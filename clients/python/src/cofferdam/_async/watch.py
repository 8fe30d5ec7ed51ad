"""Changes of a directory, by looking at it again and again: the daemon has no call that tells of them."""

from collections import deque
from types import TracebackType

from typing_extensions import Self

from cofferdam import _requests, _results, v1
from cofferdam._async.caller import Caller
from cofferdam._async.transport import sleep
from cofferdam._tree import TEMPORARY
from cofferdam.errors import FileNotFound, InvalidArgument, LimitExceeded, NotFound, RunNotReady
from cofferdam.types import FileEvent, FileInfo

MOST_ENTRIES = 10_000
SHORTEST_INTERVAL = 0.1


class AsyncWatch:
    """Changes of files beneath a directory, as they are seen.

    ```python
    async with await sandbox.files.watch("src", recursive=True) as changes:
        async for event in changes:
            print(event.change, event.path)
    ```

    The directory is listed again after each interval, while somebody waits for an event. Each look is a call like any other:
    policy decides on it, it counts for rate limits, and the audit log has it.

    A change is one of type, size or time, and times are whole seconds. A file that changes twice within a second and keeps
    its size is seen once, and a file that comes and goes between two looks is not seen. Directories are only seen to come
    and go.

    It ends with its sandbox, and with `close()`; leaving a `with` block of it is `close()`. While the sandbox is paused, it
    waits.
    """

    def __init__(self, caller: Caller, path: str, depth: int, interval: float) -> None:
        """For `files.watch`."""
        if _requests.positive("interval", interval) < SHORTEST_INTERVAL:
            message = f"interval: must be at least {SHORTEST_INTERVAL} seconds, not {interval}"
            raise InvalidArgument(message, reason="INVALID_ARGUMENT")
        self._caller = caller
        self._request = v1.ListRequest(
            path=path, depth=depth, include_hidden=True, include_symlinks=True, max_entries=MOST_ENTRIES
        )
        self._interval = interval
        self._seen: dict[tuple[str, str], FileInfo] = {}
        self._events: deque[FileEvent] = deque()
        self._closed = False

    async def begin(self) -> None:
        """For `files.watch`: there is the directory, and what is in it is known."""
        self._seen = await self._listed()

    async def close(self) -> None:
        """Ends it: one that waits for an event has none, after an interval at the latest."""
        self._closed = True

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> FileEvent:
        while not self._closed and not self._events:
            await sleep(self._interval)
            await self._look()
        if self._closed:
            raise StopAsyncIteration
        return self._events.popleft()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _look(self) -> None:
        try:
            found = await self._listed()
        except FileNotFound:
            found = {}
        except RunNotReady:
            # Asked for by its state: a run that is paused takes calls again.
            self._closed = self._closed or await self._has_ended()
            return
        except NotFound:
            self._closed = True
            return
        before, self._seen = self._seen, found
        self._events.extend(FileEvent("removed", info.path, info.type) for at, info in before.items() if at not in found)
        for at, info in found.items():
            if at not in before:
                self._events.append(FileEvent("created", info.path, info.type))
            elif info.type != "directory" and info != before[at]:
                self._events.append(FileEvent("modified", info.path, info.type))

    async def _listed(self) -> dict[tuple[str, str], FileInfo]:
        """By path and type: an entry of another type is another entry."""
        result = await self._caller.result(v1.Operation(list=self._request), of_file=True)
        found = _results.listing(result.list)
        if found.truncated:
            message = (
                f"{self._request.path}: more than {MOST_ENTRIES} entries cannot be watched; watch a directory beneath it"
            )
            raise LimitExceeded(message, reason="READ_LIMIT")
        return {(info.path, info.type): info for info in found if not info.name.startswith(TEMPORARY)}

    async def _has_ended(self) -> bool:
        try:
            run = (await self._caller.client.runs.get_run(v1.GetRunRequest(run_id=self._caller.run_id))).run
        except NotFound:
            return True
        return run.state not in (v1.Run.State.CREATING, v1.Run.State.READY, v1.Run.State.PAUSED)
