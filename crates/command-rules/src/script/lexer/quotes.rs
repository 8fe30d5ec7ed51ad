//! Quotes and escapes, and the substitutions that run in spite of quotes.

use super::super::Mode;
use super::{Around, Kind, Lexer};

impl Lexer<'_> {
    pub(super) fn single_quoted(&mut self) {
        self.word().quoted = true;
        while let Some(c) = self.chars.next_if(|c| *c != '\'') {
            self.word().text.push(c);
        }
        self.chars.next();
    }

    /// Reads a text after `$'`, in which a backslash escapes the next character, even the closing quote.
    fn escaping(&mut self) {
        self.word().quoted = true;
        while let Some(c) = self.chars.next().filter(|c| *c != '\'') {
            let c = if c == '\\' { self.chars.next() } else { Some(c) };
            self.word().text.extend(c);
        }
    }

    /// Reads up to the closing quote or to a substitution. When the substitution closes, reading continues here.
    pub(super) fn quoted(&mut self, around: Around) {
        self.word().quoted = true;
        while let Some(c) = self.chars.next() {
            match c {
                '"' if around == Around::Quotes => return,
                '\\' => self.escaped(),
                '$' if self.chars.next_if_eq(&'(').is_some() => {
                    return self.nest(Kind::Substitution(around));
                }
                '`' => self.backticks(true),
                c => self.word().text.push(c),
            }
        }
    }

    pub(super) fn escaped(&mut self) {
        // A line that ends in a backslash continues in the next one.
        if let Some(c) = self.chars.next().filter(|c| *c != '\n') {
            let word = self.word();
            word.quoted = true;
            word.text.push(c);
        }
    }

    pub(super) fn dollar(&mut self) {
        match self.chars.peek() {
            Some('(') => {
                self.chars.next();
                self.nest(Kind::Substitution(Around::Command));
            }
            Some('\'') => {
                self.chars.next();
                self.escaping();
            }
            Some('"') => {}
            _ => self.word().text.push('$'),
        }
    }

    /// Reads a text in backticks, in which a backslash escapes some characters. The text is lexed separately.
    pub(super) fn backticks(&mut self, in_quotes: bool) {
        let mut text = String::new();
        while let Some(c) = self.chars.next_if(|c| *c != '`') {
            let escapes = |next: &char| matches!(next, '`' | '\\' | '$') || in_quotes && *next == '"';
            text.push(if c == '\\' { self.chars.next_if(escapes).unwrap_or(c) } else { c });
        }
        self.chars.next();
        self.found.inner.push((text, Mode::Commands));
        // The output of the command is not known, so it counts as empty.
        self.word();
    }
}
