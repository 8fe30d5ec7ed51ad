//! Examines whether the daemon stores the output of commands, according to its newest record.

use doctor::Finding;
use serde_json::Value;

/// Returns the finding of records that are sorted newest first, or `None` if this daemon's spool was never off.
pub(super) fn finding(records: &[Value]) -> Option<Finding> {
    const TOPIC: &str = "spool";
    let state = |record: &Value| record["details"]["state"].as_str().unwrap_or_default().to_owned();
    let of_this_daemon = records.iter().take_while(|record| record["kind"] != "daemon_started");
    let last = of_this_daemon.into_iter().find(|record| state(record).starts_with("spool_"))?;
    if state(last) == "spool_on" {
        return Some(Finding::good(TOPIC, "stores the output of commands"));
    }
    let why = last["details"]["why"].as_str().unwrap_or("no reason is on record");
    Some(Finding::limited(
        TOPIC,
        format!("off: {why}"),
        "output of commands can be followed live but is not stored: free space on the disk of state_dir, or \
         set spool.min_free",
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn last_spool_record_of_this_daemon_decides() {
        let started = json!({ "kind": "daemon_started" });
        let said =
            |state: &str| json!({ "kind": "disk_space", "details": { "state": state, "why": "no space" } });
        let off = finding(&[said("low"), said("spool_off"), started.clone()]).unwrap();
        assert_eq!(off.found, "off: no space");
        assert!(off.follows.is_some_and(|follows| follows.contains("spool.min_free")));
        let on = finding(&[said("spool_on"), said("spool_off"), started.clone()]);
        assert_eq!(on, Some(Finding::good("spool", "stores the output of commands")));
        assert_eq!(finding(&[started, said("spool_off")]), None, "another daemon said that");
    }
}
