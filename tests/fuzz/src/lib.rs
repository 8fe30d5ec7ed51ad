//! What the targets share: plain models to compare with, and directories to look into.
//!
//! A model is written to be seen through, not to be fast: it is what the code under test is believed against.

#![forbid(unsafe_code)]

pub mod door;
pub mod frames;
pub mod glob;
pub mod scene;
pub mod worker;

use std::borrow::Cow;

use operations::{Grep, Malformed, Operation};
use wire::v1;
use wire::v1::operation::Kind;

/// The input as text. Bytes that are none are replaced, so that no input is wasted.
pub fn text(data: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(data)
}

/// Whether a message can stand in a log or a terminal: one line, nothing that either would obey.
pub fn is_one_line(message: &str) -> bool {
    !message
        .contains(|c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}'))
}

/// Parses a request as the daemon does.
pub fn parsed(kind: Kind) -> Result<Operation, Malformed> {
    Operation::parse(v1::Operation { kind: Some(kind) })
}

/// The operation comes out of the wire as it went in. Only a regular expression between slashes of its own is written in
/// another way, since such slashes mean a regular expression to the wire.
pub fn survives_the_wire(operation: &Operation) {
    let there_and_back = |operation: &Operation| Operation::parse(operation.message());
    let expected = match operation {
        Operation::Grep(grep) if grep.regex && grep.pattern.starts_with('/') => {
            let again = there_and_back(operation).expect("still an operation");
            let Operation::Grep(Grep { pattern, .. }) = &again else { panic!("not a grep: {again:?}") };
            assert!(
                *pattern == grep.pattern || *pattern == grep.pattern.replacen('/', "[/]", 1),
                "{again:?}"
            );
            Operation::Grep(Grep { pattern: pattern.clone(), ..grep.clone() })
        }
        operation => operation.clone(),
    };
    assert_eq!(there_and_back(operation).as_ref(), Ok(&expected));
    assert_eq!(there_and_back(&expected).as_ref(), Ok(&expected));
}
