//! Scripts of `sed`.

use super::{Tally, Weight};

/// Reads the pieces of one script. `sed` joins the values of `-e` line by line.
pub(super) fn read<'a>(pieces: &[&'a str], tally: &mut Tally<'a>) {
    for (index, piece) in pieces.iter().enumerate() {
        let mut script = Script { rest: piece, piece, tally };
        // The text of `a`, `i` or `c` may continue in the next piece if this one ends in a backslash.
        if script.commands().is_none() || index + 1 < pieces.len() && piece.ends_with('\\') {
            tally.note(Weight::Unknown, piece);
        }
    }
}

struct Script<'t, 'a> {
    rest: &'a str,
    piece: &'a str,
    tally: &'t mut Tally<'a>,
}

impl<'a> Script<'_, 'a> {
    /// Reads commands to the end of the script. `None` if one is not understood.
    fn commands(&mut self) -> Option<()> {
        loop {
            self.skip(|c| c.is_ascii_whitespace() || matches!(c, ';' | '{' | '}' | '!'));
            if self.rest.is_empty() {
                return Some(());
            }
            if self.rest.starts_with('#') {
                self.line();
                continue;
            }
            self.addresses()?;
            self.command()?;
        }
    }

    fn addresses(&mut self) -> Option<()> {
        loop {
            if self
                .rest
                .starts_with(|c: char| c.is_ascii_digit() || matches!(c, '$' | '+' | '~' | ',' | ' ' | '!'))
            {
                self.next();
            } else if self.rest.starts_with('/') || self.rest.starts_with('\\') {
                self.rest = self.rest.strip_prefix('\\').unwrap_or(self.rest);
                let delimiter = self.next()?;
                self.pattern(delimiter)?;
                self.skip(|c| matches!(c, 'I' | 'M'));
            } else {
                return Some(());
            }
        }
    }

    fn command(&mut self) -> Option<()> {
        match self.next()? {
            '=' | 'd' | 'D' | 'g' | 'G' | 'h' | 'H' | 'n' | 'N' | 'p' | 'P' | 'x' | 'z' | 'F' | '{' | '}' => {
            }
            'q' | 'Q' | 'l' | 'L' => self.skip(|c| c.is_ascii_digit() || c == ' '),
            // Labels. Where a label extends to the end of the line, this reads more commands than `sed` does.
            ':' | 'b' | 't' | 'T' => self.skip(|c| !matches!(c, ';' | '\n' | '}')),
            // Text, to the end of a line that is not continued.
            'a' | 'i' | 'c' => while self.line().ends_with('\\') && !self.rest.is_empty() {},
            'r' | 'R' => {
                let file = self.line().trim();
                self.tally.reads(file);
            }
            'w' | 'W' => {
                self.line();
                self.tally.note(Weight::Writes, self.piece);
            }
            'e' => {
                self.line();
                self.tally.note(Weight::Runs, self.piece);
            }
            's' => {
                let delimiter = self.next()?;
                self.pattern(delimiter)?;
                self.until(delimiter)?;
                self.flags();
            }
            'y' => {
                let delimiter = self.next()?;
                self.until(delimiter)?;
                self.until(delimiter)?;
            }
            _ => return None,
        }
        Some(())
    }

    fn flags(&mut self) {
        while let Some(flag) = self.rest.chars().next() {
            match flag {
                'g' | 'p' | 'i' | 'I' | 'm' | 'M' | '0'..='9' => {}
                'e' => self.tally.note(Weight::Runs, self.piece),
                'w' => {
                    self.line();
                    return self.tally.note(Weight::Writes, self.piece);
                }
                _ => return,
            }
            self.next();
        }
    }

    /// Reads a regular expression. Programs differ in whether a delimiter in square brackets ends it.
    fn pattern(&mut self, delimiter: char) -> Option<()> {
        let pattern = self.until(delimiter)?;
        (!pattern.contains('[') || !pattern.contains('\\') && is_closed(pattern)).then_some(())
    }

    /// Reads up to the delimiter, which may not be a backslash or a line break.
    fn until(&mut self, delimiter: char) -> Option<&'a str> {
        if matches!(delimiter, '\\' | '\n') {
            return None;
        }
        let mut escaped = false;
        let end = self.rest.find(|c: char| {
            let ends = c == delimiter && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        })?;
        let text = &self.rest[..end];
        self.rest = &self.rest[end + delimiter.len_utf8()..];
        Some(text)
    }

    fn line(&mut self) -> &'a str {
        let (line, rest) = self.rest.split_once('\n').unwrap_or((self.rest, ""));
        self.rest = rest;
        line
    }

    fn next(&mut self) -> Option<char> {
        let next = self.rest.chars().next()?;
        self.rest = &self.rest[next.len_utf8()..];
        Some(next)
    }

    fn skip(&mut self, is: impl Fn(char) -> bool) {
        self.rest = self.rest.trim_start_matches(is);
    }
}

/// Returns true if no square bracket is open at the end.
fn is_closed(pattern: &str) -> bool {
    let mut rest = pattern;
    while let Some((_, inside)) = rest.split_once('[') {
        let inside = inside.strip_prefix('^').unwrap_or(inside);
        rest = inside.strip_prefix(']').unwrap_or(inside);
        loop {
            let Some(at) = rest.find(['[', ']']) else { return false };
            let closes = rest[at..].starts_with(']');
            rest = &rest[at + 1..];
            if closes {
                break;
            }
            // `[:alpha:]`
            if let Some(kind) = rest.chars().next().filter(|c| matches!(c, ':' | '.' | '=')) {
                let Some((_, after)) = rest[1..].split_once(&format!("{kind}]")) else { return false };
                rest = after;
            }
        }
    }
    true
}
