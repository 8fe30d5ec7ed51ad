//! Hosts to which a run was refused.

use serde_json::Value;

/// A host to which a run was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    pub host: String,
    /// Port; `None` for a lookup.
    pub port: Option<u16>,
    /// The rule that decided.
    pub rule: String,
    pub reason: String,
    pub count: u64,
}

impl Refused {
    /// Returns the refusal in the details of a record `egress_refused`.
    pub fn from_record(details: &Value) -> Option<Self> {
        let text = |name: &str| Some(details.get(name)?.as_str()?.to_owned());
        let number = |name: &str| details.get(name).and_then(Value::as_u64);
        Some(Self {
            host: text("host")?,
            port: number("port").and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0),
            rule: text("rule")?,
            reason: text("why").unwrap_or_default(),
            count: number("count").unwrap_or(1),
        })
    }

    /// Returns true if another rule would have let it pass.
    pub(super) fn lacks_a_rule(&self) -> bool {
        ["egress: unknown name", "egress default: deny"].contains(&self.rule.as_str())
    }

    pub(super) fn shown(&self) -> String {
        self.port.map_or_else(|| self.host.clone(), |port| format!("{}:{port}", self.host))
    }
}
