//! A model's text is plain or has one first block, whose call is an operation or is answered by one frame; no text can
//! close or forge a frame.

#![no_main]

use dialects::forge::frame;
use dialects::forge::transcript::{Step, first};
use dialects::{Limits, Made, find};
use fuzz::{survives_the_wire, text};
use libfuzzer_sys::fuzz_target;
use operations::{ExecResult, OpResult};

fuzz_target!(|data: &[u8]| {
    let text = text(data);
    let forge = find("forge").expect("the dialect");
    if let Step::Call(block) = first(&text) {
        assert!(text.starts_with(block.before));
        assert!(
            text[block.before.len()..].contains(block.arguments) && !block.tool.contains(char::is_whitespace)
        );
        assert_eq!(first(block.before), Step::Plain);
        match forge.parse(block.tool, block.arguments, &Limits::default()) {
            Ok(operation) => survives_the_wire(&operation),
            Err(failure) => {
                let answer = forge.render(&Made::new(block.tool, None), &Err(failure.into()));
                assert!(frame::read(&answer).is_some(), "{answer}");
            }
        }
    }
    // The same text as what a command has written.
    let (stdout, stderr) = (text.clone().into_owned(), text.chars().rev().collect::<String>());
    let result = ExecResult { stdout, stderr, exit_code: Some(0), ..Default::default() };
    let message = forge.render(&Made::new("bash", None), &Ok(OpResult::Shell(result.clone())));
    let read = frame::read(&message).expect("what was written is read");
    assert_eq!(read.text("stdout"), Some(result.stdout.as_str()));
    assert_eq!(read.text("stderr"), Some(result.stderr.as_str()));
    // And as a message that claims to be one.
    if let Some(claimed) = frame::read(&text) {
        assert_eq!(frame::read(&claimed.write()), Some(claimed));
    }
});
