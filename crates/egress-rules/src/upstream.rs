//! The server that requests go to in place of the host that a program names.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::destination::Destination;
use crate::name::BadName;
use crate::path::is_plain_path;

/// Longest text, bytes.
const MOST: usize = 512;

/// A server and the beginning of the paths of its requests: `https://api.example.org:8443/base`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Upstream {
    pub tls: bool,
    pub host: Destination,
    pub port: u16,
    /// Path before the path of each request, without a slash at its end; empty for none.
    pub path: String,
}

impl Upstream {
    /// Parses a URL that has nothing but a scheme, a host, a port and a path.
    pub fn parse(text: &str) -> Result<Self, BadUpstream> {
        if text.len() > MOST {
            return Err(BadUpstream::Long);
        }
        let (scheme, rest) = text.split_once("://").ok_or(BadUpstream::Scheme)?;
        let (tls, usual) = match scheme {
            "https" => (true, 443),
            "http" => (false, 80),
            _ => return Err(BadUpstream::Scheme),
        };
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(BadUpstream::User);
        }
        // The groups of an IPv6 address are not ports.
        let after_host = authority.rfind(']').map_or(0, |end| end + 1);
        let (host, port) = match authority.get(after_host..).and_then(|rest| rest.rfind(':')) {
            Some(colon) => {
                let (host, port) = authority.split_at(after_host + colon);
                (host, number(&port[1..]).ok_or(BadUpstream::Port)?)
            }
            None => (authority, usual),
        };
        let host = Destination::parse(host)?;
        if matches!(host, Destination::Address(IpAddr::V6(_))) && !authority.starts_with('[') {
            return Err(BadUpstream::Brackets);
        }
        let path = path.strip_suffix('/').unwrap_or(path);
        if !path.is_empty() && (path.ends_with('/') || path.contains('*') || !is_plain_path(path)) {
            return Err(BadUpstream::Path);
        }
        Ok(Self { tls, host, port, path: path.to_owned() })
    }

    /// Returns the port that the scheme has without a number.
    fn usual_port(&self) -> u16 {
        if self.tls { 443 } else { 80 }
    }
}

/// Parses a port that is not 0.
fn number(text: &str) -> Option<u16> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| is_number && *port > 0)
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.host)?;
        if self.port != self.usual_port() {
            write!(f, ":{}", self.port)?;
        }
        f.write_str(&self.path)
    }
}

impl TryFrom<String> for Upstream {
    type Error = BadUpstream;

    fn try_from(text: String) -> Result<Self, BadUpstream> {
        Self::parse(&text)
    }
}

impl From<Upstream> for String {
    fn from(upstream: Upstream) -> Self {
        upstream.to_string()
    }
}

/// A text that names no server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadUpstream {
    #[error("a server has at most {MOST} bytes")]
    Long,
    #[error("write the scheme and the host of the server, such as `https://api.example.org`")]
    Scheme,
    #[error("a server has no user and password here; `inject` sets them")]
    User,
    #[error("the host of the server: {0}")]
    Host(#[from] BadName),
    #[error("a port is a number from 1 to 65535")]
    Port,
    #[error("write the address in brackets, such as `https://[2001:db8::7]`")]
    Brackets,
    #[error(
        "the path of the server is one that all servers read in the same way, without a query and without `*`"
    )]
    Path,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_written_in_one_form() {
        for (text, canonical) in [
            ("https://api.example.org", "https://api.example.org"),
            ("https://API.example.org.:443/", "https://api.example.org"),
            ("https://api.example.org:8443/base/", "https://api.example.org:8443/base"),
            ("http://api.example.org:443", "http://api.example.org:443"),
            ("http://10.20.0.7:80/a/b", "http://10.20.0.7/a/b"),
            ("https://[2001:DB8::7]", "https://[2001:db8::7]"),
            ("https://[2001:db8::7]:8443/v1", "https://[2001:db8::7]:8443/v1"),
        ] {
            let upstream = Upstream::parse(text).unwrap();
            assert_eq!(upstream.to_string(), canonical, "{text}");
            assert_eq!(Upstream::parse(canonical), Ok(upstream));
        }
        let parsed = Upstream::parse("https://api.example.org:8443/base").unwrap();
        let host = Destination::parse("api.example.org").unwrap();
        assert_eq!(parsed, Upstream { tls: true, host, port: 8443, path: "/base".to_owned() });
    }

    #[test]
    fn texts_that_are_no_server_are_refused() {
        for (text, error) in [
            ("", BadUpstream::Scheme),
            ("api.example.org", BadUpstream::Scheme),
            ("ftp://api.example.org", BadUpstream::Scheme),
            ("HTTPS://api.example.org", BadUpstream::Scheme),
            ("https://user:word@api.example.org", BadUpstream::User),
            ("https://api.example.org@evil.example.net", BadUpstream::User),
            ("https://", BadUpstream::Host(BadName::Empty)),
            ("https://127.1", BadUpstream::Host(BadName::Address)),
            ("https://localhost", BadUpstream::Host(BadName::Localhost)),
            ("https://*.example.org", BadUpstream::Host(BadName::Character('*'))),
            ("https://api.example.org\\@evil.example.net", BadUpstream::User),
            ("https://api.example.org\\evil", BadUpstream::Host(BadName::Character('\\'))),
            ("https://api.example.org:0", BadUpstream::Port),
            ("https://api.example.org:+1", BadUpstream::Port),
            ("https://api.example.org:", BadUpstream::Port),
            ("https://api.example.org:65536", BadUpstream::Port),
            ("https://[2001:db8::7", BadUpstream::Host(BadName::Character('['))),
            ("https://[::1]x", BadUpstream::Host(BadName::Character('['))),
            ("https://api.example.org?x", BadUpstream::Path),
            ("https://api.example.org/#x", BadUpstream::Path),
            ("https://api.example.org/a?x", BadUpstream::Path),
            ("https://api.example.org/../a", BadUpstream::Path),
            ("https://api.example.org//", BadUpstream::Path),
            ("https://api.example.org/v1/*", BadUpstream::Path),
            ("https://api.example.org/a b", BadUpstream::Path),
        ] {
            assert_eq!(Upstream::parse(text), Err(error), "{text}");
        }
        assert_eq!(Upstream::parse(&format!("https://a/{}", "a".repeat(512))), Err(BadUpstream::Long));
    }
}
