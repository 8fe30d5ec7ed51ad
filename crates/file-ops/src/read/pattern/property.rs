//! Patterns over a small alphabet, made together with what they mean: what is found is what a plain matcher finds that
//! never saw the text of the pattern.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::tests::{compiled, matches};

/// One component of a pattern.
#[derive(Debug, Clone)]
enum Part {
    /// `**`
    AnyDepth,
    Name(Vec<Piece>),
}

#[derive(Debug, Clone)]
enum Piece {
    Char(char),
    /// `?`
    One,
    /// `*`
    Many,
    /// `[…]` or `[!…]`
    Class {
        negated: bool,
        members: Vec<char>,
    },
    /// `{…,…}`
    Either(Vec<Vec<Piece>>),
}

/// Characters of names, some of which mean something in a pattern.
const ALPHABET: [char; 6] = ['a', 'b', '.', '*', '{', '\\'];

fn simple() -> impl Strategy<Value = Piece> {
    let letters = || prop::sample::select(vec!['a', 'b', '.']);
    prop_oneof![
        5 => prop::sample::select(ALPHABET.to_vec()).prop_map(Piece::Char),
        2 => Just(Piece::One),
        2 => Just(Piece::Many),
        1 => (any::<bool>(), prop::collection::vec(letters(), 1..3))
            .prop_map(|(negated, members)| Piece::Class { negated, members }),
    ]
}

fn piece() -> impl Strategy<Value = Piece> {
    // An empty alternative is none to the library.
    let branch = prop::collection::vec(simple(), 1..3);
    prop_oneof![6 => simple(), 1 => prop::collection::vec(branch, 1..4).prop_map(Piece::Either)]
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![1 => Just(Part::AnyDepth), 4 => prop::collection::vec(piece(), 1..4).prop_map(Part::Name)]
}

fn write(pieces: &[Piece], text: &mut String) {
    for piece in pieces {
        match piece {
            Piece::Char(c) if c.is_ascii_alphanumeric() || *c == '.' => text.push(*c),
            Piece::Char(c) => write!(text, "\\{c}").unwrap(),
            Piece::One => text.push('?'),
            // Two in a row would be another thing.
            Piece::Many if text.ends_with('*') && !text.ends_with("\\*") => {}
            Piece::Many => text.push('*'),
            Piece::Class { negated, members } => {
                text.push_str(if *negated { "[!" } else { "[" });
                text.extend(members);
                text.push(']');
            }
            Piece::Either(branches) => {
                for (count, branch) in branches.iter().enumerate() {
                    text.push(if count == 0 { '{' } else { ',' });
                    write(branch, text);
                }
                text.push('}');
            }
        }
    }
}

fn text(parts: &[Part]) -> String {
    let mut text = String::new();
    for (count, part) in parts.iter().enumerate() {
        if count > 0 {
            text.push('/');
        }
        match part {
            Part::AnyDepth => text.push_str("**"),
            Part::Name(pieces) => write(pieces, &mut text),
        }
    }
    text
}

/// Returns true if `name` is made of the pieces.
fn fits(pieces: &[Piece], name: &[char]) -> bool {
    let Some((piece, rest)) = pieces.split_first() else { return name.is_empty() };
    let one = |holds: fn(char, &[char]) -> bool, of: &[char]| {
        name.split_first().is_some_and(|(c, name)| holds(*c, of) && fits(rest, name))
    };
    match piece {
        Piece::Char(c) => one(|c, of| of == [c], &[*c]),
        Piece::One => one(|_, _| true, &[]),
        Piece::Many => (0..=name.len()).any(|length| fits(rest, &name[length..])),
        Piece::Class { negated: false, members } => one(|c, of| of.contains(&c), members),
        Piece::Class { negated: true, members } => one(|c, of| !of.contains(&c), members),
        Piece::Either(branches) => branches.iter().any(|branch| fits(&[branch, rest].concat(), name)),
    }
}

fn leads(parts: &[Part], names: &[Vec<char>]) -> bool {
    match (parts.split_first(), names) {
        (None, names) => names.is_empty(),
        // At the end it matches the entries below, and not the directory itself.
        (Some((Part::AnyDepth, [])), names) => !names.is_empty(),
        (Some((Part::AnyDepth, rest)), names) => {
            (0..=names.len()).any(|skipped| leads(rest, &names[skipped..]))
        }
        (Some((Part::Name(pieces), rest)), [name, names @ ..]) => fits(pieces, name) && leads(rest, names),
        (Some((Part::Name(_), _)), []) => false,
    }
}

fn name() -> impl Strategy<Value = Vec<char>> {
    let name = prop::collection::vec(prop::sample::select(ALPHABET.to_vec()), 1..4);
    name.prop_filter("no name of an entry", |name| !matches!(name[..], ['.'] | ['.', '.']))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn glob_matches_like_a_simple_matcher(
        parts in prop::collection::vec(part(), 1..4),
        paths in prop::collection::vec(prop::collection::vec(name(), 1..4), 12),
    ) {
        let text = text(&parts);
        // These are directories, and no names.
        prop_assume!(!text.split('/').any(|part| matches!(part, "." | "..")));
        let pattern = compiled(&text).unwrap();
        for names in paths {
            let path = names.iter().map(|name| name.iter().collect()).collect::<Vec<String>>().join("/");
            // Without a slash it is for the last component.
            let expected = match &parts[..] {
                [single @ Part::Name(_)] => leads(std::slice::from_ref(single), &names[names.len() - 1..]),
                parts => leads(parts, &names),
            };
            prop_assert_eq!(matches(&pattern, &path), expected, "{:?} {:?}", text, path);
        }
    }
}

proptest! {
    // Some of these take milliseconds to compile.
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_text_is_a_pattern_or_is_refused_in_one_line(text in prop_oneof![
        "[ab*?/{},\\[\\]!^\\\\.-]{0,40}",
        "\\PC{0,40}",
        (0..500_usize).prop_map(|depth| format!("{}a{}", "{".repeat(depth), "}".repeat(depth))),
        (0..500_usize).prop_map(|count| "{a,b}*[!c]".repeat(count)),
    ]) {
        match compiled(&text) {
            Ok(pattern) => {
                pattern.matches("a/b");
            }
            Err(failure) => prop_assert!(!failure.message.contains(char::is_control), "{:?}", failure),
        }
    }
}
