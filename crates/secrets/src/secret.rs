//! The value of a secret.

use std::fmt;

use zeroize::Zeroizing;

use crate::error::Why;

/// Most bytes of a value.
const MOST: usize = 8 * 1024;

/// The value of a secret: 1 to 8,192 bytes of visible ASCII. It is overwritten in memory when it is dropped.
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Reads a value, without one newline at its end.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, Why> {
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        match bytes.len() {
            0 => return Err(Why::Empty),
            1..=MOST => {}
            _ => return Err(Why::TooLong),
        }
        let text = std::str::from_utf8(bytes).map_err(|_| Why::Character)?;
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Why::Character);
        }
        Ok(Self(Zeroizing::new(text.to_owned())))
    }

    /// Returns the value itself, which belongs into no log, record, error or argument.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Space for a value, a newline, and one byte that shows that there is more. It is overwritten when it is dropped.
pub(crate) struct Buffer {
    bytes: Zeroizing<Vec<u8>>,
    length: usize,
}

impl Buffer {
    pub(crate) fn new() -> Self {
        Self { bytes: Zeroizing::new(vec![0; MOST + 2]), length: 0 }
    }

    /// Returns the space that is left.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        self.bytes.get_mut(self.length..).unwrap_or_default()
    }

    /// Counts bytes that were written to the space.
    pub(crate) fn add(&mut self, count: usize) {
        self.length = self.length.saturating_add(count).min(self.bytes.len());
    }

    pub(crate) fn is_full(&self) -> bool {
        self.length == self.bytes.len()
    }

    /// Returns the value that was written.
    pub(crate) fn secret(&self) -> Result<Secret, Why> {
        Secret::from_bytes(self.bytes.get(..self.length).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_visible_ascii_without_one_newline() {
        for (bytes, value) in
            [(&b"a"[..], "a"), (b"key-123\n", "key-123"), (b"!~", "!~"), (&[b'x'; MOST], &"x".repeat(MOST))]
        {
            assert_eq!(Secret::from_bytes(bytes).unwrap().expose(), value);
        }
        let long = [b'x'; MOST + 1];
        for (bytes, why) in [
            (&b""[..], Why::Empty),
            (b"\n", Why::Empty),
            (&long, Why::TooLong),
            (b"a b", Why::Character),
            (b"a\n\n", Why::Character),
            (b"a\r\n", Why::Character),
            (b"a\nx-other: b\n", Why::Character),
            (b"a\tb", Why::Character),
            (b"a\0", Why::Character),
            (b"\x7f", Why::Character),
            ("é".as_bytes(), Why::Character),
            (b"\xff", Why::Character),
        ] {
            assert_eq!(Secret::from_bytes(bytes).unwrap_err(), why, "{bytes:?}");
        }
    }

    #[test]
    fn a_secret_is_not_shown() {
        let secret = Secret::from_bytes(b"hunter2").unwrap();
        assert_eq!(format!("{secret:?}"), "Secret");
    }

    #[test]
    fn a_full_buffer_is_too_long() {
        let mut buffer = Buffer::new();
        let space = buffer.space();
        space.fill(b'x');
        let all = space.len();
        buffer.add(all);
        assert!(buffer.is_full() && buffer.space().is_empty());
        assert_eq!(buffer.secret().unwrap_err(), Why::TooLong);
    }
}
