//! Reads `listen.tcp`: the API for remote clients.

use std::path::PathBuf;
use std::time::Duration;

use admission::ShareLimits;
use document::{At, Fields, time_or};
use listener::{Certificates, Files, Settings as TcpSettings};
use serde_json::{Value, json};

use super::seconds;
use super::values::{address_or, number_or, path};

const DEFAULT_ADDRESS: &str = "127.0.0.1:7443";
const DAY: u64 = 86_400;

/// The TCP listener.
#[derive(Debug, Clone)]
pub(crate) struct Tcp {
    /// Files of the TLS certificates; `None` for plaintext, which is accepted only on a loopback address.
    pub(crate) tls: Option<Files>,
    pub(crate) settings: TcpSettings,
    pub(crate) streams: ShareLimits,
    /// Longest lifetime of a token.
    pub(crate) max_token_lifetime: Duration,
}

/// Default of the maximum number of requests at the same time.
pub(crate) const DEFAULT_STREAMS: ShareLimits =
    ShareLimits { per_principal: PER_PRINCIPAL as usize, per_address: PER_ADDRESS as usize };
const PER_PRINCIPAL: u32 = 256;
const PER_ADDRESS: u32 = 1_024;
/// Default of the longest lifetime of a token.
pub(crate) const DEFAULT_LIFETIME: Duration = Duration::from_secs(365 * DAY);

impl Tcp {
    /// Returns the section in the form of the configuration file.
    pub(super) fn shown(&self) -> Value {
        let settings = &self.settings;
        let mut shown = json!({
            "address": settings.address.to_string(),
            "connections": settings.connections,
            "connections_per_address": settings.connections_per_address,
            "connections_per_principal": settings.connections_per_principal,
            "connections_per_second": settings.connections_per_second,
            "streams_per_address": self.streams.per_address,
            "streams_per_principal": self.streams.per_principal,
            "handshake_timeout": seconds(settings.handshake_timeout),
        });
        match &self.tls {
            Some(files) => {
                shown["tls"] = json!({ "certificate": files.certificate, "key": files.key });
                let optional = [("client_ca", &files.client_ca), ("revoked", &files.revoked)];
                for (key, file) in optional.into_iter().filter_map(|(key, file)| Some((key, file.as_ref()?)))
                {
                    shown["tls"][key] = json!(file);
                }
            }
            None => shown["plaintext"] = json!(true),
        }
        if settings.takes_tokens {
            shown["tokens"] = json!({ "max_lifetime": seconds(self.max_token_lifetime) });
        }
        shown
    }
}

/// Reads the section `tcp` of `listen`.
pub(super) fn read(listen: &Fields<'_>) -> Option<Tcp> {
    let fields = listen.get("tcp")?.fields(&[
        "address",
        "tls",
        "tokens",
        "plaintext",
        "connections",
        "connections_per_address",
        "connections_per_principal",
        "connections_per_second",
        "streams_per_address",
        "streams_per_principal",
        "handshake_timeout",
    ]);
    let address = address_or(&fields, "address", DEFAULT_ADDRESS, "[::]:7443");
    let takes_tokens = fields.get("tokens").is_some();
    let tokens = fields.section("tokens", &["max_lifetime"]);
    let max_token_lifetime = time_or(&tokens, "max_lifetime", (60, 365 * DAY), DEFAULT_LIFETIME.as_secs());
    let plaintext = fields.flag_or("plaintext", false);
    let tls = fields.get("tls").map(|at| files(at, takes_tokens));
    match &tls {
        None if !plaintext => fields.at("tls").problem(
            "is missing: create certificates with `coffer tls init`, or set `plaintext: true` for clients \
             on this host only",
        ),
        Some(_) if plaintext => fields.at("plaintext").problem("contradicts listen.tcp.tls: keep one"),
        _ => {}
    }
    if plaintext && address.is_some_and(|address| !address.ip().is_loopback()) {
        fields
            .at("plaintext")
            .problem("is allowed on a loopback address only: tokens would cross the network unencrypted");
    }
    let asks_for_certificates =
        tls.as_ref().is_some_and(|files| files.as_ref().is_none_or(|files| files.client_ca.is_some()));
    if !takes_tokens && !asks_for_certificates {
        fields.at("tokens").problem(
            "is missing, and so is listen.tcp.tls.client_ca, so no client could log in: set `tokens: {}`, \
             or name the CA of the clients' certificates",
        );
    }
    let number = |key, default| number_or(&fields, key, 1..=65_536, default) as usize;
    let connections = number("connections", 256);
    let connections_per_address = number("connections_per_address", 64);
    let connections_per_principal = number("connections_per_principal", 128);
    let connections_per_second = number_or(&fields, "connections_per_second", 1..=10_000, 50);
    let streams = ShareLimits {
        per_address: number("streams_per_address", PER_ADDRESS),
        per_principal: number("streams_per_principal", PER_PRINCIPAL),
    };
    let handshake_timeout = time_or(&fields, "handshake_timeout", (1, 60), 5);
    let settings = TcpSettings {
        address: address?,
        takes_tokens,
        connections,
        connections_per_address,
        connections_per_principal,
        connections_per_second,
        handshake_timeout,
    };
    Some(Tcp { tls: tls.flatten(), settings, streams, max_token_lifetime })
}

/// Reads the paths of the TLS files, and checks that the files can be used.
fn files(at: &At<'_>, takes_tokens: bool) -> Option<Files> {
    let fields = at.fields(&["certificate", "key", "client_ca", "revoked"]);
    let certificate = fields.required("certificate").and_then(path);
    let key = fields.required("key").and_then(path);
    let optional = |key| -> Option<Option<PathBuf>> {
        match fields.get(key) {
            None => Some(None),
            Some(at) => path(at).map(Some),
        }
    };
    let (client_ca, revoked) = (optional("client_ca"), optional("revoked"));
    if fields.get("revoked").is_some() && fields.get("client_ca").is_none() {
        fields
            .at("revoked")
            .problem("lists revoked client certificates, which are accepted only with client_ca");
    }
    let files = Files { certificate: certificate?, key: key?, client_ca: client_ca?, revoked: revoked? };
    if let Err((key, message)) = Certificates::load(files.clone(), takes_tokens) {
        fields.at(key).problem(message);
    }
    Some(files)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;
    use std::time::Duration;

    use rcgen::{CertificateParams, KeyPair};

    use super::super::testing::{keys, parse};

    fn made(directory: &Path) -> String {
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(vec!["localhost".into()]).unwrap().self_signed(&key).unwrap();
        std::fs::write(directory.join("cert.pem"), certificate.pem()).unwrap();
        std::fs::write(directory.join("key.pem"), key.serialize_pem()).unwrap();
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(directory.join("key.pem"), mode).unwrap();
        let at = directory.display();
        format!("certificate: {at}/cert.pem, key: {at}/key.pem")
    }

    fn wrong(tcp: &str) -> Vec<String> {
        keys(&format!("listen: {{ tcp: {{ {tcp} }} }}"))
    }

    #[test]
    fn tcp_is_off_by_default() {
        assert!(parse("{}").unwrap().tcp.is_none());
    }

    #[test]
    fn tcp_requires_tls_and_a_credential() {
        let directory = tempfile::tempdir().unwrap();
        let tls = made(directory.path());
        assert_eq!(wrong(""), ["listen.tcp.tls", "listen.tcp.tokens"]);
        assert_eq!(wrong("tokens: {}"), ["listen.tcp.tls"]);
        assert_eq!(wrong(&format!("tls: {{ {tls} }}")), ["listen.tcp.tokens"]);
        assert_eq!(wrong("plaintext: true"), ["listen.tcp.tokens"]);
        assert_eq!(
            wrong(&format!("tls: {{ {tls} }}, tokens: {{}}, plaintext: true")),
            ["listen.tcp.plaintext"]
        );
        for open in ["0.0.0.0:1", "10.0.0.1:1", "[::]:1"] {
            let tcp = format!("plaintext: true, tokens: {{}}, address: '{open}'");
            assert_eq!(wrong(&tcp), ["listen.tcp.plaintext"]);
        }
    }

    #[test]
    fn each_problem_has_its_key() {
        assert_eq!(
            wrong("address: here, tls: { certificate: /no/such, key: relative }, tokens: { max_lifetime: 2000d },
                connections: 0, connections_per_address: 0, connections_per_principal: 0, connections_per_second: 0,
                streams_per_address: 0, streams_per_principal: 0, handshake_timeout: 2m"),
            [
                "address",
                "tokens.max_lifetime",
                "tls.key",
                "connections",
                "connections_per_address",
                "connections_per_principal",
                "connections_per_second",
                "streams_per_address",
                "streams_per_principal",
                "handshake_timeout"
            ]
            .map(|key| format!("listen.tcp.{key}"))
        );
        assert_eq!(
            wrong("tokens: {}, tls: { certificate: /no/such, key: /no/such, revoked: /no/such }"),
            ["listen.tcp.tls.revoked", "listen.tcp.tls.certificate"]
        );
    }

    #[test]
    fn printed_configuration_parses_back() {
        let directory = tempfile::tempdir().unwrap();
        let tls = made(directory.path());
        let at = directory.path().display();
        std::fs::write(directory.path().join("revoked"), "# none\n").unwrap();
        for tcp in [
            format!(
                "tls: {{ {tls}, client_ca: {at}/cert.pem, revoked: {at}/revoked }}, address: '0.0.0.0:7443'"
            ),
            format!("tls: {{ {tls} }}, tokens: {{ max_lifetime: 7d }}, connections_per_second: 9"),
            "plaintext: true, tokens: {}, address: '[::1]:1'".to_owned(),
        ] {
            let config = parse(&format!("listen: {{ tcp: {{ {tcp} }} }}")).unwrap();
            let printed = config.to_string();
            assert_eq!(parse(&printed).unwrap().to_string(), printed);
        }
        let tokens =
            parse("listen: { tcp: { plaintext: true, tokens: { max_lifetime: 7d } } }").unwrap().tcp.unwrap();
        assert_eq!(tokens.max_token_lifetime, Duration::from_secs(7 * 86_400));
        assert!(tokens.settings.takes_tokens && tokens.tls.is_none());
    }
}
