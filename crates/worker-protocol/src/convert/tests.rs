use operations::{Exit, Hint, KillMethod, Limit, Reason, Stop, ToolFailure};
use prost::Message as _;
use wire::v1;
use wire::worker::v1::{self as worker, command_report::Stop as Said};

use super::{MAX_OUTCOME, Reply, carried, outcome_from_wire, outcome_to_wire};

#[test]
fn a_worker_reports_facts_that_it_can_know_and_no_others() {
    let from = |report: worker::CommandReport| {
        let kind = Some(worker::outcome::Kind::Command(report));
        outcome_from_wire(worker::Outcome { kind, usage: None, bound: None, hints: Vec::new() })
    };
    let said = worker::CommandReport {
        signal: Some(9),
        stop: Said::Deadline.into(),
        stdout_bytes: 7,
        full: vec![Limit::TmpSpace.into()],
        ..Default::default()
    };
    let Ok(Ok(Reply::Command(report))) = from(said.clone()) else { panic!("refused") };
    assert_eq!(
        (report.exit, report.stop, report.full),
        (Exit::Signal(9), Stop::Deadline, vec![Limit::TmpSpace])
    );
    assert_eq!(report.stdout, operations::Written { bytes: 7, ..Default::default() });
    let evidence = |method: KillMethod, running| {
        Some(v1::KillEvidence { method: method.into(), running, ..Default::default() })
    };
    assert!(
        from(worker::CommandReport { kill: evidence(KillMethod::Descendants, 0), ..said.clone() }).is_ok()
    );
    for forged in [
        worker::CommandReport { exit_code: Some(0), ..said.clone() },
        worker::CommandReport { signal: Some(i32::MAX), ..said.clone() },
        worker::CommandReport { signal: None, exit_code: Some(256), ..said.clone() },
        worker::CommandReport { stop: 0, ..said.clone() },
        worker::CommandReport { stop: 99, ..said.clone() },
        worker::CommandReport { full: vec![Limit::TmpSpace.into(), Limit::Memory.into()], ..said.clone() },
        worker::CommandReport { full: vec![99], ..said.clone() },
        worker::CommandReport { kill: evidence(KillMethod::CgroupV2Kill, 0), ..said.clone() },
        worker::CommandReport { kill: evidence(KillMethod::NoneNeeded, 1), ..said.clone() },
    ] {
        assert!(from(forged.clone()).is_err(), "{forged:?}");
    }
}

#[test]
fn hints_cross_as_words_and_become_sentences_for_clients_only() {
    let failure = ToolFailure::new(Reason::PreconditionFailed, "twice").hint(Hint::ReplaceAll);
    let wire = outcome_to_wire(Err(failure.clone()));
    assert_eq!(wire.hints, ["replace_all"]);
    assert_eq!(outcome_from_wire(wire.clone()), Ok(Err(failure.clone())));
    for hints in [vec!["sudo".to_owned()], vec!["replace_all".to_owned(); 9]] {
        assert!(outcome_from_wire(worker::Outcome { hints, ..wire.clone() }).is_err());
    }
    assert_eq!(v1::ToolFailure::from(failure).message, "twice; set replace_all to replace all of them");
}

#[test]
fn a_worker_makes_no_decision_of_the_daemon() {
    for reason in
        [Reason::AwaitingApproval, Reason::ApprovalDenied, Reason::RateLimited, Reason::DaemonStopping]
    {
        let said = outcome_to_wire(Err(ToolFailure::new(reason, "so it says")));
        assert!(outcome_from_wire(said).is_err(), "{reason:?}");
    }
}

#[test]
fn an_outcome_that_no_frame_holds_fails_its_call() {
    let read = |bytes: usize| {
        let encoding = v1::ContentEncoding::Utf8.into();
        let result = v1::ReadResult { content: "x".repeat(bytes), encoding, ..Default::default() };
        outcome_to_wire(Ok(operations::OpResult::Read(result)))
    };
    let failed = |bytes: usize| {
        let outcome = carried(read(bytes));
        let frame = worker::FromWorker {
            id: u64::MAX,
            body: Some(worker::from_worker::Body::Outcome(outcome.clone())),
        };
        assert!(crate::frame::encode(&frame).is_ok(), "{bytes}");
        outcome_from_wire(outcome).unwrap().err().map(|failure| failure.reason)
    };
    let overhead = read(1 << 21).encoded_len() - (1 << 21);
    assert_eq!(failed(MAX_OUTCOME - overhead), None);
    assert_eq!(failed(MAX_OUTCOME - overhead + 1), Some(Reason::ReadLimit));
    // A failure may be too long itself, or a preview name too many files.
    let long = outcome_to_wire(Err(ToolFailure::new(Reason::NotFound, "x".repeat(MAX_OUTCOME))));
    let file = v1::BoundFile { path: "x".repeat(1_000), ..Default::default() };
    let bound = worker::Bound { files: vec![file; 5_000], ..Default::default() };
    let preview = worker::Outcome { bound: Some(bound), ..read(1) };
    for outcome in [long, preview] {
        let failure = outcome_from_wire(carried(outcome)).unwrap().unwrap_err();
        assert_eq!(failure.reason, Reason::ReadLimit);
    }
}

#[test]
fn a_rule_for_paths_that_does_not_parse_holds_for_all_mounts() {
    let rule = |path: &str, except: &str| worker::Bounds {
        path_rules: vec![worker::PathRule {
            path: vec![path.to_owned()],
            except: vec![except.to_owned()],
            ..Default::default()
        }],
        ..Default::default()
    };
    let shown = |bounds| {
        let rules = super::bounds_from_wire(Some(bounds)).path_rules.rules;
        let texts = |patterns: &[operations::PathPattern]| {
            patterns.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        (texts(&rules[0].paths.path), texts(&rules[0].paths.except))
    };
    assert_eq!(
        shown(rule("secrets/**", "secrets/a")),
        (vec!["@project/secrets/**".to_owned()], vec!["@project/secrets/a".to_owned()])
    );
    assert_eq!(
        shown(rule("../[", "../[")),
        (["@project/**", "@pkg/**", "@state/**"].map(str::to_owned).into(), Vec::new())
    );
}
