//! Reads the endpoints to which the daemon posts, wherever the configuration names one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use document::{Fields, time_or};
use serde_json::{Value, json};
use webhook::{Secret, Target};

use super::values::{number_or, path};
use super::{seconds, secret_file};

/// Keys of an endpoint.
pub(super) const KEYS: [&str; 6] = ["url", "secret_file", "timeout", "attempts", "first_retry", "allow_http"];

/// An endpoint that messages are posted to. Its secret stays in its file until it is needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    target: Target,
    /// File with the secret that signs messages.
    secret_file: PathBuf,
    /// Time that one attempt may take.
    timeout: Duration,
    /// Number of attempts before a message is given up.
    attempts: u32,
    /// Time between the first attempt and the second. It doubles with each further attempt.
    first_retry: Duration,
    /// Allows plain http to another host.
    allow_http: bool,
}

impl Endpoint {
    /// Reads the endpoint from a mapping that has [`KEYS`].
    pub(super) fn read(fields: &Fields<'_>) -> Option<Self> {
        let allow_http = fields.flag_or("allow_http", false);
        let target = fields.required("url").and_then(|at| {
            let target = Target::parse(at.text()?, allow_http);
            target.map_err(|problem| at.problem(problem)).ok()
        });
        let secret_file = fields.required("secret_file").and_then(|at| {
            let file = path(at)?;
            secret(&file).map_err(|problem| at.problem(problem)).is_ok().then_some(file)
        });
        let timeout = time_or(fields, "timeout", (1, 60), 10);
        let first_retry = time_or(fields, "first_retry", (1, 600), 5);
        let attempts = number_or(fields, "attempts", 1..=20, 12);
        Some(Self { target: target?, secret_file: secret_file?, timeout, attempts, first_retry, allow_http })
    }

    /// Reads the secret and returns the endpoint. `name` is its name in logs.
    pub(crate) fn open(&self, name: &str) -> Result<webhook::Endpoint, String> {
        Ok(webhook::Endpoint {
            name: name.to_owned(),
            target: self.target.clone(),
            secret: Some(secret(&self.secret_file)?),
            timeout: self.timeout,
            attempts: self.attempts,
            first_retry: self.first_retry,
        })
    }

    /// Returns the endpoint in the form of the configuration file, without the parts of the URL that may be secret.
    pub(super) fn shown(&self) -> Value {
        json!({
            "url": self.target.shown(),
            "secret_file": self.secret_file,
            "timeout": seconds(self.timeout),
            "attempts": self.attempts,
            "first_retry": seconds(self.first_retry),
            "allow_http": self.allow_http,
        })
    }
}

/// Reads the secret that signs messages.
fn secret(file: &Path) -> Result<Secret, String> {
    Secret::parse(&secret_file::read(file)?).map_err(|problem| format!("{} {problem}", file.display()))
}
