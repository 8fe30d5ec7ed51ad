//! How much of a long list or of a long content one answer has, and where it begins.

use refusal::Refusal;

/// Entries of a page.
const DEFAULT_PAGE: usize = 100;
/// Bytes of a piece of content.
const DEFAULT_PIECE: usize = 256 * 1024;
/// Most that may be asked for.
const MAX_PIECE: usize = 1024 * 1024;

/// How many entries, `most` at the most, and behind which: a page begins behind the one that the last page ended with.
pub(super) fn page<T>(
    size: u32,
    most: u32,
    token: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<(usize, Option<T>), Refusal> {
    let size = match size {
        0 => DEFAULT_PAGE,
        size => size.min(most) as usize,
    };
    let bad = || Refusal::invalid("page_token", "is not one of ours");
    let after = if token.is_empty() { None } else { Some(parse(token).ok_or_else(bad)?) };
    Ok((size, after))
}

/// How many bytes of content are sent where `field` asks for so many.
pub(super) fn piece(field: &'static str, asked: u32) -> Result<usize, Refusal> {
    match asked as usize {
        0 => Ok(DEFAULT_PIECE),
        asked if asked <= MAX_PIECE => Ok(asked),
        _ => Err(Refusal::invalid(
            field,
            format!("must be at most {MAX_PIECE}; ask again from the next offset for more"),
        )),
    }
}
