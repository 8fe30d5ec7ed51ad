//! Splits the bytes of a stream into lines of bounded length.

use bytes::BytesMut;
use tokio_util::codec::{Decoder as _, LinesCodec, LinesCodecError};

use super::fault::Fault;
use super::message::MAX_MESSAGE;

/// Bytes of the line that is not complete yet.
#[derive(Debug)]
pub(super) struct Lines {
    codec: LinesCodec,
    rest: BytesMut,
}

impl Default for Lines {
    fn default() -> Self {
        Self { codec: LinesCodec::new_with_max_length(MAX_MESSAGE), rest: BytesMut::new() }
    }
}

impl Lines {
    /// Consumes bytes, and passes each complete line to `each`, without its end. A fault ends the stream.
    pub(super) fn take(
        &mut self,
        bytes: &[u8],
        mut each: impl FnMut(&[u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.rest.extend_from_slice(bytes);
        loop {
            match self.codec.decode(&mut self.rest) {
                Ok(Some(line)) => each(line.as_bytes())?,
                Ok(None) => return Ok(()),
                Err(LinesCodecError::MaxLineLengthExceeded) => {
                    self.rest = BytesMut::new();
                    return Err(Fault::Broken(format!("a message has more than {MAX_MESSAGE} bytes")));
                }
                Err(LinesCodecError::Io(_)) => return Err(Fault::Broken("a line is not UTF-8".to_owned())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_endless_line_is_not_kept() {
        let mut lines = Lines::default();
        let chunk = vec![b'x'; 64 * 1024];
        let refused = (0..1_000).position(|_| lines.take(&chunk, |_| Ok(())).is_err());
        assert_eq!(refused, Some(MAX_MESSAGE / chunk.len()));
        assert!(lines.rest.len() <= MAX_MESSAGE);
    }

    #[test]
    fn bad_line_ends_reading() {
        let mut seen = 0;
        let ended = Lines::default().take(b"a\nb\nc\n", |_| {
            seen += 1;
            if seen == 2 { Err(Fault::TimedOut) } else { Ok(()) }
        });
        assert_eq!((ended, seen), (Err(Fault::TimedOut), 2));
    }

    proptest! {
        #[test]
        fn cuts_do_not_matter(text in "[ab\r\n ]{0,60}", cuts in prop::collection::vec(0..61_usize, 0..8)) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.sort_unstable();
            cuts.push(text.len());
            let (mut lines, mut got, mut from) = (Lines::default(), Vec::new(), 0);
            for cut in cuts {
                lines.take(&text.as_bytes()[from..cut], |line| { got.push(line.to_vec()); Ok(()) }).unwrap();
                from = cut;
            }
            let mut expected: Vec<Vec<u8>> = text
                .split('\n')
                .map(|line| line.strip_suffix('\r').unwrap_or(line).as_bytes().to_vec())
                .collect();
            // What stands behind the last line break is no line yet.
            expected.pop();
            prop_assert_eq!(got, expected);
        }
    }
}
