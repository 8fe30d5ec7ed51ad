//! A decoder of frames that has the whole stream before it, and ways to cut a stream into reads.

use prost::Message;
use worker_protocol::frame::{FrameError, MAX_FRAME};

/// What a stream holds: its messages, and how it ends.
#[derive(Debug, PartialEq)]
pub struct Decoded<M> {
    /// Up to the first fault.
    pub messages: Vec<M>,
    /// The fault, or whether the last frame is whole.
    pub end: Result<bool, FrameError>,
}

/// Decodes a stream that is there at once.
pub fn decode<M: Message + Default>(mut stream: &[u8]) -> Decoded<M> {
    let mut messages = Vec::new();
    let end = loop {
        if stream.len() < 4 {
            break Ok(stream.is_empty());
        }
        let length = u32::from_be_bytes([stream[0], stream[1], stream[2], stream[3]]) as usize;
        if length > MAX_FRAME {
            break Err(FrameError::TooLong(length));
        }
        if stream.len() - 4 < length {
            break Ok(false);
        }
        match M::decode(&stream[4..4 + length]) {
            Ok(message) => messages.push(message),
            Err(_) => break Err(FrameError::Malformed),
        }
        stream = &stream[4 + length..];
    };
    Decoded { messages, end }
}

/// Cuts `stream` as `how` says: 0 not at all, 1 at every byte, else into pieces of pseudo-random lengths.
pub fn reads(how: u8, stream: &[u8]) -> Vec<&[u8]> {
    let mut random = u64::from(how);
    let (mut reads, mut rest) = (Vec::new(), stream);
    while !rest.is_empty() {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let length = match how {
            0 => rest.len(),
            1 => 1,
            _ => 1 + (random >> 33) as usize % (4 * usize::from(how)),
        };
        let (read, left) = rest.split_at(length.min(rest.len()));
        reads.push(read);
        rest = left;
    }
    reads
}
