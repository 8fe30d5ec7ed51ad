# Generated from the asynchronous half by tools/unasync.py: change that half.
"""`sandbox.calls`."""

from cofferdam import _results, v1
from cofferdam._output import Output
from cofferdam._sync.caller import PENDING, PIECE, RUNNING, Caller
from cofferdam._sync.transport import sleep
from cofferdam.types import CallInfo


class Calls:
    """Calls that were made, by id: the outcome of a call that waited for a person, or whose answer was lost."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._rpc = caller.client.tools

    def get(self, call_id: str) -> CallInfo:
        """A call as it is now, with the output of its command so far. Raises `NotFound`."""
        stdout, stderr = Output(), Output()
        while True:
            request = v1.GetCallRequest(
                call_id=call_id, stdout_offset=stdout.next, stderr_offset=stderr.next, max_output_bytes=PIECE
            )
            found = self._rpc.get_call(request)
            stdout.take(found.stdout.offset, found.stdout.data)
            stderr.take(found.stderr.offset, found.stderr.data)
            if not found.stdout.data and not found.stderr.data:
                return _results.call_info(found.call, stdout.whole(), stderr.whole())

    def wait(self, call_id: str) -> CallInfo:
        """A call when it is over. Waits without end for a person; the daemon's `approvals.timeout` ends that."""
        pause = 0.02
        while (self._rpc.get_call(v1.GetCallRequest(call_id=call_id))).call.status in (PENDING, RUNNING):
            sleep(pause)
            pause = min(pause * 1.5, 1.0)
        return self.get(call_id)

    def cancel(self, call_id: str) -> bool:
        """Ends a call that waits or runs. False: it was over."""
        return (self._rpc.cancel_call(v1.CancelCallRequest(call_id=call_id))).cancelled
