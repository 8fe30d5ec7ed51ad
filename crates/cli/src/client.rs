//! The connection to the daemon, and what every command carries.

use std::time::Duration;

use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Request, Status};
use wire::v1::alert_service_client::AlertServiceClient;
use wire::v1::approval_service_client::ApprovalServiceClient;
use wire::v1::audit_service_client::AuditServiceClient;
use wire::v1::file_service_client::FileServiceClient;
use wire::v1::host_service_client::HostServiceClient;
use wire::v1::image_service_client::ImageServiceClient;
use wire::v1::limit_service_client::LimitServiceClient;
use wire::v1::permission_service_client::PermissionServiceClient;
use wire::v1::policy_service_client::PolicyServiceClient;
use wire::v1::process_service_client::ProcessServiceClient;
use wire::v1::run_service_client::RunServiceClient;
use wire::v1::session_service_client::SessionServiceClient;
use wire::v1::terminal_service_client::TerminalServiceClient;
use wire::v1::token_service_client::TokenServiceClient;
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
    pub(crate) credentials: Credentials,
    /// Calls are explained instead of made.
    pub(crate) explains: bool,
}

/// What a client shows beside its uid or certificate: a token, or nothing.
#[derive(Clone, Default)]
pub(crate) struct Credentials(Option<MetadataValue<Ascii>>);

impl Credentials {
    /// A token, as `coffer token create` or `coffer run create --issue-token` printed it.
    pub(crate) fn token(token: &str) -> Result<Self, Failure> {
        let value = MetadataValue::try_from(format!("Bearer {}", token.trim()));
        let mut value = value.map_err(|_| Failure::usage("the token contains invalid characters: copy it as `coffer run create --issue-token` printed it"))?;
        value.set_sensitive(true);
        Ok(Self(Some(value)))
    }
}

impl Interceptor for Credentials {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert("authorization", token.clone());
        }
        Ok(request)
    }
}

/// A connection that shows the credentials with every request.
type AuthenticatedChannel = InterceptedService<Channel, Credentials>;

impl Context {
    pub(crate) async fn connect(&self) -> Result<Client, Failure> {
        let channel = self.endpoint.connect().await.map_err(|failure| failure.and_hint(DOCTOR))?;
        Ok(Client { channel, credentials: self.credentials.clone() })
    }
}

pub(crate) struct Client {
    channel: Channel,
    credentials: Credentials,
}

impl Client {
    pub(crate) fn new(channel: Channel) -> Self {
        Self { channel, credentials: Credentials::default() }
    }
}

/// A client for each service, by the name under which the commands know it.
macro_rules! services {
    ($($name:ident: $client:ident),* $(,)?) => {
        impl Client {
            $(pub(crate) fn $name(&self) -> $client<AuthenticatedChannel> {
                $client::with_interceptor(self.channel.clone(), self.credentials.clone())
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
    trash: TrashServiceClient,
    approvals: ApprovalServiceClient,
    audit: AuditServiceClient,
    terminals: TerminalServiceClient,
    host: HostServiceClient,
    policy: PolicyServiceClient,
    alerts: AlertServiceClient,
    permissions: PermissionServiceClient,
    limits: LimitServiceClient,
    tokens: TokenServiceClient,
    images: ImageServiceClient,
}

/// What people are told of a list that is cut short.
pub(crate) const MORE: &str = "there are more; use a higher --limit\n";

/// Asks for one page after another, each of `most` items or fewer, until there are `limit` items or no more
/// pages. Gives the
/// items and the token of the next page, which is empty after the last.
///
/// `ask` takes a page's size and token, and gives its items and the next token.
pub(crate) async fn pages<T>(
    limit: usize,
    most: u32,
    mut ask: impl AsyncFnMut(u32, String) -> Result<(Vec<T>, String), Failure>,
) -> Result<(Vec<T>, String), Failure> {
    let (mut items, mut token) = (Vec::new(), String::new());
    while items.len() < limit {
        let size = u32::try_from(limit - items.len()).unwrap_or(most).min(most);
        let (page, next) = ask(size, token).await?;
        items.extend(page);
        token = next;
        if token.is_empty() {
            break;
        }
    }
    items.truncate(limit);
    Ok((items, token))
}

/// A request that a healthy daemon answers at once.
pub(crate) fn quick<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(QUICK);
    request
}
