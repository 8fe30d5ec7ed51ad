//! What a worker says of a call is no outcome, or one that every dialect can show: as valid JSON where the dialect's
//! answer is JSON.
//!
//! Input: a `cofferdam.worker.v1.Outcome` in protobuf.

#![no_main]

use dialects::{Dialect, Made, find, forge, names, render_canonical};
use fuzz::scene::path;
use libfuzzer_sys::fuzz_target;
use operations::{CommandEnd, CommandReport, List, Operation, Read};
use prost::Message;
use serde_json::Value;
use wire::worker::v1;
use worker_protocol::convert::{Reply, outcome_from_wire, outcome_to_wire};

fuzz_target!(|data: &[u8]| {
    let Ok(message) = v1::Outcome::decode(data) else { return };
    let Ok(outcome) = outcome_from_wire(message) else { return };
    let outcome = match outcome {
        Ok(Reply::Command(report)) => {
            let CommandReport { exit, stdout, stderr, usage, kill, .. } = *report;
            let end = CommandEnd { exit, kill, usage, stdout, stderr, ..CommandEnd::default() };
            Ok(operations::OpResult::Exec(end.into()))
        }
        Ok(Reply::Result(result)) => {
            let again = outcome_from_wire(outcome_to_wire(Ok(result.clone())));
            assert_eq!(again, Ok(Ok(Reply::Result(result.clone()))));
            Ok(result)
        }
        Err(failure) => {
            assert_eq!(outcome_from_wire(outcome_to_wire(Err(failure.clone()))), Ok(Err(failure.clone())));
            Err(failure)
        }
    };
    let json: Value = serde_json::from_str(&render_canonical(&outcome)).expect("the canonical form is JSON");
    assert_eq!(json["ok"], outcome.is_ok());
    // A worker may answer another operation than was asked: the renderers must not rely on its not doing so.
    for operation in [None, Some(read()), Some(list())] {
        for dialect in names().into_iter().filter_map(find) {
            show(dialect, operation.as_ref(), &outcome);
        }
    }
});

fn show(dialect: &dyn Dialect, operation: Option<&Operation>, outcome: &operations::Outcome) {
    for tool in dialect.tools() {
        let rendered = dialect.render(&Made::new(tool.name, operation), outcome);
        match dialect.name() {
            "fs" => {
                let json: Value = serde_json::from_str(&rendered).expect("the union is JSON");
                assert_eq!(json["ok"], outcome.is_ok());
            }
            "exec" | "gateway" => {
                let json: Value = serde_json::from_str(&rendered).expect("the answer is JSON");
                assert!(json.is_object());
            }
            "forge" => {
                let frame = forge::frame::read(&rendered).expect("the answer is one frame");
                let command = outcome.as_ref().ok().and_then(operations::OpResult::command);
                for (name, text) in
                    command.into_iter().flat_map(|one| [("stdout", &one.stdout), ("stderr", &one.stderr)])
                {
                    assert_eq!(frame.text(name), Some(text.as_str()));
                }
            }
            _ => {}
        }
    }
}

fn read() -> Operation {
    Operation::Read(Read::new(path("a")))
}

fn list() -> Operation {
    Operation::List(List::new(path("a")))
}
