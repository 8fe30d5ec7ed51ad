//! The facts that are found are the same however the bytes are divided, and all bytes are kept for the server.
//!
//! Input: the size of the parts, then the bytes.

#![no_main]

use egress_worker::client_hello::{Collector, Hello, MOST};
use libfuzzer_sys::fuzz_target;

fn collect(bytes: &[u8], size: usize) -> Option<Hello> {
    let mut collector = Collector::default();
    let mut fed = 0;
    for part in bytes.chunks(size) {
        fed += part.len();
        let result = collector.push(part);
        match result {
            Ok(None) => {}
            Ok(Some(hello)) => {
                assert_eq!(collector.into_bytes(), bytes[..fed]);
                return Some(hello);
            }
            Err(_) => return None,
        }
    }
    None
}

fuzz_target!(|data: &[u8]| {
    let Some((size, bytes)) = data.split_first() else { return };
    let bytes = &bytes[..bytes.len().min(MOST)];
    // Larger parts can bring malformed bytes after the ClientHello along, which end it.
    if let Some(hello) = collect(bytes, usize::from(*size).max(1)) {
        assert_eq!(collect(bytes, 1), Some(hello));
    }
});
