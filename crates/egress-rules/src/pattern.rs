//! The hosts that a rule is for.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::destination::Destination;
use crate::name::{BadName, HostName};

/// The hosts that a rule is for, as `host` of a policy says it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum HostPattern {
    /// This name.
    Name(HostName),
    /// Every name below this one, at any depth, and not the name itself: `*.example.org`.
    Below(HostName),
    /// Every name, and no address: `*`.
    EveryName,
    /// A network, or one address, for programs that connect without a name.
    Network(IpNet),
}

impl HostPattern {
    /// Parses `files.example.org`, `*.example.org`, `*`, an address or a network such as `198.51.100.0/24`.
    pub fn parse(text: &str) -> Result<Self, BadPattern> {
        if text == "*" {
            return Ok(Self::EveryName);
        }
        if let Some(parent) = text.strip_prefix("*.") {
            return Self::no_star(parent).map(Self::Below);
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Self::network(address.into());
        }
        match text.parse::<IpNet>() {
            Ok(network) => Self::network(network),
            Err(_) if text.contains('/') => Err(BadPattern::Network),
            Err(_) => Self::no_star(text).map(Self::Name),
        }
    }

    fn no_star(text: &str) -> Result<HostName, BadPattern> {
        if text.contains('*') { Err(BadPattern::Star) } else { Ok(HostName::parse(text)?) }
    }

    fn network(network: IpNet) -> Result<Self, BadPattern> {
        if network.trunc() != network {
            return Err(BadPattern::HostBits(network.trunc()));
        }
        match network {
            IpNet::V6(six) if six.addr().to_ipv4_mapped().is_some() => Err(BadPattern::Mapped),
            network => Ok(Self::Network(network)),
        }
    }

    pub fn matches(&self, destination: &Destination) -> bool {
        match (self, destination) {
            (Self::Name(name), Destination::Name(asked)) => name == asked,
            (Self::Below(parent), Destination::Name(asked)) => asked.is_below(parent),
            (Self::EveryName, Destination::Name(_)) => true,
            (Self::Network(network), Destination::Address(address)) => network.contains(address),
            (Self::Network(_), Destination::Name(_)) | (_, Destination::Address(_)) => false,
        }
    }

    /// Returns true if this pattern matches each destination that `other` matches.
    ///
    /// If two patterns match the same destination, one contains the other.
    pub fn contains(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Network(mine), Self::Network(other)) => mine.contains(other),
            (Self::Network(_), _) | (_, Self::Network(_)) => false,
            (Self::EveryName, _) => true,
            (Self::Name(mine), Self::Name(other)) => mine == other,
            (Self::Below(mine), Self::Name(other)) => other.is_below(mine),
            (Self::Below(mine), Self::Below(other)) => mine == other || other.is_below(mine),
            (Self::Name(_) | Self::Below(_), _) => false,
        }
    }

    /// Returns true if a destination exists that both match.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.contains(other) || other.contains(self)
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Below(parent) => write!(f, "*.{parent}"),
            Self::EveryName => f.write_str("*"),
            Self::Network(network) if network.prefix_len() == network.max_prefix_len() => {
                network.addr().fmt(f)
            }
            Self::Network(network) => network.fmt(f),
        }
    }
}

impl TryFrom<String> for HostPattern {
    type Error = BadPattern;

    fn try_from(text: String) -> Result<Self, BadPattern> {
        Self::parse(&text)
    }
}

impl From<HostPattern> for String {
    fn from(pattern: HostPattern) -> Self {
        pattern.to_string()
    }
}

/// A text that is no pattern for hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadPattern {
    #[error(transparent)]
    Name(#[from] BadName),
    #[error("a `*` is possible as the whole host, or as its first label: `*.example.org`")]
    Star,
    #[error("this is not a network; write it as `198.51.100.0/24`")]
    Network,
    #[error("the address has bits beyond its prefix; write `{0}`")]
    HostBits(IpNet),
    #[error("write the IPv4 address without `::ffff:`")]
    Mapped,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> HostPattern {
        HostPattern::parse(text).unwrap()
    }

    #[test]
    fn patterns_match_whole_labels() {
        for (text, matched, other) in [
            (
                "example.net",
                &["example.net"][..],
                &["a.example.net", "evilexample.net", "example.net.org"][..],
            ),
            (
                "*.example.net",
                &["a.example.net", "a.b.example.net"],
                &["example.net", "evilexample.net", "net"],
            ),
            ("*", &["example.net", "db"], &["198.51.100.1", "10.0.0.1", "2001:db8::1"]),
            ("198.51.100.0/24", &["198.51.100.7", "::ffff:198.51.100.7"], &["198.51.101.7", "example.net"]),
            ("2001:db8::7", &["2001:db8::7"], &["2001:db8::8", "example.net"]),
        ] {
            let matches = |host: &&str| pattern(text).matches(&Destination::parse(host).unwrap());
            assert!(matched.iter().all(matches), "{text}: {matched:?}");
            assert!(!other.iter().any(matches), "{text}: {other:?}");
        }
    }

    #[test]
    fn a_pattern_is_written_as_it_is_parsed() {
        for (text, canonical) in [
            ("*.Example.NET.", "*.example.net"),
            ("*", "*"),
            ("198.51.100.7/32", "198.51.100.7"),
            ("2001:DB8::/32", "2001:db8::/32"),
        ] {
            assert_eq!(pattern(text).to_string(), canonical);
            assert_eq!(pattern(canonical), pattern(text));
        }
    }

    #[test]
    fn patterns_that_could_be_misread_are_refused() {
        for (text, error) in [
            ("", BadPattern::Name(BadName::Empty)),
            ("*.", BadPattern::Name(BadName::Empty)),
            ("*.*", BadPattern::Star),
            ("a.*.example.org", BadPattern::Star),
            ("*example.org", BadPattern::Star),
            ("**", BadPattern::Star),
            ("*.localhost", BadPattern::Name(BadName::Localhost)),
            ("*.0.0.1", BadPattern::Name(BadName::Address)),
            ("127.1", BadPattern::Name(BadName::Address)),
            ("10.0.0.0/33", BadPattern::Network),
            ("https://example.org", BadPattern::Network),
            ("10.0.0.1/8", BadPattern::HostBits("10.0.0.0/8".parse().unwrap())),
            ("::ffff:10.0.0.1", BadPattern::Mapped),
        ] {
            assert_eq!(HostPattern::parse(text), Err(error), "{text}");
        }
    }
}
