//! Reads `console`: the listener of the web console.

use std::net::SocketAddr;
use std::path::PathBuf;

use document::{At, Fields};
use oidc::Issuer;
use oidc_sign_in::{Known, SignIn};
use serde_json::{Value, json};
use web_console::Origin;

use super::secret_file;
use super::tcp::Tcp;
use super::values::{address_or, path};

const DEFAULT_ADDRESS: &str = "127.0.0.1:7465";

/// The listener of the console.
#[derive(Debug, Clone, PartialEq, Eq)]
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

    /// Returns true if passkeys can be registered in it. They belong to a name, which an address is not.
    pub(crate) fn takes_passkeys(&self) -> bool {
        self.origin.as_ref().is_none_or(|origin| origin.passkey_domain().is_some())
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
    let known =
        issuers.iter().map(|one| Known { name: &one.name, url: &one.issuer, audiences: &one.audiences });
    let known: Vec<_> = known.collect();
    let sign_in = oidc_sign_in::read(&fields, &known, secret);
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

fn secret(at: &At<'_>) -> Option<(PathBuf, String)> {
    let file = path(at)?;
    secret_file::read(&file).map_err(|why| at.problem(why)).ok().map(|secret| (file, secret))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use policy::Policy;

    use super::super::testing::{keys, parse};

    #[test]
    fn signed_consent_needs_a_console_with_a_name() {
        let policy = |passkey: &str| {
            let text = format!(
                "profiles: {{p: {{operations: {{}}, approvals: {{passkey: {passkey}}}}}}}\nroles: {{r: {{allow: \"*\"}}}}\n"
            );
            Policy::from_files([("p.yaml", text)]).unwrap()
        };
        for (console, takes) in [
            ("{}", false),
            ("console: {}", true),
            ("console: { origin: 'https://console.example.org' }", true),
            ("console: { origin: 'https://192.0.2.7:7465' }", false),
            ("console: { origin: 'https://[2001:db8::7]' }", false),
        ] {
            let config = parse(console).unwrap();
            assert_eq!(config.takes_passkeys(), takes, "{console}");
            for (passkey, needs) in [("never", false), ("critical", true), ("required", true)] {
                let checked = policy(passkey).check_passkeys(takes);
                assert_eq!(checked.is_err(), needs && !takes, "{console} {passkey} {checked:?}");
            }
        }
        let told = policy("high").check_passkeys(false).unwrap_err();
        assert!(told.starts_with("profiles.p.approvals.passkey: needs a console"), "{told}");
    }

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

    fn with_issuers(sign_in: &str) -> String {
        format!(
            "oidc:
  - {{ name: corp, issuer: 'https://login.example.org/', audience: [cofferdam, console], jwks: {{ url: 'https://login.example.org/keys' }},
      grants: [{{ claim: groups, value: ml, roles: [auditor] }}] }}
  - {{ name: file, issuer: inhouse, audience: console, jwks: {{ url: 'https://login.example.org/keys' }},
      grants: [{{ claim: groups, value: ml, roles: [auditor] }}] }}
console: {{ sign_in: [{sign_in}] }}
"
        )
    }

    #[test]
    fn a_client_of_an_issuer_is_read_and_printed_without_its_secret() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("secret");
        std::fs::write(&file, "s3cret\n").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let entry = format!(
            "{{ issuer: corp, client_id: console, client_secret_file: {}, scopes: [openid, groups] }}",
            file.display()
        );
        let parsed = parse(&with_issuers(&entry)).unwrap();
        let printed = parsed.to_string();
        assert!(!format!("{printed}{:?}", parsed.console).contains("s3cret"), "{printed}");
        assert!(printed.contains("client_secret_file") && !printed.contains("openid"), "{printed}");
        let again = parse(&printed).unwrap();
        assert_eq!((again.to_string(), &again.console), (printed, &parsed.console));
        // A new secret is a change.
        std::fs::write(&file, "another\n").unwrap();
        let change = again.change_to(parse(&with_issuers(&entry)).unwrap());
        assert_eq!(change.needs_restart, ["console"]);
        std::fs::write(&file, "\n").unwrap();
        assert_eq!(keys(&with_issuers(&entry)), ["console.sign_in[0].client_secret_file"]);
    }

    #[test]
    fn problems_of_a_client_are_reported_by_key() {
        for (entry, key) in [
            ("{ issuer: other, client_id: console }", "issuer"),
            ("{ issuer: file, client_id: console }", "issuer"),
            ("{ issuer: corp, client_id: unknown }", "client_id"),
            ("{ issuer: corp, client_id: 'two words' }", "client_id"),
            ("{ issuer: corp, client_id: console, client_secret_file: secret }", "client_secret_file"),
            ("{ issuer: corp, client_id: console, client_secret_file: /no/such }", "client_secret_file"),
            ("{ issuer: corp, client_id: console, scopes: ['a b'] }", "scopes[0]"),
            ("{ issuer: corp, client_id: console, secret: x }", "secret"),
        ] {
            assert_eq!(keys(&with_issuers(entry)), [format!("console.sign_in[0].{key}")], "{entry}");
        }
        let twice = "{ issuer: corp, client_id: console }, { issuer: corp, client_id: console }";
        assert_eq!(keys(&with_issuers(twice)), ["console.sign_in[1]"]);
    }

    #[test]
    fn a_change_of_the_issuer_of_a_client_needs_a_restart() {
        let text = with_issuers("{ issuer: corp, client_id: console }");
        let other = text.replace("'https://login.example.org/'", "'https://login2.example.org/'");
        let change = parse(&text).unwrap().change_to(parse(&other).unwrap());
        assert_eq!(
            (change.needs_restart, change.applied),
            (vec!["console".to_owned()], vec!["oidc".to_owned()])
        );
    }
}
