//! The report of the files that a search or a list left out.

use crate::{LeftOut, OpResult};

/// The last words of a hint that there is more of the same.
pub const ASK_FOR_MORE: &str = "ask for more";

/// Returns the part of a hint that is not about more of the same.
pub fn beside_more(hint: &str) -> &str {
    hint.split_once(ASK_FOR_MORE).map_or(hint, |(_, rest)| rest).trim_start_matches("; ")
}

/// Adds the left-out files to the hint of a result, with the names of the API.
pub fn noted(mut result: OpResult) -> OpResult {
    let note = note(&result, None);
    if let (false, Some(hint)) = (note.is_empty(), hint(&mut result)) {
        if !hint.is_empty() {
            hint.push_str("; ");
        }
        hint.push_str(&note);
    }
    result
}

/// Returns the result with `how`, the caller's own words, in place of the API's names for showing more.
///
/// Returns `None` if its hint has no such names.
pub fn in_own_words(result: &OpResult, how: &str) -> Option<OpResult> {
    let (canonical, own) = (note(result, None), note(result, Some(how)));
    if canonical == own {
        return None;
    }
    let mut result = result.clone();
    let hint = hint(&mut result)?;
    hint.truncate(hint.strip_suffix(&canonical)?.len());
    hint.push_str(&own);
    Some(result)
}

fn hint(result: &mut OpResult) -> Option<&mut String> {
    match result {
        OpResult::Grep(result) => Some(&mut result.hint),
        OpResult::Glob(result) => Some(&mut result.hint),
        OpResult::List(result) => Some(&mut result.hint),
        _ => None,
    }
}

/// Describes the files that were left out: all of them if nothing was found, else those that the caller did not ask to leave out.
fn note(result: &OpResult, how: Option<&str>) -> String {
    let (left_out, found, verb, names) = match result {
        OpResult::Grep(result) => (
            &result.left_out,
            !result.matches.is_empty(),
            "searched",
            "set include_ignored for hidden and ignored ones",
        ),
        OpResult::Glob(result) => (
            &result.left_out,
            !result.paths.is_empty(),
            "looked at",
            "set include_ignored for hidden and ignored ones",
        ),
        OpResult::List(result) => (
            &result.left_out,
            !result.entries.is_empty(),
            "shown",
            "set include_hidden, or include_symlinks for links",
        ),
        _ => return String::new(),
    };
    let Some(LeftOut { ignored, hidden, links, special, binary, unreadable, unfinished, withheld }) =
        *left_out
    else {
        return String::new();
    };
    let by_rule = if found { 0 } else { ignored + hidden };
    let beside = if found { 0 } else { u64::MAX };
    let counts = [
        (ignored.min(beside), "ignored"),
        (hidden.min(beside), "hidden"),
        (links.min(beside), "symbolic links"),
        (special.min(beside), "special files"),
        (binary, "binary"),
        (unreadable, "unreadable"),
        (withheld, "kept from this call by the profile's rules for paths"),
    ];
    let some = counts.iter().filter(|(count, _)| *count > 0);
    let all: u64 = some.clone().map(|(count, _)| count).sum();
    let mut parts = Vec::new();
    if all > 0 {
        let each: Vec<String> = some.map(|(count, what)| format!("{count} {what}")).collect();
        let noun = if all == 1 { "file or directory" } else { "files or directories" };
        parts.push(format!("{all} {noun} not {verb}: {}", each.join(", ")));
    }
    if unfinished > 0 {
        parts.push(format!(
            "{unfinished} files were not searched to their end: a line over 1 MiB, or a read error"
        ));
    }
    let is_list = matches!(result, OpResult::List(_));
    if by_rule > 0 || is_list && !found && links > 0 {
        parts.push(how.unwrap_or(names).to_owned());
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GlobResult, GrepMatch, GrepResult};

    #[test]
    fn empty_answer_lists_all_omissions_and_others_only_unintended_ones() {
        let left_out = LeftOut { ignored: 9, hidden: 1, binary: 2, unfinished: 1, ..LeftOut::default() };
        let empty = OpResult::Grep(GrepResult { left_out: Some(left_out), ..GrepResult::default() });
        let said = |result: OpResult| match noted(result) {
            OpResult::Grep(result) => result.hint,
            other => panic!("{other:?}"),
        };
        let all = "12 files or directories not searched: 9 ignored, 1 hidden, 2 binary; 1 files were not searched to their end: \
                   a line over 1 MiB, or a read error; ";
        assert_eq!(said(empty.clone()), format!("{all}set include_ignored for hidden and ignored ones"));
        let own = in_own_words(&noted(empty), "give the path of one").unwrap();
        assert!(matches!(own, OpResult::Grep(own) if own.hint == format!("{all}give the path of one")));

        let matches = vec![GrepMatch::default()];
        let hint = "before".to_owned();
        let some =
            OpResult::Grep(GrepResult { matches, hint, left_out: Some(left_out), ..GrepResult::default() });
        assert_eq!(
            said(some.clone()),
            "before; 2 files or directories not searched: 2 binary; 1 files were not searched to their end: a line over 1 MiB, or a \
             read error"
        );
        assert_eq!(in_own_words(&noted(some), "give the path of one"), None);
        assert_eq!(noted(OpResult::Glob(GlobResult::default())), OpResult::Glob(GlobResult::default()));
    }
}
