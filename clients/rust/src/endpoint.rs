//! The addresses of the daemon.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use thiserror::Error;

/// A daemon's address, as people write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(Target);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    Socket(PathBuf),
    /// Host and port, over TLS.
    Tls(String),
    /// Host and port on this host, without TLS.
    Plain(String),
}

impl Default for Endpoint {
    fn default() -> Self {
        Self(Target::Socket("/run/cofferdam/cofferd.sock".into()))
    }
}

impl Endpoint {
    /// Returns the path of its socket, if it is one.
    pub fn socket(&self) -> Option<&Path> {
        if let Target::Socket(socket) = &self.0 { Some(socket) } else { None }
    }

    /// Returns true for an endpoint with https.
    pub fn is_tls(&self) -> bool {
        matches!(self.0, Target::Tls(_))
    }
}

/// The fault of an endpoint.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum BadEndpoint {
    /// Plain text over a network.
    #[error("http is for this host only, as in http://127.0.0.1:7443: use https for other hosts")]
    InTheClear,
    /// Malformed host or port.
    #[error("an endpoint over TCP looks like https://cofferd.example.org:7443")]
    Authority,
    /// A relative path of a socket.
    #[error("the path of a socket must be absolute, as in unix:/run/cofferdam/cofferd.sock")]
    Relative,
    /// Neither a socket nor an address.
    #[error("an endpoint looks like unix:/run/cofferdam/cofferd.sock or https://cofferd.example.org:7443")]
    Unknown,
}

impl FromStr for Endpoint {
    type Err = BadEndpoint;

    fn from_str(text: &str) -> Result<Self, BadEndpoint> {
        if let Some(authority) = text.strip_prefix("https://") {
            let (_, authority) = host_and_port(authority)?;
            return Ok(Self(Target::Tls(authority)));
        }
        if let Some(authority) = text.strip_prefix("http://") {
            let (host, authority) = host_and_port(authority)?;
            let is_local = host == "localhost" || host.parse().is_ok_and(|host: IpAddr| host.is_loopback());
            return if is_local { Ok(Self(Target::Plain(authority))) } else { Err(BadEndpoint::InTheClear) };
        }
        let path = text.strip_prefix("unix:").ok_or(BadEndpoint::Unknown)?;
        let path = path.strip_prefix("//").unwrap_or(path);
        if !path.starts_with('/') {
            return Err(BadEndpoint::Relative);
        }
        Ok(Self(Target::Socket(path.into())))
    }
}

/// Returns the host without brackets, and the whole without a slash at its end.
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
        match &self.0 {
            Target::Socket(socket) => write!(f, "unix:{}", socket.display()),
            Target::Tls(authority) => write!(f, "https://{authority}"),
            Target::Plain(authority) => write!(f, "http://{authority}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BadEndpoint, Endpoint};

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
}
