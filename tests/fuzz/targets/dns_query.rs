//! A DNS query of any bytes is answered with at most 512 bytes that parse, has a question in canonical form, or is dropped.

#![no_main]

use std::net::Ipv4Addr;

use egress_worker::dns::message::{Asks, Received, read};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let answer = match read(data) {
        Received::Nothing => return,
        Received::Answer(answer) => answer,
        Received::Question(question) => {
            if let Asks::Name(name) = &question.asks {
                let is_canonical = |byte: u8| {
                    byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_')
                };
                let is_label =
                    |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(is_canonical);
                assert!(name.len() <= 253 && name.split('.').all(is_label), "{name:?}");
            }
            question.with_address(Some(Ipv4Addr::LOCALHOST)).expect("each question has an answer")
        }
    };
    assert!(answer.len() <= 512);
    assert_eq!(answer[..2], data[..2], "the answer has the number of the query");
    assert!(matches!(read(&answer), Received::Nothing), "an answer is no query");
});
