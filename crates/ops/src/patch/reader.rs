//! The lines of a patch's text, read once from the top, and what is wrong at one of them.

use crate::Malformed;

/// Lines that a patch may have: each costs some memory of its own.
const MAX_LINES: usize = 200_000;

/// A reader of lines.
pub(super) struct Reader<'t> {
    field: &'static str,
    lines: Vec<&'t str>,
    /// Index of the next line.
    at: usize,
}

impl<'t> Reader<'t> {
    /// Of `text`, which came in `field`.
    pub(super) fn new(field: &'static str, text: &'t str) -> Result<Self, Malformed> {
        let lines: Vec<&str> = text
            .split_inclusive('\n')
            .map(|line| line.strip_suffix('\n').unwrap_or(line))
            .take(MAX_LINES + 1)
            .collect();
        if lines.len() > MAX_LINES {
            return Err(Malformed::new(field, format!("has more than {MAX_LINES} lines: split it")));
        }
        Ok(Self { field, lines, at: 0 })
    }

    /// The next line, which stays the next.
    pub(super) fn peek(&self) -> Option<&'t str> {
        self.lines.get(self.at).copied()
    }

    /// The one after the next.
    pub(super) fn peek_second(&self) -> Option<&'t str> {
        self.lines.get(self.at + 1).copied()
    }

    pub(super) fn next(&mut self) -> Option<&'t str> {
        let line = self.peek()?;
        self.at += 1;
        Some(line)
    }

    /// Number of the next line, from 1.
    pub(super) const fn number(&self) -> usize {
        self.at + 1
    }

    /// What is wrong at the next line.
    pub(super) fn fault(&self, message: impl AsRef<str>) -> Malformed {
        self.fault_at(self.number(), message)
    }

    /// What is wrong at line `number`.
    pub(super) fn fault_at(&self, number: usize, message: impl AsRef<str>) -> Malformed {
        Malformed::new(self.field, format!("line {number}: {}", message.as_ref()))
    }

    /// What is wrong with the whole.
    pub(super) fn fault_of_all(&self, message: &str) -> Malformed {
        Malformed::new(self.field, message)
    }

    /// The path that stands at line `number`.
    pub(super) fn path(&self, number: usize, text: &str) -> Result<jail::SandboxPath, Malformed> {
        jail::SandboxPath::parse(text).map_err(|refusal| {
            let mut malformed = Malformed::refused(self.field, refusal);
            malformed.message = format!("line {number}: {}", malformed.message);
            malformed
        })
    }
}
