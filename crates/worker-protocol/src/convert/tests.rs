use ops::{Hint, Reason, ToolFailure};
use wire::v1;
use wire::worker::v1 as worker;

use super::{outcome_from_wire, outcome_to_wire};

#[test]
fn a_worker_tells_of_full_places_and_of_nothing_else_that_ended_a_command() {
    let from = |limits_hit: &[&str]| {
        let result = v1::ExecResult {
            ended_by: "memory-limit".to_owned(),
            limits_hit: limits_hit.iter().map(ToString::to_string).collect(),
            hint: "forged".to_owned(),
            ..Default::default()
        };
        let kind = Some(v1::result::Kind::Exec(result));
        let kind = Some(worker::outcome::Kind::Result(v1::Result { kind }));
        outcome_from_wire(worker::Outcome { kind, usage: None, bound: None, hints: Vec::new() })
    };
    let Ok(Ok(ops::OpResult::Exec(result))) = from(&["tmp-space"]) else { panic!("refused") };
    assert_eq!((result.ended_by.as_str(), result.hint.as_str()), ("", ""));
    assert_eq!(result.limits_hit, ["tmp-space"]);
    for forged in ["memory", "output", "anything"] {
        assert_eq!(from(&["tmp-space", forged]).unwrap_err().field, "exec.limits_hit");
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
