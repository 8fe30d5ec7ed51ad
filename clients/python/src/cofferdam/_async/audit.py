"""`sandbox.audit`."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from cofferdam import _results, v1
from cofferdam._async.caller import Caller
from cofferdam.errors import DaemonUnreachable, NoConnection, Unavailable
from cofferdam.types import AuditEvent


class Audit:
    """The audit log's records of this sandbox. Takes the API role `operator` or `auditor`, or runs of one's own."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def stream(
        self, *, after: int = 0, follow: bool = True, kinds: Sequence[str] = ()
    ) -> AsyncGenerator[AuditEvent, None]:
        """Records in the order of the log, none left out and none twice, also across a lost connection or daemon.

        `after`: only those after this sequence number. `follow`: go on with new ones instead of ending. `kinds`: only of
        these, such as `call_receipt`; at most 32.
        """
        client = self._caller.client
        patience = client._transport.patience()
        request = v1.StreamEventsRequest(
            after_sequence=after, follow=follow, filter=v1.EventFilter(run_id=self._caller.run_id, kinds=kinds)
        )
        while True:
            try:
                async with aclosing(client.audit.stream_events(request)) as events:
                    async for event in events:
                        patience.restore()
                        request.after_sequence = event.event.sequence
                        yield _results.event(event.event)
                if not follow:
                    return
                raise DaemonUnreachable("the daemon ended the stream")
            except (NoConnection, Unavailable) as error:
                # A daemon that stops says so, and comes back.
                is_lost = client._transport.is_lost(error) or error.reason == "DAEMON_STOPPING"
                pause = patience.pause() if is_lost else None
                if pause is None:
                    raise client._transport.lost(error, request, retry_safe=True) from None
                await client._transport.reconnect(pause)
