//! One name in a directory, as the file system stores it: any bytes except `/` and NUL.

use std::borrow::Cow;
use std::fmt::Write as _;

/// A directory entry's name.
///
/// It is never empty, `.` or `..`, and has no separator. So an open of the name, relative to a directory handle, cannot
/// leave that directory.
///
/// Names that are not UTF-8 can be listed and walked, but not addressed: paths are UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryName(Vec<u8>);

impl EntryName {
    /// Makes a name. `None` if `bytes` are not a single name.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let single =
            !matches!(bytes, b"" | b"." | b"..") && !bytes.iter().any(|&byte| matches!(byte, 0 | b'/'));
        single.then(|| Self(bytes.to_vec()))
    }

    /// Returns the name as text. `None` if it is not UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        str::from_utf8(&self.0).ok()
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the name for a reader: UTF-8 unchanged, and every invalid byte as `\xNN`.
    ///
    /// The second form does not parse back. Callers that show it say so ([`Self::as_str`] is then `None`).
    pub fn shown(&self) -> Cow<'_, str> {
        if let Some(text) = self.as_str() {
            return Cow::Borrowed(text);
        }
        let mut shown = String::with_capacity(self.0.len() * 2);
        for chunk in self.0.utf8_chunks() {
            shown.push_str(chunk.valid());
            for byte in chunk.invalid() {
                // Writing to a String cannot fail.
                let _ = write!(shown, "\\x{byte:02x}");
            }
        }
        Cow::Owned(shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_single_names() {
        for refused in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0b"] {
            assert_eq!(EntryName::new(refused), None, "{refused:?}");
        }
        assert!(EntryName::new(b"...").is_some());
    }

    #[test]
    fn stray_bytes_are_escaped() {
        let name = EntryName::new(b"caf\xe9-\xc3\xa9").unwrap();
        assert_eq!((name.as_str(), name.shown().as_ref()), (None, "caf\\xe9-é"));
    }
}
