//! Endpoints of push services. A browser names one, so each is hostile input.

use std::net::IpAddr;

use webhook::Target;

/// Longest URL, bytes.
const MAX_URL: usize = 1_024;
/// Most hosts in the configuration.
const MAX_HOSTS: usize = 32;

/// Hosts of push services, each `host` or `host:port`, in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosts(Vec<(String, u16)>);

impl Hosts {
    /// Reads the list of the configuration. An error says what is wrong with which entry.
    pub fn parse<'a>(hosts: impl IntoIterator<Item = &'a str>) -> Result<Self, (usize, String)> {
        let mut found = Vec::new();
        for (index, text) in hosts.into_iter().enumerate() {
            if index == MAX_HOSTS {
                return Err((index, format!("is beyond the limit of {MAX_HOSTS}")));
            }
            let wrong = |_| "must be a host, such as push.example.org, or a host and a port".to_owned();
            let target = Target::parse(&format!("https://{text}/"), false)
                .map_err(wrong)
                .map_err(|why| (index, why))?;
            let (host, port) = target.place();
            if text.contains(['/', '?', '#', '*']) || text.ends_with(':') {
                return Err((index, wrong(String::new())));
            }
            found.push((host.to_ascii_lowercase(), port));
        }
        Ok(Self(found))
    }

    /// Returns the list in the form of the configuration.
    pub fn shown(&self) -> Vec<String> {
        let shown = |(host, port): &(String, u16)| {
            let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
            if *port == 443 { host } else { format!("{host}:{port}") }
        };
        self.0.iter().map(shown).collect()
    }

    fn has(&self, target: &Target) -> bool {
        let (host, port) = target.place();
        self.0.iter().any(|(known, of)| *of == port && known.eq_ignore_ascii_case(host))
    }
}

/// An endpoint on a host that the operator has listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Endpoint(pub(super) Target);

impl Endpoint {
    /// Parses the URL of a subscription. The reason does not repeat it.
    pub(super) fn parse(url: &str, hosts: &Hosts) -> Result<Self, &'static str> {
        if url.is_empty() || url.len() > MAX_URL || !url.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("must be a URL of at most 1024 plain characters");
        }
        let target = Target::parse(url, false).map_err(|_| "is no URL of a push service")?;
        if !target.is_tls() {
            return Err("must be https");
        }
        if !hosts.has(&target) {
            let (host, _) = target.place();
            return Err(if host.parse::<IpAddr>().is_ok() {
                "is at an address, which no push service is"
            } else {
                "is on a host that is not in push.hosts of the configuration"
            });
        }
        Ok(Self(target))
    }

    pub(super) fn host(&self) -> &str {
        self.0.place().0
    }
}

#[cfg(test)]
mod tests {
    use super::{Endpoint, Hosts};

    #[test]
    fn only_https_on_a_listed_host_and_port_is_an_endpoint() {
        let hosts = Hosts::parse(["push.example.org", "Updates.example.org:8443"]).unwrap();
        assert_eq!(hosts.shown(), ["push.example.org", "updates.example.org:8443"]);
        for url in [
            "https://push.example.org/s/abc",
            "https://PUSH.example.org:443/s?x=1",
            "https://updates.example.org:8443/",
        ] {
            assert!(Endpoint::parse(url, &hosts).is_ok(), "{url}");
        }
        for url in [
            "http://push.example.org/s",
            "http://localhost/s",
            "http://127.0.0.1/s",
            "https://127.0.0.1/s",
            "https://[::1]/s",
            "https://169.254.169.254/latest/meta-data",
            "https://push.example.org:8443/s",
            "https://push.example.org.evil.example/s",
            "https://push.example.org@evil.example/s",
            "https://evil.example/push.example.org",
            "https://evil.push.example.org/s",
            "https://push.example.org./s",
            "file:///etc/passwd",
            "https://push.example.org/\r\nhost: x",
            "//push.example.org/s",
            "",
        ] {
            let refused = Endpoint::parse(url, &hosts).unwrap_err();
            assert!(url.is_empty() || !refused.contains(url), "{refused}");
        }
        assert!(Endpoint::parse(&format!("https://push.example.org/{}", "x".repeat(1_024)), &hosts).is_err());
    }

    #[test]
    fn a_list_of_hosts_has_hosts() {
        for bad in ["", "*.example.org", "https://push.example.org", "push.example.org/x", "a b", "u@x", "x:"]
        {
            assert_eq!(Hosts::parse(["a.example.org", bad]).unwrap_err().0, 1, "{bad}");
        }
        assert!(Hosts::parse(vec!["a.example.org"; 33]).is_err());
    }
}
