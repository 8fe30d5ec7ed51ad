//! Examines the daemon's default image, as its last start recorded it.

use doctor::Finding;
use serde_json::Value;
/// Examines the record of the last start.
pub(super) fn examine(records: &[Value]) -> Option<Finding> {
    finding(&records.first()?["details"])
}

fn finding(details: &Value) -> Option<Finding> {
    const TOPIC: &str = "default image";
    if let Some(busybox) = details["busybox"].as_str() {
        return Some(Finding::good(TOPIC, format!("made of busybox {busybox}")));
    }
    let why = details["no_default_image"].as_str()?;
    Some(Finding::limited(
        TOPIC,
        format!("could not be made when the daemon started: {why}"),
        "runs whose profile and request name no image are refused",
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn default_image_finding_follows_the_start_record() {
        let made = finding(&json!({ "busybox": "sha256:ab", "default_image": "sha256:cd" }));
        assert_eq!(made, Some(Finding::good("default image", "made of busybox sha256:ab")));
        let none = finding(&json!({ "no_default_image": "No static busybox at /x" })).unwrap();
        assert_eq!(none.found, "could not be made when the daemon started: No static busybox at /x");
        assert!(none.follows.unwrap().contains("are refused"));
        assert_eq!(finding(&json!({ "version": "0.0.1" })), None);
    }
}
