//! The connection to the daemon, and what every command carries.

use std::time::Duration;

use tonic::Request;
use tonic::transport::Channel;
use wire::v1::approval_service_client::ApprovalServiceClient;
use wire::v1::audit_service_client::AuditServiceClient;
use wire::v1::policy_service_client::PolicyServiceClient;
use wire::v1::run_service_client::RunServiceClient;
use wire::v1::terminal_service_client::TerminalServiceClient;
use wire::v1::tool_service_client::ToolServiceClient;
use wire::v1::trash_service_client::TrashServiceClient;

use crate::endpoint::Endpoint;
use crate::failure::Failure;
use crate::ui::Ui;

/// Largest answer taken, bytes: above any limit of the daemon's, far below what would hurt.
const LARGEST_MESSAGE: usize = 64 << 20;
const DOCTOR: &str = "`coffer doctor` says what this host lacks";
/// How long the daemon may think about a question that needs no work.
const QUICK: Duration = Duration::from_secs(30);

/// What every command needs.
pub(crate) struct Context {
    pub(crate) ui: Ui,
    pub(crate) endpoint: Endpoint,
}

impl Context {
    /// Connects to the daemon.
    pub(crate) async fn connect(&self) -> Result<Client, Failure> {
        let channel = self.endpoint.connect().await.map_err(|failure| failure.and_hint(DOCTOR))?;
        Ok(Client::new(channel))
    }
}

/// A connected daemon.
pub(crate) struct Client {
    channel: Channel,
}

impl Client {
    pub(crate) fn new(channel: Channel) -> Self {
        Self { channel }
    }

    pub(crate) fn runs(&self) -> RunServiceClient<Channel> {
        RunServiceClient::new(self.channel.clone()).max_decoding_message_size(LARGEST_MESSAGE)
    }

    pub(crate) fn tools(&self) -> ToolServiceClient<Channel> {
        ToolServiceClient::new(self.channel.clone()).max_decoding_message_size(LARGEST_MESSAGE)
    }

    pub(crate) fn trash(&self) -> TrashServiceClient<Channel> {
        TrashServiceClient::new(self.channel.clone()).max_decoding_message_size(LARGEST_MESSAGE)
    }

    pub(crate) fn approvals(&self) -> ApprovalServiceClient<Channel> {
        ApprovalServiceClient::new(self.channel.clone()).max_decoding_message_size(LARGEST_MESSAGE)
    }

    pub(crate) fn audit(&self) -> AuditServiceClient<Channel> {
        AuditServiceClient::new(self.channel.clone()).max_decoding_message_size(LARGEST_MESSAGE)
    }

    pub(crate) fn terminals(&self) -> TerminalServiceClient<Channel> {
        TerminalServiceClient::new(self.channel.clone()).max_decoding_message_size(LARGEST_MESSAGE)
    }

    pub(crate) fn policy(&self) -> PolicyServiceClient<Channel> {
        PolicyServiceClient::new(self.channel.clone()).max_decoding_message_size(LARGEST_MESSAGE)
    }
}

/// A request that a healthy daemon answers at once.
pub(crate) fn quick<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(QUICK);
    request
}
