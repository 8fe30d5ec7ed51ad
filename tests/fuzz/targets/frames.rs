//! The frame decoder sees the same messages and the same end however the stream is cut into reads, and the same as a
//! decoder that has all of it before it.
//!
//! Input: one byte that says how to cut, then the stream.

#![no_main]

use std::fmt::Debug;

use fuzz::frames::{Decoded, decode, reads};
use libfuzzer_sys::fuzz_target;
use prost::Message;
use wire::worker::v1::{FromEgress, FromWorker, ToEgress, ToWorker};
use worker_protocol::frame::{FrameBuffer, encode};

fuzz_target!(|data: &[u8]| {
    let Some((how, stream)) = data.split_first() else { return };
    check::<FromWorker>(*how, stream);
    check::<ToWorker>(*how, stream);
    check::<FromEgress>(*how, stream);
    check::<ToEgress>(*how, stream);
});

fn check<M: Message + Default + PartialEq + Debug>(how: u8, stream: &[u8]) {
    let expected = decode::<M>(stream);
    assert_eq!(incremental::<M>(how, stream), expected);
    for message in &expected.messages {
        let frame = encode(message).expect("what came in a frame fits into one");
        assert_eq!(decode::<M>(&frame).messages, std::slice::from_ref(message));
    }
}

fn incremental<M: Message + Default>(how: u8, stream: &[u8]) -> Decoded<M> {
    let (mut buffer, mut messages) = (FrameBuffer::new(), Vec::new());
    for read in reads(how, stream) {
        buffer.extend(read);
        loop {
            match buffer.pop() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(fault) => return Decoded { messages, end: Err(fault) },
            }
        }
    }
    Decoded { messages, end: Ok(buffer.is_empty()) }
}
