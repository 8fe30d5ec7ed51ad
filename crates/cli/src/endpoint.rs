//! Where the daemon listens.

use std::error::Error as _;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;
use tonic::transport::Channel;

use crate::failure::Failure;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A Unix socket of a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    socket: PathBuf,
}

impl Default for Endpoint {
    fn default() -> Self {
        Self { socket: "/run/cofferdam/cofferd.sock".into() }
    }
}

/// What is wrong with an endpoint as it was written.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum BadEndpoint {
    #[error("the daemon is served on Unix sockets only for now; use unix:/path/to/cofferd.sock")]
    Tcp,
    #[error("the path of a socket must be absolute, as in unix:/run/cofferdam/cofferd.sock")]
    Relative,
    #[error("an endpoint looks like unix:/run/cofferdam/cofferd.sock")]
    Unknown,
}

impl FromStr for Endpoint {
    type Err = BadEndpoint;

    fn from_str(text: &str) -> Result<Self, BadEndpoint> {
        if text.starts_with("https:") || text.starts_with("http:") {
            return Err(BadEndpoint::Tcp);
        }
        let path = text.strip_prefix("unix:").ok_or(BadEndpoint::Unknown)?;
        let path = path.strip_prefix("//").unwrap_or(path);
        if !path.starts_with('/') {
            return Err(BadEndpoint::Relative);
        }
        Ok(Self { socket: path.into() })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unix:{}", self.socket.display())
    }
}

impl Endpoint {
    /// Connects, so that a daemon that is not there is told apart from a call that failed.
    pub(crate) async fn connect(&self) -> Result<Channel, Failure> {
        let endpoint = tonic::transport::Endpoint::from_shared(self.to_string())
            .and_then(|endpoint| endpoint.user_agent(concat!("coffer/", env!("CARGO_PKG_VERSION"))))
            .map_err(|_| Failure::usage(format!("{self} is not a usable endpoint")))?;
        endpoint
            .connect_timeout(CONNECT_TIMEOUT)
            .connect()
            .await
            .map_err(|error| self.unreachable(io_kind(&error)))
    }

    fn unreachable(&self, kind: Option<io::ErrorKind>) -> Failure {
        let socket = self.socket.display();
        let (message, hint) = match kind {
            Some(io::ErrorKind::PermissionDenied) => (
                format!("you may not use the daemon's socket {socket}"),
                "it belongs to the user that runs the daemon: run coffer as that user, or with sudo",
            ),
            Some(io::ErrorKind::ConnectionRefused) => (
                format!("nothing listens on {socket}, although the socket is there"),
                "the daemon has probably ended; see `systemctl status cofferd`, or start it with `cofferd --config FILE`",
            ),
            Some(io::ErrorKind::NotFound) => (
                format!("there is no daemon: {socket} does not exist"),
                "start it with `systemctl start cofferd` or `cofferd --config FILE`, or name its socket with --endpoint",
            ),
            _ => (
                format!("the daemon at {socket} does not answer"),
                "see `systemctl status cofferd` and the daemon's log",
            ),
        };
        Failure::unreachable(message).with_hint(hint)
    }
}

/// The system's own error beneath the transport's.
fn io_kind(error: &tonic::transport::Error) -> Option<io::ErrorKind> {
    let mut next = error.source();
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return Some(error.kind());
        }
        next = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    #[test]
    fn takes_unix_sockets_only() {
        let endpoint: Endpoint = "unix:/tmp/a.sock".parse().unwrap();
        assert_eq!(endpoint.to_string(), "unix:/tmp/a.sock");
        assert_eq!("unix:///tmp/a.sock".parse::<Endpoint>().unwrap(), endpoint);
        assert_eq!("https://host:7443".parse::<Endpoint>(), Err(BadEndpoint::Tcp));
        assert_eq!("http://host:7443".parse::<Endpoint>(), Err(BadEndpoint::Tcp));
        assert_eq!("unix:a.sock".parse::<Endpoint>(), Err(BadEndpoint::Relative));
        assert_eq!("/tmp/a.sock".parse::<Endpoint>(), Err(BadEndpoint::Unknown));
    }

    #[test]
    fn each_way_of_not_being_there_has_its_own_hint() {
        let endpoint = Endpoint { socket: "/s".into() };
        let text = |kind| endpoint.unreachable(kind).to_string();
        assert!(text(Some(io::ErrorKind::NotFound)).contains("/s does not exist"));
        assert!(text(Some(io::ErrorKind::PermissionDenied)).contains("you may not use"));
        assert!(text(Some(io::ErrorKind::ConnectionRefused)).contains("nothing listens on /s"));
        assert!(text(None).contains("does not answer"));
        assert_eq!(endpoint.unreachable(None).exit(), Exit::Unreachable);
    }

    #[tokio::test]
    async fn finds_the_system_error_beneath_the_transport() {
        let endpoint = Endpoint { socket: "/nonexistent/cofferd.sock".into() };
        let failure = endpoint.connect().await.unwrap_err();
        assert!(failure.to_string().contains("does not exist"), "{failure}");
    }
}
