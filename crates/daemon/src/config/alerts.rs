//! `alerts`: who is told.

use gateway::Severity;
use serde_json::Value;

use super::endpoint::{self, Endpoint};
use super::raw;

/// Webhooks that there may be: each has a task, and each alert a delivery for each.
const MAX_WEBHOOKS: usize = 16;

/// A webhook.
#[derive(Debug, Clone)]
pub(crate) struct Webhook {
    /// Names it in alerts and logs.
    pub(crate) name: String,
    /// Where it is.
    pub(crate) endpoint: Endpoint,
    /// It is told of alerts that matter as much as this, or more.
    pub(crate) min_severity: Severity,
}

impl Webhook {
    /// For the printed configuration.
    pub(super) fn shown(&self) -> Value {
        let mut shown = self.endpoint.shown();
        shown["name"] = self.name.as_str().into();
        shown["min_severity"] = self.min_severity.as_str().into();
        shown
    }
}

/// Judges the webhooks, one after the other.
pub(super) fn webhooks(found: &mut dyn FnMut(String, String), raw: Vec<raw::Webhook>) -> Vec<Webhook> {
    if raw.len() > MAX_WEBHOOKS {
        found("alerts.webhooks".to_owned(), format!("has more than {MAX_WEBHOOKS}"));
    }
    let mut webhooks: Vec<Webhook> = Vec::new();
    for (index, raw) in raw.into_iter().take(MAX_WEBHOOKS).enumerate() {
        let mut add = |key: &str, message: String| found(format!("alerts.webhooks[{index}].{key}"), message);
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
        if raw.name.is_empty() || raw.name.len() > 64 || !raw.name.chars().all(plain) {
            add("name", "must be 1 to 64 characters of `a-z`, `0-9`, `-` and `_`".to_owned());
        }
        if webhooks.iter().any(|before| before.name == raw.name) {
            add("name", format!("{:?} is there twice", raw.name));
        }
        let severity = Severity::ALL.into_iter().find(|severity| severity.as_str() == raw.min_severity);
        if severity.is_none() {
            add("min_severity", "must be low, medium, high or critical".to_owned());
        }
        let raw::Webhook { name, url, secret_file, timeout, attempts, first_retry, allow_http, .. } = raw;
        let place = endpoint::Raw { url, secret_file, timeout, attempts, first_retry, allow_http };
        let endpoint = Endpoint::validate(place, &mut add);
        let (Some(endpoint), Some(min_severity)) = (endpoint, severity) else { continue };
        webhooks.push(Webhook { name, endpoint, min_severity });
    }
    webhooks
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::parse::parse;

    fn keys(text: &str) -> Vec<String> {
        parse(text).unwrap_err().0.into_iter().map(|problem| problem.key).collect()
    }

    #[test]
    fn what_is_wrong_with_webhooks_is_said_all_at_once() {
        let text = "alerts: { webhooks: [
            { name: 'A b', url: 'http://example.org/', secret_file: /no/such/file, min_severity: loud, timeout: 0s, attempts: 99, first_retry: x },
            { name: a, url: nonsense, secret_file: relative }] }";
        let keys = keys(text);
        let expected = ["name", "min_severity", "url", "secret_file", "timeout", "first_retry", "attempts"];
        assert_eq!(keys[..7], expected.map(|key| format!("alerts.webhooks[0].{key}")));
        assert_eq!(keys[7..], ["url", "secret_file"].map(|key| format!("alerts.webhooks[1].{key}")));
        let twice = "{ name: a, url: 'http://localhost/', secret_file: /no }";
        let keys = self::keys(&format!("alerts: {{ webhooks: [{twice}, {{ name: a }}] }}"));
        assert_eq!(keys, [""], "a url is needed");
    }

    #[test]
    fn nothing_that_may_be_secret_is_printed_and_the_rest_is_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let secret = directory.path().join("secret");
        std::fs::write(&secret, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
        let text = format!(
            "alerts: {{ webhooks: [{{ name: pager, url: 'https://example.org:8443/T0K3N', secret_file: {} }}] }}",
            secret.display()
        );
        let config = parse(&text).unwrap();
        let printed = config.to_string();
        assert!(
            !printed.contains("T0K3N") && !printed.contains("MfKQ") && printed.contains("pager"),
            "{printed}"
        );
        assert!(!format!("{config:?}").contains("T0K3N"));
        assert_eq!(parse(&printed).unwrap().to_string(), printed);
    }
}
