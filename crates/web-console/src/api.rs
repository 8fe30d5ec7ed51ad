//! The API as one viewer sees it: each request shows the identity of the viewer's session to the guard.

use std::time::Duration;

use api_access::{Api, LARGEST_MESSAGE};
use tonic::codegen::http::Extensions;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::{Request, Status};
use wire::v1::alert_service_client::AlertServiceClient;
use wire::v1::approval_service_client::ApprovalServiceClient;
use wire::v1::audit_service_client::AuditServiceClient;
use wire::v1::console_service_client::ConsoleServiceClient;
use wire::v1::egress_service_client::EgressServiceClient;
use wire::v1::file_service_client::FileServiceClient;
use wire::v1::limit_service_client::LimitServiceClient;
use wire::v1::passkey_service_client::PasskeyServiceClient;
use wire::v1::policy_service_client::PolicyServiceClient;
use wire::v1::process_service_client::ProcessServiceClient;
use wire::v1::push_service_client::PushServiceClient;
use wire::v1::run_service_client::RunServiceClient;
use wire::v1::session_service_client::SessionServiceClient;
use wire::v1::terminal_service_client::TerminalServiceClient;
use wire::v1::tool_service_client::ToolServiceClient;

/// Time for an answer that is not a stream.
const PATIENCE: Duration = Duration::from_secs(20);

/// Shows an identity with every request.
#[derive(Clone)]
pub(crate) struct Shows {
    extensions: Extensions,
    authorization: Option<MetadataValue<Ascii>>,
}

impl Interceptor for Shows {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.extensions_mut().extend(self.extensions.clone());
        if let Some(authorization) = &self.authorization {
            request.metadata_mut().insert("authorization", authorization.clone());
        }
        Ok(request)
    }
}

type Client = InterceptedService<Api, Shows>;

/// Clients of the services, with the identity of one viewer.
#[derive(Clone)]
pub(crate) struct Services {
    api: Api,
    shows: Shows,
}

macro_rules! services {
    ($($name:ident: $client:ident),* $(,)?) => {
        impl Services {
            $(pub(crate) fn $name(&self) -> $client<Client> {
                $client::with_interceptor(self.api.clone(), self.shows.clone())
                    .max_decoding_message_size(LARGEST_MESSAGE)
            })*
        }
    };
}

services! {
    alerts: AlertServiceClient,
    approvals: ApprovalServiceClient,
    audit: AuditServiceClient,
    console: ConsoleServiceClient,
    egress: EgressServiceClient,
    files: FileServiceClient,
    limits: LimitServiceClient,
    policy: PolicyServiceClient,
    passkeys: PasskeyServiceClient,
    processes: ProcessServiceClient,
    push: PushServiceClient,
    runs: RunServiceClient,
    sessions: SessionServiceClient,
    terminals: TerminalServiceClient,
    tools: ToolServiceClient,
}

impl Services {
    pub(crate) fn new(api: Api, extensions: Extensions, authorization: Option<MetadataValue<Ascii>>) -> Self {
        Self { api, shows: Shows { extensions, authorization } }
    }
}

/// Returns a request whose answer is no stream, and comes within a time.
pub(crate) fn quick<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(PATIENCE);
    request
}
