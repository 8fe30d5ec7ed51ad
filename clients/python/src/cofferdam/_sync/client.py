# Generated from the asynchronous half by tools/unasync.py: change that half.
"""A connection, and the whole API on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from typing_extensions import Self

from cofferdam._options import Options
from cofferdam._settings import settings
from cofferdam._sync import rpc
from cofferdam._sync.forks import Forks, compare, fork
from cofferdam._sync.stdin import Stdins
from cofferdam._sync.transport import Transport
from cofferdam.types import Comparison, Limits, Tls

if TYPE_CHECKING:
    from cofferdam._sync.sandbox import Sandbox


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
        tls: str | Path | Tls | None = None,
        server_name: str | None = None,
        request_timeout: float = 60.0,
        reconnect_timeout: float = 30.0,
    ) -> None:
        """Connects with the first call.

        `endpoint`: such as `unix:/run/cofferdam/cofferd.sock`, `https://cofferd.example.org:7443`, or on this host
        `http://127.0.0.1:7443`; default: `COFFERDAM_ENDPOINT`, else this path.
        `token`: default: `COFFERDAM_TOKEN`, else none: then the daemon goes by the client's certificate, or on a socket by
        the user of this process.
        `tls`: for https: a directory with ca.pem, cert.pem and key.pem, as `coffer tls init` makes one for each client
        (without the last two: for a client with a token), or `Tls(…)`; default: `COFFERDAM_TLS`.
        `server_name`: the name in the daemon's certificate; default: the host of `endpoint`.
        `request_timeout`: seconds for one answer, where no command and no person is waited for.
        `reconnect_timeout`: seconds for which a daemon that went away is waited for. 0: it is not.

        Raises `InvalidArgument` for an endpoint or token that cannot be one, and for files that cannot be read.
        """
        self._transport = Transport(settings(endpoint, token, tls, request_timeout, reconnect_timeout, server_name))
        self._stdins = Stdins()
        self.alerts = rpc.AlertService(self._transport)
        self.approvals = rpc.ApprovalService(self._transport)
        self.audit = rpc.AuditService(self._transport)
        self.egress = rpc.EgressService(self._transport)
        self.files = rpc.FileService(self._transport)
        self.forward = rpc.ForwardService(self._transport)
        self.host = rpc.HostService(self._transport)
        self.images = rpc.ImageService(self._transport)
        self.limits = rpc.LimitService(self._transport)
        self.permissions = rpc.PermissionService(self._transport)
        self.policy = rpc.PolicyService(self._transport)
        self.processes = rpc.ProcessService(self._transport)
        self.runs = rpc.RunService(self._transport)
        self.sessions = rpc.SessionService(self._transport)
        self.terminals = rpc.TerminalService(self._transport)
        self.tokens = rpc.TokenService(self._transport)
        self.tools = rpc.ToolService(self._transport)
        self.bases = rpc.BaseService(self._transport)
        self.checkpoints = rpc.CheckpointService(self._transport)
        self.trash = rpc.TrashService(self._transport)
        self.usage = rpc.UsageService(self._transport)
        self.backups = rpc.BackupService(self._transport)
        self.console = rpc.ConsoleService(self._transport)
        self.daemon = rpc.DaemonService(self._transport)
        self.node = rpc.NodeService(self._transport)
        self.passkeys = rpc.PasskeyService(self._transport)
        self.push = rpc.PushService(self._transport)

    @property
    def endpoint(self) -> str:
        """Where the daemon is."""
        return self._transport.settings.endpoint

    def fork(
        self,
        checkpoint: str,
        count: int,
        *,
        env: Mapping[str, str] | None = None,
        secret_env: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        timeout: float | None = None,
        lease: float | None = None,
        keep_alive: bool = False,
        issue_tokens: bool = False,
    ) -> Forks:
        """Makes sandboxes that begin with the files of a checkpoint, under the profile of its run; see `Sandbox.fork`.

        Its run may have ended, but not been deleted: the checkpoint ends with it. Raises `NotFound`.
        """
        return fork(
            self,
            checkpoint,
            count,
            env=env,
            secret_env=secret_env,
            metadata=metadata,
            limits=limits,
            timeout=timeout,
            lease=lease,
            keep_alive=keep_alive,
            issue_tokens=issue_tokens,
            options=Options(),
        )

    def compare(
        self,
        runs: Sequence[Sandbox | str],
        check: str | Sequence[str] | None = None,
        *,
        timeout: float | None = None,
    ) -> Comparison:
        """What runs have changed and took for it, and the outcome of a check in each, in the order of `runs`.

        `runs`: 2 to 100 sandboxes, or their ids, each on an `Overlay` or a `Base`, or a fork.
        `check`: a command as in `commands.run`, in all of them at once, when the changes were compared. It goes through
        policy and is on record; what it writes stays. None of its outcomes is an error, also if it is ended early.
        `timeout`: seconds for it in each; default: the profile's.

        Raises `NotFound`, `InvalidArgument`, and what policy says to the check, such as `CommandNotAllowed`.
        """
        return compare(self, runs, check, timeout=timeout)

    def close(self) -> None:
        """Closes the connection. A later call opens another one."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
