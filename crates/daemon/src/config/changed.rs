//! Reports changes of the configuration file that need a restart: the daemon reads the file only at its start.

use std::path::Path;

use serde_json::Value;

use super::{Config, parse};

/// Logs the keys whose values in the file differ from those in force.
pub(crate) fn tell_what_waits(config: &Config, file: &Path) {
    match parse::load(file) {
        Ok(now) => {
            let keys = differing(&config.shown(), &now.shown());
            if !keys.is_empty() {
                tracing::warn!(
                    keys = keys.join(", "),
                    "the configuration file has changed: restart the daemon to apply these keys"
                );
            }
        }
        Err(error) => tracing::warn!(
            "the configuration file has an error, so the daemon would not start with it; the configuration from the last start stays in force: {error:#}"
        ),
    }
}

/// Returns the keys whose values differ, or that only one of the two has. A list is one value.
fn differing(one: &Value, other: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare("", one, other, &mut found);
    found
}

fn compare(key: &str, one: &Value, other: &Value, found: &mut Vec<String>) {
    let (Value::Object(ones), Value::Object(others)) = (one, other) else {
        if one != other {
            found.push(key.to_owned());
        }
        return;
    };
    let more = others.keys().filter(|name| !ones.contains_key(*name));
    for name in ones.keys().chain(more) {
        let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
        compare(
            &key,
            ones.get(name).unwrap_or(&Value::Null),
            others.get(name).unwrap_or(&Value::Null),
            found,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::parse;
    use super::*;

    #[test]
    fn every_key_that_differs_is_named() {
        let was = parse("limits: { runs: 5 }\naccess: [{ uid: 1000, roles: [auditor] }]").unwrap().shown();
        for (text, keys) in [
            ("limits: { runs: 5 }\naccess: [{ uid: 1000, roles: [auditor] }]", &[][..]),
            ("access: [{ uid: 1000, roles: [auditor] }]", &["limits.runs"]),
            (
                "limits: { runs: 6 }\naccess: [{ uid: 1001, roles: [auditor] }]\nmcp: { http: {} }",
                &["access", "limits.runs", "mcp"],
            ),
            (
                "limits: { runs: 5 }\naccess: [{ uid: 1000, roles: [auditor] }]\napprovals: { timeout: 60s, allow_self_approval: true }",
                &["approvals.allow_self_approval", "approvals.timeout"],
            ),
        ] {
            let mut found = differing(&was, &parse(text).unwrap().shown());
            found.sort();
            assert_eq!(found, keys, "{text}");
        }
    }
}
