//! Reads `mcp`: the endpoint that offers the tools of runs to clients of the Model Context Protocol, over HTTP.

use std::net::SocketAddr;

use document::{At, Fields, nearest, time_or};
use mcp::http::Settings;
use serde_json::{Value, json};

use super::values::{address_or, number_or};

const DEFAULT_ADDRESS: &str = "127.0.0.1:7464";

/// The MCP endpoint over HTTP.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    /// Address that it listens on.
    pub(crate) address: SocketAddr,
    /// Confirms that a proxy does TLS in front of this address. Tokens must not cross a network in the clear.
    behind_tls_proxy: bool,
    /// Settings of the server.
    pub(crate) settings: Settings,
}

impl Http {
    /// Returns the section in the form of the configuration file.
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

/// Reads the section.
pub(super) fn read(top: &Fields<'_>) -> Option<Http> {
    let fields = top.section("mcp", &["http"]).get("http")?.fields(&[
        "listen",
        "behind_tls_proxy",
        "allowed_hosts",
        "allowed_origins",
        "dialect",
        "connections",
        "sessions_per_run",
        "session_idle_timeout",
    ]);
    let behind_tls_proxy = fields.flag_or("behind_tls_proxy", false);
    let address = address_or(&fields, "listen", DEFAULT_ADDRESS, "[::1]:7464");
    let is_local = address.is_none_or(|address| address.ip().is_loopback());
    if !is_local && !behind_tls_proxy {
        fields.at("listen").problem(
            "is reachable from other hosts, and tokens would be sent unencrypted: listen on 127.0.0.1, or \
             put a TLS proxy in front and set behind_tls_proxy: true",
        );
    }
    if !is_local && fields.items("allowed_hosts").is_empty() {
        fields.at("allowed_hosts").problem(
            "must list the names that clients use for this host, because clients of other hosts can connect",
        );
    }
    let mut hosts: Vec<String> = fields.items("allowed_hosts").iter().filter_map(host).collect();
    let mut origins: Vec<String> = fields.items("allowed_origins").iter().filter_map(origin).collect();
    let dialect = fields.text_or("dialect", dialects::DEFAULT);
    if dialects::find(&dialect).is_none() {
        let known = nearest(&dialect, &dialects::names());
        fields.at("dialect").problem_hint(format!("there is no dialect `{dialect}`"), Some(known));
    }
    let session_idle_timeout = time_or(&fields, "session_idle_timeout", (10, 86_400), 1_800);
    let connections = number_or(&fields, "connections", 1..=4_096, 512) as usize;
    let sessions_per_run = number_or(&fields, "sessions_per_run", 1..=64, 8) as usize;
    let address = address?;
    // If only clients of this host can connect, the default is the names that they use.
    if hosts.is_empty() {
        hosts = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
        hosts.extend(Some(address.ip().to_string()).filter(|ip| ip != "127.0.0.1" && ip != "::1"));
    }
    if is_local && origins.is_empty() {
        origins = ["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"].map(str::to_owned).into();
    }
    let settings = Settings { hosts, origins, connections, sessions_per_run, session_idle_timeout, dialect };
    Some(Http { address, behind_tls_proxy, settings })
}

fn host(at: &At<'_>) -> Option<String> {
    let host = at.text()?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    if host.len() > 255 || !host.chars().all(plain) {
        at.problem("must be a name or an address, optionally with a port");
    }
    Some(host.to_owned())
}

fn origin(at: &At<'_>) -> Option<String> {
    let origin = at.text()?;
    let rest = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
    // An origin without a port would match every port, which operators do not expect.
    let has_port = rest.is_some_and(|rest| {
        let (host, port) = rest.rsplit_once(':').unwrap_or_default();
        !host.is_empty() && !rest.contains('/') && (port == "*" || port.parse::<u16>().is_ok())
    });
    if !has_port || origin.len() > 255 {
        at.problem("must be a scheme, a host and a port, such as https://app.example.org:443");
    }
    Some(origin.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{keys, parse};

    #[test]
    fn mcp_is_off_by_default_and_listens_on_loopback() {
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
    fn all_mcp_problems_are_reported() {
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
        assert_eq!(keys("mcp: { https: {} }"), ["mcp.https"]);
    }
}
