//! Compares the pure half of an edit with the standard library, and the diff with the change.

use proptest::prelude::*;

use super::path;
use crate::write::change::{Changed, Mismatch, replace};
use crate::write::diff::unified;

const MOST: u64 = 1 << 20;

/// Short texts over few letters, so that matches, repetitions and overlaps are frequent.
fn text(most: usize) -> impl Strategy<Value = String> {
    proptest::collection::vec(prop::sample::select(vec!["a", "b", "\n", "€"]), 0..most)
        .prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn replacing_equals_the_standard_library(text in text(40), old in text(4), new in text(4)) {
        prop_assume!(!old.is_empty() && old != new);
        let starts: Vec<usize> = (0..text.len()).filter(|&at| text.is_char_boundary(at) && text[at..].starts_with(&old)).collect();
        let everywhere = replace(&text, &old, &new, true, MOST);
        let once = replace(&text, &old, &new, false, MOST);
        match starts.len() {
            0 => {
                prop_assert!(matches!(everywhere, Err(Mismatch::Absent(_))));
                prop_assert!(matches!(once, Err(Mismatch::Absent(_))));
            }
            matches => {
                prop_assert_eq!(everywhere.unwrap().text, text.replace(&old, &new));
                if matches == 1 {
                    prop_assert_eq!(once, Ok(Changed { text: text.replacen(&old, &new, 1), replacements: 1 }));
                } else {
                    let ambiguous = matches!(once, Err(Mismatch::Ambiguous { count, .. }) if count > 1);
                    prop_assert!(ambiguous);
                }
            }
        }
    }

    #[test]
    fn the_diff_leads_from_the_old_text_to_the_new(old in text(60), new in text(60)) {
        let diff = unified(&path("a"), Some(&old), &new, MOST);
        prop_assert!(!diff.is_cut());
        prop_assert_eq!(apply(&old, &diff.text), new);
    }
}

/// Applies a unified diff, strictly.
fn apply(old: &str, diff: &str) -> String {
    let mut old_lines = old.split_inclusive('\n');
    let (mut new, mut taken) = (String::new(), 0);
    let mut lines = diff.split_inclusive('\n').skip(2).peekable();
    while let Some(line) = lines.next() {
        let ended = lines.next_if(|next| next.starts_with('\\')).is_some();
        let content = if ended { &line[1..line.len() - 1] } else { &line[1..] };
        match line.as_bytes()[0] {
            b'@' => {
                let range = line[4..].split(' ').next().unwrap();
                let (start, length) = range.split_once(',').unwrap_or((range, "1"));
                let before = start.parse::<usize>().unwrap() - usize::from(length != "0");
                while taken < before {
                    new.push_str(old_lines.next().unwrap());
                    taken += 1;
                }
            }
            b'+' => new.push_str(content),
            sign => {
                assert_eq!(old_lines.next(), Some(content));
                taken += 1;
                if sign == b' ' {
                    new.push_str(content);
                }
            }
        }
    }
    new.extend(old_lines);
    new
}

#[test]
fn two_matches_that_overlap_are_ambiguous() {
    assert_eq!(replace("\naba\nba", "aba", "x", false, MOST).unwrap().text, "\nx\nba");
    assert_eq!(
        replace("\nababa", "aba", "x", false, MOST),
        Err(Mismatch::Ambiguous { count: 2, lines: vec![2, 2] })
    );
}

#[test]
fn the_search_for_the_nearest_lines_is_linear() {
    let input = |size: usize| {
        let text = "\n".repeat(5 * size) + &"a b\n".repeat(size);
        (text, "\n".repeat(size / 20) + &"a\n".repeat(size / 50) + "c")
    };
    effort::assert_linear(1 << 20, input, |(text, old)| {
        assert!(matches!(replace(text, old, "", false, MOST), Err(Mismatch::Absent(_))));
    });
}
