"""The lease of a run, renewed while its sandbox object lives."""

from cofferdam import v1
from cofferdam._async.client import AsyncClient
from cofferdam._async.transport import sleep
from cofferdam.errors import CofferdamError, DaemonUnreachable

# Renewals in a lease: two may be late or lost.
RENEWALS = 3
# Seconds for one of them.
TIMEOUT = 10.0


async def keep(client: AsyncClient, run_id: str, lease: float) -> None:
    """Renews it until the run has ended. A daemon that comes back gives the run one lease to be renewed in."""
    while True:
        await sleep(lease / RENEWALS)
        try:
            await client.runs.keep_alive_run(v1.KeepAliveRunRequest(run_id=run_id), timeout=TIMEOUT)
        except DaemonUnreachable:
            continue
        except CofferdamError:
            return
