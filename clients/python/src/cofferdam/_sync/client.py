# Generated from the asynchronous half by tools/unasync.py: change that half.
"""A connection, and the whole API on it."""

from __future__ import annotations

from types import TracebackType

from typing_extensions import Self

from cofferdam._settings import settings
from cofferdam._sync import rpc
from cofferdam._sync.transport import Transport


class Client:
    """The API of one daemon, method by method, with the messages of `cofferdam.v1`.

    `Sandbox` is made of it. Every method takes its request and `timeout` (seconds; default: the client's
    `request_timeout`, and none for streams), and raises the errors of `cofferdam.errors`.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        token: str | None = None,
        *,
        request_timeout: float = 60.0,
        reconnect_timeout: float = 30.0,
    ) -> None:
        """Connects with the first call.

        `endpoint`: such as `unix:/run/cofferdam/cofferd.sock`; default: `COFFERDAM_ENDPOINT`, else this path.
        `token`: default: `COFFERDAM_TOKEN`, else none: then the daemon goes by the user of this process.
        `request_timeout`: seconds for one answer, where no command and no person is waited for.
        `reconnect_timeout`: seconds for which a daemon that went away is waited for. 0: it is not.

        Raises `InvalidArgument` for an endpoint or token that cannot be one.
        """
        self._transport = Transport(settings(endpoint, token, request_timeout, reconnect_timeout))
        self.alerts = rpc.AlertService(self._transport)
        self.approvals = rpc.ApprovalService(self._transport)
        self.audit = rpc.AuditService(self._transport)
        self.host = rpc.HostService(self._transport)
        self.limits = rpc.LimitService(self._transport)
        self.permissions = rpc.PermissionService(self._transport)
        self.policy = rpc.PolicyService(self._transport)
        self.processes = rpc.ProcessService(self._transport)
        self.runs = rpc.RunService(self._transport)
        self.tokens = rpc.TokenService(self._transport)
        self.tools = rpc.ToolService(self._transport)
        self.trash = rpc.TrashService(self._transport)

    @property
    def endpoint(self) -> str:
        """Where the daemon is."""
        return self._transport.settings.endpoint

    def close(self) -> None:
        """Closes the connection. A later call opens another one."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
