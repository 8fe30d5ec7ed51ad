//! Reads `audit`: segments, how long they are kept, and checkpoints.

use std::path::PathBuf;
use std::time::Duration;

use ::audit::{Limits, Policy};
use audit_service::{Couriers, Maintenance};
use document::{Fields, NEVER, age_or, show_size, size, size_or, time_or};
use serde_json::{Value, json};

use super::endpoint::{self, Endpoint};
use super::seconds;
use super::values::path;
use webhook::Sender;

/// Value of `keep` with which no segment is removed for its size.
const ALL: &str = "all";

/// Longest time that this section accepts, seconds.
const CENTURY: u64 = 100 * 366 * DAY;
const DAY: u64 = 86_400;

/// Settings of the audit log.
#[derive(Debug, Clone)]
pub(crate) struct Audit {
    /// Size and age at which a segment is full.
    pub(crate) limits: Limits,
    /// Compression and removal of segments, and the interval of checkpoints.
    pub(crate) maintenance: Maintenance,
    /// Number of records after which a checkpoint is signed.
    pub(crate) checkpoint_records: u64,
    /// Destinations to which checkpoints are sent.
    pub(crate) hooks: Hooks,
}

/// Destinations of checkpoints.
#[derive(Debug, Clone)]
pub(crate) struct Hooks {
    /// File to which checkpoints are appended, separated by empty lines.
    pub(crate) file: Option<PathBuf>,
    /// Endpoint to which each checkpoint is posted, signed.
    pub(crate) webhook: Option<Endpoint>,
}

impl Hooks {
    /// Opens the destinations. Reads a secret and certificates only if there is a webhook.
    pub(crate) fn open(&self) -> anyhow::Result<Couriers> {
        const KEY: &str = "audit.checkpoint.webhook";
        let open = |webhook: &Endpoint| Ok((webhook.open(KEY)?, Sender::new()?));
        let webhook = self.webhook.as_ref().map(open).transpose();
        let webhook = webhook.map_err(|error: String| anyhow::anyhow!("{KEY}: {error}"))?;
        Ok(Couriers { file: self.file.clone(), webhook })
    }
}

/// Reads the section.
pub(super) fn read(top: &Fields<'_>) -> Audit {
    let keys = ["segment_size", "segment_age", "compress_after", "remove_after", "keep", "checkpoint"];
    let fields = top.section("audit", &keys);
    let segment_bytes = size_or(&fields, "segment_size", 64 << 10, 64 << 20);
    let segment_age = age_or(&fields, "segment_age", CENTURY, Some(DAY));
    let compress_after = age_or(&fields, "compress_after", CENTURY, Some(7 * DAY));
    let remove_after = age_or(&fields, "remove_after", CENTURY, None);
    let keep = fields.get("keep").filter(|at| at.argument().is_some_and(|written| written != ALL));
    let keep_bytes = keep.and_then(|at| {
        let bytes = size(at, 1)?;
        if bytes < segment_bytes.saturating_mul(2) {
            at.problem("must be at least twice audit.segment_size, or all");
        }
        Some(bytes)
    });
    if compress_after.zip(remove_after).is_some_and(|(compress, remove)| compress > remove) {
        fields.at("compress_after").problem("must not be longer than audit.remove_after");
    }
    let checkpoint = fields.section("checkpoint", &["records", "interval", "file", "webhook"]);
    let webhook = checkpoint.get("webhook").and_then(|at| Endpoint::read(&at.fields(&endpoint::KEYS)));
    Audit {
        limits: Limits { segment_bytes, segment_age },
        maintenance: Maintenance {
            checkpoint_interval: time_or(&checkpoint, "interval", (1, 7 * DAY), 600),
            policy: Policy { compress_after, remove_after, keep_bytes },
        },
        checkpoint_records: checkpoint.number_or("records", 1..=1_000_000, 10_000),
        hooks: Hooks { file: checkpoint.get("file").and_then(path), webhook },
    }
}

impl Audit {
    /// Returns the section in the form of the configuration file.
    pub(super) fn shown(&self) -> Value {
        let age = |age: Option<Duration>| age.map_or(NEVER.to_owned(), seconds);
        let policy = &self.maintenance.policy;
        let mut checkpoint = json!({
            "records": self.checkpoint_records,
            "interval": seconds(self.maintenance.checkpoint_interval),
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

    use super::super::testing::{keys, parse};

    #[test]
    fn everything_is_kept_and_signed_by_default() {
        let audit = parse("").unwrap().audit;
        assert_eq!(audit.limits.segment_bytes, 64 << 20);
        assert_eq!(audit.limits.segment_age, Some(Duration::from_secs(86_400)));
        let policy = audit.maintenance.policy;
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
        let keys = keys(text);
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
        let said = |text: &str| parse(text).unwrap_err().0[0].to_string();
        let keep = said("audit: { keep: 1MiB }");
        assert_eq!(keep, "cofferd.yaml:1: audit.keep: must be at least twice audit.segment_size, or all");
        assert!(
            said("audit: { remove_after: 1d, compress_after: 2d }")
                .contains("audit.compress_after: must not be")
        );
        assert!(said("audit: { remove_after: 90days }").ends_with(", or never (did you mean `90d`?)"));
    }

    #[test]
    fn printed_configuration_parses_back() {
        let text =
            "audit: { segment_age: never, remove_after: 90d, keep: 10GiB, checkpoint: { file: /a/b } }";
        let printed = parse(text).unwrap().to_string();
        assert_eq!(parse(&printed).unwrap().to_string(), printed);
        assert!(printed.contains("remove_after: 7776000s"), "{printed}");
    }

    #[test]
    fn a_webhook_is_printed_without_its_secrets() {
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
