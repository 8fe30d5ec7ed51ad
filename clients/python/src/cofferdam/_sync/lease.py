# Generated from the asynchronous half by tools/unasync.py: change that half.
"""The lease of a run, renewed as long as its sandbox object wants it."""

import time

from cofferdam import v1
from cofferdam._status import may_pass
from cofferdam._sync.client import Client
from cofferdam._sync.transport import Background, Lock, sleep
from cofferdam.errors import CofferdamError

# Renewals in a lease: two may be late or lost.
RENEWALS = 3
# Seconds for one of them.
TIMEOUT = 10.0


class Keeping:
    """The renewing, if there is any: one for all objects of a sandbox."""

    def __init__(self) -> None:
        self._work: Background | None = None
        #: Ends of the sandbox take turns: the first one closes the connection, and the next opens another.
        self.turn = Lock()

    def begin(self, client: Client, run_id: str, lease: float, *, since: float | None) -> None:
        """Renews the lease for the first time when a third of it may be over.

        `since`: a moment of `time.monotonic` before which the lease did not begin, such as when the run was asked for.
        None: it may have begun long ago, as that of a run that was found.
        """
        first = 0.0 if since is None else max(0.0, since + lease / RENEWALS - time.monotonic())
        self._work = client._transport.background(lambda: keep(client, run_id, lease, first))

    @property
    def goes_on(self) -> bool:
        """Whether it is being renewed."""
        return self._work is not None

    def end(self) -> None:
        work, self._work = self._work, None
        if work is not None:
            work.end()


def keep(client: Client, run_id: str, lease: float, first: float) -> None:
    """Renews it, at first after so many seconds, until the run has ended.

    A daemon that comes back gives the run one lease to be renewed in.
    """
    sleep(first)
    while True:
        try:
            client.runs.keep_alive_run(v1.KeepAliveRunRequest(run_id=run_id), timeout=TIMEOUT)
        except CofferdamError as error:
            if not may_pass(error):
                return
        sleep(lease / RENEWALS)
