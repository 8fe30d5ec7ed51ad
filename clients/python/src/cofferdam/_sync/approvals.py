# Generated from the asynchronous half by tools/unasync.py: change that half.
"""`sandbox.approvals`."""

from collections.abc import Generator
from contextlib import closing
from typing import Literal, TypeAlias

from cofferdam import _results, v1
from cofferdam._sync.caller import Caller
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

    def list(self, state: State | None = "pending") -> tuple[ApprovalInfo, ...]:
        """Those in this state, oldest first; None: all."""
        request = v1.ListApprovalsRequest(run_id=self._caller.run_id)
        if state is not None:
            request.state = v1.Approval.State.Value(state.upper())
        return tuple(_results.approval(one) for one in (self._rpc.list_approvals(request)).approvals)

    def get(self, approval_id: str) -> ApprovalInfo:
        """One of them. Raises `NotFound`."""
        request = v1.GetApprovalRequest(approval_id=approval_id)
        return _results.approval((self._rpc.get_approval(request)).approval)

    def approve(self, approval_id: str, *, comment: str = "") -> ApprovalInfo:
        """Consents: the call runs by itself then. It is still `pending` where more approvers have to consent."""
        return self._decide(approval_id, v1.DecideApprovalRequest.Decision.APPROVE, comment)

    def deny(self, approval_id: str, *, comment: str = "") -> ApprovalInfo:
        """Refuses; the agent is told the comment."""
        return self._decide(approval_id, v1.DecideApprovalRequest.Decision.DENY, comment)

    def watch(self) -> Generator[ApprovalInfo, None]:
        """The pending ones, then each change, without end. After a lost connection the pending ones come again."""
        transport = self._caller.client._transport
        patience = transport.patience()
        request = v1.WatchApprovalsRequest(run_id=self._caller.run_id)
        while True:
            try:
                with closing(self._rpc.watch_approvals(request)) as changes:
                    for change in changes:
                        patience.restore()
                        yield _results.approval(change.approval)
                raise DaemonUnreachable("the daemon ended the stream")
            except NoConnection as error:
                pause = patience.pause() if transport.is_lost(error) else None
                if pause is None:
                    raise transport.lost(error, request, retry_safe=True) from None
                transport.reconnect(pause)

    def _decide(self, approval_id: str, decision: v1.DecideApprovalRequest.Decision.ValueType, comment: str) -> ApprovalInfo:
        request = v1.DecideApprovalRequest(approval_id=approval_id, decision=decision, comment=comment)
        return _results.approval((self._rpc.decide_approval(request)).approval)
