# Generated from the asynchronous half by tools/unasync.py: change that half.
"""The whole API, one class for each service. Generated from `proto/`; see `generate.sh`."""

from collections.abc import Generator, Iterable

from cofferdam import v1
from cofferdam._method import Method
from cofferdam._sync.transport import Transport

_ALERT_SERVICE_LIST_ALERTS = Method(
    "/cofferdam.v1.AlertService/ListAlerts", v1.ListAlertsRequest, v1.ListAlertsResponse, True
)
_ALERT_SERVICE_GET_ALERT = Method("/cofferdam.v1.AlertService/GetAlert", v1.GetAlertRequest, v1.GetAlertResponse, True)
_ALERT_SERVICE_WATCH_ALERTS = Method(
    "/cofferdam.v1.AlertService/WatchAlerts", v1.WatchAlertsRequest, v1.WatchAlertsResponse, True
)
_ALERT_SERVICE_ACKNOWLEDGE_ALERT = Method(
    "/cofferdam.v1.AlertService/AcknowledgeAlert", v1.AcknowledgeAlertRequest, v1.AcknowledgeAlertResponse, False
)


class AlertService:
    """Lists, watches and acknowledges alerts."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list_alerts(self, request: v1.ListAlertsRequest, *, timeout: float | None = None) -> v1.ListAlertsResponse:
        """Alerts, newest first. Orchestrators see only alerts about their calls."""
        return self._transport.unary(
            _ALERT_SERVICE_LIST_ALERTS,
            request,
            timeout,
        )

    def get_alert(self, request: v1.GetAlertRequest, *, timeout: float | None = None) -> v1.GetAlertResponse:
        """One alert."""
        return self._transport.unary(
            _ALERT_SERVICE_GET_ALERT,
            request,
            timeout,
        )

    def watch_alerts(
        self, request: v1.WatchAlertsRequest, *, timeout: float | None = None
    ) -> Generator[v1.WatchAlertsResponse, None]:
        """The open alerts, then each that is new or changes."""
        return self._transport.stream(
            _ALERT_SERVICE_WATCH_ALERTS,
            request,
            timeout,
        )

    def acknowledge_alert(
        self, request: v1.AcknowledgeAlertRequest, *, timeout: float | None = None
    ) -> v1.AcknowledgeAlertResponse:
        """Acknowledges an alert. Its measure is lifted, except a stop, and the rule counts from zero for its
        subject.
        """
        return self._transport.unary(
            _ALERT_SERVICE_ACKNOWLEDGE_ALERT,
            request,
            timeout,
        )


_APPROVAL_SERVICE_LIST_APPROVALS = Method(
    "/cofferdam.v1.ApprovalService/ListApprovals", v1.ListApprovalsRequest, v1.ListApprovalsResponse, True
)
_APPROVAL_SERVICE_GET_APPROVAL = Method(
    "/cofferdam.v1.ApprovalService/GetApproval", v1.GetApprovalRequest, v1.GetApprovalResponse, True
)
_APPROVAL_SERVICE_DECIDE_APPROVAL = Method(
    "/cofferdam.v1.ApprovalService/DecideApproval", v1.DecideApprovalRequest, v1.DecideApprovalResponse, False
)
_APPROVAL_SERVICE_WATCH_APPROVALS = Method(
    "/cofferdam.v1.ApprovalService/WatchApprovals", v1.WatchApprovalsRequest, v1.WatchApprovalsResponse, True
)
_APPROVAL_SERVICE_LIST_CONSENTS = Method(
    "/cofferdam.v1.ApprovalService/ListConsents", v1.ListConsentsRequest, v1.ListConsentsResponse, True
)
_APPROVAL_SERVICE_REVOKE_CONSENT = Method(
    "/cofferdam.v1.ApprovalService/RevokeConsent", v1.RevokeConsentRequest, v1.RevokeConsentResponse, False
)


class ApprovalService:
    """Lists calls, connections and pushes that wait for consent, and records decisions."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list_approvals(self, request: v1.ListApprovalsRequest, *, timeout: float | None = None) -> v1.ListApprovalsResponse:
        """Approvals, oldest first."""
        return self._transport.unary(
            _APPROVAL_SERVICE_LIST_APPROVALS,
            request,
            timeout,
        )

    def get_approval(self, request: v1.GetApprovalRequest, *, timeout: float | None = None) -> v1.GetApprovalResponse:
        """One approval."""
        return self._transport.unary(
            _APPROVAL_SERVICE_GET_APPROVAL,
            request,
            timeout,
        )

    def decide_approval(
        self, request: v1.DecideApprovalRequest, *, timeout: float | None = None
    ) -> v1.DecideApprovalResponse:
        """Approves or denies. A denial settles an approval at once. Consent settles it when enough approvers have
        given it. Then the daemon executes the call once.
        """
        return self._transport.unary(
            _APPROVAL_SERVICE_DECIDE_APPROVAL,
            request,
            timeout,
        )

    def watch_approvals(
        self, request: v1.WatchApprovalsRequest, *, timeout: float | None = None
    ) -> Generator[v1.WatchApprovalsResponse, None]:
        """Streams the pending approvals, then each change."""
        return self._transport.stream(
            _APPROVAL_SERVICE_WATCH_APPROVALS,
            request,
            timeout,
        )

    def list_consents(self, request: v1.ListConsentsRequest, *, timeout: float | None = None) -> v1.ListConsentsResponse:
        """Consents that are remembered beyond their call, oldest first."""
        return self._transport.unary(
            _APPROVAL_SERVICE_LIST_CONSENTS,
            request,
            timeout,
        )

    def revoke_consent(self, request: v1.RevokeConsentRequest, *, timeout: float | None = None) -> v1.RevokeConsentResponse:
        """Revokes a remembered consent: reviewers are asked again."""
        return self._transport.unary(
            _APPROVAL_SERVICE_REVOKE_CONSENT,
            request,
            timeout,
        )


_AUDIT_SERVICE_STREAM_EVENTS = Method(
    "/cofferdam.v1.AuditService/StreamEvents", v1.StreamEventsRequest, v1.StreamEventsResponse, True
)
_AUDIT_SERVICE_QUERY_EVENTS = Method(
    "/cofferdam.v1.AuditService/QueryEvents", v1.QueryEventsRequest, v1.QueryEventsResponse, True
)
_AUDIT_SERVICE_REBUILD_INDEX = Method(
    "/cofferdam.v1.AuditService/RebuildIndex", v1.RebuildIndexRequest, v1.RebuildIndexResponse, False
)
_AUDIT_SERVICE_VERIFY_LOG = Method("/cofferdam.v1.AuditService/VerifyLog", v1.VerifyLogRequest, v1.VerifyLogResponse, True)
_AUDIT_SERVICE_GET_CHECKPOINT = Method(
    "/cofferdam.v1.AuditService/GetCheckpoint", v1.GetCheckpointRequest, v1.GetCheckpointResponse, True
)
_AUDIT_SERVICE_ROTATE_KEY = Method("/cofferdam.v1.AuditService/RotateKey", v1.RotateKeyRequest, v1.RotateKeyResponse, False)
_AUDIT_SERVICE_CREATE_BUNDLE = Method(
    "/cofferdam.v1.AuditService/CreateBundle", v1.CreateBundleRequest, v1.CreateBundleResponse, False
)


class AuditService:
    """Reads and verifies the audit log."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def stream_events(
        self, request: v1.StreamEventsRequest, *, timeout: float | None = None
    ) -> Generator[v1.StreamEventsResponse, None]:
        """Replays the durable log after a sequence number, then follows it. Each event is sent exactly once."""
        return self._transport.stream(
            _AUDIT_SERVICE_STREAM_EVENTS,
            request,
            timeout,
        )

    def query_events(self, request: v1.QueryEventsRequest, *, timeout: float | None = None) -> v1.QueryEventsResponse:
        """Searches records in an index, and returns them in pages."""
        return self._transport.unary(
            _AUDIT_SERVICE_QUERY_EVENTS,
            request,
            timeout,
        )

    def rebuild_index(
        self, request: v1.RebuildIndexRequest, *, timeout: float | None = None
    ) -> Generator[v1.RebuildIndexResponse, None]:
        """Rebuilds the index from the log, and reports the progress. Queries are refused meanwhile."""
        return self._transport.stream(
            _AUDIT_SERVICE_REBUILD_INDEX,
            request,
            timeout,
        )

    def verify_log(self, request: v1.VerifyLogRequest, *, timeout: float | None = None) -> v1.VerifyLogResponse:
        """Verifies the whole log on disk: the chain, and every checkpoint."""
        return self._transport.unary(
            _AUDIT_SERVICE_VERIFY_LOG,
            request,
            timeout,
        )

    def get_checkpoint(self, request: v1.GetCheckpointRequest, *, timeout: float | None = None) -> v1.GetCheckpointResponse:
        """Signs a checkpoint of all records up to now, and returns it. If no record is new, it returns the last
        checkpoint.
        """
        return self._transport.unary(
            _AUDIT_SERVICE_GET_CHECKPOINT,
            request,
            timeout,
        )

    def rotate_key(self, request: v1.RotateKeyRequest, *, timeout: float | None = None) -> v1.RotateKeyResponse:
        """Replaces the signing key. The change is on record and signed by the old key. For operators."""
        return self._transport.unary(
            _AUDIT_SERVICE_ROTATE_KEY,
            request,
            timeout,
        )

    def create_bundle(
        self, request: v1.CreateBundleRequest, *, timeout: float | None = None
    ) -> Generator[v1.CreateBundleResponse, None]:
        """Makes a bundle of one run: its records, policies and changes, with the proof that they are in the log. It
        can be verified on any host. The bundle is on record. Operators and auditors may make one of any run, and
        other principals one of a run that they made.
        """
        return self._transport.stream(
            _AUDIT_SERVICE_CREATE_BUNDLE,
            request,
            timeout,
        )


_BACKUP_SERVICE_CREATE_BACKUP = Method(
    "/cofferdam.v1.BackupService/CreateBackup", v1.CreateBackupRequest, v1.CreateBackupResponse, False
)


class BackupService:
    """Makes backups while the daemon works. `coffer backup restore` reads them, offline."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create_backup(
        self, request: v1.CreateBackupRequest, *, timeout: float | None = None
    ) -> Generator[v1.CreateBackupResponse, None]:
        """Makes a backup and sends it. It holds the keys of the daemon, so only operators get one, in person: on
        the Unix socket or with a certificate. Two records of the log frame it. Calls go on meanwhile, and the rate
        is bounded. Fails with OVERLOADED while another backup is being made, or if the state disk has no space for
        the copy of the store. The stream ends without `made` if the daemon stops: the backup is not whole then.
        """
        return self._transport.stream(
            _BACKUP_SERVICE_CREATE_BACKUP,
            request,
            timeout,
        )


_BASE_SERVICE_CREATE_BASE = Method(
    "/cofferdam.v1.BaseService/CreateBase", v1.CreateBaseRequest, v1.CreateBaseResponse, False
)
_BASE_SERVICE_LIST_BASES = Method("/cofferdam.v1.BaseService/ListBases", v1.ListBasesRequest, v1.ListBasesResponse, True)
_BASE_SERVICE_GET_BASE = Method("/cofferdam.v1.BaseService/GetBase", v1.GetBaseRequest, v1.GetBaseResponse, True)
_BASE_SERVICE_VERIFY_BASE = Method("/cofferdam.v1.BaseService/VerifyBase", v1.VerifyBaseRequest, v1.VerifyBaseResponse, True)
_BASE_SERVICE_EXPORT_BASE = Method(
    "/cofferdam.v1.BaseService/ExportBase", v1.ExportBaseRequest, v1.ExportBaseResponse, False
)
_BASE_SERVICE_IMPORT_BASE = Method(
    "/cofferdam.v1.BaseService/ImportBase", v1.ImportBaseRequest, v1.ImportBaseResponse, False
)
_BASE_SERVICE_DELETE_BASE = Method(
    "/cofferdam.v1.BaseService/DeleteBase", v1.DeleteBaseRequest, v1.DeleteBaseResponse, False
)


class BaseService:
    """Makes, shows, verifies and deletes bases. A run with `workspace.base` has an overlay on a base: its changes
    are its own, and no file of the base is copied for it. A base belongs to the principal that made it, and other
    principals but operators cannot use it.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create_base(self, request: v1.CreateBaseRequest, *, timeout: float | None = None) -> v1.CreateBaseResponse:
        """Makes a base and answers when it is complete and durable. If it fails or the daemon dies, no part of it
        is left. Unused bases may be deleted for it, the least recently used first, to stay within `bases` of the
        daemon's configuration. Needs a daemon that runs as root.
        """
        return self._transport.unary(
            _BASE_SERVICE_CREATE_BASE,
            request,
            timeout,
        )

    def list_bases(self, request: v1.ListBasesRequest, *, timeout: float | None = None) -> v1.ListBasesResponse:
        """The bases that the caller may use, newest first."""
        return self._transport.unary(
            _BASE_SERVICE_LIST_BASES,
            request,
            timeout,
        )

    def get_base(self, request: v1.GetBaseRequest, *, timeout: float | None = None) -> v1.GetBaseResponse:
        """One base."""
        return self._transport.unary(
            _BASE_SERVICE_GET_BASE,
            request,
            timeout,
        )

    def verify_base(self, request: v1.VerifyBaseRequest, *, timeout: float | None = None) -> v1.VerifyBaseResponse:
        """Computes the digest of a base's files anew, which reads all of them, and compares it with the recorded
        one. If it differs, the change goes on record, and no run begins on the base until its files are as they
        were.
        """
        return self._transport.unary(
            _BASE_SERVICE_VERIFY_BASE,
            request,
            timeout,
        )

    def export_base(
        self, request: v1.ExportBaseRequest, *, timeout: float | None = None
    ) -> Generator[v1.ExportBaseResponse, None]:
        """Sends the files of a base, for ImportBase of another daemon. For operators in person: on the Unix socket
        or with a certificate. Two records of the log frame it. It ends with an error if the files are not those of
        the recorded digest.
        """
        return self._transport.stream(
            _BASE_SERVICE_EXPORT_BASE,
            request,
            timeout,
        )

    def import_base(
        self, requests: Iterable[v1.ImportBaseRequest], *, timeout: float | None = None
    ) -> v1.ImportBaseResponse:
        """Makes a base of files that ExportBase of another daemon sends: first a header, then the files in pieces.
        For operators in person. The base belongs to the caller. If the files have another digest than the header
        says, or are not complete, no part of them is left. Limits and records are those of CreateBase.
        """
        return self._transport.client_stream(
            _BASE_SERVICE_IMPORT_BASE,
            requests,
            timeout,
        )

    def delete_base(self, request: v1.DeleteBaseRequest, *, timeout: float | None = None) -> v1.DeleteBaseResponse:
        """Deletes a base. Fails with PRECONDITION_FAILED while a run needs it: one that lives, or one that has
        ended and whose changes were not discarded.
        """
        return self._transport.unary(
            _BASE_SERVICE_DELETE_BASE,
            request,
            timeout,
        )


_CONSOLE_SERVICE_CREATE_CONSOLE_LINK = Method(
    "/cofferdam.v1.ConsoleService/CreateConsoleLink", v1.CreateConsoleLinkRequest, v1.CreateConsoleLinkResponse, False
)
_CONSOLE_SERVICE_GET_VIEWER = Method(
    "/cofferdam.v1.ConsoleService/GetViewer", v1.GetViewerRequest, v1.GetViewerResponse, True
)


class ConsoleService:
    """Signs people in to the web console."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create_console_link(
        self, request: v1.CreateConsoleLinkRequest, *, timeout: float | None = None
    ) -> v1.CreateConsoleLinkResponse:
        """Makes a link that signs in to the console once, as the principal of this request and with its credential.
        What the session can do is what the credential opens, and it ends with the credential.
        """
        return self._transport.unary(
            _CONSOLE_SERVICE_CREATE_CONSOLE_LINK,
            request,
            timeout,
        )

    def get_viewer(self, request: v1.GetViewerRequest, *, timeout: float | None = None) -> v1.GetViewerResponse:
        """Returns the principal of this request and its roles."""
        return self._transport.unary(
            _CONSOLE_SERVICE_GET_VIEWER,
            request,
            timeout,
        )


_DAEMON_SERVICE_GET_DAEMON_STATUS = Method(
    "/cofferdam.v1.DaemonService/GetDaemonStatus", v1.GetDaemonStatusRequest, v1.GetDaemonStatusResponse, True
)
_DAEMON_SERVICE_RELOAD_DAEMON = Method(
    "/cofferdam.v1.DaemonService/ReloadDaemon", v1.ReloadDaemonRequest, v1.ReloadDaemonResponse, False
)
_DAEMON_SERVICE_SET_LOG_LEVEL = Method(
    "/cofferdam.v1.DaemonService/SetLogLevel", v1.SetLogLevelRequest, v1.SetLogLevelResponse, False
)


class DaemonService:
    """Shows the state of the daemon, reloads its configuration and policy, and sets the level of its log."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get_daemon_status(
        self, request: v1.GetDaemonStatusRequest, *, timeout: float | None = None
    ) -> v1.GetDaemonStatusResponse:
        """Returns whether the daemon is ready, and the configuration in force."""
        return self._transport.unary(
            _DAEMON_SERVICE_GET_DAEMON_STATUS,
            request,
            timeout,
        )

    def reload_daemon(self, request: v1.ReloadDaemonRequest, *, timeout: float | None = None) -> v1.ReloadDaemonResponse:
        """Reads the configuration and the policy again, as on SIGHUP. If any part is invalid, nothing changes, and
        the error has every problem with its line. Recorded before it takes effect. Fails with OVERLOADED while too
        many others wait.
        """
        return self._transport.unary(
            _DAEMON_SERVICE_RELOAD_DAEMON,
            request,
            timeout,
        )

    def set_log_level(self, request: v1.SetLogLevelRequest, *, timeout: float | None = None) -> v1.SetLogLevelResponse:
        """Sets the level of the daemon's log until the next reload or start. Recorded before it takes effect."""
        return self._transport.unary(
            _DAEMON_SERVICE_SET_LOG_LEVEL,
            request,
            timeout,
        )


_EGRESS_SERVICE_GET_EGRESS = Method("/cofferdam.v1.EgressService/GetEgress", v1.GetEgressRequest, v1.GetEgressResponse, True)
_EGRESS_SERVICE_WATCH_CONNECTIONS = Method(
    "/cofferdam.v1.EgressService/WatchConnections", v1.WatchConnectionsRequest, v1.WatchConnectionsResponse, True
)
_EGRESS_SERVICE_NARROW_EGRESS = Method(
    "/cofferdam.v1.EgressService/NarrowEgress", v1.NarrowEgressRequest, v1.NarrowEgressResponse, True
)
_EGRESS_SERVICE_WIDEN_EGRESS = Method(
    "/cofferdam.v1.EgressService/WidenEgress", v1.WidenEgressRequest, v1.WidenEgressResponse, True
)


class EgressService:
    """Shows the connections of runs, and narrows or widens their rules."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get_egress(self, request: v1.GetEgressRequest, *, timeout: float | None = None) -> v1.GetEgressResponse:
        """The rules of a run and what it has used. Fails with PRECONDITION_FAILED if the run has no way out, and
        with RUN_NOT_READY if it has ended.
        """
        return self._transport.unary(
            _EGRESS_SERVICE_GET_EGRESS,
            request,
            timeout,
        )

    def watch_connections(
        self, request: v1.WatchConnectionsRequest, *, timeout: float | None = None
    ) -> Generator[v1.WatchConnectionsResponse, None]:
        """The connections and refused hosts of a run as they are, oldest first, and with `follow` each change after
        that until the run ends. The daemon keeps the last 512 connections that have ended and 512 refused hosts;
        the audit log has all. A follower that is too slow gets RESOURCE_EXHAUSTED.
        """
        return self._transport.stream(
            _EGRESS_SERVICE_WATCH_CONNECTIONS,
            request,
            timeout,
        )

    def narrow_egress(self, request: v1.NarrowEgressRequest, *, timeout: float | None = None) -> v1.NarrowEgressResponse:
        """Adds rules that every connection of a run has to pass beside those of its profile, for the rest of the
        run. Live connections that they do not allow end within a second. The same rules again change nothing. Fails
        with INVALID_ARGUMENT if they ask for more than the run may do.
        """
        return self._transport.unary(
            _EGRESS_SERVICE_NARROW_EGRESS,
            request,
            timeout,
        )

    def widen_egress(self, request: v1.WidenEgressRequest, *, timeout: float | None = None) -> v1.WidenEgressResponse:
        """Adds rules that allow more than the profile of a run, for the rest of the run. They answer what a rule
        asks and open what no rule has. They do not open what a rule denies, an address range that is refused, or
        what rules that narrowed the run leave out: INVALID_ARGUMENT says which. Rules that narrow the run later
        apply to them, too. The same rules again change nothing. At most 64 lists and 256 rules widen a run,
        consents to connections that are remembered included.
        """
        return self._transport.unary(
            _EGRESS_SERVICE_WIDEN_EGRESS,
            request,
            timeout,
        )


_FILE_SERVICE_UPLOAD_FILE = Method(
    "/cofferdam.v1.FileService/UploadFile", v1.UploadFileRequest, v1.UploadFileResponse, False
)
_FILE_SERVICE_DOWNLOAD_FILE = Method(
    "/cofferdam.v1.FileService/DownloadFile", v1.DownloadFileRequest, v1.DownloadFileResponse, False
)
_FILE_SERVICE_UPLOAD_ARCHIVE = Method(
    "/cofferdam.v1.FileService/UploadArchive", v1.UploadArchiveRequest, v1.UploadArchiveResponse, False
)
_FILE_SERVICE_DOWNLOAD_ARCHIVE = Method(
    "/cofferdam.v1.FileService/DownloadArchive", v1.DownloadArchiveRequest, v1.DownloadArchiveResponse, False
)
_FILE_SERVICE_GET_UPLOAD = Method("/cofferdam.v1.FileService/GetUpload", v1.GetUploadRequest, v1.GetUploadResponse, True)


class FileService:
    """Moves files and directories into a run and out of it. An upload is a `write` call and a download is a `read`
    call: permission, protected paths, approval, limits and record apply as for these. The profile's
    `bounds.max_transfer_bytes` bounds the size. The record has size and SHA-256, never the content.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def upload_file(
        self, requests: Iterable[v1.UploadFileRequest], *, timeout: float | None = None
    ) -> v1.UploadFileResponse:
        """Writes one file. Its content is kept by the daemon until all of it is there and its SHA-256 is right.
        Then the file appears whole under its name, or not at all.
        """
        return self._transport.client_stream(
            _FILE_SERVICE_UPLOAD_FILE,
            requests,
            timeout,
        )

    def download_file(
        self, request: v1.DownloadFileRequest, *, timeout: float | None = None
    ) -> Generator[v1.DownloadFileResponse, None]:
        """Reads one file, from any byte on."""
        return self._transport.stream(
            _FILE_SERVICE_DOWNLOAD_FILE,
            request,
            timeout,
        )

    def upload_archive(
        self, requests: Iterable[v1.UploadArchiveRequest], *, timeout: float | None = None
    ) -> v1.UploadArchiveResponse:
        """Unpacks a tar archive beneath a directory. Every member is examined before the first is unpacked. Each
        file appears whole or not at all.
        """
        return self._transport.client_stream(
            _FILE_SERVICE_UPLOAD_ARCHIVE,
            requests,
            timeout,
        )

    def download_archive(
        self, request: v1.DownloadArchiveRequest, *, timeout: float | None = None
    ) -> Generator[v1.DownloadArchiveResponse, None]:
        """Reads a directory with all that is in it, as a tar archive."""
        return self._transport.stream(
            _FILE_SERVICE_DOWNLOAD_ARCHIVE,
            request,
            timeout,
        )

    def get_upload(self, request: v1.GetUploadRequest, *, timeout: float | None = None) -> v1.GetUploadResponse:
        """Returns how many bytes of an upload the daemon has, so that it can be resumed."""
        return self._transport.unary(
            _FILE_SERVICE_GET_UPLOAD,
            request,
            timeout,
        )


_FORWARD_SERVICE_FORWARD_PORT = Method(
    "/cofferdam.v1.ForwardService/ForwardPort", v1.ForwardPortRequest, v1.ForwardPortResponse, False
)


class ForwardService:
    """Connects clients to TCP servers in runs. The profile of the run has to say `forward: allow`. The audit log
    has the connection's beginning before its first byte, and its end with the bytes of both directions.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def forward_port(
        self, requests: Iterable[v1.ForwardPortRequest], *, timeout: float | None = None
    ) -> Generator[v1.ForwardPortResponse, None]:
        """Opens one TCP connection to a port of the run's loopback interface: 127.0.0.1, then ::1. The first
        request is `start`. The end of the requests is the end of the client's bytes; the server may send more after
        it. The connection ends when both sides have finished, and with the run, its pause, the client's stream or
        the daemon. Fails with PRECONDITION_FAILED if nothing in the run listens on the port, or if the run's
        network cannot be entered, with PERMISSION_DENIED if the policy does not allow it, and with OVERLOADED above
        64 open connections or 1,000 new ones in a minute in one run.
        """
        return self._transport.duplex(
            _FORWARD_SERVICE_FORWARD_PORT,
            requests,
            timeout,
        )


_HOST_SERVICE_EXAMINE_HOST = Method(
    "/cofferdam.v1.HostService/ExamineHost", v1.ExamineHostRequest, v1.ExamineHostResponse, True
)
_HOST_SERVICE_GET_POOL = Method("/cofferdam.v1.HostService/GetPool", v1.GetPoolRequest, v1.GetPoolResponse, True)


class HostService:
    """Examines the host on which the daemon runs."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def examine_host(self, request: v1.ExamineHostRequest, *, timeout: float | None = None) -> v1.ExamineHostResponse:
        """Examines container engine, privileges, control groups and kernel of the host anew for each request. It
        changes no setting. It also checks if the keys of token issuers can be fetched. If that check is older than
        ten seconds it is repeated, and the answer waits up to five seconds for it. Fails with OVERLOADED while
        other requests are being answered.
        """
        return self._transport.unary(
            _HOST_SERVICE_EXAMINE_HOST,
            request,
            timeout,
        )

    def get_pool(self, request: v1.GetPoolRequest, *, timeout: float | None = None) -> v1.GetPoolResponse:
        """Containers that wait for runs, without a question to the engine."""
        return self._transport.unary(
            _HOST_SERVICE_GET_POOL,
            request,
            timeout,
        )


_IMAGE_SERVICE_IMPORT_IMAGE = Method(
    "/cofferdam.v1.ImageService/ImportImage", v1.ImportImageRequest, v1.ImportImageResponse, False
)
_IMAGE_SERVICE_BUILD_IMAGE = Method(
    "/cofferdam.v1.ImageService/BuildImage", v1.BuildImageRequest, v1.BuildImageResponse, False
)
_IMAGE_SERVICE_EXPORT_IMAGE = Method(
    "/cofferdam.v1.ImageService/ExportImage", v1.ExportImageRequest, v1.ExportImageResponse, False
)
_IMAGE_SERVICE_LIST_IMAGES = Method(
    "/cofferdam.v1.ImageService/ListImages", v1.ListImagesRequest, v1.ListImagesResponse, True
)


class ImageService:
    """Imports, builds, lists and exports the engine's images. For operators."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def import_image(
        self, requests: Iterable[v1.ImportImageRequest], *, timeout: float | None = None
    ) -> v1.ImportImageResponse:
        """Makes an image from a tar: first a header, then the tar in pieces. A tar that is refused, incomplete or
        longer than `images.max_size` of the daemon's configuration is deleted.
        """
        return self._transport.client_stream(
            _IMAGE_SERVICE_IMPORT_IMAGE,
            requests,
            timeout,
        )

    def build_image(
        self, requests: Iterable[v1.BuildImageRequest], *, timeout: float | None = None
    ) -> Generator[v1.BuildImageResponse, None]:
        """Has the engine build an image from a directory with a Dockerfile: first a header, then the directory as a
        tar in pieces. Streams the output of the build, and the image at its end. The build has the network that the
        engine gives it. It ends when its time is over, when the client disconnects, or when the daemon stops.
        """
        return self._transport.duplex(
            _IMAGE_SERVICE_BUILD_IMAGE,
            requests,
            timeout,
        )

    def export_image(
        self, request: v1.ExportImageRequest, *, timeout: float | None = None
    ) -> Generator[v1.ExportImageResponse, None]:
        """Sends an image as an archive, which ImportImage of another daemon takes. For operators in person: on the
        Unix socket or with a certificate. Two records of the log frame it. A principal gets one image at a time, of
        at most `images.max_size` of the configuration. The stream is whole if it has its last message.
        """
        return self._transport.stream(
            _IMAGE_SERVICE_EXPORT_IMAGE,
            request,
            timeout,
        )

    def list_images(self, request: v1.ListImagesRequest, *, timeout: float | None = None) -> v1.ListImagesResponse:
        """The engine's images that have a name, by name."""
        return self._transport.unary(
            _IMAGE_SERVICE_LIST_IMAGES,
            request,
            timeout,
        )


_LIMIT_SERVICE_GET_RATE_LIMITS = Method(
    "/cofferdam.v1.LimitService/GetRateLimits", v1.GetRateLimitsRequest, v1.GetRateLimitsResponse, True
)
_LIMIT_SERVICE_THROTTLE_AGENT = Method(
    "/cofferdam.v1.LimitService/ThrottleAgent", v1.ThrottleAgentRequest, v1.ThrottleAgentResponse, False
)
_LIMIT_SERVICE_GET_TENANTS = Method(
    "/cofferdam.v1.LimitService/GetTenants", v1.GetTenantsRequest, v1.GetTenantsResponse, True
)


class LimitService:
    """Shows rate limits, and throttles agents."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get_rate_limits(self, request: v1.GetRateLimitsRequest, *, timeout: float | None = None) -> v1.GetRateLimitsResponse:
        """Returns the used and the remaining calls of the rate limits, for a run or an agent."""
        return self._transport.unary(
            _LIMIT_SERVICE_GET_RATE_LIMITS,
            request,
            timeout,
        )

    def throttle_agent(self, request: v1.ThrottleAgentRequest, *, timeout: float | None = None) -> v1.ThrottleAgentResponse:
        """Throttles an agent for some time, or lifts its throttle. Durable, and on record. If the agent is
        throttled already, the stricter number and the later end apply. Needs the role operator.
        """
        return self._transport.unary(
            _LIMIT_SERVICE_THROTTLE_AGENT,
            request,
            timeout,
        )

    def get_tenants(self, request: v1.GetTenantsRequest, *, timeout: float | None = None) -> v1.GetTenantsResponse:
        """Returns the use of tenants, and their bounds. Operators and auditors see all tenants, all others their
        own.
        """
        return self._transport.unary(
            _LIMIT_SERVICE_GET_TENANTS,
            request,
            timeout,
        )


_NODE_SERVICE_GET_NODE = Method("/cofferdam.v1.NodeService/GetNode", v1.GetNodeRequest, v1.GetNodeResponse, True)
_NODE_SERVICE_WATCH_NODE = Method("/cofferdam.v1.NodeService/WatchNode", v1.WatchNodeRequest, v1.WatchNodeResponse, True)
_NODE_SERVICE_DRAIN_NODE = Method("/cofferdam.v1.NodeService/DrainNode", v1.DrainNodeRequest, v1.DrainNodeResponse, True)
_NODE_SERVICE_UNDRAIN_NODE = Method(
    "/cofferdam.v1.NodeService/UndrainNode", v1.UndrainNodeRequest, v1.UndrainNodeResponse, True
)


class NodeService:
    """Shows the identity, the capacity and the use of this node, and takes it out of service."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get_node(self, request: v1.GetNodeRequest, *, timeout: float | None = None) -> v1.GetNodeResponse:
        """Returns the node as it is now."""
        return self._transport.unary(
            _NODE_SERVICE_GET_NODE,
            request,
            timeout,
        )

    def watch_node(
        self, request: v1.WatchNodeRequest, *, timeout: float | None = None
    ) -> Generator[v1.WatchNodeResponse, None]:
        """Sends the whole node, and then the whole node again after each change, at most once a second. Ends when
        the daemon stops. Fails with OVERLOADED beyond 64 watchers.
        """
        return self._transport.stream(
            _NODE_SERVICE_WATCH_NODE,
            request,
            timeout,
        )

    def drain_node(self, request: v1.DrainNodeRequest, *, timeout: float | None = None) -> v1.DrainNodeResponse:
        """Takes the node out of service: it makes no further run, and its pool is emptied. Runs that live go on, or
        are stopped after a deadline. Recorded before it takes effect, and outlives the daemon. On a node that is
        drained, the new reason and the new deadline replace those before.
        """
        return self._transport.unary(
            _NODE_SERVICE_DRAIN_NODE,
            request,
            timeout,
        )

    def undrain_node(self, request: v1.UndrainNodeRequest, *, timeout: float | None = None) -> v1.UndrainNodeResponse:
        """Puts the node into service again. Recorded before it takes effect. Runs that a deadline is stopping still
        end.
        """
        return self._transport.unary(
            _NODE_SERVICE_UNDRAIN_NODE,
            request,
            timeout,
        )


_PASSKEY_SERVICE_BEGIN_REGISTRATION = Method(
    "/cofferdam.v1.PasskeyService/BeginRegistration", v1.BeginRegistrationRequest, v1.BeginRegistrationResponse, False
)
_PASSKEY_SERVICE_FINISH_REGISTRATION = Method(
    "/cofferdam.v1.PasskeyService/FinishRegistration", v1.FinishRegistrationRequest, v1.FinishRegistrationResponse, False
)
_PASSKEY_SERVICE_LIST_PASSKEYS = Method(
    "/cofferdam.v1.PasskeyService/ListPasskeys", v1.ListPasskeysRequest, v1.ListPasskeysResponse, True
)
_PASSKEY_SERVICE_REMOVE_PASSKEY = Method(
    "/cofferdam.v1.PasskeyService/RemovePasskey", v1.RemovePasskeyRequest, v1.RemovePasskeyResponse, False
)
_PASSKEY_SERVICE_BEGIN_CONSENT = Method(
    "/cofferdam.v1.PasskeyService/BeginConsent", v1.BeginConsentRequest, v1.BeginConsentResponse, False
)


class PasskeyService:
    """Registers passkeys, and prepares decisions that are signed with one. There is one relying party: the web
    console, at its origin. On a daemon without a console, or with one that is reached by an address instead of a
    name, all methods but ListPasskeys and RemovePasskey are refused.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def begin_registration(
        self, request: v1.BeginRegistrationRequest, *, timeout: float | None = None
    ) -> v1.BeginRegistrationResponse:
        """Begins the registration of a passkey for the caller. A later one replaces it."""
        return self._transport.unary(
            _PASSKEY_SERVICE_BEGIN_REGISTRATION,
            request,
            timeout,
        )

    def finish_registration(
        self, request: v1.FinishRegistrationRequest, *, timeout: float | None = None
    ) -> v1.FinishRegistrationResponse:
        """Registers the passkey that an authenticator has made. On record before it counts."""
        return self._transport.unary(
            _PASSKEY_SERVICE_FINISH_REGISTRATION,
            request,
            timeout,
        )

    def list_passkeys(self, request: v1.ListPasskeysRequest, *, timeout: float | None = None) -> v1.ListPasskeysResponse:
        """The caller's passkeys; those of all principals for operators and auditors. Oldest first."""
        return self._transport.unary(
            _PASSKEY_SERVICE_LIST_PASSKEYS,
            request,
            timeout,
        )

    def remove_passkey(self, request: v1.RemovePasskeyRequest, *, timeout: float | None = None) -> v1.RemovePasskeyResponse:
        """Ends a passkey. On record before it takes effect. For operators on the Unix socket or with a certificate:
        a stolen token must not be able to replace a passkey.
        """
        return self._transport.unary(
            _PASSKEY_SERVICE_REMOVE_PASSKEY,
            request,
            timeout,
        )

    def begin_consent(self, request: v1.BeginConsentRequest, *, timeout: float | None = None) -> v1.BeginConsentResponse:
        """Prepares a decision on an approval that the caller will sign. A later one for the same approval replaces
        it.
        """
        return self._transport.unary(
            _PASSKEY_SERVICE_BEGIN_CONSENT,
            request,
            timeout,
        )


_PERMISSION_SERVICE_GRANT_PERMISSION = Method(
    "/cofferdam.v1.PermissionService/GrantPermission", v1.GrantPermissionRequest, v1.GrantPermissionResponse, False
)
_PERMISSION_SERVICE_REVOKE_PERMISSION = Method(
    "/cofferdam.v1.PermissionService/RevokePermission", v1.RevokePermissionRequest, v1.RevokePermissionResponse, False
)
_PERMISSION_SERVICE_LIST_PERMISSIONS = Method(
    "/cofferdam.v1.PermissionService/ListPermissions", v1.ListPermissionsRequest, v1.ListPermissionsResponse, True
)


class PermissionService:
    """Grants and revokes permissions beside the policy."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def grant_permission(
        self, request: v1.GrantPermissionRequest, *, timeout: float | None = None
    ) -> v1.GrantPermissionResponse:
        """Grants an agent, a role or a team a permission, or lifts a revocation. On record before it counts."""
        return self._transport.unary(
            _PERMISSION_SERVICE_GRANT_PERMISSION,
            request,
            timeout,
        )

    def revoke_permission(
        self, request: v1.RevokePermissionRequest, *, timeout: float | None = None
    ) -> v1.RevokePermissionResponse:
        """Revokes a permission from any source, or ends a grant. On record before it counts."""
        return self._transport.unary(
            _PERMISSION_SERVICE_REVOKE_PERMISSION,
            request,
            timeout,
        )

    def list_permissions(
        self, request: v1.ListPermissionsRequest, *, timeout: float | None = None
    ) -> v1.ListPermissionsResponse:
        """Permissions, newest first."""
        return self._transport.unary(
            _PERMISSION_SERVICE_LIST_PERMISSIONS,
            request,
            timeout,
        )


_POLICY_SERVICE_GET_POLICY = Method("/cofferdam.v1.PolicyService/GetPolicy", v1.GetPolicyRequest, v1.GetPolicyResponse, True)
_POLICY_SERVICE_RELOAD_POLICY = Method(
    "/cofferdam.v1.PolicyService/ReloadPolicy", v1.ReloadPolicyRequest, v1.ReloadPolicyResponse, False
)
_POLICY_SERVICE_EXPLAIN_POLICY = Method(
    "/cofferdam.v1.PolicyService/ExplainPolicy", v1.ExplainPolicyRequest, v1.ExplainPolicyResponse, True
)
_POLICY_SERVICE_REPLAY_POLICY = Method(
    "/cofferdam.v1.PolicyService/ReplayPolicy", v1.ReplayPolicyRequest, v1.ReplayPolicyResponse, False
)


class PolicyService:
    """Shows, explains, replays and reloads the policy."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get_policy(self, request: v1.GetPolicyRequest, *, timeout: float | None = None) -> v1.GetPolicyResponse:
        """The policy in force."""
        return self._transport.unary(
            _POLICY_SERVICE_GET_POLICY,
            request,
            timeout,
        )

    def reload_policy(self, request: v1.ReloadPolicyRequest, *, timeout: float | None = None) -> v1.ReloadPolicyResponse:
        """Loads the policy directory again. If any part is invalid, the old policy stays in force as a whole."""
        return self._transport.unary(
            _POLICY_SERVICE_RELOAD_POLICY,
            request,
            timeout,
        )

    def explain_policy(self, request: v1.ExplainPolicyRequest, *, timeout: float | None = None) -> v1.ExplainPolicyResponse:
        """Returns the decision that the policy in force would make about a call, and all rules that were
        considered. The call is neither made nor counted.
        """
        return self._transport.unary(
            _POLICY_SERVICE_EXPLAIN_POLICY,
            request,
            timeout,
        )

    def replay_policy(self, request: v1.ReplayPolicyRequest, *, timeout: float | None = None) -> v1.ReplayPolicyResponse:
        """Judges recorded calls by a proposed policy and lists those whose verdict would change. The proposed
        policy does not come into force.
        """
        return self._transport.unary(
            _POLICY_SERVICE_REPLAY_POLICY,
            request,
            timeout,
        )


_PROCESS_SERVICE_START_PROCESS = Method(
    "/cofferdam.v1.ProcessService/StartProcess", v1.StartProcessRequest, v1.StartProcessResponse, False
)
_PROCESS_SERVICE_ATTACH_PROCESS = Method(
    "/cofferdam.v1.ProcessService/AttachProcess", v1.AttachProcessRequest, v1.AttachProcessResponse, True
)
_PROCESS_SERVICE_WRITE_STDIN = Method(
    "/cofferdam.v1.ProcessService/WriteStdin", v1.WriteStdinRequest, v1.WriteStdinResponse, True
)
_PROCESS_SERVICE_RESIZE_TERMINAL = Method(
    "/cofferdam.v1.ProcessService/ResizeTerminal", v1.ResizeTerminalRequest, v1.ResizeTerminalResponse, True
)
_PROCESS_SERVICE_SIGNAL_PROCESS = Method(
    "/cofferdam.v1.ProcessService/SignalProcess", v1.SignalProcessRequest, v1.SignalProcessResponse, False
)
_PROCESS_SERVICE_WAIT_PROCESS = Method(
    "/cofferdam.v1.ProcessService/WaitProcess", v1.WaitProcessRequest, v1.WaitProcessResponse, True
)
_PROCESS_SERVICE_LIST_PROCESSES = Method(
    "/cofferdam.v1.ProcessService/ListProcesses", v1.ListProcessesRequest, v1.ListProcessesResponse, True
)


class ProcessService:
    """Starts processes in runs and speaks with them. A start is a call like any other: policy, approval, limits and
    record apply as for `exec`. Consent, however, covers only the words: the run's other commands go on beside a
    process, and can change the files that it uses. A process lives until its first program ends, it is killed, its
    timeout passes or its run ends; then all processes that it started are ended. It outlives its client and the
    daemon. Its input is recorded in full.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def start_process(self, request: v1.StartProcessRequest, *, timeout: float | None = None) -> v1.StartProcessResponse:
        """Starts a process. The same as `ToolService.Call` with the operation `process`."""
        return self._transport.unary(
            _PROCESS_SERVICE_START_PROCESS,
            request,
            timeout,
        )

    def attach_process(
        self, request: v1.AttachProcessRequest, *, timeout: float | None = None
    ) -> Generator[v1.AttachProcessResponse, None]:
        """Output of a process, from any byte on. Any number of readers get the same bytes; a slow reader does not
        delay the others.
        """
        return self._transport.stream(
            _PROCESS_SERVICE_ATTACH_PROCESS,
            request,
            timeout,
        )

    def write_stdin(self, request: v1.WriteStdinRequest, *, timeout: float | None = None) -> v1.WriteStdinResponse:
        """Writes bytes to the standard input of a process. They are ordered by offset, so that a repeated request
        delivers no byte twice. All of them are recorded, so one process takes in all at most what its recording
        holds: `sessions.max_recording` of the daemon's configuration, 64 MiB by default, in which a byte that JSON
        escapes counts as up to six. More is refused (`WRITE_LIMIT`); send larger input as a file (`FileService`).
        """
        return self._transport.unary(
            _PROCESS_SERVICE_WRITE_STDIN,
            request,
            timeout,
        )

    def resize_terminal(
        self, request: v1.ResizeTerminalRequest, *, timeout: float | None = None
    ) -> v1.ResizeTerminalResponse:
        """Changes the size of a process's terminal. Refused where its recording is full or cannot be written
        (`WRITE_LIMIT`).
        """
        return self._transport.unary(
            _PROCESS_SERVICE_RESIZE_TERMINAL,
            request,
            timeout,
        )

    def signal_process(self, request: v1.SignalProcessRequest, *, timeout: float | None = None) -> v1.SignalProcessResponse:
        """Sends a signal to a process, and answers after it was sent. The recording of a process that gets input
        has its signals, too. If the recording is full or cannot be written, HUP, INT and TERM are still sent, and
        counted in the audit log. QUIT, CONT and TSTP are then refused (`WRITE_LIMIT`). KILL ends the process in any
        case.
        """
        return self._transport.unary(
            _PROCESS_SERVICE_SIGNAL_PROCESS,
            request,
            timeout,
        )

    def wait_process(self, request: v1.WaitProcessRequest, *, timeout: float | None = None) -> v1.WaitProcessResponse:
        """Waits until a process and all processes that it started have ended."""
        return self._transport.unary(
            _PROCESS_SERVICE_WAIT_PROCESS,
            request,
            timeout,
        )

    def list_processes(self, request: v1.ListProcessesRequest, *, timeout: float | None = None) -> v1.ListProcessesResponse:
        """The processes of a run, the oldest first: those that live, and the newest of those that have ended."""
        return self._transport.unary(
            _PROCESS_SERVICE_LIST_PROCESSES,
            request,
            timeout,
        )


_PUSH_SERVICE_GET_PUSH_KEY = Method(
    "/cofferdam.v1.PushService/GetPushKey", v1.GetPushKeyRequest, v1.GetPushKeyResponse, True
)
_PUSH_SERVICE_SUBSCRIBE = Method("/cofferdam.v1.PushService/Subscribe", v1.SubscribeRequest, v1.SubscribeResponse, False)
_PUSH_SERVICE_LIST_SUBSCRIPTIONS = Method(
    "/cofferdam.v1.PushService/ListSubscriptions", v1.ListSubscriptionsRequest, v1.ListSubscriptionsResponse, True
)
_PUSH_SERVICE_UNSUBSCRIBE = Method(
    "/cofferdam.v1.PushService/Unsubscribe", v1.UnsubscribeRequest, v1.UnsubscribeResponse, False
)


class PushService:
    """Keeps the push subscriptions of reviewers. A notice has nothing but a link to the approvals of the console,
    encrypted for the subscribed browser. Without `push` in the configuration, all methods are refused.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get_push_key(self, request: v1.GetPushKeyRequest, *, timeout: float | None = None) -> v1.GetPushKeyResponse:
        """The key by which a push service knows this daemon (VAPID, RFC 8292)."""
        return self._transport.unary(
            _PUSH_SERVICE_GET_PUSH_KEY,
            request,
            timeout,
        )

    def subscribe(self, request: v1.SubscribeRequest, *, timeout: float | None = None) -> v1.SubscribeResponse:
        """Subscribes the caller's browser. The same endpoint again renews its subscription."""
        return self._transport.unary(
            _PUSH_SERVICE_SUBSCRIBE,
            request,
            timeout,
        )

    def list_subscriptions(
        self, request: v1.ListSubscriptionsRequest, *, timeout: float | None = None
    ) -> v1.ListSubscriptionsResponse:
        """The caller's subscriptions, oldest first, without their endpoints."""
        return self._transport.unary(
            _PUSH_SERVICE_LIST_SUBSCRIPTIONS,
            request,
            timeout,
        )

    def unsubscribe(self, request: v1.UnsubscribeRequest, *, timeout: float | None = None) -> v1.UnsubscribeResponse:
        """Ends one of the caller's subscriptions."""
        return self._transport.unary(
            _PUSH_SERVICE_UNSUBSCRIBE,
            request,
            timeout,
        )


_RUN_SERVICE_CREATE_RUN = Method("/cofferdam.v1.RunService/CreateRun", v1.CreateRunRequest, v1.CreateRunResponse, False)
_RUN_SERVICE_GET_RUN = Method("/cofferdam.v1.RunService/GetRun", v1.GetRunRequest, v1.GetRunResponse, True)
_RUN_SERVICE_LIST_RUNS = Method("/cofferdam.v1.RunService/ListRuns", v1.ListRunsRequest, v1.ListRunsResponse, True)
_RUN_SERVICE_STOP_RUN = Method("/cofferdam.v1.RunService/StopRun", v1.StopRunRequest, v1.StopRunResponse, True)
_RUN_SERVICE_DELETE_RUN = Method("/cofferdam.v1.RunService/DeleteRun", v1.DeleteRunRequest, v1.DeleteRunResponse, True)
_RUN_SERVICE_PAUSE_RUN = Method("/cofferdam.v1.RunService/PauseRun", v1.PauseRunRequest, v1.PauseRunResponse, False)
_RUN_SERVICE_RESUME_RUN = Method("/cofferdam.v1.RunService/ResumeRun", v1.ResumeRunRequest, v1.ResumeRunResponse, False)
_RUN_SERVICE_KEEP_ALIVE_RUN = Method(
    "/cofferdam.v1.RunService/KeepAliveRun", v1.KeepAliveRunRequest, v1.KeepAliveRunResponse, True
)
_RUN_SERVICE_EXTEND_RUN = Method("/cofferdam.v1.RunService/ExtendRun", v1.ExtendRunRequest, v1.ExtendRunResponse, True)
_RUN_SERVICE_ISSUE_RUN_TOKEN = Method(
    "/cofferdam.v1.RunService/IssueRunToken", v1.IssueRunTokenRequest, v1.IssueRunTokenResponse, True
)
_RUN_SERVICE_WATCH_RUNS = Method("/cofferdam.v1.RunService/WatchRuns", v1.WatchRunsRequest, v1.WatchRunsResponse, True)
_RUN_SERVICE_DIFF_RUN = Method("/cofferdam.v1.RunService/DiffRun", v1.DiffRunRequest, v1.DiffRunResponse, True)
_RUN_SERVICE_ACCEPT_RUN = Method("/cofferdam.v1.RunService/AcceptRun", v1.AcceptRunRequest, v1.AcceptRunResponse, True)
_RUN_SERVICE_DISCARD_RUN = Method("/cofferdam.v1.RunService/DiscardRun", v1.DiscardRunRequest, v1.DiscardRunResponse, True)
_RUN_SERVICE_LIST_WORKSPACES = Method(
    "/cofferdam.v1.RunService/ListWorkspaces", v1.ListWorkspacesRequest, v1.ListWorkspacesResponse, True
)
_RUN_SERVICE_DELETE_WORKSPACE = Method(
    "/cofferdam.v1.RunService/DeleteWorkspace", v1.DeleteWorkspaceRequest, v1.DeleteWorkspaceResponse, False
)
_RUN_SERVICE_READ_COMPANION_LOGS = Method(
    "/cofferdam.v1.RunService/ReadCompanionLogs", v1.ReadCompanionLogsRequest, v1.ReadCompanionLogsResponse, True
)


class RunService:
    """Makes, shows and ends runs."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create_run(self, request: v1.CreateRunRequest, *, timeout: float | None = None) -> v1.CreateRunResponse:
        """Launches a container for a run and answers when it is READY. A refused request makes no run, and its ids
        stay free. If the host could not do it, a FAILED run gives the reason. In both cases no container or mount
        is left.
        """
        return self._transport.unary(
            _RUN_SERVICE_CREATE_RUN,
            request,
            timeout,
        )

    def get_run(self, request: v1.GetRunRequest, *, timeout: float | None = None) -> v1.GetRunResponse:
        """One run."""
        return self._transport.unary(
            _RUN_SERVICE_GET_RUN,
            request,
            timeout,
        )

    def list_runs(self, request: v1.ListRunsRequest, *, timeout: float | None = None) -> v1.ListRunsResponse:
        """Runs, newest first."""
        return self._transport.unary(
            _RUN_SERVICE_LIST_RUNS,
            request,
            timeout,
        )

    def stop_run(self, request: v1.StopRunRequest, *, timeout: float | None = None) -> v1.StopRunResponse:
        """Ends a run: its calls are cancelled, its processes killed, its mounts removed. When the answer comes, no
        process of the run can run or write. Its container is removed after that. Its workspace stays, and so do the
        changes of an `overlay`.
        """
        return self._transport.unary(
            _RUN_SERVICE_STOP_RUN,
            request,
            timeout,
        )

    def delete_run(self, request: v1.DeleteRunRequest, *, timeout: float | None = None) -> v1.DeleteRunResponse:
        """Deletes an ended run with its state, recordings and output. A managed or cloned workspace stays until
        DeleteWorkspace, unless this request says otherwise. Fails with PRECONDITION_FAILED while the run lives, or
        while the changes of its `overlay` are neither accepted nor discarded.
        """
        return self._transport.unary(
            _RUN_SERVICE_DELETE_RUN,
            request,
            timeout,
        )

    def pause_run(self, request: v1.PauseRunRequest, *, timeout: float | None = None) -> v1.PauseRunResponse:
        """Freezes all processes of a run that calls or terminals have started, and refuses calls as RUN_NOT_READY
        until ResumeRun. Calls under way wait, and continue then. Their time goes on meanwhile: a command whose
        timeout passes is ended while it is frozen. Memory is kept: after ResumeRun each process continues with its
        state. `ttl` and `lease` go on, too; `idle_timeout` does not. A paused run can be extended, kept alive and
        stopped. Fails with PRECONDITION_FAILED where the daemon does not see the container's cgroup.
        """
        return self._transport.unary(
            _RUN_SERVICE_PAUSE_RUN,
            request,
            timeout,
        )

    def resume_run(self, request: v1.ResumeRunRequest, *, timeout: float | None = None) -> v1.ResumeRunResponse:
        """Ends the hold of PauseRun. The run stays PAUSED while another hold exists."""
        return self._transport.unary(
            _RUN_SERVICE_RESUME_RUN,
            request,
            timeout,
        )

    def keep_alive_run(self, request: v1.KeepAliveRunRequest, *, timeout: float | None = None) -> v1.KeepAliveRunResponse:
        """Renews the `lease` of a run. Only this method renews it: calls, processes and watchers do not. Fails with
        PRECONDITION_FAILED if the run has no lease, and with RUN_NOT_READY if it has ended.
        """
        return self._transport.unary(
            _RUN_SERVICE_KEEP_ALIVE_RUN,
            request,
            timeout,
        )

    def extend_run(self, request: v1.ExtendRunRequest, *, timeout: float | None = None) -> v1.ExtendRunResponse:
        """Gives a run a longer `ttl`. The same `ttl` again changes nothing; a shorter one fails with
        PRECONDITION_FAILED. Fails with RUN_NOT_READY if the run has ended.
        """
        return self._transport.unary(
            _RUN_SERVICE_EXTEND_RUN,
            request,
            timeout,
        )

    def issue_run_token(self, request: v1.IssueRunTokenRequest, *, timeout: float | None = None) -> v1.IssueRunTokenResponse:
        """Makes a token for a run that lives: as CreateRun's `issue_token` does, but at any time. The run's earlier
        token, if any, is then invalid. Streams and requests that it opened end with PERMISSION_DENIED. Their calls
        go on to their end, unless `cancel_on_disconnect` is set. Each request makes another token, so repeat a
        request whose answer was lost. Fails with RUN_NOT_READY if the run has ended.
        """
        return self._transport.unary(
            _RUN_SERVICE_ISSUE_RUN_TOKEN,
            request,
            timeout,
        )

    def watch_runs(
        self, request: v1.WatchRunsRequest, *, timeout: float | None = None
    ) -> Generator[v1.WatchRunsResponse, None]:
        """The runs as they are, then each change of state."""
        return self._transport.stream(
            _RUN_SERVICE_WATCH_RUNS,
            request,
            timeout,
        )

    def diff_run(self, request: v1.DiffRunRequest, *, timeout: float | None = None) -> v1.DiffRunResponse:
        """Compares the agent's changes in an `overlay` with the directory beneath it as it is now. While the run
        lives, the result can be out of date at once.
        """
        return self._transport.unary(
            _RUN_SERVICE_DIFF_RUN,
            request,
            timeout,
        )

    def accept_run(self, request: v1.AcceptRunRequest, *, timeout: float | None = None) -> v1.AcceptRunResponse:
        """Applies the changes of an `overlay` to the directory beneath it, each file whole or not at all, and then
        deletes them. The run must have ended. Fails with PRECONDITION_FAILED and changes no file in three cases:
        the directory has meanwhile changed in the same places, a change cannot be applied, or git on the host would
        run it. DiffRun names the paths. Repeat an accept that was interrupted.
        """
        return self._transport.unary(
            _RUN_SERVICE_ACCEPT_RUN,
            request,
            timeout,
        )

    def discard_run(self, request: v1.DiscardRunRequest, *, timeout: float | None = None) -> v1.DiscardRunResponse:
        """Deletes the changes of an `overlay`. The run must have ended. It is no error if the changes were
        discarded before, but it is one if they were accepted.
        """
        return self._transport.unary(
            _RUN_SERVICE_DISCARD_RUN,
            request,
            timeout,
        )

    def list_workspaces(
        self, request: v1.ListWorkspacesRequest, *, timeout: float | None = None
    ) -> v1.ListWorkspacesResponse:
        """The directories that the daemon keeps: managed and cloned workspaces, and changes of overlays that are
        neither accepted nor discarded. Newest first.
        """
        return self._transport.unary(
            _RUN_SERVICE_LIST_WORKSPACES,
            request,
            timeout,
        )

    def delete_workspace(
        self, request: v1.DeleteWorkspaceRequest, *, timeout: float | None = None
    ) -> v1.DeleteWorkspaceResponse:
        """Deletes one of them with all its contents. Fails with PRECONDITION_FAILED while a run uses it."""
        return self._transport.unary(
            _RUN_SERVICE_DELETE_WORKSPACE,
            request,
            timeout,
        )

    def read_companion_logs(
        self, request: v1.ReadCompanionLogsRequest, *, timeout: float | None = None
    ) -> Generator[v1.ReadCompanionLogsResponse, None]:
        """Returns what a companion has written to its standard output and error, and with `follow` what it writes
        from then on. Fails with RUN_NOT_READY if the run has ended, because its companions' logs are removed with
        it.
        """
        return self._transport.stream(
            _RUN_SERVICE_READ_COMPANION_LOGS,
            request,
            timeout,
        )


_CHECKPOINT_SERVICE_CHECKPOINT_RUN = Method(
    "/cofferdam.v1.CheckpointService/CheckpointRun", v1.CheckpointRunRequest, v1.CheckpointRunResponse, False
)
_CHECKPOINT_SERVICE_LIST_CHECKPOINTS = Method(
    "/cofferdam.v1.CheckpointService/ListCheckpoints", v1.ListCheckpointsRequest, v1.ListCheckpointsResponse, True
)
_CHECKPOINT_SERVICE_GET_RUN_CHECKPOINT = Method(
    "/cofferdam.v1.CheckpointService/GetRunCheckpoint", v1.GetRunCheckpointRequest, v1.GetRunCheckpointResponse, True
)
_CHECKPOINT_SERVICE_DELETE_CHECKPOINT = Method(
    "/cofferdam.v1.CheckpointService/DeleteCheckpoint", v1.DeleteCheckpointRequest, v1.DeleteCheckpointResponse, False
)
_CHECKPOINT_SERVICE_RESTORE_RUN = Method(
    "/cofferdam.v1.CheckpointService/RestoreRun", v1.RestoreRunRequest, v1.RestoreRunResponse, False
)
_CHECKPOINT_SERVICE_FORK_RUN = Method(
    "/cofferdam.v1.CheckpointService/ForkRun", v1.ForkRunRequest, v1.ForkRunResponse, False
)
_CHECKPOINT_SERVICE_COMPARE_RUNS = Method(
    "/cofferdam.v1.CheckpointService/CompareRuns", v1.CompareRunsRequest, v1.CompareRunsResponse, True
)


class CheckpointService:
    """Makes, shows and deletes checkpoints of runs, and uses them: to go back in a run, or to go on from it in many
    runs. A checkpoint has the changes of the workspace, `/state` and the changes of a writable root. The memory of
    processes is not in it. It belongs to the principal that owns the run, and other principals but operators cannot
    use it.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def checkpoint_run(self, request: v1.CheckpointRunRequest, *, timeout: float | None = None) -> v1.CheckpointRunResponse:
        """Freezes the commands of a run, copies what it has changed, and lets the commands continue. Answers when
        the checkpoint is complete and durable. If it fails or the daemon dies, no part of it is left. Calls that
        arrive meanwhile wait. Fails with PRECONDITION_FAILED if the workspace is a `bind`, or if a file cannot be
        read.
        """
        return self._transport.unary(
            _CHECKPOINT_SERVICE_CHECKPOINT_RUN,
            request,
            timeout,
        )

    def list_checkpoints(
        self, request: v1.ListCheckpointsRequest, *, timeout: float | None = None
    ) -> v1.ListCheckpointsResponse:
        """The checkpoints that the caller may use, newest first."""
        return self._transport.unary(
            _CHECKPOINT_SERVICE_LIST_CHECKPOINTS,
            request,
            timeout,
        )

    def get_run_checkpoint(
        self, request: v1.GetRunCheckpointRequest, *, timeout: float | None = None
    ) -> v1.GetRunCheckpointResponse:
        """One checkpoint."""
        return self._transport.unary(
            _CHECKPOINT_SERVICE_GET_RUN_CHECKPOINT,
            request,
            timeout,
        )

    def delete_checkpoint(
        self, request: v1.DeleteCheckpointRequest, *, timeout: float | None = None
    ) -> v1.DeleteCheckpointResponse:
        """Deletes a checkpoint."""
        return self._transport.unary(
            _CHECKPOINT_SERVICE_DELETE_CHECKPOINT,
            request,
            timeout,
        )

    def restore_run(self, request: v1.RestoreRunRequest, *, timeout: float | None = None) -> v1.RestoreRunResponse:
        """Gives a live run the files of one of its checkpoints. The run keeps its id, token, lease and record. Its
        commands, processes and sessions are ended first, and calls that arrive meanwhile wait. A checkpoint of the
        present state is made before, so that a restore can be undone. Answers when the files are complete and
        durable. If the daemon dies meanwhile, the next one completes the restore before the run takes calls.
        """
        return self._transport.unary(
            _CHECKPOINT_SERVICE_RESTORE_RUN,
            request,
            timeout,
        )

    def fork_run(self, request: v1.ForkRunRequest, *, timeout: float | None = None) -> v1.ForkRunResponse:
        """Makes runs that begin with the state of a run or of a checkpoint. Each has its own id, record, approvals,
        limits and changes. Processes, consents and secrets are not inherited. Answers when all of them are READY or
        failed: as many are made as there is room for, and the answer says which.
        """
        return self._transport.unary(
            _CHECKPOINT_SERVICE_FORK_RUN,
            request,
            timeout,
        )

    def compare_runs(self, request: v1.CompareRunsRequest, *, timeout: float | None = None) -> v1.CompareRunsResponse:
        """Compares what runs have changed, and what they took for it. The runs may live; then the answer can be out
        of date at once. Takes the time of a DiffRun for each run; runs that are not reached in two minutes have no
        changes in the answer.
        """
        return self._transport.unary(
            _CHECKPOINT_SERVICE_COMPARE_RUNS,
            request,
            timeout,
        )


_SESSION_SERVICE_OPEN_SESSION = Method(
    "/cofferdam.v1.SessionService/OpenSession", v1.OpenSessionRequest, v1.OpenSessionResponse, False
)
_SESSION_SERVICE_RUN_IN_SESSION = Method(
    "/cofferdam.v1.SessionService/RunInSession", v1.RunInSessionRequest, v1.RunInSessionResponse, False
)
_SESSION_SERVICE_INTERRUPT_SESSION = Method(
    "/cofferdam.v1.SessionService/InterruptSession", v1.InterruptSessionRequest, v1.InterruptSessionResponse, False
)
_SESSION_SERVICE_CLOSE_SESSION = Method(
    "/cofferdam.v1.SessionService/CloseSession", v1.CloseSessionRequest, v1.CloseSessionResponse, True
)
_SESSION_SERVICE_LIST_SESSIONS = Method(
    "/cofferdam.v1.SessionService/ListSessions", v1.ListSessionsRequest, v1.ListSessionsResponse, True
)


class SessionService:
    """Sessions of runs. A session is a process whose program is a shell, and has the properties of a process: it
    outlives its client and the daemon, clients can attach to its output, its input is recorded, and all processes
    in it end with it. Opening one is a call of the operation `process`, and each use of it a call of the operation
    `session`. Policy, approval, limits and record apply as for `shell`. Consent, however, covers only the words:
    earlier commands have set the functions, aliases, variables, PATH and working directory of the shell, and files
    may change. The shell reports the end of a command by a mark. The mark is made for that command, and no program
    in the container knows it before. The mark and its exit code are nevertheless claims of the container. Code that
    runs in the shell itself can forge them. So can each process of the run if the host leaves /proc/PID/mem open
    (`coffer doctor` says so). Use `exec` for a command whose exit code must be trustworthy, because there no shell
    reports the end.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def open_session(self, request: v1.OpenSessionRequest, *, timeout: float | None = None) -> v1.OpenSessionResponse:
        """Opens a session. The same as `ToolService.Call` with the operation `process` and its `session` set."""
        return self._transport.unary(
            _SESSION_SERVICE_OPEN_SESSION,
            request,
            timeout,
        )

    def run_in_session(self, request: v1.RunInSessionRequest, *, timeout: float | None = None) -> v1.RunInSessionResponse:
        """Runs a command in a session, sends input to the running program, or waits for it. The same as
        `ToolService.Call` with the operation `session`.
        """
        return self._transport.unary(
            _SESSION_SERVICE_RUN_IN_SESSION,
            request,
            timeout,
        )

    def interrupt_session(
        self, request: v1.InterruptSessionRequest, *, timeout: float | None = None
    ) -> v1.InterruptSessionResponse:
        """Interrupts the running command of a session, and waits until the session takes commands again."""
        return self._transport.unary(
            _SESSION_SERVICE_INTERRUPT_SESSION,
            request,
            timeout,
        )

    def close_session(self, request: v1.CloseSessionRequest, *, timeout: float | None = None) -> v1.CloseSessionResponse:
        """Ends a session and all its processes, and waits until none is left."""
        return self._transport.unary(
            _SESSION_SERVICE_CLOSE_SESSION,
            request,
            timeout,
        )

    def list_sessions(self, request: v1.ListSessionsRequest, *, timeout: float | None = None) -> v1.ListSessionsResponse:
        """The sessions of a run, the oldest first: those that live, and the newest of those that have ended."""
        return self._transport.unary(
            _SESSION_SERVICE_LIST_SESSIONS,
            request,
            timeout,
        )


_TERMINAL_SERVICE_OPEN_TERMINAL = Method(
    "/cofferdam.v1.TerminalService/OpenTerminal", v1.OpenTerminalRequest, v1.OpenTerminalResponse, False
)
_TERMINAL_SERVICE_READ_RECORDING = Method(
    "/cofferdam.v1.TerminalService/ReadRecording", v1.ReadRecordingRequest, v1.ReadRecordingResponse, False
)


class TerminalService:
    """Opens terminals in runs. For operators, not for agents: no policy judges the input, so it is recorded in
    full. The audit log has the session's beginning before its first byte, and its end with the digest of the
    recording.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def open_terminal(
        self, requests: Iterable[v1.OpenTerminalRequest], *, timeout: float | None = None
    ) -> Generator[v1.OpenTerminalResponse, None]:
        """Runs a command, by default a login shell, on a terminal in the run's container. The first request is
        `start`; the session ends with the command, with the stream, or with the run, and all its processes end with
        it.
        """
        return self._transport.duplex(
            _TERMINAL_SERVICE_OPEN_TERMINAL,
            requests,
            timeout,
        )

    def read_recording(
        self, request: v1.ReadRecordingRequest, *, timeout: float | None = None
    ) -> Generator[v1.ReadRecordingResponse, None]:
        """Plays the recording of a session: what its terminal showed, and when. The input is left out, because it
        has passwords that the terminal did not show. Each reading is on record before its first byte. The recording
        of a session that is open ends at the present. Fails with NOT_FOUND if the run has no recording of this
        session.
        """
        return self._transport.stream(
            _TERMINAL_SERVICE_READ_RECORDING,
            request,
            timeout,
        )


_TOKEN_SERVICE_CREATE_TOKEN = Method(
    "/cofferdam.v1.TokenService/CreateToken", v1.CreateTokenRequest, v1.CreateTokenResponse, False
)
_TOKEN_SERVICE_LIST_TOKENS = Method(
    "/cofferdam.v1.TokenService/ListTokens", v1.ListTokensRequest, v1.ListTokensResponse, True
)
_TOKEN_SERVICE_REVOKE_TOKEN = Method(
    "/cofferdam.v1.TokenService/RevokeToken", v1.RevokeTokenRequest, v1.RevokeTokenResponse, False
)


class TokenService:
    """Makes, lists and ends API tokens. For operators on the Unix socket or with a certificate: a token cannot make
    another token.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create_token(self, request: v1.CreateTokenRequest, *, timeout: float | None = None) -> v1.CreateTokenResponse:
        """Makes a token. Only this answer contains its secret. On record before it counts."""
        return self._transport.unary(
            _TOKEN_SERVICE_CREATE_TOKEN,
            request,
            timeout,
        )

    def list_tokens(self, request: v1.ListTokensRequest, *, timeout: float | None = None) -> v1.ListTokensResponse:
        """Tokens, newest first, without their secrets."""
        return self._transport.unary(
            _TOKEN_SERVICE_LIST_TOKENS,
            request,
            timeout,
        )

    def revoke_token(self, request: v1.RevokeTokenRequest, *, timeout: float | None = None) -> v1.RevokeTokenResponse:
        """Ends a token at once, and the streams that were opened with it."""
        return self._transport.unary(
            _TOKEN_SERVICE_REVOKE_TOKEN,
            request,
            timeout,
        )


_TOOL_SERVICE_LIST_TOOLS = Method("/cofferdam.v1.ToolService/ListTools", v1.ListToolsRequest, v1.ListToolsResponse, True)
_TOOL_SERVICE_CALL = Method("/cofferdam.v1.ToolService/Call", v1.CallRequest, v1.CallResponse, False)
_TOOL_SERVICE_CALL_STREAM = Method("/cofferdam.v1.ToolService/CallStream", v1.CallRequest, v1.CallStreamResponse, False)
_TOOL_SERVICE_GET_CALL = Method("/cofferdam.v1.ToolService/GetCall", v1.GetCallRequest, v1.GetCallResponse, True)
_TOOL_SERVICE_CANCEL_CALL = Method(
    "/cofferdam.v1.ToolService/CancelCall", v1.CancelCallRequest, v1.CancelCallResponse, False
)
_TOOL_SERVICE_STEP_TRANSCRIPT = Method(
    "/cofferdam.v1.ToolService/StepTranscript", v1.StepTranscriptRequest, v1.StepTranscriptResponse, False
)


class ToolService:
    """Offers and runs tools. Every call passes the gateway and leaves an intent and a receipt in the audit log."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list_tools(self, request: v1.ListToolsRequest, *, timeout: float | None = None) -> v1.ListToolsResponse:
        """The tools that a run's agent may use, in a dialect's names and a vendor's format."""
        return self._transport.unary(
            _TOOL_SERVICE_LIST_TOOLS,
            request,
            timeout,
        )

    def call(self, request: v1.CallRequest, *, timeout: float | None = None) -> v1.CallResponse:
        """Makes one call."""
        return self._transport.unary(
            _TOOL_SERVICE_CALL,
            request,
            timeout,
        )

    def call_stream(
        self, request: v1.CallRequest, *, timeout: float | None = None
    ) -> Generator[v1.CallStreamResponse, None]:
        """Makes one call and streams the output of a command while it runs, then the same answer that Call gives.
        After a lost stream, GetCall returns the rest of the output by offset. It has the same request as Call, so
        that a client can change from one to the other.
        """
        return self._transport.stream(
            _TOOL_SERVICE_CALL_STREAM,
            request,
            timeout,
        )

    def get_call(self, request: v1.GetCallRequest, *, timeout: float | None = None) -> v1.GetCallResponse:
        """A call's outcome, also after its client went away."""
        return self._transport.unary(
            _TOOL_SERVICE_GET_CALL,
            request,
            timeout,
        )

    def cancel_call(self, request: v1.CancelCallRequest, *, timeout: float | None = None) -> v1.CancelCallResponse:
        """Cancels a call that waits or runs."""
        return self._transport.unary(
            _TOOL_SERVICE_CANCEL_CALL,
            request,
            timeout,
        )

    def step_transcript(
        self, request: v1.StepTranscriptRequest, *, timeout: float | None = None
    ) -> v1.StepTranscriptResponse:
        """Takes one text of a model that calls tools by fenced blocks (dialect `forge`), makes the call of its
        first block, and returns the next message for the model.
        """
        return self._transport.unary(
            _TOOL_SERVICE_STEP_TRANSCRIPT,
            request,
            timeout,
        )


_TRASH_SERVICE_LIST_TRASH = Method("/cofferdam.v1.TrashService/ListTrash", v1.ListTrashRequest, v1.ListTrashResponse, True)
_TRASH_SERVICE_READ_TRASH = Method("/cofferdam.v1.TrashService/ReadTrash", v1.ReadTrashRequest, v1.ReadTrashResponse, True)


class TrashService:
    """Shows the trash of a run: files that `delete` and `patch` have removed in it. It is outside of every
    container, and kept until the run is deleted. To restore a file, write its content with ToolService.Call. Policy
    and record apply as for every write.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list_trash(self, request: v1.ListTrashRequest, *, timeout: float | None = None) -> v1.ListTrashResponse:
        """Lists the entries of a run's trash."""
        return self._transport.unary(
            _TRASH_SERVICE_LIST_TRASH,
            request,
            timeout,
        )

    def read_trash(self, request: v1.ReadTrashRequest, *, timeout: float | None = None) -> v1.ReadTrashResponse:
        """The content of an entry, piece by piece."""
        return self._transport.unary(
            _TRASH_SERVICE_READ_TRASH,
            request,
            timeout,
        )


_USAGE_SERVICE_GET_USAGE = Method("/cofferdam.v1.UsageService/GetUsage", v1.GetUsageRequest, v1.GetUsageResponse, True)


class UsageService:
    """Shows what runs have used of models, by rules with `meter`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get_usage(self, request: v1.GetUsageRequest, *, timeout: float | None = None) -> v1.GetUsageResponse:
        """The use of one run, or of the last days, UTC. Operators and auditors see that of all principals, all
        others their own. The last 400 days are kept, today's included, and also the newest 400 days with use,
        however old they are. The use of a run is kept until the run is deleted. Fails with INTERNAL if the daemon
        could not read its counts when it started.
        """
        return self._transport.unary(
            _USAGE_SERVICE_GET_USAGE,
            request,
            timeout,
        )
