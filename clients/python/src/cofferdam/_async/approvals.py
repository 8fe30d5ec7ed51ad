"""`sandbox.approvals`."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Literal, TypeAlias

from cofferdam import _results, v1
from cofferdam._async.caller import Caller
from cofferdam.errors import DaemonUnreachable, NoConnection
from cofferdam.types import ApprovalInfo

State: TypeAlias = Literal["pending", "approved", "denied", "expired", "cancelled"]


class Approvals:
    """Calls of this sandbox that need a person's consent, and the decisions on them.

    To decide takes the API role `approver`, and nobody decides on their own calls unless the daemon's configuration has
    `approvals.allow_self_approval`: otherwise `Denied`.
    """

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._rpc = caller.client.approvals

    async def list(self, state: State | None = "pending") -> tuple[ApprovalInfo, ...]:
        """Those in this state, oldest first; None: all."""
        request = v1.ListApprovalsRequest(run_id=self._caller.run_id)
        if state is not None:
            request.state = v1.Approval.State.Value(state.upper())
        return tuple(_results.approval(one) for one in (await self._rpc.list_approvals(request)).approvals)

    async def get(self, approval_id: str) -> ApprovalInfo:
        """One of them. Raises `NotFound`."""
        request = v1.GetApprovalRequest(approval_id=approval_id)
        return _results.approval((await self._rpc.get_approval(request)).approval)

    async def approve(self, approval_id: str, *, comment: str = "") -> ApprovalInfo:
        """Consents: the call runs by itself then. It is still `pending` where more approvers have to consent."""
        return await self._decide(approval_id, v1.DecideApprovalRequest.Decision.APPROVE, comment)

    async def deny(self, approval_id: str, *, comment: str = "") -> ApprovalInfo:
        """Refuses; the agent is told the comment."""
        return await self._decide(approval_id, v1.DecideApprovalRequest.Decision.DENY, comment)

    async def watch(self) -> AsyncGenerator[ApprovalInfo, None]:
        """The pending ones, then each change, without end. After a lost connection the pending ones come again."""
        transport = self._caller.client._transport
        patience = transport.patience()
        request = v1.WatchApprovalsRequest(run_id=self._caller.run_id)
        while True:
            try:
                async with aclosing(self._rpc.watch_approvals(request)) as changes:
                    async for change in changes:
                        patience.restore()
                        yield _results.approval(change.approval)
                raise DaemonUnreachable("the daemon ended the stream")
            except NoConnection as error:
                pause = patience.pause() if transport.is_lost(error) else None
                if pause is None:
                    raise transport.lost(error, request, retry_safe=True) from None
                await transport.reconnect(pause)

    async def _decide(
        self, approval_id: str, decision: v1.DecideApprovalRequest.Decision.ValueType, comment: str
    ) -> ApprovalInfo:
        request = v1.DecideApprovalRequest(approval_id=approval_id, decision=decision, comment=comment)
        return _results.approval((await self._rpc.decide_approval(request)).approval)
