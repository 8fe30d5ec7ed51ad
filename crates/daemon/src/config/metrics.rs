//! Reads `metrics`: the listener from which Prometheus scrapes the daemon's metrics.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use document::Fields;
use serde_json::{Value, json};

use super::secret_file;
use super::tcp::Tcp;
use super::values::{address_or, path};

const DEFAULT_ADDRESS: &str = "127.0.0.1:9464";

/// The listener for metrics.
#[derive(Debug, Clone)]
pub(crate) struct Listen {
    pub(crate) address: SocketAddr,
    /// File of the token that a client has to send.
    pub(super) token_file: Option<PathBuf>,
}

impl Listen {
    /// Returns true if other hosts can connect. They get TLS.
    pub(crate) fn is_remote(&self) -> bool {
        !self.address.ip().is_loopback()
    }

    /// Reads the token, if clients need one.
    pub(crate) fn token(&self) -> anyhow::Result<Option<String>> {
        let token = self.token_file.as_deref().map(token).transpose();
        token.map_err(|message| anyhow::anyhow!("metrics.token_file: {message}"))
    }

    /// Returns the section in the form of the configuration file.
    pub(super) fn shown(&self) -> Value {
        let mut shown = json!({ "listen": self.address.to_string() });
        if let Some(file) = &self.token_file {
            shown["token_file"] = json!(file);
        }
        shown
    }
}

/// Reads the section. `tcp` is the listener whose certificates other hosts see.
pub(super) fn read(top: &Fields<'_>, tcp: Option<&Tcp>) -> Option<Listen> {
    let fields = top.get("metrics")?.fields(&["listen", "token_file"]);
    let token_file = fields.get("token_file").and_then(path);
    if let Some(Err(message)) = token_file.as_deref().map(token) {
        fields.at("token_file").problem(message);
    }
    let address = address_or(&fields, "listen", DEFAULT_ADDRESS, "[::1]:9464");
    let listen = Listen { address: address?, token_file };
    if listen.is_remote() {
        let files = tcp.and_then(|tcp| tcp.tls.as_ref());
        let knows_clients = files.is_some_and(|files| files.client_ca.is_some());
        if files.is_none() || !knows_clients && listen.token_file.is_none() {
            fields.at("listen").problem(
                "is reachable from other hosts, so it needs listen.tcp.tls, and token_file here or listen.tcp.tls.client_ca: \
                 set them, or listen on 127.0.0.1",
            );
        }
    }
    Some(listen)
}

/// Reads the token. A file without one is an error: it may be about to be written.
fn token(file: &Path) -> Result<String, String> {
    let token = secret_file::read(file)?;
    if token.is_empty() { Err(format!("{} is empty", file.display())) } else { Ok(token) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::testing::{keys, parse};

    #[test]
    fn metrics_are_off_by_default_and_listen_on_loopback() {
        assert!(parse("{}").unwrap().metrics.is_none());
        let config = parse("metrics: {}").unwrap();
        let listen = config.metrics.as_ref().unwrap();
        assert_eq!(listen.address.to_string(), "127.0.0.1:9464");
        assert!(!listen.is_remote() && listen.token().unwrap().is_none());
        assert_eq!(parse(&config.to_string()).unwrap().to_string(), config.to_string());
    }

    #[test]
    fn other_hosts_need_tls_and_a_credential() {
        assert_eq!(keys("metrics: { listen: '0.0.0.0:9464' }"), ["metrics.listen"]);
        assert_eq!(keys("metrics: { listen: here }"), ["metrics.listen"]);
        assert_eq!(keys("metrics: { port: 1 }"), ["metrics.port"]);
    }

    #[test]
    fn a_token_is_in_a_closed_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        fs::write(&file, "secret\n").unwrap();
        let text = format!("metrics: {{ token_file: {} }}", file.display());
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(keys(&text), ["metrics.token_file"]);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&file, " \n").unwrap();
        assert_eq!(keys(&text), ["metrics.token_file"]);
        fs::write(&file, "secret\n").unwrap();
        let config = parse(&text).unwrap();
        assert_eq!(config.metrics.as_ref().unwrap().token().unwrap().as_deref(), Some("secret"));
        assert!(!config.to_string().contains("secret\n"));
    }
}
