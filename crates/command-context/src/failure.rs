//! The failure of a run in one line: the message, the reason, the party to which it is put down, and the facts that show it.

use wire::v1::{Fault, Run};

/// Describes why a run failed. Empty if it did not.
pub fn of_run(run: &Run) -> String {
    if run.failure_reason.is_empty() {
        return run.failure.clone();
    }
    let party = match run.fault() {
        Fault::Unspecified => String::new(),
        fault => format!(", {}", fault.as_str_name().trim_start_matches("FAULT_")),
    };
    let shown: Vec<String> =
        run.evidence.iter().map(|fact| format!("{}={}", fact.what, fact.value)).collect();
    let shown = if shown.is_empty() { String::new() } else { format!(": {}", shown.join(" ")) };
    format!("{} ({}{party}{shown})", run.failure, run.failure_reason)
}

#[cfg(test)]
mod tests {
    use wire::v1::{Evidence, Fault, Run};

    use super::of_run;

    #[test]
    fn a_failure_has_its_reason_and_what_shows_whose_it_is() {
        assert_eq!(of_run(&Run::default()), "");
        let earlier = Run { failure: "gone".to_owned(), ..Run::default() };
        assert_eq!(of_run(&earlier), "gone", "of a daemon that does not say");
        let evidence = [("engine.exit_code", "137"), ("engine.oom_killed", "false")];
        let evidence =
            evidence.map(|(what, value)| Evidence { what: what.to_owned(), value: value.to_owned() });
        let lost = Run {
            failure_reason: "RUN_LOST".to_owned(),
            fault: Fault::Infrastructure.into(),
            evidence: evidence.into(),
            ..earlier
        };
        assert_eq!(
            of_run(&lost),
            "gone (RUN_LOST, INFRASTRUCTURE: engine.exit_code=137 engine.oom_killed=false)"
        );
    }
}
