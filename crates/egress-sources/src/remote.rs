//! The server of a URL.

use std::fmt;

use egress_rules::{BadName, Destination};
use url::Url;

/// A server, and the protocol that is spoken with it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Remote {
    pub(super) host: Destination,
    pub(super) port: u16,
    pub(super) protocol: Protocol,
}

/// Protocols of URLs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Protocol {
    Https,
    Http,
    /// SSH, or git's own.
    Tcp,
}

/// The reason why a URL is not used. It does not repeat the URL, which may have a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BadRemote {
    Url,
    Host(BadName),
}

impl fmt::Display for BadRemote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url => f.write_str("the value is no URL of a server"),
            // The text of the error may repeat a character of the value.
            Self::Host(BadName::Localhost) => {
                f.write_str("the server is this host itself, which a run cannot reach by that name")
            }
            Self::Host(_) => f.write_str("the URL has no host that a rule can name"),
        }
    }
}

/// Prefixes that say how the URL is used, and not how the server is reached.
const PREFIXES: [&str; 5] = ["sparse+", "registry+", "git+", "mirror+", "tor+"];

impl Remote {
    /// Returns the server of a URL. `None` if the URL is for files of this host.
    pub(super) fn parse(text: &str) -> Result<Option<Self>, BadRemote> {
        let text = text.trim();
        let text = PREFIXES.iter().find_map(|prefix| text.strip_prefix(prefix)).unwrap_or(text);
        let url = Url::parse(text).map_err(|_| BadRemote::Url)?;
        let (protocol, usual_port) = match url.scheme() {
            "https" => (Protocol::Https, 443),
            "http" => (Protocol::Http, 80),
            "ssh" => (Protocol::Tcp, 22),
            "git" => (Protocol::Tcp, 9418),
            "file" | "cdrom" | "copy" => return Ok(None),
            _ => return Err(BadRemote::Url),
        };
        let host = url.host_str().ok_or(BadRemote::Url)?;
        let port = url.port().unwrap_or(usual_port);
        Self::of(host, port, protocol).map(Some)
    }

    pub(super) fn of(host: &str, port: u16, protocol: Protocol) -> Result<Self, BadRemote> {
        let host = Destination::parse(host).map_err(BadRemote::Host)?;
        if port == 0 {
            return Err(BadRemote::Url);
        }
        Ok(Self { host, port, protocol })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Option<String>, BadRemote> {
        let shown =
            |remote: Remote| format!("{:?} {}:{}", remote.protocol, remote.host, remote.port).to_lowercase();
        Ok(Remote::parse(text)?.map(shown))
    }

    #[test]
    fn scheme_host_and_port_remain_of_a_url() {
        for (text, found) in [
            ("https://user:secret@Files.Example.ORG:8443/simple/?token=x#y", "https files.example.org:8443"),
            ("sparse+https://index.example.org/", "https index.example.org:443"),
            ("mirror+http://mirror.example.org/list", "http mirror.example.org:80"),
            ("ssh://git@git.example.org/a.git", "tcp git.example.org:22"),
            ("git+ssh://git@git.example.org:2222/a.git", "tcp git.example.org:2222"),
            ("git://git.example.org/a", "tcp git.example.org:9418"),
            ("https://[2001:db8::7]/", "https [2001:db8::7]:443"),
            ("https://bücher.example.org/", "https xn--bcher-kva.example.org:443"),
            ("http://0x0a.1/", "http 10.0.0.1:80"),
        ] {
            assert_eq!(parsed(text), Ok(Some(found.to_owned())), "{text}");
        }
        for local in ["file:///srv/mirror", "cdrom:[Disk]/", "copy:/srv/x"] {
            assert_eq!(parsed(local), Ok(None), "{local}");
        }
    }

    #[test]
    fn no_other_text_is_a_server() {
        for text in [
            "",
            "files.example.org",
            "/srv/x",
            "https://",
            "https://${HOST}/",
            "https://files.example.org:0/",
            "https://files.example.org:99999/",
            "https://a b.example.org/",
            "ftp://files.example.org/",
            "https://user:secret@/",
            "ssh://git%00.example.org/",
            "javascript:alert(1)",
            "https://localhost:3000/",
        ] {
            let problem = parsed(text).unwrap_err().to_string();
            assert!(!problem.contains("secret") && !problem.contains("example"), "{text}: {problem}");
        }
    }
}
