//! The failure of a run or a process in one line: the message, the reason, the party to which it is put down, and the facts that show it.

use wire::v1::{Evidence, Fault, Process, Run};

/// Describes why a run failed. Empty if it did not.
pub fn of_run(run: &Run) -> String {
    if run.failure_reason.is_empty() {
        return run.failure.clone();
    }
    let party = match run.fault() {
        Fault::Unspecified => String::new(),
        fault => format!(", {}", name(fault)),
    };
    format!("{} ({}{party}{})", run.failure, run.failure_reason, shown(&run.evidence))
}

/// Describes why a process was lost or ended early. Empty if it was not, or if its other facts say all of it.
pub fn of_process(process: &Process) -> String {
    match process.fault() {
        _ if process.failure.is_empty() => String::new(),
        Fault::Unspecified => process.failure.clone(),
        fault => format!("{} ({}{})", process.failure, name(fault), shown(&process.evidence)),
    }
}

fn name(fault: Fault) -> &'static str {
    fault.as_str_name().trim_start_matches("FAULT_")
}

fn shown(evidence: &[Evidence]) -> String {
    let shown: Vec<String> = evidence.iter().map(|fact| format!("{}={}", fact.what, fact.value)).collect();
    if shown.is_empty() { String::new() } else { format!(": {}", shown.join(" ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn a_failure_of_a_process_has_what_shows_whose_it_is() {
        assert_eq!(of_process(&Process { fault: Fault::Caller.into(), ..Process::default() }), "");
        let earlier = Process { failure: "drained".to_owned(), ..Process::default() };
        assert_eq!(of_process(&earlier), "drained", "of a daemon that does not say");
        let limit = Process { fault: Fault::Program.into(), ..earlier.clone() };
        assert_eq!(of_process(&limit), "drained (PROGRAM)");
        let (what, value) = ("run.end_cause".to_owned(), "node_drained".to_owned());
        let lost = Process {
            fault: Fault::Infrastructure.into(),
            evidence: vec![Evidence { what, value }],
            ..earlier
        };
        assert_eq!(of_process(&lost), "drained (INFRASTRUCTURE: run.end_cause=node_drained)");
    }
}
