//! Checks that the connections of a run can be steered. It is tried in a network namespace that ends with the check.

use std::sync::OnceLock;

use steering::SteeringError;

use crate::finding::Finding;

const TOPIC: &str = "egress";

/// Returns the finding of this process's first check.
///
/// A daemon examines its host for each user who asks, and this result does not change while it runs.
pub(super) fn examine() -> Finding {
    static FINDING: OnceLock<Finding> = OnceLock::new();
    FINDING.get_or_init(examine_once).clone()
}

fn examine_once() -> Finding {
    if !rustix::process::geteuid().is_root() {
        return not_examined();
    }
    finding(steering::probe())
}

fn not_examined() -> Finding {
    Finding::limited(
        TOPIC,
        "not examined: only root can steer a network namespace",
        "run `sudo coffer doctor`, or ask a running daemon, to see if runs can have `egress` on this host",
    )
}

fn finding(tried: Result<(), SteeringError>) -> Finding {
    let Err(error) = tried else {
        return Finding::good(TOPIC, "connections of a run can be steered (BPF sk_lookup)");
    };
    let consequence = "runs without `egress` are not affected, and others are refused";
    Finding::limited(TOPIC, error.to_string(), format!("{consequence}: {}", error.remedy()))
}

#[cfg(test)]
mod tests {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

    use super::*;
    use crate::finding::Verdict;

    #[test]
    fn a_host_that_can_steer_is_good() {
        assert_eq!(finding(Ok(())).verdict, Verdict::Good);
    }

    #[test]
    fn the_finding_names_the_step_the_consequence_and_what_to_do() {
        let tried = std::thread::spawn(|| {
            let mut sets = capabilities(None).unwrap();
            sets.effective.remove(CapabilitySet::NET_RAW);
            set_capabilities(None, sets).unwrap();
            finding(steering::probe())
        });
        let found = tried.join().unwrap();
        assert_eq!(found.verdict, Verdict::Limited, "{found:?}");
        let follows = found.follows.unwrap();
        for part in ["runs without `egress` are not affected", "others are refused", "CAP_NET_RAW"] {
            assert!(follows.contains(part), "{part}: {follows}");
        }
    }

    #[test]
    fn another_user_than_root_gets_no_verdict_about_the_kernel() {
        let finding = not_examined();
        assert_eq!(finding.verdict, Verdict::Limited);
        assert!(finding.follows.is_some_and(|follows| follows.contains("sudo coffer doctor")));
    }

    /// Tests run as root, as the daemon does; without it nothing is tried.
    #[test]
    fn the_finding_of_this_host_is_that_of_the_probe() {
        let expected =
            if rustix::process::geteuid().is_root() { finding(steering::probe()) } else { not_examined() };
        assert_eq!((examine(), examine()), (expected.clone(), expected));
    }
}
