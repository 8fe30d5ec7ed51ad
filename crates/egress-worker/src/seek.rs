//! Finds placeholders of secrets in requests, where they are worth nothing.
//!
//! A placeholder shows that a program used it for a server that no rule names, or in a part of a request that is not replaced. A body that
//! is compressed is not looked into.

use std::sync::Arc;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use zeroize::Zeroizing;

use crate::needles::{Needles, Position};

/// Name of the scheme of basic authentication (RFC 7617), with the space after it.
const BASIC: &[u8] = b"basic ";
/// Reads base64 with and without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The placeholders of a run.
pub(crate) struct Placeholders(Needles);

impl Placeholders {
    pub(crate) fn new(placeholders: &[Vec<u8>]) -> Self {
        Self(Needles::new(placeholders.iter().cloned().map(Zeroizing::new).collect()))
    }

    /// Returns the index of the first placeholder in a path or in a header's value.
    ///
    /// A value of basic authentication is decoded, too.
    pub(crate) fn find(&self, bytes: &[u8]) -> Option<usize> {
        self.find_as_it_is(bytes).or_else(|| self.find_as_it_is(&decoded(bytes)?))
    }

    fn find_as_it_is(&self, bytes: &[u8]) -> Option<usize> {
        first(&self.0, &mut self.0.start(), bytes)
    }
}

/// The search for placeholders in a body.
pub(crate) struct Seek {
    placeholders: Arc<Placeholders>,
    position: Position,
}

impl Seek {
    pub(crate) fn new(placeholders: Arc<Placeholders>) -> Self {
        Self { position: placeholders.0.start(), placeholders }
    }

    /// Takes the next piece of the body. Returns the index of the first placeholder that ends in it.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Option<usize> {
        first(&self.placeholders.0, &mut self.position, piece)
    }
}

fn first(needles: &Needles, position: &mut Position, piece: &[u8]) -> Option<usize> {
    let mut first = None;
    needles.scan(position, piece, |found| {
        first.get_or_insert(found.index);
    });
    first
}

/// Decodes a value of basic authentication. `None` if it is not one.
fn decoded(value: &[u8]) -> Option<Vec<u8>> {
    let (scheme, credentials) = value.trim_ascii().split_at_checked(BASIC.len())?;
    if !scheme.eq_ignore_ascii_case(BASIC) {
        return None;
    }
    BASE64.decode(credentials.trim_ascii()).ok()
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD as WITH_PADDING;
    use proptest::prelude::*;

    use super::*;

    const FIRST: &str = "key-0123456789abcdef";
    const SECOND: &str = "tok_fedcba9876543210";

    fn placeholders() -> Arc<Placeholders> {
        Arc::new(Placeholders::new(&[FIRST.into(), SECOND.into()]))
    }

    #[test]
    fn a_placeholder_is_found_with_its_index() {
        let placeholders = placeholders();
        for (text, index) in [
            (format!("Bearer {FIRST}"), Some(0)),
            (format!("/v1/{SECOND}/x"), Some(1)),
            (format!("{SECOND}{FIRST}"), Some(1)),
            (FIRST[..19].to_owned(), None),
            (FIRST.to_uppercase(), None),
            (String::new(), None),
        ] {
            assert_eq!(placeholders.find(text.as_bytes()), index, "{text}");
        }
        assert_eq!(Placeholders::new(&[]).find(b"x"), None);
    }

    #[test]
    fn basic_authentication_is_decoded() {
        let placeholders = placeholders();
        for user in ["", "u", "us", "user", "\u{e9}"] {
            let credentials = WITH_PADDING.encode(format!("{user}:{SECOND}"));
            for credentials in [credentials.as_str(), credentials.trim_end_matches('=')] {
                for scheme in ["Basic ", "basic ", "BASIC   ", " Basic "] {
                    let value = format!("{scheme}{credentials}");
                    assert_eq!(placeholders.find(value.as_bytes()), Some(1), "{value}");
                }
                assert_eq!(placeholders.find(format!("Bearer {credentials}").as_bytes()), None);
            }
        }
        for value in ["Basic", "Basic ", "Basic !", "Basic a", "basically"] {
            assert_eq!(placeholders.find(value.as_bytes()), None, "{value}");
        }
    }

    proptest! {
        #[test]
        fn a_placeholder_in_pieces_is_found_in_the_piece_that_completes_it(
            before in "[key\\-tok_0-9]{0,40}",
            is_second in any::<bool>(),
            size in 1_usize..50,
        ) {
            let text = format!("{before}{} and more", if is_second { SECOND } else { FIRST });
            let end = text.len() - " and more".len();
            let mut seek = Seek::new(placeholders());
            for (number, piece) in text.as_bytes().chunks(size).enumerate() {
                let is_complete = (number * size..(number * size + piece.len())).contains(&(end - 1));
                let expected = is_complete.then_some(usize::from(is_second));
                prop_assert_eq!(seek.push(piece), expected);
            }
        }
    }
}
