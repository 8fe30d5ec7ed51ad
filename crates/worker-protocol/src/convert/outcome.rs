//! [`Outcome`] ⇄ the message that a worker sends.
//!
//! Trust boundary: the container lane's worker lives beside an attacker. A message that is not a possible outcome is
//! malformed, and the stream that carried it is closed. Sizes were capped with the frame.

use ops::{Hint, Limit, Malformed, OpResult, Outcome, Reason, ToolFailure};
use wire::v1::{self, ContentEncoding, entry, patched_file};
use wire::worker::v1 as worker;

const MAX_DETAILS: usize = 64;
const MAX_HINTS: usize = 8;

pub fn outcome_to_wire(outcome: Outcome) -> worker::Outcome {
    use worker::outcome::Kind;
    let mut hints = Vec::new();
    let kind = match outcome {
        Ok(result) => Kind::Result(result.into()),
        Err(mut failure) => {
            hints = std::mem::take(&mut failure.hints).iter().map(|hint| hint.as_str().to_owned()).collect();
            Kind::Failure(failure.into())
        }
    };
    worker::Outcome { kind: Some(kind), usage: None, bound: None, hints }
}

/// In the daemon: parses and validates.
pub fn outcome_from_wire(outcome: worker::Outcome) -> Result<Outcome, Malformed> {
    use worker::outcome::Kind;
    match outcome.kind {
        Some(Kind::Result(result)) => {
            let mut result = result.kind.ok_or_else(|| Malformed::new("outcome.result", "is empty"))?;
            check(&mut result)?;
            Ok(Ok(result))
        }
        Some(Kind::Failure(failure)) => Ok(Err(failure_from(failure, &outcome.hints)?)),
        None => Err(Malformed::new("outcome", "is empty")),
    }
}

fn failure_from(failure: v1::ToolFailure, hints: &[String]) -> Result<ToolFailure, Malformed> {
    let reason = Reason::parse(&failure.reason)
        .ok_or_else(|| Malformed::new("outcome.failure.reason", "is unknown"))?;
    if failure.details.len() > MAX_DETAILS {
        return Err(Malformed::new("outcome.failure.details", "are too many"));
    }
    if hints.len() > MAX_HINTS {
        return Err(Malformed::new("outcome.hints", "are too many"));
    }
    let hint = |name: &String| {
        Hint::parse(name).ok_or_else(|| Malformed::new("outcome.hints", "has an unknown one"))
    };
    let hints = hints.iter().map(hint).collect::<Result<_, _>>()?;
    Ok(ToolFailure { reason, message: failure.message, details: failure.details, hints })
}

/// Refuses a result that none of our workers sends, and takes out of a command's result the words that are the daemon's.
fn check(result: &mut OpResult) -> Result<(), Malformed> {
    match result {
        OpResult::Read(result) => known(result.encoding() != ContentEncoding::Unspecified, "read.encoding"),
        OpResult::List(result) => {
            known(result.entries.iter().all(|entry| is_type(entry.r#type())), "list.entries.type")
        }
        OpResult::Delete(result) => known(is_type(result.r#type()), "delete.type"),
        OpResult::Patch(result) => {
            let unknown = patched_file::Change::Unspecified;
            known(result.files.iter().all(|file| file.change() != unknown), "patch.files.change")
        }
        OpResult::Exec(result) | OpResult::Shell(result) => {
            result.kill.get_or_insert_default();
            result.ended_by.clear();
            result.hint.clear();
            // A worker sees only which places are full. The daemon finds out the other limits.
            let space = |name: &String| Limit::parse(name).is_some_and(Limit::is_space);
            if !result.limits_hit.iter().all(space) {
                return Err(Malformed::new("exec.limits_hit", "has one that no worker can see"));
            }
            Ok(())
        }
        OpResult::Glob(_) | OpResult::Grep(_) | OpResult::Write(_) | OpResult::Edit(_) | OpResult::Git(_) => {
            Ok(())
        }
        // No worker calls upstream servers.
        OpResult::Mcp(_) => Err(Malformed::new("mcp", "is no worker's result")),
    }
}

fn is_type(kind: entry::Type) -> bool {
    kind != entry::Type::Unspecified
}

fn known(holds: bool, field: &str) -> Result<(), Malformed> {
    if holds { Ok(()) } else { Err(Malformed::new(field, "is unknown")) }
}
