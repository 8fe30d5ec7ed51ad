//! Names, resolved outside of the run.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use egress_rules::{Destination, HostName};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::upstream::UpstreamProxy;

/// Queries at the same time, of all runs.
const QUERIES: usize = 16;
/// Time for a query.
const ANSWER: Duration = Duration::from_secs(10);

/// Names that this host knows itself, hosts(5).
const HOSTS: &str = "/etc/hosts";

/// Resolves names with the host's resolver.
#[derive(Debug)]
pub struct Outside {
    hosts: BTreeMap<HostName, Vec<IpAddr>>,
    proxy: Option<UpstreamProxy>,
    queries: Semaphore,
}

impl Outside {
    /// `hosts` has the addresses of names that are not looked up. Connections to all others go through `proxy`.
    pub fn new(hosts: BTreeMap<HostName, Vec<IpAddr>>, proxy: Option<UpstreamProxy>) -> Self {
        Self { hosts, proxy, queries: Semaphore::new(QUERIES) }
    }

    /// Returns the proxy through which a destination is reached.
    pub(crate) fn proxy(&self, destination: &Destination) -> Option<&UpstreamProxy> {
        let is_pinned = matches!(destination, Destination::Name(name) if self.hosts.contains_key(name));
        self.proxy.as_ref().filter(|_| !is_pinned)
    }

    /// Returns the addresses of a name. They are not checked.
    pub(crate) async fn resolve(&self, name: &HostName) -> io::Result<Vec<IpAddr>> {
        if let Some(addresses) = self.hosts.get(name) {
            return Ok(addresses.clone());
        }
        let own = spawn_blocking(|| std::fs::read_to_string(HOSTS)).await.map_err(io::Error::other)?;
        let own = own.map(|hosts| addresses(&hosts, name)).unwrap_or_default();
        if !own.is_empty() {
            return Ok(own);
        }
        // With the last dot, so that no search list applies. The library finds no such name in the file of hosts.
        let query = async {
            let _turn = self.queries.acquire().await.map_err(io::Error::other)?;
            let found = tokio::net::lookup_host((format!("{name}."), 0)).await?;
            Ok(found.map(|address| address.ip().to_canonical()).collect())
        };
        timeout(ANSWER, query).await?
    }
}

/// Returns the addresses of a name in a file of hosts.
fn addresses(hosts: &str, name: &HostName) -> Vec<IpAddr> {
    let name = name.to_string();
    let of_line = |line: &str| {
        let mut words = line.split('#').next()?.split_whitespace();
        let address: IpAddr = words.next()?.parse().ok()?;
        words.any(|word| word.eq_ignore_ascii_case(&name)).then(|| address.to_canonical())
    };
    hosts.lines().filter_map(of_line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_file_of_hosts_are_found() {
        let hosts = "127.0.0.1 localhost\n\n# 10.0.0.1 a.example.org\n10.0.0.7\tmirror  A.example.org # b.example.org\n\
                     fd00::7 a.example.org\nnone a.example.org\n::ffff:10.0.0.8 a.example.org";
        let of = |name: &str| addresses(hosts, &HostName::parse(name).unwrap());
        let all = ["10.0.0.7", "fd00::7", "10.0.0.8"].map(|address| address.parse::<IpAddr>().unwrap());
        assert_eq!(of("a.example.org"), all);
        assert_eq!(of("b.example.org"), [] as [IpAddr; 0]);
        assert_eq!(of("example.org"), [] as [IpAddr; 0]);
    }
}
