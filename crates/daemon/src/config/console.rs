//! Reads `console`: the listener of the web console.

use std::net::SocketAddr;

use document::Fields;
use oidc::Issuer;
use serde_json::{Value, json};
use web_console::Origin;

use super::sign_in::{self, SignIn};
use super::tcp::Tcp;
use super::values::address_or;

const DEFAULT_ADDRESS: &str = "127.0.0.1:7465";

/// The listener of the console.
#[derive(Debug, Clone)]
pub(crate) struct Listen {
    pub(crate) address: SocketAddr,
    /// Origin at which browsers reach it; `None` for the address itself.
    pub(crate) origin: Option<Origin>,
    /// Issuers at which people sign in.
    pub(crate) sign_in: Vec<SignIn>,
}

impl Listen {
    /// Returns true if other hosts can connect. They get TLS.
    pub(crate) fn is_remote(&self) -> bool {
        !self.address.ip().is_loopback()
    }

    /// Returns the section in the form of the configuration file.
    pub(super) fn shown(&self) -> Value {
        let mut shown = json!({ "listen": self.address.to_string() });
        if let Some(origin) = &self.origin {
            shown["origin"] = json!(origin.to_string());
        }
        if !self.sign_in.is_empty() {
            shown["sign_in"] = self.sign_in.iter().map(SignIn::shown).collect();
        }
        shown
    }
}

/// Reads the section. `tcp` is the listener whose certificates browsers on other hosts see.
pub(super) fn read(top: &Fields<'_>, tcp: Option<&Tcp>, issuers: &[Issuer]) -> Option<Listen> {
    let fields = top.get("console")?.fields(&["listen", "origin", "sign_in"]);
    let origin = fields.get("origin").and_then(|at| {
        let origin = Origin::parse(at.text()?);
        origin.map_err(|problem| at.problem(problem)).ok()
    });
    let address = address_or(&fields, "listen", DEFAULT_ADDRESS, "[::1]:7465");
    let sign_in = sign_in::read(&fields, issuers);
    let listen = Listen { address: address?, origin, sign_in };
    if listen.is_remote() {
        if tcp.is_none_or(|tcp| tcp.tls.is_none()) {
            fields.at("listen").problem(
                "is reachable from other hosts, so it needs the certificates of listen.tcp.tls: set them, or listen on 127.0.0.1",
            );
        }
        if listen.origin.as_ref().is_none_or(|origin| !origin.is_secure()) {
            fields.at("origin").problem(
                "is needed for a console that other hosts reach: the https origin in the address bar of its browsers, such as \
                 https://console.example.org:7465",
            );
        }
    }
    Some(listen)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{keys, parse};

    #[test]
    fn the_console_is_off_by_default_and_listens_on_loopback() {
        assert!(parse("{}").unwrap().console.is_none());
        let config = parse("console: {}").unwrap();
        let listen = config.console.as_ref().unwrap();
        assert_eq!(listen.address.to_string(), "127.0.0.1:7465");
        assert!(!listen.is_remote() && listen.origin.is_none());
        assert_eq!(parse(&config.to_string()).unwrap().to_string(), config.to_string());
    }

    #[test]
    fn a_proxy_in_front_has_its_origin() {
        let config = parse("console: { origin: 'https://console.example.org' }").unwrap();
        let origin = config.console.as_ref().unwrap().origin.as_ref().unwrap();
        assert_eq!(origin.to_string(), "https://console.example.org");
        assert_eq!(parse(&config.to_string()).unwrap().to_string(), config.to_string());
    }

    #[test]
    fn other_hosts_need_tls_and_an_origin() {
        assert_eq!(keys("console: { listen: '0.0.0.0:7465' }"), ["console.listen", "console.origin"]);
        assert_eq!(
            keys("console: { listen: '0.0.0.0:7465', origin: 'http://127.0.0.1:7465' }"),
            ["console.listen", "console.origin"]
        );
        assert_eq!(keys("console: { origin: 'http://console.example.org' }"), ["console.origin"]);
        assert_eq!(keys("console: { listen: here }"), ["console.listen"]);
        assert_eq!(keys("console: { port: 1 }"), ["console.port"]);
    }
}
