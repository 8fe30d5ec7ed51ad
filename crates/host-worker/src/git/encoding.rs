//! Encodings in which a clone checks files out (`working-tree-encoding`).
//!
//! Git asks the C library, which knows hundreds. This module has those of Unicode, for which the attribute was made, and Latin-1.

/// An encoding of a file in the work tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Utf16 { little: bool, mark: bool },
    Utf32 { little: bool, mark: bool },
    Latin1,
}

impl Encoding {
    /// Returns the encoding of this name. A name without a byte order means a byte order mark.
    pub(super) fn named(name: &str) -> Option<Self> {
        let (little, mark) = (true, true);
        Some(match name.to_ascii_lowercase().as_str() {
            "utf-16" | "utf16" | "utf-16le-bom" => Self::Utf16 { little, mark },
            "utf-16le" | "utf16le" => Self::Utf16 { little, mark: false },
            "utf-16be" | "utf16be" => Self::Utf16 { little: false, mark: false },
            "utf-32" | "utf32" => Self::Utf32 { little, mark },
            "utf-32le" | "utf32le" => Self::Utf32 { little, mark: false },
            "utf-32be" | "utf32be" => Self::Utf32 { little: false, mark: false },
            "iso-8859-1" | "iso8859-1" | "latin1" | "latin-1" => Self::Latin1,
            _ => return None,
        })
    }

    /// Encodes the text; `None` if the encoding lacks one of its characters.
    pub(super) fn encode(self, text: &str) -> Option<Vec<u8>> {
        let marked = |mark: bool| mark.then_some('\u{feff}').into_iter().chain(text.chars());
        Some(match self {
            Self::Utf16 { little, mark } => {
                let units = marked(mark).flat_map(|c| c.encode_utf16(&mut [0; 2]).to_vec());
                units.flat_map(|unit| if little { unit.to_le_bytes() } else { unit.to_be_bytes() }).collect()
            }
            Self::Utf32 { little, mark } => {
                let units = marked(mark).map(u32::from);
                units.flat_map(|unit| if little { unit.to_le_bytes() } else { unit.to_be_bytes() }).collect()
            }
            Self::Latin1 => text.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect::<Option<_>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Encoding;

    #[test]
    fn text_is_encoded_with_its_mark_and_order() {
        for (name, bytes) in [
            ("UTF-16", Some(&b"\xff\xfea\0\x3d\xd8\x00\xde"[..])),
            ("utf-16LE-BOM", Some(b"\xff\xfea\0\x3d\xd8\x00\xde")),
            ("UTF-16BE", Some(b"\0a\xd8\x3d\xde\x00")),
            ("UTF-32LE", Some(b"a\0\0\0\x00\xf6\x01\0")),
            ("ISO-8859-1", None),
        ] {
            assert_eq!(Encoding::named(name).unwrap().encode("a😀").as_deref(), bytes, "{name}");
        }
        assert_eq!(Encoding::Latin1.encode("é").unwrap(), b"\xe9");
        assert_eq!(Encoding::named("SHIFT-JIS"), None);
    }
}
