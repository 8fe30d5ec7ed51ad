//! Serves `ConsoleService`.

use std::sync::Arc;

use listener::Peer;
use operations::Reason;
use refusal::Refusal;
use timestamp::UnixMillis;
use tonic::codegen::http::Extensions;
use tonic::{Request, Response, Status};
use web_console::{Certificate, Doors, Identity, Token};
use wire::v1;
use wire::v1::console_service_server::ConsoleService;

use super::principal;

pub(crate) struct Service {
    /// The ways into the console; `None` if the configuration has none.
    pub(crate) doors: Option<Arc<Doors>>,
}

#[tonic::async_trait]
impl ConsoleService for Service {
    async fn create_console_link(
        &self,
        request: Request<v1::CreateConsoleLinkRequest>,
    ) -> Result<Response<v1::CreateConsoleLinkResponse>, Status> {
        let principal = principal(&request)?;
        let doors = self.doors.as_ref().ok_or_else(|| {
            let message = "this daemon serves no console: set `console: {}` in its configuration";
            Refusal::new(Reason::PreconditionFailed, message)
        })?;
        let identity = shown(&request).ok_or_else(|| {
            Refusal::new(Reason::PermissionDenied, "the connection has no credential for a session")
        })?;
        let link = doors.make_link(identity, &principal.name, UnixMillis::now()).ok_or_else(|| {
            Refusal::new(Reason::Overloaded, "too many links wait for their use: try again in a minute")
        })?;
        tracing::info!(principal = %principal.name, "a link to the console was made");
        let expires_at = Some(link.ends_at.to_wire());
        Ok(Response::new(v1::CreateConsoleLinkResponse { url: link.url, expires_at }))
    }

    async fn get_viewer(
        &self,
        request: Request<v1::GetViewerRequest>,
    ) -> Result<Response<v1::GetViewerResponse>, Status> {
        let principal = principal(&request)?;
        let roles = principal.roles.names().into_iter().map(str::to_owned).collect();
        Ok(Response::new(v1::GetViewerResponse { principal: principal.name.clone(), roles }))
    }
}

/// Returns the credential that a request has shown, which the guard has accepted.
fn shown<T>(request: &Request<T>) -> Option<Identity> {
    if let Some(token) = request.metadata().get("authorization") {
        return Token::sent(token.clone()).map(Identity::Token);
    }
    match request.extensions().get::<Peer>()? {
        Peer::Local { uid, gid } => Some(Identity::User { uid: *uid, gid: *gid }),
        Peer::Remote(remote) => {
            let subject = remote.certificate.clone()?;
            let name = subject.name.clone();
            let mut shown = Extensions::new();
            shown.insert(subject);
            Some(Identity::Certificate(Certificate { name, shown }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_has_the_credential_of_its_request() {
        let mut request = Request::new(());
        assert!(shown(&request).is_none());
        request.extensions_mut().insert(Peer::Local { uid: 7, gid: 8 });
        assert!(matches!(shown(&request), Some(Identity::User { uid: 7, gid: 8 })));
        // A client that presents a token acts only as its holder.
        request.metadata_mut().insert("authorization", "Bearer x".parse().unwrap());
        assert!(matches!(shown(&request), Some(Identity::Token(_))));
    }
}
