//! The URL of a webhook: `https`, or `http` on this host.

use std::fmt;
use std::net::IpAddr;

use hyper::Uri;

/// A URL to which a message may be posted. Its path may be secret, so it is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    pub(crate) tls: bool,
    /// Host without brackets, as it is resolved and as a certificate names it.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Authority, as in the `host` header.
    pub(crate) authority: String,
    pub(crate) path: String,
}

impl Target {
    /// Parses a URL. Plain `http` is only accepted for this host, unless `allow_http`.
    pub fn parse(url: &str, allow_http: bool) -> Result<Self, String> {
        let uri: Uri =
            url.parse().map_err(|_| "is not a URL, such as https://alerts.example.org/cofferdam")?;
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err("must begin with https://, or with http:// on this host".to_owned()),
        };
        let authority = uri.authority().ok_or("has no host")?;
        if authority.as_str().contains('@') {
            return Err("must not have a user or password: messages are signed instead".to_owned());
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err("has no host".to_owned());
        }
        let is_here =
            host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        if !tls && !is_here && !allow_http {
            return Err("is unencrypted http to another host: use https, or set allow_http".to_owned());
        }
        let written = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
        let port = match authority.port_u16() {
            Some(port) => port,
            None if !written.is_empty() => return Err("has an invalid port".to_owned()),
            None if tls => 443,
            None => 80,
        };
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(Self { tls, host, port, authority: authority.as_str().to_owned(), path: path.to_owned() })
    }

    /// Returns the authority, as in the `host` header.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Returns `https` or `http`.
    pub fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }

    /// Returns path and query, which may be secret.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the same target with another path.
    #[must_use]
    pub fn with_path(self, path: &str) -> Self {
        Self { path: path.to_owned(), ..self }
    }

    /// Returns true if it is reached with TLS.
    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// Returns the host without brackets, and the port.
    pub fn place(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    /// Returns scheme, host and port in the form of an origin (RFC 6454, section 6.2).
    pub fn origin(&self) -> String {
        let (scheme, usual) = if self.tls { ("https", 443) } else { ("http", 80) };
        let host = self.host.to_ascii_lowercase();
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        if self.port == usual {
            format!("{scheme}://{host}")
        } else {
            format!("{scheme}://{host}:{}", self.port)
        }
    }

    /// Returns scheme and authority. The rest may be secret.
    pub fn shown(&self) -> String {
        format!("{}://{}/REDACTED", self.scheme(), self.authority)
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

#[cfg(test)]
mod tests {
    use super::Target;

    #[test]
    fn https_anywhere_and_http_on_this_host() {
        let target = Target::parse("https://alerts.example.org/T0/secret?x=1", false).unwrap();
        assert_eq!((target.tls, target.host.as_str(), target.port), (true, "alerts.example.org", 443));
        assert_eq!(target.path, "/T0/secret?x=1");
        assert_eq!(format!("{target:?}"), "https://alerts.example.org/REDACTED");
        let local = Target::parse("http://[::1]:8080", false).unwrap();
        assert_eq!((local.host.as_str(), local.port, local.authority.as_str()), ("::1", 8080, "[::1]:8080"));
        assert_eq!(local.path, "/");
        for url in ["http://localhost/", "http://127.0.0.1:1/x"] {
            assert!(Target::parse(url, false).is_ok(), "{url}");
        }
        assert!(Target::parse("http://10.0.0.1/", false).is_err());
        assert!(Target::parse("http://10.0.0.1/", true).is_ok());
        for url in [
            "",
            "x",
            "/x",
            "ftp://x/",
            "https://",
            "https://u:p@x/",
            "https://x:99999/",
            "http://localhost.evil/",
        ] {
            assert!(Target::parse(url, false).is_err(), "{url}");
        }
    }
}
