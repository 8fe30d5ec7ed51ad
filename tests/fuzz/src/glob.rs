//! Glob patterns by simulation: the set of places in a path at which the pattern so far can end.
//!
//! Bytes, not characters, as in the library: `?` is one byte. Says nothing (`None`) of what is no pattern, and of where
//! the convention is silent: `**` beside braces, and classes with anything but ASCII.

use std::collections::BTreeSet;
use std::iter::Peekable;
use std::str::Chars;

#[derive(Debug)]
enum Token {
    Byte(u8),
    /// `?`
    Any,
    /// `*`
    Star,
    /// `**/` at the beginning.
    Above,
    /// `/**/`
    Between,
    /// `/**` at the end.
    Below,
    Class {
        negated: bool,
        ranges: Vec<(u8, u8)>,
    },
    Alternatives(Vec<Vec<Token>>),
}

/// Whether `path` matches `pattern` by the convention that `file_ops::glob` follows.
pub fn matches(pattern: &str, path: &str) -> Option<bool> {
    let given = pattern.strip_prefix("./").unwrap_or(pattern);
    let any_depth = if given.contains('/') { "" } else { "**/" };
    let below = if given.ends_with('/') { "**" } else { "" };
    let text = format!("{any_depth}{}{below}", given.trim_start_matches('/'));
    let braced = text.contains('{');
    if braced && text.trim_start_matches("**/").contains("**") || (braced && below != "") {
        return None;
    }
    let tokens = Parser { chars: text.chars().peekable(), before: None }.sequence(&[])?;
    let path = path.as_bytes();
    if let [Token::Above] = tokens[..] {
        return Some(true);
    }
    Some(ends(&tokens, BTreeSet::from([0]), path).contains(&path.len()))
}

struct Parser<'t> {
    chars: Peekable<Chars<'t>>,
    before: Option<char>,
}

impl Parser<'_> {
    fn next(&mut self) -> Option<char> {
        let next = self.chars.next();
        if next.is_some() {
            self.before = next;
        }
        next
    }

    /// Up to one of `stops`, which is left where it is; without any, up to the end.
    fn sequence(&mut self, stops: &[char]) -> Option<Vec<Token>> {
        let mut tokens = Vec::new();
        loop {
            let Some(next) = self.chars.peek().copied() else {
                return stops.is_empty().then_some(tokens);
            };
            if stops.contains(&next) {
                return Some(tokens);
            }
            let before = self.before;
            self.next();
            match next {
                '?' => tokens.push(Token::Any),
                '*' if self.chars.peek() == Some(&'*') => {
                    self.next();
                    self.double_star(before, &mut tokens);
                }
                '*' => tokens.push(Token::Star),
                '[' => tokens.push(self.class()?),
                '{' => tokens.push(self.alternatives()?),
                '}' => return None,
                '\\' => push(&mut tokens, self.next()?),
                c => push(&mut tokens, c),
            }
        }
    }

    /// It is special only as a whole component.
    fn double_star(&mut self, before: Option<char>, tokens: &mut Vec<Token>) {
        let after = self.chars.peek().copied();
        if !(matches!(before, None | Some('/')) && matches!(after, None | Some('/'))) {
            return tokens.extend([Token::Star, Token::Star]);
        }
        self.next();
        match tokens.pop() {
            None | Some(Token::Above) => tokens.push(Token::Above),
            Some(_) if after.is_none() => tokens.push(Token::Below),
            Some(_) => tokens.push(Token::Between),
        }
    }

    fn alternatives(&mut self) -> Option<Token> {
        let mut branches = Vec::new();
        loop {
            branches.push(self.sequence(&[',', '}'])?);
            if self.next()? == '}' {
                return Some(Token::Alternatives(branches));
            }
        }
    }

    fn class(&mut self) -> Option<Token> {
        let negated = matches!(self.chars.peek(), Some('!' | '^'));
        if negated {
            self.next();
        }
        let mut members = Vec::new();
        loop {
            match self.next()? {
                ']' if !members.is_empty() => break,
                c => members.push(u8::try_from(c).ok().filter(u8::is_ascii)?),
            }
        }
        let (mut ranges, mut at) = (Vec::new(), 0);
        while at < members.len() {
            let dashed = at > 0 && members[at] == b'-' && at + 1 < members.len();
            if dashed && let Some(last) = ranges.pop() {
                let (first, _): (u8, u8) = last;
                ranges.push((first, members[at + 1]));
                (first <= members[at + 1]).then_some(())?;
                at += 2;
            } else {
                ranges.push((members[at], members[at]));
                at += 1;
            }
        }
        Some(Token::Class { negated, ranges })
    }
}

fn push(tokens: &mut Vec<Token>, c: char) {
    tokens.extend(c.encode_utf8(&mut [0; 4]).bytes().map(Token::Byte));
}

/// Where the tokens can end when they begin at one of `starts`.
fn ends(tokens: &[Token], starts: BTreeSet<usize>, path: &[u8]) -> BTreeSet<usize> {
    tokens
        .iter()
        .fold(starts, |starts, token| starts.iter().flat_map(|start| after(token, *start, path)).collect())
}

fn after(token: &Token, start: usize, path: &[u8]) -> BTreeSet<usize> {
    let rest = &path[start..];
    let one = |holds: bool| if holds { BTreeSet::from([start + 1]) } else { BTreeSet::new() };
    let slash = rest.first() == Some(&b'/');
    let behind_slashes = |from: usize| (from..path.len()).filter(|at| path[*at] == b'/').map(|at| at + 1);
    match token {
        Token::Byte(byte) => one(rest.first() == Some(byte)),
        Token::Any => one(!rest.is_empty() && !slash),
        Token::Star => {
            let length = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
            (start..=start + length).collect()
        }
        Token::Above => std::iter::once(start).chain(behind_slashes(start)).collect(),
        Token::Between if slash => std::iter::once(start + 1).chain(behind_slashes(start + 1)).collect(),
        Token::Below if slash => (start + 1..=path.len()).collect(),
        Token::Between | Token::Below => BTreeSet::new(),
        Token::Class { negated, ranges } => one(rest.first().is_some_and(|byte| {
            ranges.iter().any(|(first, last)| (first..=last).contains(&byte)) != *negated
        })),
        Token::Alternatives(branches) => {
            let mut filled = branches.iter().filter(|branch| !is_nothing(branch)).peekable();
            if filled.peek().is_none() {
                return BTreeSet::from([start]);
            }
            filled.flat_map(|branch| ends(branch, BTreeSet::from([start]), path)).collect()
        }
    }
}

/// An empty alternative is none: `{,a}` is `a`.
fn is_nothing(branch: &[Token]) -> bool {
    branch.iter().all(|token| match token {
        Token::Alternatives(branches) => branches.iter().all(|branch| is_nothing(branch)),
        _ => false,
    })
}
