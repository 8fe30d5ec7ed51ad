"""Leases of sandboxes whose owner may die: the daemon ends a sandbox whose lease is not renewed."""

import time

from cofferdam import AsyncSandbox

# Seconds, for frameworks that give a sandbox one owner. Their programs can give another lease, or none.
LEASE = 60.0


async def renew(sandbox: AsyncSandbox) -> None:
    """Renews the lease of a sandbox that its owner has taken over, if it has one, until `kill`, `stop` or `close`."""
    lease = (await sandbox.info()).lease
    if lease is not None:
        begun = time.monotonic()
        await sandbox.keep_alive()
        sandbox._keeping.begin(sandbox._client, sandbox.run_id, lease, since=begun)
