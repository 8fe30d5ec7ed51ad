//! An operation as it comes over the wire is refused or in bounds: then it survives the way to a worker unchanged, and
//! the gateway has an answer to it.
//!
//! Input: a `cofferdam.v1.Operation` in protobuf.

#![no_main]

use std::sync::LazyLock;

use fuzz::{is_one_line, survives_the_wire};
use gateway::{Admission, Gateway};
use libfuzzer_sys::fuzz_target;
use operations::Operation;
use prost::Message;
use wire::v1;

static GATEWAY: LazyLock<Gateway> = LazyLock::new(fuzz::door::gateway);

fuzz_target!(|data: &[u8]| {
    let Ok(message) = v1::Operation::decode(data) else { return };
    let operation = match Operation::parse(message) {
        Ok(operation) => operation,
        Err(malformed) => {
            assert!(is_one_line(&malformed.to_string()), "{malformed:?}");
            return;
        }
    };
    survives_the_wire(&operation);
    for profile in ["review", "build", "open", "strict"] {
        if let Admission::Refuse(refusal) = fuzz::door::admit(&GATEWAY, profile, operation.clone()) {
            assert!(is_one_line(&refusal.message) && refusal.message.len() < 4_000, "{refusal:?}");
        }
    }
});
