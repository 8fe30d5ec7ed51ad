//! The report of a response is the same however its body is divided, and its numbers are those of tokens.
//!
//! Input: the kind of the body, the size of the parts, then the body.

#![no_main]

use egress_worker::usage::{Reported, Usage};
use libfuzzer_sys::fuzz_target;

/// Greatest number that is believed.
const MOST_TOKENS: u64 = 1 << 40;

fn read(content_type: &str, body: &[u8], size: usize) -> Reported {
    let mut usage = Usage::for_response(content_type, None);
    body.chunks(size).for_each(|piece| usage.push(piece));
    usage.finish()
}

fuzz_target!(|data: &[u8]| {
    let Some(([kind, size], body)) = data.split_first_chunk::<2>() else { return };
    let content_type = if kind % 2 == 0 { "application/json" } else { "text/event-stream" };
    let reported = read(content_type, body, usize::from(*size).max(1));
    assert_eq!(reported, read(content_type, body, 1));
    let numbers = [
        reported.input_tokens,
        reported.output_tokens,
        reported.cached_input_tokens,
        reported.cache_write_tokens,
    ];
    assert!(numbers.iter().all(|count| *count <= MOST_TOKENS && (reported.is_reported || *count == 0)));
    assert!(reported.model.len() <= 128 && reported.model.bytes().all(|byte| byte.is_ascii_graphic()));
});
