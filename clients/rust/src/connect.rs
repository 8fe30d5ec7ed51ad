//! The way to the daemon.

use std::path::Path;
use std::time::Duration;

use tonic::transport::{self, Channel};

use crate::clients::Client;
use crate::endpoint::Endpoint;
use crate::error::{ConnectError, Unreachable};
use crate::tls::Tls;
use crate::token::Token;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes that the daemon may send ahead in one stream: a download does not wait for every few frames.
const STREAM_WINDOW: u32 = 2 * 1024 * 1024;
/// Between signs of life over a network, and until one that does not come ends the connection.
const ALIVE: Duration = Duration::from_secs(30);
const SILENT: Duration = Duration::from_secs(20);

/// Where the daemon is, whom to trust on the way, and what to show.
#[derive(Clone, Debug)]
pub struct Connect {
    endpoint: Endpoint,
    tls: Tls,
    token: Option<Token>,
    agent: &'static str,
}

/// A variable of the environment that says something.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl Connect {
    /// Returns whether the daemon knows the client by its user on this host.
    pub fn is_by_user(&self) -> bool {
        self.endpoint.socket().is_some() && self.token.is_none()
    }

    /// To this endpoint, with the certificates that this host trusts and no token.
    pub fn to(endpoint: Endpoint) -> Self {
        let agent = concat!("cofferdam-client/", env!("CARGO_PKG_VERSION"));
        Self { endpoint, tls: Tls::default(), token: None, agent }
    }

    /// As `COFFERDAM_ENDPOINT`, `COFFERDAM_TOKEN` and `COFFERDAM_TLS` say; without them, by the default socket.
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

    /// With these certificates, which count for https alone.
    #[must_use]
    pub fn with_tls(self, tls: Tls) -> Self {
        Self { tls, ..self }
    }

    /// With this token, or with none.
    #[must_use]
    pub fn with_token(self, token: Option<Token>) -> Self {
        Self { token, ..self }
    }

    /// Under this name for the daemon.
    #[must_use]
    pub fn with_agent(self, agent: &'static str) -> Self {
        Self { agent, ..self }
    }

    /// Where it leads.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Connects, so that a daemon that is not there is told apart from a call that failed.
    pub async fn connect(&self) -> Result<Client, ConnectError> {
        Ok(Client::new(self.channel().await?, self.token.clone()))
    }

    /// The bare connection, which shows no token.
    pub async fn channel(&self) -> Result<Channel, ConnectError> {
        let unusable = |_| ConnectError::Unusable(self.endpoint.clone());
        let mut endpoint = transport::Endpoint::from_shared(self.endpoint.to_string())
            .and_then(|endpoint| endpoint.user_agent(self.agent))
            .map_err(unusable)?
            .connect_timeout(CONNECT_TIMEOUT)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(2 * STREAM_WINDOW);
        if self.endpoint.is_tls() {
            endpoint = endpoint.tls_config(self.tls.config()?).map_err(ConnectError::Certificates)?;
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
