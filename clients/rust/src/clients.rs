//! A client for each service, on one connection.

use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use wire::v1::alert_service_client::AlertServiceClient;
use wire::v1::approval_service_client::ApprovalServiceClient;
use wire::v1::audit_service_client::AuditServiceClient;
use wire::v1::backup_service_client::BackupServiceClient;
use wire::v1::base_service_client::BaseServiceClient;
use wire::v1::checkpoint_service_client::CheckpointServiceClient;
use wire::v1::console_service_client::ConsoleServiceClient;
use wire::v1::daemon_service_client::DaemonServiceClient;
use wire::v1::egress_service_client::EgressServiceClient;
use wire::v1::file_service_client::FileServiceClient;
use wire::v1::forward_service_client::ForwardServiceClient;
use wire::v1::host_service_client::HostServiceClient;
use wire::v1::image_service_client::ImageServiceClient;
use wire::v1::limit_service_client::LimitServiceClient;
use wire::v1::node_service_client::NodeServiceClient;
use wire::v1::passkey_service_client::PasskeyServiceClient;
use wire::v1::permission_service_client::PermissionServiceClient;
use wire::v1::policy_service_client::PolicyServiceClient;
use wire::v1::process_service_client::ProcessServiceClient;
use wire::v1::push_service_client::PushServiceClient;
use wire::v1::run_service_client::RunServiceClient;
use wire::v1::session_service_client::SessionServiceClient;
use wire::v1::terminal_service_client::TerminalServiceClient;
use wire::v1::token_service_client::TokenServiceClient;
use wire::v1::tool_service_client::ToolServiceClient;
use wire::v1::trash_service_client::TrashServiceClient;
use wire::v1::usage_service_client::UsageServiceClient;

use crate::routed::Routed;
use crate::token::{Credentials, TraceContext};

/// Largest answer that is accepted, bytes: more than any limit of the daemon, and far less than would hurt.
const LARGEST_MESSAGE: usize = 64 << 20;

/// A connection that sends the token, if there is one, and the node, if an id names one, with every request.
pub type AuthenticatedChannel = InterceptedService<Routed<Channel>, Credentials>;

/// The daemon's services. Cheap to clone; all clones share the connection.
#[derive(Clone, Debug)]
pub struct Client {
    channel: Channel,
    credentials: Credentials,
}

impl Client {
    pub(crate) fn new(channel: Channel, credentials: Credentials) -> Self {
        Self { channel, credentials }
    }

    /// Returns a client whose requests belong to this trace. It shares the connection.
    #[must_use]
    pub fn in_trace(&self, trace: TraceContext) -> Self {
        let mut client = self.clone();
        client.credentials.trace = Some(trace);
        client
    }
}

macro_rules! services {
    ($($name:ident: $client:ident),* $(,)?) => {
        impl Client {
            $(#[doc = concat!("`", stringify!($client), "`, as `tonic` generates it.")]
            pub fn $name(&self) -> $client<AuthenticatedChannel> {
                $client::with_interceptor(Routed(self.channel.clone()), self.credentials.clone())
                    .max_decoding_message_size(LARGEST_MESSAGE)
            })*
        }
    };
}

services! {
    runs: RunServiceClient,
    tools: ToolServiceClient,
    processes: ProcessServiceClient,
    sessions: SessionServiceClient,
    files: FileServiceClient,
    backups: BackupServiceClient,
    bases: BaseServiceClient,
    checkpoints: CheckpointServiceClient,
    trash: TrashServiceClient,
    approvals: ApprovalServiceClient,
    audit: AuditServiceClient,
    terminals: TerminalServiceClient,
    host: HostServiceClient,
    node: NodeServiceClient,
    policy: PolicyServiceClient,
    alerts: AlertServiceClient,
    permissions: PermissionServiceClient,
    limits: LimitServiceClient,
    tokens: TokenServiceClient,
    images: ImageServiceClient,
    egress: EgressServiceClient,
    forward: ForwardServiceClient,
    usage: UsageServiceClient,
    daemon: DaemonServiceClient,
    passkeys: PasskeyServiceClient,
    push: PushServiceClient,
    console: ConsoleServiceClient,
}
