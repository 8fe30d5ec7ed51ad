"""`sandbox.calls`."""

from cofferdam import _results, v1
from cofferdam._async.caller import PENDING, PIECE, RUNNING, Caller
from cofferdam._async.transport import sleep
from cofferdam._output import Output
from cofferdam.types import CallInfo


class Calls:
    """Calls that were made, by id: the outcome of a call that waited for a person, or whose answer was lost."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._rpc = caller.client.tools

    async def get(self, call_id: str) -> CallInfo:
        """A call as it is now, with the output of its command so far. Raises `NotFound`."""
        stdout, stderr = Output(), Output()
        while True:
            request = v1.GetCallRequest(
                call_id=call_id, stdout_offset=stdout.next, stderr_offset=stderr.next, max_output_bytes=PIECE
            )
            found = await self._rpc.get_call(request)
            stdout.take(found.stdout.offset, found.stdout.data)
            stderr.take(found.stderr.offset, found.stderr.data)
            if not found.stdout.data and not found.stderr.data:
                return _results.call_info(found.call, stdout.whole(), stderr.whole())

    async def wait(self, call_id: str) -> CallInfo:
        """A call when it is over. Waits without end for a person; the daemon's `approvals.timeout` ends that."""
        pause = 0.02
        while (await self._rpc.get_call(v1.GetCallRequest(call_id=call_id))).call.status in (PENDING, RUNNING):
            await sleep(pause)
            pause = min(pause * 1.5, 1.0)
        return await self.get(call_id)

    async def cancel(self, call_id: str) -> bool:
        """Ends a call that waits or runs. False: it was over."""
        return (await self._rpc.cancel_call(v1.CancelCallRequest(call_id=call_id))).cancelled
