//! Where something is posted, wherever a configuration names such a place.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::seconds;
use super::units::duration;
use crate::webhook::{self, Secret, Target};

/// As it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Raw {
    pub(super) url: String,
    pub(super) secret_file: PathBuf,
    #[serde(default = "timeout")]
    pub(super) timeout: String,
    #[serde(default = "attempts")]
    pub(super) attempts: u32,
    #[serde(default = "first_retry")]
    pub(super) first_retry: String,
    #[serde(default)]
    pub(super) allow_http: bool,
}

pub(super) fn timeout() -> String {
    "10s".to_owned()
}

pub(super) fn attempts() -> u32 {
    12
}

pub(super) fn first_retry() -> String {
    "5s".to_owned()
}

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
    /// Judges it; `add` takes what is wrong, each with the key beneath this one.
    pub(super) fn validate(raw: Raw, add: &mut dyn FnMut(&str, String)) -> Option<Self> {
        let target = Target::parse(&raw.url, raw.allow_http).map_err(|problem| add("url", problem));
        if !raw.secret_file.is_absolute() {
            add("secret_file", "must be an absolute path".to_owned());
        } else if let Err(problem) = Secret::read(&raw.secret_file) {
            add("secret_file", problem);
        }
        let mut time = |key: &str, text: &str, most: u64| {
            let sensible = Duration::from_secs(1)..=Duration::from_secs(most);
            let given = duration(text).filter(|given| sensible.contains(given));
            given.unwrap_or_else(|| {
                add(key, format!("must be from 1s to {most}s"));
                Duration::from_secs(1)
            })
        };
        let timeout = time("timeout", &raw.timeout, 60);
        let first_retry = time("first_retry", &raw.first_retry, 600);
        if !(1..=20).contains(&raw.attempts) {
            add("attempts", "must be from 1 to 20".to_owned());
        }
        Some(Self {
            target: target.ok()?,
            secret_file: raw.secret_file,
            timeout,
            attempts: raw.attempts,
            first_retry,
            allow_http: raw.allow_http,
        })
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
