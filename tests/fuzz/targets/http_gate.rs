//! Requests of any bytes go through the gate in their order, and as much of them however they are divided.
//!
//! Input: the size of the parts, then the bytes.

#![no_main]

use egress_worker::http::gate::{Gate, HEAD};
use libfuzzer_sys::fuzz_target;

fn feed(bytes: &[u8], size: usize) -> (bool, Vec<u8>) {
    let (mut gate, mut through) = (Gate::default(), Vec::new());
    let good = bytes.chunks(size).all(|part| gate.push(part, &mut through).is_ok());
    assert!(gate.into_held().len() <= HEAD);
    (good, through)
}

fuzz_target!(|data: &[u8]| {
    let Some((size, bytes)) = data.split_first() else { return };
    let (good, through) = feed(bytes, usize::from(*size).max(1));
    assert!(bytes.starts_with(&through));
    assert_eq!((good, through), feed(bytes, 1));
});
