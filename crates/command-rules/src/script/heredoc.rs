//! Here-documents: the lines after `<<END`.

use std::iter::Peekable;
use std::str::Chars;

use super::word::Word;

/// A here-document that was announced. Its lines begin after the next line break.
#[derive(Debug)]
pub(super) struct Heredoc {
    end: String,
    /// Substitutions in it run as commands.
    pub(super) expands: bool,
    /// Set by `<<-`: tabs before each line do not count.
    strip: bool,
}

impl Heredoc {
    /// Makes a here-document that ends at this word.
    pub(super) fn until(end: Word, strip: bool) -> Self {
        Self { end: end.text, expands: !end.quoted, strip }
    }

    /// Reads its lines up to the end word.
    ///
    /// `None` if there is no end word: a shell would then take the whole rest for it. No character is consumed,
    /// so that a mistake here hides no commands.
    pub(super) fn read(&self, chars: &mut Peekable<Chars<'_>>) -> Option<String> {
        let mut ahead = chars.clone();
        let mut body = String::new();
        loop {
            let (line, more) = self.line(&mut ahead);
            let line = if self.strip { line.trim_start_matches('\t') } else { &line };
            if line == self.end {
                *chars = ahead;
                return Some(body);
            }
            if !more {
                return None;
            }
            body.push_str(line);
            body.push('\n');
        }
    }

    /// Returns the next line, and true if a line break ended it. If substitutions count, a backslash continues the
    /// line.
    fn line(&self, chars: &mut Peekable<Chars<'_>>) -> (String, bool) {
        let mut line = String::new();
        while let Some(c) = chars.next() {
            match c {
                '\n' => return (line, true),
                '\\' if self.expands => match chars.next() {
                    Some('\n') => {}
                    Some(c) => line.extend(['\\', c]),
                    None => line.push('\\'),
                },
                c => line.push(c),
            }
        }
        (line, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(end: &str, quoted: bool, strip: bool, text: &str) -> Option<(String, String)> {
        let end = Word { text: end.into(), quoted };
        let mut chars = text.chars().peekable();
        let body = Heredoc::until(end, strip).read(&mut chars)?;
        Some((body, chars.collect()))
    }

    #[test]
    fn a_body_ends_at_its_line() {
        let both = |body: &str, rest: &str| Some((body.to_owned(), rest.to_owned()));
        assert_eq!(read("E", false, false, "a\n E\nE\nrm"), both("a\n E\n", "rm"));
        assert_eq!(read("E", false, false, "E"), both("", ""));
        assert_eq!(read("E", false, true, "\ta\n\tE\nrm"), both("a\n", "rm"));
        assert_eq!(read("EF", false, false, "a\nE\\\nF\nrm"), both("a\n", "rm"));
        assert_eq!(read("EF", true, false, "a\\\nEF\nrm"), both("a\\\n", "rm"));
        assert_eq!(read("E", false, false, "a\\\\\nE\n"), both("a\\\\\n", ""));
        assert_eq!(read("E", false, false, "a\nb"), None);
    }
}
