# Generated from the asynchronous half by tools/unasync.py: change that half.
"""The input of processes: in order, and no byte twice."""

import threading
from weakref import WeakValueDictionary

from google.protobuf.duration_pb2 import Duration

from cofferdam import v1
from cofferdam._sync.rpc import ProcessService
from cofferdam._sync.transport import Lock
from cofferdam.errors import PreconditionFailed

# Bytes of one request.
PIECE = 256 * 1024
# Seconds for one request. The daemon waits ten for the process to read, for each writer before this one, too.
WRITE_TIMEOUT = 120.0
# The shortest that a client can wait.
AT_ONCE = Duration(nanos=1)


class Stdin:
    """The input of one process. Its senders take turns."""

    def __init__(self) -> None:
        self._sending = Lock()
        # Position of the next byte; None: to be asked for.
        self._offset: int | None = None

    def send(self, processes: ProcessService, run_id: str, process_id: str, data: bytes, close: bool) -> None:
        """Returns when the process has all of it."""
        with self._sending:
            offset, self._offset = self._offset, None
            if offset is None:
                offset = (now(processes, run_id, process_id)).stdin_bytes
            begin = offset
            while True:
                piece = data[offset - begin :][:PIECE]
                end = offset + len(piece)
                request = v1.WriteStdinRequest(
                    run_id=run_id,
                    process_id=process_id,
                    offset=offset,
                    data=piece,
                    close=close and end == begin + len(data),
                )
                try:
                    answer = processes.write_stdin(request, timeout=WRITE_TIMEOUT)
                except PreconditionFailed:
                    # Of a request that was repeated: the process may have read it all and ended meanwhile.
                    if (now(processes, run_id, process_id)).stdin_bytes < begin + len(data):
                        raise
                    return
                if answer.offset > end:
                    raise refused("another client sent input to the process at the same time")
                offset = answer.offset
                if offset == begin + len(data) and not (close and answer.open):
                    break
                if not answer.open:
                    raise refused("the process has closed its standard input")
            self._offset = offset


def now(processes: ProcessService, run_id: str, process_id: str) -> v1.Process:
    """A process as it is."""
    request = v1.WaitProcessRequest(run_id=run_id, process_id=process_id, timeout=AT_ONCE)
    return (processes.wait_process(request)).process


def refused(message: str) -> PreconditionFailed:
    return PreconditionFailed(message, reason="PRECONDITION_FAILED")


class Stdins:
    """Those that somebody has a handle of: all handles of a process share one."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[str, Stdin] = WeakValueDictionary()
        self._finding = threading.Lock()

    def of(self, process_id: str) -> Stdin:
        with self._finding:
            return self._known.setdefault(process_id, Stdin())
