//! Reads `egress`: what all runs with a way out share.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use document::{At, Fields};
use egress::{Fingerprint, Roots, UpstreamProxy};
use egress_rules::{Destination, HostName, Pool};
use ipnet::Ipv4Net;
use serde_json::{Value, json};

use super::secret_file;
use super::values::path;

/// Most names with addresses of their own.
const MAX_HOSTS: usize = 1_000;
/// Most addresses of such a name.
const MAX_ADDRESSES: usize = 8;
/// Most files of authorities.
const MAX_AUTHORITIES: usize = 16;
/// Most revoked certificates.
const MAX_REVOKED: usize = 1_000;

/// Settings of all runs with a way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Egress {
    /// Block of the addresses that names have within runs.
    pub(crate) block: Ipv4Net,
    /// Addresses of names that are not looked up.
    pub(crate) hosts: BTreeMap<HostName, Vec<IpAddr>>,
    /// Host and port of the proxy for all other names and addresses.
    upstream_proxy: Option<(Destination, u16)>,
    /// File with `user:password` for the proxy.
    credentials_file: Option<PathBuf>,
    /// Files in PEM with authorities of servers, beside those that this host trusts.
    authorities: Vec<PathBuf>,
    /// Certificates of servers, and of authorities, that count no longer.
    revoked: Vec<Fingerprint>,
}

impl Default for Egress {
    fn default() -> Self {
        Self {
            block: Pool::DEFAULT_BLOCK,
            hosts: BTreeMap::new(),
            upstream_proxy: None,
            credentials_file: None,
            authorities: Vec::new(),
            revoked: Vec::new(),
        }
    }
}

impl Egress {
    /// Reads the credentials, and returns the proxy.
    pub(crate) fn proxy(&self) -> anyhow::Result<Option<UpstreamProxy>> {
        let Some((host, port)) = &self.upstream_proxy else { return Ok(None) };
        let file = self.credentials_file.as_deref();
        let credentials = file.map(secret_file::read).transpose().map_err(anyhow::Error::msg)?;
        let proxy = UpstreamProxy::new(host.clone(), *port, credentials.as_deref());
        Ok(Some(proxy.map_err(anyhow::Error::msg)?))
    }

    /// Reads the authorities that servers of opened connections have to be signed by.
    pub(crate) fn roots(&self) -> anyhow::Result<Roots> {
        Roots::load(&self.authorities, &self.revoked)
            .map_err(|why| anyhow::anyhow!("egress.authorities: {why}"))
    }
}

/// Reads the section.
pub(super) fn read(top: &Fields<'_>) -> Egress {
    let keys = ["pool", "hosts", "upstream_proxy", "upstream_proxy_credentials", "authorities", "revoked"];
    let fields = top.section("egress", &keys);
    let block = fields.get("pool").and_then(|at| {
        let parsed = at.text()?.parse().map_err(|_| "must be a network such as 11.200.0.0/16".to_owned());
        let checked = parsed.and_then(|block| Pool::new(block).map_err(|error| error.to_string()));
        checked.map(|pool| pool.block()).map_err(|why| at.problem(why)).ok()
    });
    let hosts = fields.get("hosts").map(hosts).unwrap_or_default();
    let upstream_proxy = fields.get("upstream_proxy").and_then(|at| {
        let parsed = Destination::parse_with_port(at.text()?);
        parsed.map_err(|_| at.problem("must be a host and a port such as proxy.example.org:3128")).ok()
    });
    let credentials_file = fields.get("upstream_proxy_credentials").and_then(|at| {
        let file = path(at)?;
        let text = secret_file::read(&file).map_err(|why| at.problem(why)).ok()?;
        let Some((host, port)) = upstream_proxy.clone() else {
            at.problem("needs `upstream_proxy`");
            return None;
        };
        UpstreamProxy::new(host, port, Some(&text)).map_err(|why| at.problem(why)).is_ok().then_some(file)
    });
    Egress {
        block: block.unwrap_or(Pool::DEFAULT_BLOCK),
        hosts,
        upstream_proxy,
        credentials_file,
        authorities: authorities(&fields),
        revoked: revoked(&fields),
    }
}

/// Reads the fingerprints of certificates that count no longer.
fn revoked(fields: &Fields<'_>) -> Vec<Fingerprint> {
    let items = fields.items("revoked");
    if items.len() > MAX_REVOKED {
        fields.at("revoked").problem(format!("has more than {MAX_REVOKED} certificates"));
        return Vec::new();
    }
    let wrong = "must be the SHA-256 of a certificate, as `openssl x509 -noout -fingerprint -sha256` prints it after the `=`";
    let read = |at: &At<'_>| {
        let fingerprint = Fingerprint::parse(at.text()?);
        if fingerprint.is_none() {
            at.problem(wrong);
        }
        fingerprint
    };
    items.iter().filter_map(read).collect()
}

/// Reads the paths of authorities, and checks that each file has certificates.
fn authorities(fields: &Fields<'_>) -> Vec<PathBuf> {
    let items = fields.items("authorities");
    if items.len() > MAX_AUTHORITIES {
        fields.at("authorities").problem(format!("has more than {MAX_AUTHORITIES} files"));
        return Vec::new();
    }
    let read = |at: &At<'_>| {
        let file = path(at)?;
        Roots::check(&file).map_err(|why| at.problem(why)).is_ok().then_some(file)
    };
    items.iter().filter_map(read).collect()
}

fn hosts(at: &At<'_>) -> BTreeMap<HostName, Vec<IpAddr>> {
    let entries = at.entries();
    if entries.len() > MAX_HOSTS {
        at.problem(format!("has more than {MAX_HOSTS} names"));
        return BTreeMap::new();
    }
    let mut hosts = BTreeMap::new();
    for (name, at) in entries {
        let Ok(name) = HostName::parse(name).map_err(|error| at.problem(error.to_string())) else { continue };
        let given = at.one_or_more();
        if given.is_empty() || given.len() > MAX_ADDRESSES {
            at.problem(format!("must have 1 to {MAX_ADDRESSES} addresses"));
        }
        let address = |at: &At<'_>| {
            at.text()?.parse().map_err(|_| at.problem("must be an address such as 192.0.2.7")).ok()
        };
        let addresses: Vec<IpAddr> = given.iter().filter_map(address).collect();
        if hosts.insert(name, addresses).is_some() {
            at.problem("names the same host as another entry");
        }
    }
    hosts
}

/// Returns the section in the form of the configuration file. `None` if it is as it is without one.
pub(super) fn shown(egress: &Egress) -> Option<Value> {
    if *egress == Egress::default() {
        return None;
    }
    let mut shown = json!({ "pool": egress.block.to_string(), "hosts": egress.hosts });
    if let Some((host, port)) = &egress.upstream_proxy {
        shown["upstream_proxy"] = format!("{host}:{port}").into();
    }
    if let Some(file) = &egress.credentials_file {
        shown["upstream_proxy_credentials"] = json!(file);
    }
    if !egress.authorities.is_empty() {
        shown["authorities"] = json!(egress.authorities);
    }
    if !egress.revoked.is_empty() {
        let revoked: Vec<String> = egress.revoked.iter().map(Fingerprint::to_string).collect();
        shown["revoked"] = json!(revoked);
    }
    Some(shown)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{keys, parse};

    #[test]
    fn the_block_and_pinned_hosts_are_read_and_printed_as_they_are() {
        let text = "egress: { pool: 11.9.0.0/16, hosts: { Files.example.org: 10.0.0.7, b.example.org: [10.0.0.8, 'fd00::1'] } }";
        let config = parse(text).unwrap();
        assert_eq!(config.egress.hosts.len(), 2);
        assert_eq!(config.egress.hosts.values().map(Vec::len).sum::<usize>(), 3);
        assert_eq!(parse(&config.to_string()).unwrap().egress, config.egress);
        assert_eq!(config.egress.block.to_string(), "11.9.0.0/16");
        assert!(!parse("{}").unwrap().to_string().contains("egress"));
    }

    #[test]
    fn the_upstream_proxy_and_its_credentials_are_read_and_bad_ones_are_reported_by_key() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("proxy");
        std::fs::write(&file, "user:secret\n").unwrap();
        let mode = |mode| {
            std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        };
        let text = format!(
            "egress: {{ upstream_proxy: 'proxy.example.org:3128', upstream_proxy_credentials: '{}' }}",
            file.display()
        );
        mode(0o640);
        let config = parse(&text).unwrap();
        assert!(config.egress.proxy().unwrap().is_some());
        assert!(!config.to_string().contains("secret"));
        assert_eq!(parse(&config.to_string()).unwrap().egress, config.egress);
        mode(0o644);
        assert_eq!(keys(&text), ["egress.upstream_proxy_credentials"]);
        assert_eq!(keys("egress: { upstream_proxy: proxy.example.org }"), ["egress.upstream_proxy"]);
        mode(0o600);
        let alone = text.replace("upstream_proxy: 'proxy.example.org:3128', ", "");
        assert_eq!(keys(&alone), ["egress.upstream_proxy_credentials"]);
    }

    #[test]
    fn authorities_are_read_and_a_file_without_a_certificate_is_reported_by_key() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ca.pem");
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate =
            rcgen::CertificateParams::new(vec!["ca".into()]).unwrap().self_signed(&key).unwrap();
        std::fs::write(&file, certificate.pem()).unwrap();
        let text = format!("egress: {{ authorities: ['{}'] }}", file.display());
        let config = parse(&text).unwrap();
        let host = parse("{}").unwrap().egress.roots().unwrap();
        assert_eq!(config.egress.roots().unwrap().der().len(), host.der().len() + 1);
        assert_eq!(parse(&config.to_string()).unwrap().egress, config.egress);
        std::fs::write(&file, "no certificate").unwrap();
        assert_eq!(keys(&text), ["egress.authorities[0]"]);
        assert!(config.egress.roots().unwrap_err().to_string().starts_with("egress.authorities: "));
        assert_eq!(keys("egress: { authorities: [ca.pem] }"), ["egress.authorities[0]"]);
        assert_eq!(keys("egress: { authorities: /ca.pem }"), ["egress.authorities"]);
        let many = "/ca.pem, ".repeat(17);
        assert_eq!(keys(&format!("egress: {{ authorities: [{many}] }}")), ["egress.authorities"]);
    }

    #[test]
    fn bad_blocks_names_and_addresses_are_reported_by_key() {
        assert_eq!(keys("egress: { pool: 10.0.0.0/16 }"), ["egress.pool"]);
        assert_eq!(keys("egress: { pool: all }"), ["egress.pool"]);
        assert_eq!(keys("egress: { hosts: { a.example.org: here } }"), ["egress.hosts.a.example.org"]);
        assert_eq!(keys("egress: { hosts: { a.example.org: [] } }"), ["egress.hosts.a.example.org"]);
        assert_eq!(
            keys("egress: { hosts: { a.example.org: 10.0.0.1, A.example.org: 10.0.0.2 } }"),
            ["egress.hosts.A.example.org"]
        );
    }

    #[test]
    fn revoked_certificates_are_read_and_another_text_is_reported_by_key() {
        let (one, other) = ("1f".repeat(32), vec!["AB"; 32].join(":"));
        let config = parse(&format!("egress: {{ revoked: ['{one}', '{other}'] }}")).unwrap();
        let shown: Vec<String> = config.egress.revoked.iter().map(ToString::to_string).collect();
        assert_eq!(shown, [one.clone(), "ab".repeat(32)]);
        assert_eq!(parse(&config.to_string()).unwrap().egress, config.egress);
        assert_eq!(
            keys(&format!("egress: {{ revoked: ['{one}', '{}'] }}", &one[1..])),
            ["egress.revoked[1]"]
        );
        assert_eq!(keys(&format!("egress: {{ revoked: '{one}' }}")), ["egress.revoked"]);
        let many = format!("'{one}', ").repeat(1_001);
        assert_eq!(keys(&format!("egress: {{ revoked: [{many}] }}")), ["egress.revoked"]);
    }
}
