//! Checks that a request is meant for this endpoint, before anything else of it is read.

use tonic::codegen::http::header::HOST;
use tonic::codegen::http::uri::Authority;
use tonic::codegen::http::{HeaderMap, StatusCode, Uri};

/// The names by which clients reach the endpoint.
pub(super) struct Hosts(Vec<Host>);

/// A name in small letters, without brackets, and a port. An entry without a port matches any.
#[derive(Debug, PartialEq, Eq)]
struct Host {
    name: String,
    port: Option<u16>,
}

impl Hosts {
    /// Parses `name` and `name:port`. An IPv6 address has brackets if it has a port.
    pub(super) fn new(names: &[String]) -> Self {
        let entry = |name: &String| {
            Host::parse(name).unwrap_or_else(|| Host { name: name.to_ascii_lowercase(), port: None })
        };
        Self(names.iter().map(entry).collect())
    }

    /// Returns an error with the status for a request to another host. A target's authority must match as well as `Host`.
    pub(super) fn check(&self, target: &Uri, headers: &HeaderMap) -> Result<(), (StatusCode, &'static str)> {
        let mut given = headers.get_all(HOST).iter();
        let host = match (given.next(), given.next()) {
            (Some(host), None) => host.to_str().ok().and_then(Host::parse),
            _ => None,
        };
        let host = host.ok_or((StatusCode::BAD_REQUEST, "send exactly one valid Host header"))?;
        let authority = target.authority().map(|authority| Host::parse(authority.as_str()));
        let all_ours = [Some(Some(host)), authority]
            .into_iter()
            .flatten()
            .all(|host| host.is_some_and(|host| self.has(&host)));
        if all_ours { Ok(()) } else { Err((StatusCode::FORBIDDEN, "this Host is not allowed here")) }
    }

    fn has(&self, host: &Host) -> bool {
        let is = |own: &Host| own.name == host.name && (own.port.is_none() || own.port == host.port);
        self.0.iter().any(is)
    }
}

impl Host {
    fn parse(text: &str) -> Option<Self> {
        let authority: Authority = text.parse().ok().filter(|_| !text.contains('@'))?;
        let name = authority.host().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        let port = authority.port_u16();
        // Only a port may follow the name.
        let is_whole = port.is_some() || authority.as_str().len() == authority.host().len();
        (!name.is_empty() && is_whole).then_some(Self { name, port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(names: &[&str], target: &str, hosts: &[&str]) -> u16 {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut headers = HeaderMap::new();
        for host in hosts {
            headers.append(HOST, host.parse().unwrap());
        }
        let checked = Hosts::new(&names).check(&target.parse().unwrap(), &headers);
        checked.map_or_else(|(status, _)| status.as_u16(), |()| 200)
    }

    #[test]
    fn a_request_is_for_one_of_the_names_and_for_nothing_else() {
        let own = ["localhost", "127.0.0.1", "::1", "mcp.example.org:7464"];
        for (host, expected) in [
            ("localhost", 200),
            ("LOCALHOST:80", 200),
            ("[::1]:7464", 200),
            ("[::1]", 200),
            ("mcp.example.org:7464", 200),
            ("mcp.example.org", 403),
            ("mcp.example.org:80", 403),
            ("evil.example.org", 403),
            ("localhost.evil.example.org", 403),
            ("evil@localhost", 400),
            ("localhost:port", 400),
            ("localhost:", 400),
            ("", 400),
            ("a b", 400),
        ] {
            assert_eq!(status(&own, "/mcp", &[host]), expected, "{host}");
        }
        assert_eq!(status(&own, "/mcp", &[]), 400);
        assert_eq!(status(&own, "/mcp", &["localhost", "localhost"]), 400);
        assert_eq!(status(&own, "http://localhost/mcp", &["localhost"]), 200);
        assert_eq!(status(&own, "http://evil.example.org/mcp", &["localhost"]), 403);
        assert_eq!(status(&[], "/mcp", &["localhost"]), 403, "no name is ours");
    }
}
