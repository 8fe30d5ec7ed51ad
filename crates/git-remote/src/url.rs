//! URLs of repositories.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Port of a URL without one.
const USUAL: u16 = 443;
/// Most bytes of a URL.
const MOST: usize = 2_048;
/// Most bytes of a host name.
const HOST: usize = 253;

/// URL of a repository, of the form `https://host[:port]/path`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteUrl {
    /// Name or address, in lower case; an address of IPv6 has brackets.
    host: String,
    port: u16,
    /// Begins with `/`, and does not end with one.
    path: String,
}

/// The reason why a text is no URL of a repository that can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    #[error("the URL is longer than {MOST} bytes")]
    TooLong,
    #[error("ssh is not available here; use the https URL of the repository")]
    Ssh,
    #[error(
        "the protocol git:// is not available here, because it proves nothing about the server; use https"
    )]
    Git,
    #[error("plain http is not available for git; use https")]
    Http,
    #[error("a path or file:// is no remote here; only https URLs are")]
    File,
    #[error("only https URLs can be used")]
    Scheme,
    #[error("the URL has a user or a password; credentials come from the rule of the policy for its host")]
    User,
    #[error("the URL has a query or a fragment")]
    Query,
    #[error("the host of the URL is not valid")]
    Host,
    #[error("the port of the URL is not a number from 1 to 65535")]
    Port,
    #[error("the URL has no path to a repository")]
    NoPath,
    #[error("the path of the URL has a character or a part that servers read in different ways")]
    Path,
}

impl RemoteUrl {
    pub fn parse(text: &str) -> Result<Self, BadUrl> {
        if text.len() > MOST {
            return Err(BadUrl::TooLong);
        }
        let rest = text.get(..8).filter(|scheme| scheme.eq_ignore_ascii_case("https://")).map(|_| &text[8..]);
        let Some(rest) = rest else { return Err(other(text)) };
        if rest.contains(['?', '#']) {
            return Err(BadUrl::Query);
        }
        let (authority, path) = rest.split_at(rest.find('/').ok_or(BadUrl::NoPath)?);
        if authority.contains('@') {
            return Err(BadUrl::User);
        }
        // The last colon of an address of IPv6 is within its brackets.
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (authority, None),
        };
        let host = host.to_ascii_lowercase();
        if !is_host(&host) {
            return Err(BadUrl::Host);
        }
        let port = port.map_or(Ok(USUAL), parse_port)?;
        let path = path.trim_end_matches('/');
        if path.is_empty() {
            return Err(BadUrl::NoPath);
        }
        let is_plain = |part: &str| !part.is_empty() && part != "." && part != "..";
        let is_path = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~+@:%,=".contains(&byte);
        if !path.bytes().all(is_path) || !path[1..].split('/').all(is_plain) {
            return Err(BadUrl::Path);
        }
        Ok(Self { host, port, path: path.to_owned() })
    }

    /// Returns the name or the address; an address of IPv6 has brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the value of `Host`.
    pub(crate) fn authority(&self) -> String {
        if self.port == USUAL { self.host.clone() } else { format!("{}:{}", self.host, self.port) }
    }
}

impl fmt::Display for RemoteUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "https://{}{}", self.authority(), self.path)
    }
}

/// Returns the reason for a text that does not begin with `https://`.
fn other(text: &str) -> BadUrl {
    let scheme = text.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    match scheme.as_deref() {
        Some("ssh" | "git+ssh" | "ssh+git") => BadUrl::Ssh,
        Some("git") => BadUrl::Git,
        Some("http") => BadUrl::Http,
        Some("file") => BadUrl::File,
        Some(_) => BadUrl::Scheme,
        None if text.starts_with(['/', '.']) || !text.contains(':') => BadUrl::File,
        // `git@host:path`.
        None => BadUrl::Ssh,
    }
}

fn parse_port(text: &str) -> Result<u16, BadUrl> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| is_number && *port > 0).ok_or(BadUrl::Port)
}

fn is_host(host: &str) -> bool {
    if let Some(address) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        return address.parse::<Ipv6Addr>().is_ok();
    }
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    host.parse::<Ipv4Addr>().is_ok() || host.len() <= HOST && host.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_repositories_are_read() {
        for (text, host, port, path, shown) in [
            ("https://git.example.org/org/app.git", "git.example.org", 443, "/org/app.git", None),
            (
                "HTTPS://Git.Example.org:8443/a/",
                "git.example.org",
                8443,
                "/a",
                Some("https://git.example.org:8443/a"),
            ),
            ("https://192.0.2.7/a", "192.0.2.7", 443, "/a", None),
            ("https://[2001:db8::7]/a", "[2001:db8::7]", 443, "/a", None),
            ("https://[2001:db8::7]:444/~u/a%20b", "[2001:db8::7]", 444, "/~u/a%20b", None),
        ] {
            let url = RemoteUrl::parse(text).unwrap();
            assert_eq!((url.host(), url.port(), url.path()), (host, port, path));
            assert_eq!(url.to_string(), shown.unwrap_or(text));
        }
    }

    #[test]
    fn everything_else_is_refused_by_name() {
        let long = format!("https://git.example.org/{}", "a".repeat(MOST));
        for (text, why) in [
            ("ssh://git@git.example.org/a", BadUrl::Ssh),
            ("git@git.example.org:org/app", BadUrl::Ssh),
            ("git://git.example.org/a", BadUrl::Git),
            ("http://git.example.org/a", BadUrl::Http),
            ("file:///etc", BadUrl::File),
            ("/etc", BadUrl::File),
            ("../other", BadUrl::File),
            ("origin", BadUrl::File),
            ("", BadUrl::File),
            ("ext::sh -c id", BadUrl::Ssh),
            ("ftp://git.example.org/a", BadUrl::Scheme),
            ("https://u:p@git.example.org/a", BadUrl::User),
            ("https://git.example.org/a?b=c", BadUrl::Query),
            ("https://git.example.org/a#b", BadUrl::Query),
            ("https://git.example.org", BadUrl::NoPath),
            ("https://git.example.org//", BadUrl::NoPath),
            ("https:///a", BadUrl::Host),
            ("https://git..example.org/a", BadUrl::Host),
            ("https://git.example.org\r\nX: y/a", BadUrl::Host),
            ("https://[git]/a", BadUrl::Host),
            ("https://git.example.org:0/a", BadUrl::Port),
            ("https://git.example.org:/a", BadUrl::Port),
            ("https://git.example.org:+1/a", BadUrl::Port),
            ("https://git.example.org:65536/a", BadUrl::Port),
            ("https://git.example.org/a/../b", BadUrl::Path),
            ("https://git.example.org/a//b", BadUrl::Path),
            ("https://git.example.org/a b", BadUrl::Path),
            ("https://git.example.org/a\r\nX: y", BadUrl::Path),
            ("https://git.example.org/a\\b", BadUrl::Path),
            (&long, BadUrl::TooLong),
        ] {
            assert_eq!(RemoteUrl::parse(text), Err(why), "{text}");
        }
    }
}
