//! `mcp`: the tools of runs for clients of the Model Context Protocol, over HTTP.

use std::net::SocketAddr;
use std::time::Duration;

use mcp::http::Settings;
use serde::Deserialize;
use serde_json::{Value, json};

use super::units::duration;
use super::validate::{Found, within};

/// The section as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Raw {
    http: Option<RawHttp>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawHttp {
    listen: String,
    behind_tls_proxy: bool,
    allowed_hosts: Vec<String>,
    allowed_origins: Vec<String>,
    dialect: String,
    connections: u32,
    sessions_per_run: u32,
    session_idle_timeout: String,
}

impl Default for RawHttp {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:7464".to_owned(),
            behind_tls_proxy: false,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            dialect: "native".to_owned(),
            connections: 128,
            sessions_per_run: 8,
            session_idle_timeout: "30m".to_owned(),
        }
    }
}

/// The endpoint, where there is to be one.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// Tokens do not go over a network in the clear: something does TLS before they reach this address.
    behind_tls_proxy: bool,
    /// How it serves.
    pub(crate) settings: Settings,
}

impl Http {
    /// For the printed configuration.
    pub(super) fn shown(&self) -> Value {
        json!({ "http": {
            "listen": self.address.to_string(),
            "behind_tls_proxy": self.behind_tls_proxy,
            "allowed_hosts": self.settings.hosts,
            "allowed_origins": self.settings.origins,
            "dialect": self.settings.dialect,
            "connections": self.settings.connections,
            "sessions_per_run": self.settings.sessions_per_run,
            "session_idle_timeout": format!("{}s", self.settings.session_idle_timeout.as_secs()),
        } })
    }
}

pub(super) fn validate(found: &mut Found, raw: Raw) -> Option<Http> {
    let raw = raw.http?;
    let address: Option<SocketAddr> = raw.listen.parse().ok();
    if address.is_none() {
        found.add(
            "mcp.http.listen",
            "must be an address and a port, such as 127.0.0.1:7464 or \"[::1]:7464\"",
        );
    }
    let is_local = address.is_none_or(|address| address.ip().is_loopback());
    if !is_local && !raw.behind_tls_proxy {
        found.add(
            "mcp.http.listen",
            "is reached from elsewhere, and tokens would go there in the clear: listen on 127.0.0.1, or put a proxy that does TLS before it and say behind_tls_proxy: true",
        );
    }
    if !is_local && raw.allowed_hosts.is_empty() {
        found.add(
            "mcp.http.allowed_hosts",
            "must name what clients call this host when it is not this host alone that they come from",
        );
    }
    for (index, host) in raw.allowed_hosts.iter().enumerate() {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
        if host.is_empty() || host.len() > 255 || !host.chars().all(plain) {
            found.add(
                format!("mcp.http.allowed_hosts[{index}]"),
                "must be a name or an address, perhaps with a port",
            );
        }
    }
    for (index, origin) in raw.allowed_origins.iter().enumerate() {
        let rest = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
        // Without a port any would do, which nobody expects.
        let has_port = rest.is_some_and(|rest| {
            let (host, port) = rest.rsplit_once(':').unwrap_or_default();
            !host.is_empty() && !rest.contains('/') && (port == "*" || port.parse::<u16>().is_ok())
        });
        if !has_port || origin.len() > 255 {
            found.add(
                format!("mcp.http.allowed_origins[{index}]"),
                "must be a scheme, a host and a port, such as https://app.example.org:443",
            );
        }
    }
    if dialects::find(&raw.dialect).is_none() {
        found.add("mcp.http.dialect", format!("must be one of {}", dialects::names().join(", ")));
    }
    let sensible = Duration::from_secs(10)..=Duration::from_secs(24 * 3600);
    let idle = duration(&raw.session_idle_timeout).filter(|idle| sensible.contains(idle));
    if idle.is_none() {
        found.add("mcp.http.session_idle_timeout", "must be from 10s to 1d");
    }
    let connections = within(found, "mcp.http.connections", raw.connections, 1, 4_096);
    let sessions_per_run = within(found, "mcp.http.sessions_per_run", raw.sessions_per_run, 1, 64);
    let address = address?;
    // What this host is called by its own clients, when they are the only ones.
    let (mut hosts, mut origins) = (raw.allowed_hosts, raw.allowed_origins);
    if hosts.is_empty() {
        hosts = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
        hosts.extend(Some(address.ip().to_string()).filter(|ip| ip != "127.0.0.1" && ip != "::1"));
    }
    if is_local && origins.is_empty() {
        origins = ["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"].map(str::to_owned).into();
    }
    let settings = Settings {
        hosts,
        origins,
        connections,
        sessions_per_run,
        session_idle_timeout: idle.unwrap_or_default(),
        dialect: raw.dialect,
    };
    Some(Http { address, behind_tls_proxy: raw.behind_tls_proxy, settings })
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;

    fn keys(text: &str) -> Vec<String> {
        parse(text).unwrap_err().0.into_iter().map(|problem| problem.key).collect()
    }

    #[test]
    fn it_is_off_and_once_on_for_this_host_alone() {
        assert!(parse("{}").unwrap().mcp.is_none());
        let http = parse("mcp: { http: {} }").unwrap().mcp.unwrap();
        assert_eq!(http.address.to_string(), "127.0.0.1:7464");
        assert_eq!(http.settings.hosts, ["localhost", "127.0.0.1", "::1"]);
        assert!(http.settings.origins.iter().all(|origin| origin.ends_with(":*")));
    }

    #[test]
    fn tokens_do_not_go_over_a_network_in_the_clear() {
        assert_eq!(
            keys("mcp: { http: { listen: '0.0.0.0:7464' } }"),
            ["mcp.http.listen", "mcp.http.allowed_hosts"]
        );
        let text = "mcp: { http: { listen: '10.0.0.1:7464', behind_tls_proxy: true, allowed_hosts: [mcp.example.org] } }";
        let config = parse(text).unwrap();
        assert!(config.mcp.as_ref().unwrap().settings.origins.is_empty(), "no page of another host");
        let printed = config.to_string();
        assert_eq!(parse(&printed).unwrap().to_string(), printed);
    }

    #[test]
    fn what_is_wrong_is_said_all_at_once() {
        let text = "mcp: { http: { listen: here, allowed_hosts: ['a b'], allowed_origins: [example.org, 'https://example.org', 'http://a:1/x'],
            dialect: latin, connections: 0, sessions_per_run: 65, session_idle_timeout: 1s } }";
        let expected = [
            "listen",
            "allowed_hosts[0]",
            "allowed_origins[0]",
            "allowed_origins[1]",
            "allowed_origins[2]",
            "dialect",
            "session_idle_timeout",
            "connections",
            "sessions_per_run",
        ];
        assert_eq!(keys(text), expected.map(|key| format!("mcp.http.{key}")));
        assert_eq!(keys("mcp: { https: {} }"), [""]);
    }
}
