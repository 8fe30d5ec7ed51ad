//! Addresses of repositories on servers.

use std::fmt;

use egress_rules::{BadName, Destination};
use git_wire::{BadRepository, Repository};

/// Most bytes of an address.
const MOST: usize = 1_024;
const HTTPS: &str = "https://";
const PORT: u16 = 443;

/// Address of a repository on a server, as `https://git.example.org/org/app`, in its canonical form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryUrl {
    host: Destination,
    port: u16,
    /// Path as the client wrote it, with or without `.git` at its end.
    path: String,
    repository: Repository,
}

impl RepositoryUrl {
    /// Parses an address. No error repeats a part of it, which may be a password.
    pub fn parse(text: &str) -> Result<Self, BadUrl> {
        if text.len() > MOST {
            return Err(BadUrl::Long);
        }
        let is_https = text.get(..HTTPS.len()).is_some_and(|start| start.eq_ignore_ascii_case(HTTPS));
        let rest = text.get(HTTPS.len()..).filter(|_| is_https).ok_or(BadUrl::Scheme)?;
        let (authority, path) = rest.split_once('/').ok_or(BadUrl::NoPath)?;
        if authority.contains('@') {
            return Err(BadUrl::User);
        }
        if path.contains(['?', '#']) {
            return Err(BadUrl::Query);
        }
        let is_with_port = authority.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
        let (host, port) = if is_with_port {
            let (host, port) = authority.rsplit_once(':').unwrap_or((authority, ""));
            let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
            (host, port.parse().ok().filter(|port| is_number && *port > 0).ok_or(BadUrl::Port)?)
        } else {
            (authority, PORT)
        };
        // An address of IPv6 without brackets has no port that is plain.
        if host.contains(':') && !host.starts_with('[') {
            return Err(BadUrl::Port);
        }
        let (host, repository) = (Destination::parse(host)?, Repository::parse(path)?);
        Ok(Self { host, port, path: path.to_owned(), repository })
    }

    pub fn host(&self) -> &Destination {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn repository(&self) -> &Repository {
        &self.repository
    }
}

impl fmt::Display for RepositoryUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, path, .. } = self;
        match *port {
            PORT => write!(f, "{HTTPS}{host}/{path}"),
            port => write!(f, "{HTTPS}{host}:{port}/{path}"),
        }
    }
}

/// A text that is no address of a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    #[error("is longer than 1024 bytes")]
    Long,
    #[error(
        "must begin with https://; ssh, git and http are not used, and a directory of the host is `repository`"
    )]
    Scheme,
    #[error(
        "has a user or a password, which would be stored and shown: leave it out; the profile's `egress` adds credentials \
         (`inject`)"
    )]
    User,
    #[error("has a query or a fragment: leave it out")]
    Query,
    #[error("has no path of a repository; write it as https://git.example.org/org/app")]
    NoPath,
    #[error("has a port that is no number from 1 to 65535")]
    Port,
    #[error("has a bad host: {0}")]
    Host(#[from] BadName),
    #[error("has a bad path: {0}")]
    Path(#[from] BadRepository),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_repository_has_one_address() {
        for (text, canonical) in [
            ("https://git.example.org/org/app", "https://git.example.org/org/app"),
            ("HTTPS://Git.Example.ORG.:443/org/app.git", "https://git.example.org/org/app.git"),
            ("https://git.example.org:8443/a/b/c", "https://git.example.org:8443/a/b/c"),
            ("https://198.51.100.7/a", "https://198.51.100.7/a"),
            ("https://[2001:db8::7]/a", "https://[2001:db8::7]/a"),
            ("https://[2001:db8::7]:8443/a", "https://[2001:db8::7]:8443/a"),
        ] {
            let url = RepositoryUrl::parse(text).unwrap();
            assert_eq!(url.to_string(), canonical);
            assert_eq!(RepositoryUrl::parse(canonical), Ok(url));
        }
        let of = |text| RepositoryUrl::parse(text).unwrap().repository().clone();
        assert_eq!(of("https://git.example.org/org/app.git"), of("https://git.example.org/org/app"));
    }

    #[test]
    fn hostile_addresses_are_refused_and_not_repeated() {
        let long = format!("https://git.example.org/{}", "a".repeat(1_024));
        for (text, why) in [
            ("", BadUrl::Scheme),
            ("ssh://git.example.org/hunter2", BadUrl::Scheme),
            ("git@git.example.org:hunter2", BadUrl::Scheme),
            ("http://git.example.org/hunter2", BadUrl::Scheme),
            ("file:///srv/hunter2", BadUrl::Scheme),
            ("ext::sh -c hunter2", BadUrl::Scheme),
            ("-uhunter2", BadUrl::Scheme),
            (" https://git.example.org/hunter2", BadUrl::Scheme),
            ("https:é//git.example.org", BadUrl::Scheme),
            ("https://git.example.org", BadUrl::NoPath),
            ("https://user:hunter2@git.example.org/a", BadUrl::User),
            ("https://hunter2@git.example.org/a", BadUrl::User),
            ("https://git.example.org/a?hunter2", BadUrl::Query),
            ("https://git.example.org/a#hunter2", BadUrl::Query),
            ("https://git.example.org:0/a", BadUrl::Port),
            ("https://git.example.org:/a", BadUrl::Port),
            ("https://git.example.org:+443/a", BadUrl::Port),
            ("https://git.example.org:65536/a", BadUrl::Port),
            ("https://2001:db8::7/a", BadUrl::Port),
            ("https://git.example.org/../hunter2", BadUrl::Path(BadRepository::Dot)),
            ("https://git.example.org//hunter2", BadUrl::Path(BadRepository::EmptyPart)),
            ("https://git.example.org/a/", BadUrl::Path(BadRepository::EmptyPart)),
            ("https://git.example.org/%68unter2", BadUrl::Path(BadRepository::Character)),
            ("https://git.example.org/a\nb", BadUrl::Path(BadRepository::Character)),
            ("https://git.example.org/a.git/b", BadUrl::Path(BadRepository::Ambiguous)),
            (&long, BadUrl::Long),
        ] {
            let refused = RepositoryUrl::parse(text).unwrap_err();
            assert_eq!(refused, why, "{text}");
            assert!(!refused.to_string().contains("hunter2"));
        }
        for host in ["", "a b", "a..b", "*.example.org", "[::1"] {
            let refused = RepositoryUrl::parse(&format!("https://{host}/a"));
            assert!(matches!(refused, Err(BadUrl::Host(_) | BadUrl::Port)), "{host}: {refused:?}");
        }
    }
}
