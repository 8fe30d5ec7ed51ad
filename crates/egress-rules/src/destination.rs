//! The destination that a program means.

use std::fmt;
use std::net::IpAddr;

use crate::name::{BadName, HostName};

/// Host of a connection: a name that the run resolved, or an address that the program had from elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Destination {
    Name(HostName),
    /// An address in its canonical form: never IPv4 within IPv6.
    Address(IpAddr),
}

impl Destination {
    /// Returns the destination of a connection without a name. A socket of both families shows IPv4 as `::ffff:a.b.c.d`.
    pub fn address(address: IpAddr) -> Self {
        Self::Address(address.to_canonical())
    }

    /// Parses a host: a name, or an address with or without the brackets of a URL.
    pub fn parse(text: &str) -> Result<Self, BadName> {
        let within = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        match within.unwrap_or(text).parse::<IpAddr>() {
            Ok(address) => Ok(Self::address(address)),
            Err(_) => HostName::parse(text).map(Self::Name),
        }
    }

    /// Parses `files.example.org:443`, `198.51.100.7:22` or `[2001:db8::7]:443`.
    pub fn parse_with_port(text: &str) -> Result<(Self, u16), BadDestination> {
        let (host, port) = text.rsplit_once(':').ok_or(BadDestination::NoPort)?;
        // Without brackets, the last group of an IPv6 address would be the port.
        if host.contains(':') && !host.starts_with('[') {
            return Err(BadDestination::NoPort);
        }
        let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.parse().ok().filter(|port| is_number && *port > 0).ok_or(BadDestination::Port)?;
        Ok((Self::parse(host)?, port))
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Address(IpAddr::V4(address)) => address.fmt(f),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

/// A text that is no host with a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadDestination {
    #[error(transparent)]
    Host(#[from] BadName),
    #[error("write a host and a port, such as `files.example.org:443` or `[2001:db8::7]:443`")]
    NoPort,
    #[error("a port is a number from 1 to 65535")]
    Port,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_and_port_is_parsed_or_refused() {
        for text in ["files.example.org:443", "198.51.100.7:22", "[2001:db8::7]:443"] {
            let (host, port) = Destination::parse_with_port(text).unwrap();
            assert_eq!(format!("{host}:{port}"), text);
        }
        let mapped = Destination::parse_with_port("[::ffff:10.1.2.3]:22").unwrap();
        assert_eq!(mapped, (Destination::Address([10, 1, 2, 3].into()), 22));
        for (text, error) in [
            ("files.example.org", BadDestination::NoPort),
            ("2001:db8::7:443", BadDestination::NoPort),
            ("files.example.org:0", BadDestination::Port),
            ("files.example.org:+1", BadDestination::Port),
            ("files.example.org:65536", BadDestination::Port),
            ("files.example.org:", BadDestination::Port),
            (":443", BadDestination::Host(BadName::Empty)),
            ("127.1:443", BadDestination::Host(BadName::Address)),
            ("[fe80::1%eth0]:443", BadDestination::Host(BadName::Character('['))),
        ] {
            assert_eq!(Destination::parse_with_port(text), Err(error), "{text}");
        }
    }

    #[test]
    fn every_notation_of_an_address_is_that_address_or_refused() {
        let address = Destination::Address([198, 51, 100, 7].into());
        for text in [
            "198.51.100.7",
            "[198.51.100.7]",
            "::ffff:198.51.100.7",
            "[::FFFF:c633:6407]",
            "0:0:0:0:0:ffff:198.51.100.7",
        ] {
            assert_eq!(Destination::parse(text), Ok(address.clone()), "{text}");
        }
        for text in [
            "198.51.100.7.",
            "198.51.25607",
            "198.3368967",
            "3325256711",
            "0306.063.0144.07",
            "198.51.100.07",
            "0xc6.51.100.7",
            "0xC6336407",
            "１９８.51.100.7",
            "198。51。100。7",
        ] {
            assert_eq!(Destination::parse(text), Err(BadName::Address), "{text}");
        }
        for text in [
            "198.51.100.7/32",
            "[198.51.100.7",
            "198.51.100.7]",
            "[[::1]]",
            "fe80::1%eth0",
            "[::ffff:198.51.100.7%1]",
            "198.51.100.7%00.example.org",
            "198.51.100.7\0",
            " 198.51.100.7",
        ] {
            assert!(Destination::parse(text).is_err(), "{text}");
        }
    }
}
