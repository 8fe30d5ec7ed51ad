//! The one origin at which browsers reach the console.

use std::fmt;
use std::net::SocketAddr;

use url::Url;

/// Scheme, host and port. Requests for another host are refused, so that no other name in a browser can lead here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The form that browsers send in `Origin`.
    text: String,
    /// The form that browsers send in `Host`.
    host: String,
    is_secure: bool,
}

impl Origin {
    /// Parses an origin such as `https://console.example.org`. The error says what it must be.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const MUST: &str =
            "must be an origin such as https://console.example.org or http://127.0.0.1:7465, without a path";
        let url = Url::parse(text).map_err(|_| MUST)?;
        let is_plain = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
        let is_anonymous = url.username().is_empty() && url.password().is_none();
        let host = url.host_str().filter(|_| is_plain && is_anonymous).ok_or(MUST)?;
        let host = match url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        match url.scheme() {
            "https" => Ok(Self { text: format!("https://{host}"), host, is_secure: true }),
            "http" if is_loopback(&url) => {
                Ok(Self { text: format!("http://{host}"), host, is_secure: false })
            }
            "http" => Err("must be https, unless its host is an address or a name of this host's loopback"),
            _ => Err(MUST),
        }
    }

    /// Returns the origin of a console on a loopback address.
    ///
    /// The name has separate cookies. Cookies of `localhost` and `127.0.0.1` go to every port, so also to a site of an agent to
    /// which a port is forwarded.
    pub fn of_loopback(address: SocketAddr) -> Self {
        let host = match address.port() {
            80 => "console.localhost".to_owned(),
            port => format!("console.localhost:{port}"),
        };
        Self { text: format!("http://{host}"), host, is_secure: false }
    }

    /// Returns true if browsers reach it over TLS.
    pub fn is_secure(&self) -> bool {
        self.is_secure
    }

    /// Returns the name that passkeys of this console belong to. `None` if it is reached by an address, which has none.
    pub fn passkey_domain(&self) -> Option<String> {
        let url = Url::parse(&self.text).ok()?;
        url.domain().map(str::to_owned)
    }

    /// Returns the name of the cookie of a session. The prefix `__Host-` has browsers take it from this host alone, over TLS.
    pub(crate) fn cookie(&self) -> String {
        if self.is_secure {
            return "__Host-cofferdam".to_owned();
        }
        // Several daemons on one host have one name.
        let port = self.host.rsplit_once(':').map_or("", |(_, port)| port.trim_end_matches(']'));
        format!("cofferdam-{port}")
    }

    /// Returns true if `host` of a request names this origin.
    pub(crate) fn is_host(&self, host: &str) -> bool {
        let default = if self.is_secure { ":443" } else { ":80" };
        host.eq_ignore_ascii_case(&self.host)
            || host.strip_suffix(default).is_some_and(|host| host.eq_ignore_ascii_case(&self.host))
    }

    /// Returns true if `origin` of a request is this one.
    pub(crate) fn is(&self, origin: &str) -> bool {
        origin == self.text
    }
}

/// Returns true for names and addresses that no other host can have.
fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::Origin;

    #[test]
    fn an_origin_is_https_or_on_this_host() {
        for (text, shown) in [
            ("https://Console.example.org", "https://console.example.org"),
            ("https://console.example.org:443/", "https://console.example.org"),
            ("https://console.example.org:8443", "https://console.example.org:8443"),
            ("http://127.0.0.1:7465", "http://127.0.0.1:7465"),
            ("http://[::1]:7465", "http://[::1]:7465"),
            ("http://console.localhost:7465", "http://console.localhost:7465"),
        ] {
            let origin = Origin::parse(text).unwrap();
            assert_eq!(origin.to_string(), shown);
            assert_eq!(origin.is_secure(), shown.starts_with("https"));
        }
        for bad in [
            "",
            "console.example.org",
            "http://console.example.org",
            "http://localhost.example.org",
            "https://console.example.org/path",
            "https://console.example.org/?q",
            "https://user@console.example.org",
            "ftp://127.0.0.1",
            "javascript:alert(1)",
        ] {
            assert!(Origin::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_host_is_the_whole_name_with_its_port() {
        let local = Origin::of_loopback("127.0.0.1:7465".parse().unwrap());
        assert!(local.is_host("console.localhost:7465") && local.is("http://console.localhost:7465"));
        for other in
            ["console.localhost", "console.localhost:80", "127.0.0.1:7465", "evil.example.org:7465", ""]
        {
            assert!(!local.is_host(other), "{other}");
        }
        let named = Origin::parse("https://console.example.org").unwrap();
        assert!(named.is_host("CONSOLE.example.org") && named.is_host("console.example.org:443"));
        for other in ["http://console.example.org", "https://console.example.org.", "null", ""] {
            assert!(!named.is(other), "{other}");
        }
    }
}
