//! Bounds the part of a long list or content that one answer has, and determines where it begins.

use operations::Reason;
use operations::transport::{CONTENT, MESSAGE};
use prost::Message;
use refusal::Refusal;
use tonic::{Response, Status};

/// Number of entries on a page if the client asks for none.
const DEFAULT_PAGE: usize = 100;
/// Size of a piece of content if the client asks for none, bytes.
const DEFAULT_PIECE: usize = 256 * 1024;
/// Largest size that a client may ask for, bytes.
const MAX_PIECE: usize = 1024 * 1024;

/// Returns the size of a page, at most `most`, and the entry after which it begins: the last one of the previous page.
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
    let bad = || Refusal::invalid("page_token", "was not issued by this daemon");
    let after = if token.is_empty() { None } else { Some(parse(token).ok_or_else(bad)?) };
    Ok((size, after))
}

/// Cuts a page to `size` entries that fit into one message. Returns true if entries are left for the next page.
///
/// One entry always stays.
pub(super) fn cut<M: Message>(page: &mut Vec<M>, size: usize) -> bool {
    let mut left = CONTENT;
    let fits = page.iter().take(size).take_while(|entry| {
        // A tag and a length precede each entry.
        let rest = left.checked_sub(entry.encoded_len() + 8);
        left = rest.unwrap_or(left);
        rest.is_some()
    });
    let kept = fits.count().max(1);
    let is_cut = page.len() > kept;
    page.truncate(kept);
    is_cut
}

/// Returns the answer, or a refusal if it does not fit into one message.
pub(super) fn answer<M: Message>(message: M) -> Result<Response<M>, Status> {
    let bytes = message.encoded_len();
    if bytes <= MESSAGE {
        return Ok(Response::new(message));
    }
    let message =
        format!("the answer has {bytes} bytes, more than the {MESSAGE} of a message: ask for less at once");
    Err(Refusal::new(Reason::ReadLimit, message).into())
}

/// Returns the number of bytes of content to send if the client asks for `asked` in `field`.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(lengths: &[usize]) -> Vec<String> {
        lengths.iter().map(|length| "x".repeat(*length)).collect()
    }

    #[test]
    fn a_page_fits_into_one_message() {
        let half = CONTENT / 2;
        for (lengths, size, kept) in [
            (&[1, 1, 1][..], 2, 2),
            (&[1, 1], 2, 2),
            (&[half, half, 1], 9, 1),
            (&[half - 100, half - 100, 1, 1], 3, 3),
            (&[MESSAGE, 1], 9, 1),
            (&[], 9, 0),
        ] {
            let mut page = texts(lengths);
            assert_eq!((cut(&mut page, size), page.len()), (kept < lengths.len(), kept), "{lengths:?}");
        }
    }

    #[test]
    fn an_answer_that_no_message_holds_is_refused() {
        assert!(answer("x".repeat(MESSAGE - 5)).is_ok());
        let refused = answer("x".repeat(MESSAGE)).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
    }
}
