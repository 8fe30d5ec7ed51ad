//! Where the daemon listens, and how to get there.

use std::error::Error as _;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use thiserror::Error;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity};

use crate::failure::Failure;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes that the daemon may send ahead in one stream: a download does not wait for every few frames.
const STREAM_WINDOW: u32 = 2 * 1024 * 1024;
/// Between signs of life over a network, and until one that does not come ends the connection.
const ALIVE: Duration = Duration::from_secs(30);
const SILENT: Duration = Duration::from_secs(20);

/// What `coffer tls` calls its files.
pub(crate) const CA: &str = "ca.pem";
pub(crate) const CERTIFICATE: &str = "cert.pem";
pub(crate) const KEY: &str = "key.pem";

/// A daemon's address, and whom to trust on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    at: Place,
    credentials: Tls,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Socket(PathBuf),
    /// Host and port, over TLS.
    Tls(String),
    /// The same on this host, in the clear.
    Plain(String),
}

/// Files that prove who the daemon and its client are, for https.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tls {
    /// For https: a directory with ca.pem, cert.pem and key.pem, as `coffer tls init` makes one for each client.
    /// Default: COFFERDAM_TLS.
    #[arg(long = "tls", global = true, id = "tls_directory", value_name = "DIR", help_heading = "Global options", conflicts_with_all = ["tls_ca", "tls_cert", "tls_key"])]
    directory: Option<PathBuf>,
    /// For https: who must have signed the daemon's certificate. Default: an authority that this host trusts.
    #[arg(long = "ca", global = true, id = "tls_ca", value_name = "FILE", help_heading = "Global options")]
    ca: Option<PathBuf>,
    /// For https: the client's certificate.
    #[arg(
        long = "cert",
        global = true,
        id = "tls_cert",
        value_name = "FILE",
        requires = "tls_key",
        help_heading = "Global options"
    )]
    cert: Option<PathBuf>,
    /// For https: the key of the client's certificate.
    #[arg(
        long = "cert-key",
        global = true,
        id = "tls_key",
        value_name = "FILE",
        requires = "tls_cert",
        help_heading = "Global options"
    )]
    key: Option<PathBuf>,
}

impl Tls {
    /// As named on the command line, or else the directory that `variable` names.
    pub(crate) fn or(self, variable: Option<String>) -> Self {
        if self == Self::default() { Self { directory: variable.map(PathBuf::from), ..self } } else { self }
    }

    fn config(&self) -> Result<ClientTlsConfig, Failure> {
        let within = |name: &str| self.directory.as_ref().map(|directory| directory.join(name));
        let ca = self.ca.clone().or_else(|| within(CA));
        let pair = self.cert.clone().zip(self.key.clone());
        // A directory with an authority alone is for a client that has a token.
        let pair = pair.or_else(|| within(CERTIFICATE).filter(|file| file.exists()).zip(within(KEY)));
        let config = match ca {
            Some(ca) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(&ca)?)),
            None => ClientTlsConfig::new().with_native_roots(),
        };
        Ok(match pair {
            Some((cert, key)) => config.identity(Identity::from_pem(read(&cert)?, read(&key)?)),
            None => config,
        })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| Failure::usage(format!("{} cannot be read: {error}", path.display())))
}

impl Default for Endpoint {
    fn default() -> Self {
        Place::Socket("/run/cofferdam/cofferd.sock".into()).into()
    }
}

impl From<Place> for Endpoint {
    fn from(at: Place) -> Self {
        Self { at, credentials: Tls::default() }
    }
}

/// What is wrong with an endpoint as it was written.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum BadEndpoint {
    #[error("http is for this host alone, as in http://127.0.0.1:7443: use https for another")]
    InTheClear,
    #[error("an endpoint over TCP looks like https://cofferd.example.org:7443")]
    Authority,
    #[error("the path of a socket must be absolute, as in unix:/run/cofferdam/cofferd.sock")]
    Relative,
    #[error("an endpoint looks like unix:/run/cofferdam/cofferd.sock or https://cofferd.example.org:7443")]
    Unknown,
}

impl FromStr for Endpoint {
    type Err = BadEndpoint;

    fn from_str(text: &str) -> Result<Self, BadEndpoint> {
        if let Some(authority) = text.strip_prefix("https://") {
            let (_, authority) = host_and_port(authority)?;
            return Ok(Place::Tls(authority).into());
        }
        if let Some(authority) = text.strip_prefix("http://") {
            let (host, authority) = host_and_port(authority)?;
            let is_local = host == "localhost" || host.parse().is_ok_and(|host: IpAddr| host.is_loopback());
            return if is_local { Ok(Place::Plain(authority).into()) } else { Err(BadEndpoint::InTheClear) };
        }
        let path = text.strip_prefix("unix:").ok_or(BadEndpoint::Unknown)?;
        let path = path.strip_prefix("//").unwrap_or(path);
        if !path.starts_with('/') {
            return Err(BadEndpoint::Relative);
        }
        Ok(Place::Socket(path.into()).into())
    }
}

/// The host without brackets, and the whole without a slash at its end.
fn host_and_port(text: &str) -> Result<(&str, String), BadEndpoint> {
    let authority = text.strip_suffix('/').unwrap_or(text);
    let (host, port) = authority.rsplit_once(':').ok_or(BadEndpoint::Authority)?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let is_host = match bare {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.chars().all(plain),
    };
    if is_host && port.parse::<u16>().is_ok() {
        Ok((bare.unwrap_or(host), authority.to_owned()))
    } else {
        Err(BadEndpoint::Authority)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            Place::Socket(socket) => write!(f, "unix:{}", socket.display()),
            Place::Tls(authority) => write!(f, "https://{authority}"),
            Place::Plain(authority) => write!(f, "http://{authority}"),
        }
    }
}

impl Endpoint {
    /// With what proves who is who.
    pub(crate) fn with(self, credentials: Tls) -> Self {
        Self { credentials, ..self }
    }

    /// Connects, so that a daemon that is not there is told apart from a call that failed.
    pub(crate) async fn connect(&self) -> Result<Channel, Failure> {
        let unusable = |_| Failure::usage(format!("{self} is not a usable endpoint"));
        let mut endpoint = tonic::transport::Endpoint::from_shared(self.to_string())
            .and_then(|endpoint| endpoint.user_agent(concat!("coffer/", env!("CARGO_PKG_VERSION"))))
            .map_err(unusable)?
            .connect_timeout(CONNECT_TIMEOUT)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(2 * STREAM_WINDOW);
        if let Place::Tls(_) = &self.at {
            let config = self.credentials.config()?;
            let wrong =
                |_| Failure::usage("the certificates or their key cannot be used").with_hint("see --tls");
            endpoint = endpoint.tls_config(config).map_err(wrong)?;
        }
        if !matches!(self.at, Place::Socket(_)) {
            endpoint = endpoint.http2_keep_alive_interval(ALIVE).keep_alive_timeout(SILENT);
        }
        endpoint.connect().await.map_err(|error| self.unreachable(&error))
    }

    fn unreachable(&self, error: &tonic::transport::Error) -> Failure {
        match &self.at {
            Place::Socket(socket) => no_socket(socket, io_kind(error)),
            Place::Tls(_) | Place::Plain(_) => self.no_host(&innermost(error)),
        }
    }

    fn no_host(&self, cause: &str) -> Failure {
        Failure::unreachable(format!("the daemon at {self} cannot be reached: {cause}")).with_hint(
            "the daemon listens there only if its configuration has `listen.tcp`; for https, --tls names the certificates",
        )
    }
}

fn no_socket(socket: &Path, kind: Option<io::ErrorKind>) -> Failure {
    let socket = socket.display();
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

/// What went wrong in the end.
fn innermost(error: &tonic::transport::Error) -> String {
    let mut last: &dyn std::error::Error = error;
    while let Some(next) = last.source() {
        last = next;
    }
    last.to_string()
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
    fn takes_unix_sockets_and_hosts() {
        let endpoint: Endpoint = "unix:/tmp/a.sock".parse().unwrap();
        assert_eq!(endpoint.to_string(), "unix:/tmp/a.sock");
        assert_eq!("unix:///tmp/a.sock".parse::<Endpoint>().unwrap(), endpoint);
        assert_eq!("unix:a.sock".parse::<Endpoint>(), Err(BadEndpoint::Relative));
        assert_eq!("/tmp/a.sock".parse::<Endpoint>(), Err(BadEndpoint::Unknown));
        for (text, shown) in [
            ("https://host:7443", "https://host:7443"),
            ("https://cofferd.example.org:7443/", "https://cofferd.example.org:7443"),
            ("https://[2001:db8::1]:1", "https://[2001:db8::1]:1"),
            ("http://127.0.0.1:7443", "http://127.0.0.1:7443"),
            ("http://localhost:7443", "http://localhost:7443"),
            ("http://[::1]:7443", "http://[::1]:7443"),
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn no_token_goes_over_a_network_in_the_clear() {
        for text in
            ["http://host:1", "http://10.0.0.1:1", "http://localhost.example.org:1", "http://[2001:db8::1]:1"]
        {
            assert_eq!(text.parse::<Endpoint>(), Err(BadEndpoint::InTheClear), "{text}");
        }
        for text in [
            "https://host",
            "https://:1",
            "https://host:99999",
            "https://a@b:1",
            "https://host:1/path",
            "http://[::1:1",
        ] {
            assert_eq!(text.parse::<Endpoint>(), Err(BadEndpoint::Authority), "{text}");
        }
    }

    #[test]
    fn what_is_named_on_the_command_line_is_stronger_than_the_variable() {
        let variable = || Some("/from/variable".to_owned());
        let named = Tls { ca: Some("/ca".into()), ..Tls::default() };
        assert_eq!(named.clone().or(variable()), named);
        assert_eq!(Tls::default().or(variable()).directory, Some("/from/variable".into()));
        assert_eq!(Tls::default().or(None), Tls::default());
        assert!(
            Tls::default().or(variable()).config().unwrap_err().to_string().contains("/from/variable/ca.pem")
        );
    }

    #[test]
    fn each_way_of_not_being_there_has_its_own_hint() {
        let text = |kind| no_socket(Path::new("/s"), kind).to_string();
        assert!(text(Some(io::ErrorKind::NotFound)).contains("/s does not exist"));
        assert!(text(Some(io::ErrorKind::PermissionDenied)).contains("you may not use"));
        assert!(text(Some(io::ErrorKind::ConnectionRefused)).contains("nothing listens on /s"));
        assert!(text(None).contains("does not answer"));
        assert_eq!(no_socket(Path::new("/s"), None).exit(), Exit::Unreachable);
    }

    #[tokio::test]
    async fn finds_the_system_error_beneath_the_transport() {
        let endpoint: Endpoint = "unix:/nonexistent/cofferd.sock".parse().unwrap();
        let failure = endpoint.connect().await.unwrap_err();
        assert!(failure.to_string().contains("does not exist"), "{failure}");
        let endpoint: Endpoint = "http://127.0.0.1:1".parse().unwrap();
        let failure = endpoint.connect().await.unwrap_err();
        assert!(failure.to_string().contains("http://127.0.0.1:1 cannot be reached: "), "{failure}");
        assert_eq!(failure.exit(), Exit::Unreachable);
    }
}
