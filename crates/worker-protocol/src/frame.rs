//! Frames: a 4-byte big-endian length, then one protobuf message of that many bytes.
//!
//! Trust boundary: all data from a worker is hostile. The length is checked before memory is allocated, and a frame that does not decode
//! ends the stream. There is no resynchronisation.

use prost::Message;
use thiserror::Error;

/// Largest frame in either direction, in bytes.
pub const MAX_FRAME: usize = operations::transport::MESSAGE;

const LENGTH: usize = 4;
/// Smallest and largest number of bytes that are read at once. An idle connection keeps space for the smallest, enough for a read of 4 KiB.
const READ: (usize, usize) = (8 * 1024, 64 * 1024);

/// Error after which a stream can no longer be trusted.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum FrameError {
    #[error("a frame of {0} bytes is over the limit of {MAX_FRAME} bytes")]
    TooLong(usize),
    /// Not a message of the protocol.
    #[error("a frame that is not a message of the protocol")]
    Malformed,
}

pub fn encode<M: Message>(message: &M) -> Result<Vec<u8>, FrameError> {
    let length = message.encoded_len();
    let prefix =
        u32::try_from(length).ok().filter(|_| length <= MAX_FRAME).ok_or(FrameError::TooLong(length))?;
    let mut frame = Vec::with_capacity(LENGTH + length);
    frame.extend_from_slice(&prefix.to_be_bytes());
    // Encoding into a Vec grows it as needed and cannot fail.
    message.encode_raw(&mut frame);
    Ok(frame)
}

/// Buffer that splits received bytes into frames. It holds at most one incomplete frame plus one read.
#[derive(Debug, Default)]
pub struct FrameBuffer {
    bytes: Vec<u8>,
    start: usize,
}

impl FrameBuffer {
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends received bytes.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.tail().extend_from_slice(bytes);
    }

    /// Returns the buffer to which the next read appends, with capacity for it. The capacity depends on the announced length of the current frame.
    pub fn read_buffer(&mut self) -> &mut Vec<u8> {
        let tail = self.tail();
        let announced = tail.first_chunk::<LENGTH>().map_or(0, |prefix| u32::from_be_bytes(*prefix) as usize);
        let missing = announced.saturating_add(LENGTH).saturating_sub(tail.len());
        tail.reserve(missing.clamp(READ.0, READ.1));
        tail
    }

    fn tail(&mut self) -> &mut Vec<u8> {
        // Frames that were handed out are dropped here, once for each read instead of once for each frame.
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        &mut self.bytes
    }

    /// Frees the memory of large frames, unless a frame is incomplete.
    pub fn rest(&mut self) {
        if self.is_empty() {
            *self = Self::default();
        }
    }

    /// Returns the next complete message, or `None` if more bytes are needed.
    pub fn pop<M: Message + Default>(&mut self) -> Result<Option<M>, FrameError> {
        let pending = &self.bytes[self.start..];
        let Some((prefix, rest)) = pending.split_first_chunk::<LENGTH>() else { return Ok(None) };
        let length = u32::from_be_bytes(*prefix) as usize;
        if length > MAX_FRAME {
            return Err(FrameError::TooLong(length));
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let message = M::decode(body).map_err(|_| FrameError::Malformed)?;
        self.start += LENGTH + length;
        Ok(Some(message))
    }

    /// Returns true if no bytes of an incomplete frame are left. Otherwise the end of the stream would cut a frame.
    pub fn is_empty(&self) -> bool {
        self.start == self.bytes.len()
    }
}

#[cfg(test)]
mod property;

#[cfg(test)]
mod tests {
    use wire::worker::v1::{Hello, ToWorker, to_worker};

    use super::*;

    fn hello(id: u64) -> ToWorker {
        let body = to_worker::Body::Hello(Hello { protocol: 1, nonce: vec![7; 32], ..Hello::default() });
        ToWorker { id, body: Some(body) }
    }

    #[test]
    fn frames_survive_a_split_at_every_byte() {
        let mut stream = encode(&hello(1)).unwrap();
        stream.extend(encode(&hello(2)).unwrap());
        for cut in 0..=stream.len() {
            let mut buffer = FrameBuffer::new();
            let mut got = Vec::new();
            for part in [&stream[..cut], &stream[cut..]] {
                buffer.extend(part);
                while let Some(message) = buffer.pop::<ToWorker>().unwrap() {
                    got.push(message);
                }
            }
            assert_eq!(got, [hello(1), hello(2)], "cut at {cut}");
            assert!(buffer.is_empty());
        }
    }

    #[test]
    fn the_buffer_grows_to_the_announced_frame_within_bounds_and_shrinks_again() {
        let capacity = |announced: u32| {
            let mut buffer = FrameBuffer::new();
            buffer.extend(&announced.to_be_bytes());
            let tail = buffer.read_buffer();
            tail.capacity() - tail.len()
        };
        assert_eq!([0, 10_000, 30_000].map(|length| capacity(length) >= length as usize), [true; 3]);
        assert!(
            (READ.0..READ.1).contains(&capacity(6)) && capacity(30_000) < READ.1,
            "as much as is to come"
        );
        assert!(capacity(u32::MAX) < 2 * READ.1, "a length alone takes no memory");

        let mut buffer = FrameBuffer::new();
        let large = Hello { protocol: 1, nonce: vec![7; 100_000], ..Hello::default() };
        let large = encode(&ToWorker { id: 1, body: Some(to_worker::Body::Hello(large)) }).unwrap();
        buffer.extend(&large[..50_000]);
        buffer.rest();
        buffer.extend(&large[50_000..]);
        assert!(buffer.pop::<ToWorker>().unwrap().is_some(), "nothing of a frame under way is lost");
        buffer.rest();
        assert_eq!(buffer.bytes.capacity(), 0);
    }

    #[test]
    fn an_oversize_length_is_refused_before_its_body_arrives() {
        let mut buffer = FrameBuffer::new();
        buffer.extend(&u32::MAX.to_be_bytes());
        assert_eq!(buffer.pop::<ToWorker>(), Err(FrameError::TooLong(u32::MAX as usize)));
    }

    #[test]
    fn garbage_is_malformed() {
        let mut buffer = FrameBuffer::new();
        buffer.extend(&3_u32.to_be_bytes());
        buffer.extend(&[0xff, 0xff, 0xff]);
        assert_eq!(buffer.pop::<ToWorker>(), Err(FrameError::Malformed));
    }

    #[test]
    fn an_oversize_message_is_not_sent() {
        let body =
            to_worker::Body::Hello(Hello { protocol: 1, nonce: vec![0; MAX_FRAME], ..Hello::default() });
        assert!(matches!(encode(&ToWorker { id: 1, body: Some(body) }), Err(FrameError::TooLong(_))));
    }
}
