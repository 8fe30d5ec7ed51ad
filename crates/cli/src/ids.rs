//! Ids as people type them: whole, or a beginning or an end that only one of the candidates has.

use crate::failure::Failure;

const SHORT: usize = 8;
/// How many candidates an error names.
const SHOWN: usize = 5;

/// The end of an id, enough to tell neighbours apart (the beginning of a UUIDv7 is the time).
pub(crate) fn short(id: &str) -> &str {
    if !is_whole(id) {
        return id;
    }
    id.get(id.len() - SHORT..).unwrap_or(id)
}

/// Whether this is a whole UUID, to be taken as it is.
pub(crate) fn is_whole(id: &str) -> bool {
    id.len() == 36
        && id.bytes().enumerate().all(|(i, b)| match i {
            8 | 13 | 18 | 23 => b == b'-',
            _ => b.is_ascii_hexdigit(),
        })
}

/// The one id among `ids` that begins or ends with `part`.
pub(crate) fn pick<'a>(
    ids: impl IntoIterator<Item = &'a str>,
    part: &str,
    noun: &str,
    list: &str,
) -> Result<&'a str, Failure> {
    let part = part.to_ascii_lowercase();
    if part.is_empty() || !part.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-') {
        return Err(Failure::usage(format!("`{part}` is no {noun} id, nor part of one"))
            .with_hint(format!("`{list}` shows them")));
    }
    let found: Vec<&str> =
        ids.into_iter().filter(|id| id.starts_with(&part) || id.ends_with(&part)).collect();
    match found[..] {
        [one] => Ok(one),
        [] => Err(Failure::failed(format!("no {noun} has an id that begins or ends with `{part}`"))
            .with_hint(format!("`{list}` shows them"))),
        _ => {
            let some = found.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
            let more = if found.len() > SHOWN { ", …" } else { "" };
            Err(Failure::usage(format!("`{part}` could be any of {} {noun} ids", found.len()))
                .with_hint(format!("give more of it: {some}{more}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    const A: &str = "0198a1b2-0000-7000-8000-00000000aaaa";
    const B: &str = "0198a1b2-0000-7000-8000-00000000bbbb";

    fn find(part: &str) -> Result<&'static str, Failure> {
        pick([A, B], part, "run", "coffer run list")
    }

    #[test]
    fn whole_ids_and_short_ones() {
        assert!(is_whole(A));
        assert!(!is_whole("0198a1b2"));
        assert!(!is_whole(&A.replace('-', "0")));
        assert_eq!(short(A), "0000aaaa");
        assert_eq!(short("é"), "é");
    }

    #[test]
    fn one_match_is_enough() {
        assert_eq!(find("aaaa").unwrap(), A);
        assert_eq!(find("BBBB").unwrap(), B);
        assert_eq!(find(A).unwrap(), A);
    }

    #[test]
    fn none_and_many_are_told_apart() {
        assert_eq!(find("ffff").unwrap_err().exit(), Exit::Failed);
        assert_eq!(find("").unwrap_err().exit(), Exit::Usage);
        assert_eq!(find("../x").unwrap_err().exit(), Exit::Usage);
        let many = find("0198").unwrap_err();
        assert_eq!(many.exit(), Exit::Usage);
        assert!(many.to_string().contains(A) && many.to_string().contains(B));
    }
}
