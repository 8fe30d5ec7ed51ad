//! No text is left in what passes, whose length is that of the body, and which is the same however the body is divided.
//!
//! Input: the size of the parts, the length of the texts, the texts with a NUL between them, then the body.

#![no_main]

use bytes::Bytes;
use egress_worker::hide::Hide;
use libfuzzer_sys::fuzz_target;

/// Length of the shortest text that is hidden.
const SHORTEST: usize = 4;

fn hide(texts: &[&[u8]]) -> Hide {
    Hide::new(texts.iter().map(|text| text.to_vec().into()).collect())
}

fn pass(mut hide: Hide, body: &[u8], size: usize) -> Vec<u8> {
    let mut passed = Vec::new();
    for piece in body.chunks(size) {
        passed.extend_from_slice(&hide.push(Bytes::copy_from_slice(piece)));
    }
    passed.extend_from_slice(&hide.finish());
    passed
}

fuzz_target!(|data: &[u8]| {
    let Some(([size, length], rest)) = data.split_first_chunk::<2>() else { return };
    let (texts, body) = rest.split_at(usize::from(*length).min(rest.len()));
    let texts: Vec<&[u8]> = texts.split(|byte| *byte == 0).collect();
    let passed = pass(hide(&texts), body, usize::from(*size).max(1));
    assert_eq!(passed, pass(hide(&texts), body, 1));
    assert_eq!(passed, hide(&texts).header(body).unwrap_or_else(|| body.to_vec()));
    assert_eq!(passed.len(), body.len());
    assert!(passed.iter().zip(body).all(|(after, before)| after == before || *after == b'*'));
    for text in texts.iter().filter(|text| text.len() >= SHORTEST && !text.contains(&b'*')) {
        assert!(passed.windows(text.len()).all(|window| window != *text));
    }
});
