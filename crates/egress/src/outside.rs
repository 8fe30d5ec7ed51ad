//! Names, resolved outside of the run.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use egress_rules::{Destination, HostName};
use model_usage::Ledger;
use secrets::Secrets;
use tenants::Tenancy;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::bytes::Bytes;
use crate::hosts_file::HostsFile;
use crate::roots::Roots;
use crate::upstream::UpstreamProxy;

/// Queries at the same time, of all runs.
const QUERIES: usize = 16;
/// Time for a query.
const ANSWER: Duration = Duration::from_secs(10);

/// Names that this host knows itself, hosts(5).
const HOSTS: &str = "/etc/hosts";

/// The parts of the daemon that all runs share.
#[derive(Clone)]
pub struct Shared {
    pub secrets: Arc<Secrets>,
    pub roots: Arc<Roots>,
    pub ledger: Arc<Ledger>,
    pub tenancy: Arc<Tenancy>,
    pub bytes: Arc<Bytes>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}

/// Resolves names with the host's resolver.
#[derive(Debug)]
pub struct Outside {
    hosts: BTreeMap<HostName, Vec<IpAddr>>,
    own: Arc<HostsFile>,
    proxy: Option<UpstreamProxy>,
    queries: Semaphore,
    shared: Shared,
}

impl Outside {
    /// `hosts` has the addresses of names that are not looked up. Connections to all others go through `proxy`.
    pub fn new(hosts: BTreeMap<HostName, Vec<IpAddr>>, proxy: Option<UpstreamProxy>, shared: Shared) -> Self {
        Self { hosts, own: Arc::new(HostsFile::new(HOSTS)), proxy, queries: Semaphore::new(QUERIES), shared }
    }

    /// Returns the secrets, authorities and counts that all runs share.
    pub fn shared(&self) -> &Shared {
        &self.shared
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
        let (file, sought) = (Arc::clone(&self.own), name.clone());
        let own = spawn_blocking(move || file.addresses(&sought)).await.map_err(io::Error::other)??;
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
