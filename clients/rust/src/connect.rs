//! Connects to the daemon.

use std::path::Path;
use std::time::Duration;

use node_id::NodeId;
use tonic::transport::{self, Channel};

use crate::clients::Client;
use crate::endpoint::Endpoint;
use crate::error::{ConnectError, Unreachable};
use crate::routed::Routed;
use crate::tls::Tls;
use crate::token::{Credentials, Token};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes that the daemon may send ahead in one stream, so that a download does not wait after every few frames.
const STREAM_WINDOW: u32 = 2 * 1024 * 1024;
/// Time between keep-alive pings over a network, and time for their answer before the connection is closed.
const ALIVE: Duration = Duration::from_secs(30);
const SILENT: Duration = Duration::from_secs(20);

/// Address of the daemon, the certificates to trust, and the credentials to send.
#[derive(Clone, Debug)]
pub struct Connect {
    endpoint: Endpoint,
    tls: Tls,
    token: Option<Token>,
    agent: &'static str,
    node: Option<NodeId>,
    server_name: Option<String>,
}

/// Returns the value of an environment variable that is set and not empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl Connect {
    /// Returns true if the daemon knows the client by its user on this host.
    pub fn is_by_user(&self) -> bool {
        self.endpoint.socket().is_some() && self.token.is_none()
    }

    /// Connects to this endpoint, with the certificates that this host trusts and no token.
    pub fn to(endpoint: Endpoint) -> Self {
        let agent = concat!("cofferdam-client/", env!("CARGO_PKG_VERSION"));
        Self { endpoint, tls: Tls::default(), token: None, agent, node: None, server_name: None }
    }

    /// Reads `COFFERDAM_ENDPOINT`, `COFFERDAM_TOKEN` and `COFFERDAM_TLS`. Without them, connects to the default socket.
    pub fn from_env() -> Result<Self, ConnectError> {
        let endpoint = match variable("COFFERDAM_ENDPOINT") {
            Some(written) => match written.parse() {
                Ok(endpoint) => endpoint,
                Err(cause) => return Err(ConnectError::Variable { written, cause }),
            },
            None => Endpoint::default(),
        };
        let token = variable("COFFERDAM_TOKEN").map(|token| Token::new(&token)).transpose()?;
        let tls = variable("COFFERDAM_TLS").map(|directory| Tls::directory(Path::new(&directory)));
        Ok(Self::to(endpoint).with_token(token).with_tls(tls.unwrap_or_default()))
    }

    /// Uses these certificates. They count for https alone.
    #[must_use]
    pub fn with_tls(self, tls: Tls) -> Self {
        Self { tls, ..self }
    }

    /// Uses this token, or none.
    #[must_use]
    pub fn with_token(self, token: Option<Token>) -> Self {
        Self { token, ..self }
    }

    /// Sets the client's name that the daemon sees.
    #[must_use]
    pub fn with_agent(self, agent: &'static str) -> Self {
        Self { agent, ..self }
    }

    /// Says with every request that it is for this node. Another node refuses it.
    #[must_use]
    pub fn with_node(self, node: Option<NodeId>) -> Self {
        Self { node, ..self }
    }

    /// Expects a certificate with this name. Default: the endpoint's host. It counts for https alone.
    #[must_use]
    pub fn with_server_name(self, server_name: Option<String>) -> Self {
        Self { server_name, ..self }
    }

    /// Returns the same for another daemon: its endpoint, with these certificates, this token and no node.
    #[must_use]
    pub fn at(&self, endpoint: Endpoint) -> Self {
        Self { endpoint, node: None, server_name: None, ..self.clone() }
    }

    /// Returns the endpoint.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Returns the certificates.
    pub fn tls(&self) -> &Tls {
        &self.tls
    }

    /// Connects, and so distinguishes a missing daemon from a failed call.
    pub async fn connect(&self) -> Result<Client, ConnectError> {
        let credentials = Credentials { token: self.token.clone(), node: self.node, trace: None };
        Ok(Client::new(self.open().await?, credentials))
    }

    /// Connects, and sends no token. Requests name the node of the first id in them that names one.
    pub async fn channel(&self) -> Result<Routed<Channel>, ConnectError> {
        Ok(Routed(self.open().await?))
    }

    async fn open(&self) -> Result<Channel, ConnectError> {
        let unusable = |_| ConnectError::Unusable(self.endpoint.clone());
        let mut endpoint = transport::Endpoint::from_shared(self.endpoint.to_string())
            .and_then(|endpoint| endpoint.user_agent(self.agent))
            .map_err(unusable)?
            .connect_timeout(CONNECT_TIMEOUT)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(2 * STREAM_WINDOW);
        if self.endpoint.is_tls() {
            let tls = self.tls.config()?;
            let tls = self.server_name.iter().fold(tls, transport::ClientTlsConfig::domain_name);
            endpoint = endpoint.tls_config(tls).map_err(ConnectError::Certificates)?;
        }
        if self.endpoint.socket().is_none() {
            endpoint = endpoint.http2_keep_alive_interval(ALIVE).keep_alive_timeout(SILENT);
        }
        let connected = endpoint.connect().await;
        connected.map_err(|source| Unreachable { endpoint: self.endpoint.clone(), source }.into())
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::{Connect, ConnectError};

    #[tokio::test]
    async fn finds_the_system_error_beneath_the_transport() {
        for (endpoint, kind) in [
            ("unix:/nonexistent/cofferd.sock", ErrorKind::NotFound),
            ("http://127.0.0.1:1", ErrorKind::ConnectionRefused),
        ] {
            let failed = Connect::to(endpoint.parse().unwrap()).connect().await.unwrap_err();
            assert!(failed.to_string().contains(&format!("{endpoint} cannot be reached: ")), "{failed}");
            let ConnectError::Unreachable(unreachable) = failed else { panic!("{failed:?}") };
            assert_eq!(unreachable.kind(), Some(kind));
        }
    }
}
