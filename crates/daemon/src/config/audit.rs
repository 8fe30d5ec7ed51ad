//! `audit`: segments, how long they are kept, and checkpoints.

use std::path::PathBuf;
use std::time::Duration;

use ::audit::{Limits, Policy};
use serde::Deserialize;
use serde_json::{Value, json};

use super::endpoint::{self, Endpoint};
use super::raw::Size;
use super::seconds;
use super::units::{duration, show_size, size};
use super::validate::{Found, absolute, bytes};
use crate::audit::{Hooks, Keeper};

/// What a size or a time says when there is none.
const NEVER: &str = "never";
const ALL: &str = "all";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Raw {
    segment_size: Size,
    segment_age: String,
    compress_after: String,
    remove_after: String,
    keep: Size,
    checkpoint: RawCheckpoint,
}

impl Default for Raw {
    fn default() -> Self {
        Self {
            segment_size: Size::Text("64MiB".to_owned()),
            segment_age: "1d".to_owned(),
            compress_after: "7d".to_owned(),
            remove_after: NEVER.to_owned(),
            keep: Size::Text(ALL.to_owned()),
            checkpoint: RawCheckpoint::default(),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawCheckpoint {
    records: u64,
    interval: String,
    file: Option<PathBuf>,
    webhook: Option<endpoint::Raw>,
}

impl Default for RawCheckpoint {
    fn default() -> Self {
        Self { records: 10_000, interval: "10m".to_owned(), file: None, webhook: None }
    }
}

/// How the audit log is kept.
#[derive(Debug, Clone)]
pub(crate) struct Audit {
    /// When a segment is full.
    pub(crate) limits: Limits,
    /// What becomes of segments, and how often all is signed.
    pub(crate) keeper: Keeper,
    /// Records after which all is signed.
    pub(crate) checkpoint_records: u64,
    /// Where checkpoints are sent.
    pub(crate) hooks: Hooks,
}

pub(super) fn validate(found: &mut Found, raw: Raw) -> Audit {
    let mut age = |key: &str, written: &str| {
        if written == NEVER {
            return None;
        }
        let sensible = Duration::from_secs(1)..=Duration::from_secs(100 * 366 * 86_400);
        let age = duration(written).filter(|age| sensible.contains(age));
        if age.is_none() {
            found.add(key, "must be a time such as 12h or 30d, or never");
        }
        age
    };
    let segment_age = age("audit.segment_age", &raw.segment_age);
    let compress_after = age("audit.compress_after", &raw.compress_after);
    let remove_after = age("audit.remove_after", &raw.remove_after);
    let segment_bytes = bytes(found, "audit.segment_size", &raw.segment_size, 64 << 10);
    let keep_bytes = match &raw.keep {
        Size::Text(text) if text == ALL => None,
        Size::Text(text) => size(text).or(Some(0)),
        Size::Bytes(bytes) => Some(*bytes),
    };
    if keep_bytes.is_some_and(|keep| keep < segment_bytes.saturating_mul(2)) {
        found.add("audit.keep", "must be all, or at least twice audit.segment_size, such as 10GiB");
    }
    if compress_after.zip(remove_after).is_some_and(|(compress, remove)| compress > remove) {
        found.add("audit.compress_after", "must not be longer than audit.remove_after");
    }
    if !(1..=1_000_000).contains(&raw.checkpoint.records) {
        found.add("audit.checkpoint.records", "must be from 1 to 1000000");
    }
    let sensible = Duration::from_secs(1)..=Duration::from_secs(7 * 86_400);
    let interval = duration(&raw.checkpoint.interval).filter(|interval| sensible.contains(interval));
    if interval.is_none() {
        found.add("audit.checkpoint.interval", "must be from 1s to 7d, such as 10m or 1h");
    }
    let file = raw.checkpoint.file.map(|path| absolute(found, "audit.checkpoint.file", path));
    let webhook = raw.checkpoint.webhook.and_then(|raw| {
        let mut add =
            |key: &str, message: String| found.add(format!("audit.checkpoint.webhook.{key}"), message);
        Endpoint::validate(raw, &mut add)
    });
    Audit {
        limits: Limits { segment_bytes, segment_age },
        keeper: Keeper {
            checkpoint_interval: interval.unwrap_or(Duration::from_secs(1)),
            policy: Policy { compress_after, remove_after, keep_bytes },
        },
        checkpoint_records: raw.checkpoint.records,
        hooks: Hooks { file, webhook },
    }
}

impl Audit {
    /// As a configuration again.
    pub(super) fn shown(&self) -> Value {
        let age = |age: Option<Duration>| age.map_or(NEVER.to_owned(), seconds);
        let policy = &self.keeper.policy;
        let mut checkpoint = json!({
            "records": self.checkpoint_records,
            "interval": seconds(self.keeper.checkpoint_interval),
        });
        if let Some(file) = &self.hooks.file {
            checkpoint["file"] = json!(file);
        }
        if let Some(webhook) = &self.hooks.webhook {
            checkpoint["webhook"] = webhook.shown();
        }
        json!({
            "segment_size": show_size(self.limits.segment_bytes),
            "segment_age": age(self.limits.segment_age),
            "compress_after": age(policy.compress_after),
            "remove_after": age(policy.remove_after),
            "keep": policy.keep_bytes.map_or(ALL.to_owned(), show_size),
            "checkpoint": checkpoint,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::parse::parse;

    #[test]
    fn everything_is_kept_and_signed_by_default() {
        let audit = parse("").unwrap().audit;
        assert_eq!(audit.limits.segment_bytes, 64 << 20);
        assert_eq!(audit.limits.segment_age, Some(Duration::from_secs(86_400)));
        let policy = audit.keeper.policy;
        assert_eq!((policy.remove_after, policy.keep_bytes), (None, None));
        assert_eq!(policy.compress_after, Some(Duration::from_secs(7 * 86_400)));
        assert_eq!((audit.checkpoint_records, audit.hooks.file), (10_000, None));
        assert!(audit.hooks.webhook.is_none());
    }

    #[test]
    fn every_problem_has_its_key() {
        let text = "audit: { segment_size: 1KiB, segment_age: 0s, compress_after: soon, remove_after: -1d, keep: 1MB,
          checkpoint: { records: 0, interval: 0s, file: relative,
            webhook: { url: 'ftp://x', secret_file: relative, attempts: 0 } } }";
        let keys: Vec<_> = parse(text).unwrap_err().0.into_iter().map(|problem| problem.key).collect();
        for key in [
            "segment_age",
            "compress_after",
            "remove_after",
            "segment_size",
            "checkpoint.records",
            "checkpoint.interval",
            "checkpoint.file",
            "checkpoint.webhook.url",
            "checkpoint.webhook.secret_file",
            "checkpoint.webhook.attempts",
        ] {
            assert!(keys.contains(&format!("audit.{key}")), "{key}: {keys:?}");
        }
        let keep = parse("audit: { keep: 1MiB }").unwrap_err();
        assert_eq!(keep.0[0].key, "audit.keep");
    }

    #[test]
    fn what_is_printed_is_the_same_again() {
        let text =
            "audit: { segment_age: never, remove_after: 90d, keep: 10GiB, checkpoint: { file: /a/b } }";
        let printed = parse(text).unwrap().to_string();
        assert_eq!(parse(&printed).unwrap().to_string(), printed);
        assert!(printed.contains("remove_after: 7776000s"), "{printed}");
    }

    #[test]
    fn a_webhook_is_printed_without_what_may_be_secret() {
        let directory = tempfile::tempdir().unwrap();
        let secret = directory.path().join("secret");
        std::fs::write(&secret, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
        std::fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let text = format!(
            "audit: {{ checkpoint: {{ webhook: {{ url: 'https://example.org/T0K3N', secret_file: {} }} }} }}",
            secret.display()
        );
        let printed = parse(&text).unwrap().to_string();
        assert!(!printed.contains("T0K3N") && printed.contains("https://example.org/REDACTED"), "{printed}");
        assert_eq!(parse(&printed).unwrap().to_string(), printed);
    }
}
