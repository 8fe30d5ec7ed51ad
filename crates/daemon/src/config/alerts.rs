//! Reads `alerts`: the webhooks that receive alerts.

use document::{At, Fields};
use policy::Severity;
use serde_json::Value;

use super::endpoint::{self, Endpoint};
use super::values;

const SEVERITIES: [(&str, Severity); 4] = [
    ("low", Severity::Low),
    ("medium", Severity::Medium),
    ("high", Severity::High),
    ("critical", Severity::Critical),
];

/// Maximum number of webhooks. Each has a task, and each alert is delivered to each webhook.
const MAX_WEBHOOKS: usize = 16;

/// A webhook that receives alerts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Webhook {
    /// Name of the webhook in alerts and logs.
    pub(crate) name: String,
    /// Endpoint to which alerts are posted.
    pub(crate) endpoint: Endpoint,
    /// Lowest severity of the alerts that the webhook receives.
    pub(crate) min_severity: Severity,
}

impl Webhook {
    /// Reads the secret and returns the webhook, ready for use.
    pub(super) fn open(&self) -> Result<anomaly::Webhook, String> {
        let endpoint = self.endpoint.open(&self.name)?;
        Ok(anomaly::Webhook { endpoint, min_severity: self.min_severity })
    }

    /// Returns the webhook in the form of the configuration file.
    pub(super) fn shown(&self) -> Value {
        let mut shown = self.endpoint.shown();
        shown["name"] = self.name.as_str().into();
        shown["min_severity"] = self.min_severity.as_str().into();
        shown
    }
}

/// Reads the webhooks of the section.
pub(super) fn webhooks(alerts: &Fields<'_>) -> Vec<Webhook> {
    let mut webhooks: Vec<Webhook> = Vec::new();
    for (index, at) in alerts.items("webhooks").iter().enumerate() {
        if index == MAX_WEBHOOKS {
            alerts.at("webhooks").problem(format!("has more than {MAX_WEBHOOKS}"));
            break;
        }
        let fields = at.fields(&[&["name", "min_severity"][..], &endpoint::KEYS].concat());
        let name = fields.required("name").and_then(|at| name(at, &webhooks));
        let severity = fields.get("min_severity").map_or(Some(Severity::Low), |at| at.one_of(&SEVERITIES));
        let endpoint = Endpoint::read(&fields);
        let (Some(name), Some(endpoint), Some(min_severity)) = (name, endpoint, severity) else { continue };
        webhooks.push(Webhook { name, endpoint, min_severity });
    }
    webhooks
}

fn name(at: &At<'_>, before: &[Webhook]) -> Option<String> {
    let name = values::name(at)?;
    if before.iter().any(|before| before.name == name) {
        at.problem(format!("{name:?} is listed twice"));
        return None;
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::testing::{keys, parse};

    #[test]
    fn all_webhook_problems_are_reported() {
        let text = "alerts: { webhooks: [
            { name: 'A b', url: 'http://example.org/', secret_file: /no/such/file, min_severity: loud, timeout: 0s, attempts: 99, first_retry: x },
            { name: a, url: nonsense, secret_file: relative }] }";
        let keys = keys(text);
        let expected = ["name", "min_severity", "url", "secret_file", "timeout", "first_retry", "attempts"];
        assert_eq!(keys[..7], expected.map(|key| format!("alerts.webhooks[0].{key}")));
        assert_eq!(keys[7..], ["url", "secret_file"].map(|key| format!("alerts.webhooks[1].{key}")));
        let said = parse("alerts: { webhooks: [{ name: a, secretfile: x }] }").unwrap_err().to_string();
        for needed in ["`url` is missing", "`secret_file` is missing", "did you mean `secret_file`?"] {
            assert!(said.contains(needed), "{needed}: {said}");
        }
        let many = "{ name: a }, ".repeat(17);
        assert!(
            self::keys(&format!("alerts: {{ webhooks: [{many}] }}")).contains(&"alerts.webhooks".to_owned())
        );
    }

    #[test]
    fn printed_webhooks_hide_secrets() {
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
