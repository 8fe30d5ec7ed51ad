//! Where something is posted, wherever a configuration names such a place.

use std::path::PathBuf;
use std::time::Duration;

use document::Fields;
use serde_json::{Value, json};
use webhook::{Secret, Target};

use super::seconds;
use super::values::{number_or, path, time_or};

/// Keys of such a place.
pub(super) const KEYS: [&str; 6] = ["url", "secret_file", "timeout", "attempts", "first_retry", "allow_http"];

/// A place that can be posted to. Its secret stays in its file until it is needed.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    target: Target,
    /// Holds what messages are signed with.
    secret_file: PathBuf,
    /// For one attempt.
    timeout: Duration,
    /// Attempts before a message is given up.
    attempts: u32,
    /// Between the first and the second; doubled each time.
    first_retry: Duration,
    /// Plain http to another host is wanted.
    allow_http: bool,
}

impl Endpoint {
    /// Reads it from a mapping that has [`KEYS`].
    pub(super) fn read(fields: &Fields<'_>) -> Option<Self> {
        let allow_http = fields.flag_or("allow_http", false);
        let target = fields.required("url").and_then(|at| {
            let target = Target::parse(at.text()?, allow_http);
            target.map_err(|problem| at.problem(problem)).ok()
        });
        let secret_file = fields.required("secret_file").and_then(|at| {
            let file = path(at)?;
            Secret::read(&file).map_err(|problem| at.problem(problem)).is_ok().then_some(file)
        });
        let timeout = time_or(fields, "timeout", (1, 60), 10);
        let first_retry = time_or(fields, "first_retry", (1, 600), 5);
        let attempts = number_or(fields, "attempts", 1..=20, 12);
        Some(Self { target: target?, secret_file: secret_file?, timeout, attempts, first_retry, allow_http })
    }

    /// With its secret read, under a name for logs.
    pub(crate) fn open(&self, name: &str) -> Result<webhook::Endpoint, String> {
        Ok(webhook::Endpoint {
            name: name.to_owned(),
            target: self.target.clone(),
            secret: Secret::read(&self.secret_file)?,
            timeout: self.timeout,
            attempts: self.attempts,
            first_retry: self.first_retry,
        })
    }

    /// For the printed configuration: without what may be secret of the URL.
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
