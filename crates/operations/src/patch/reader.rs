//! A reader of the lines of a patch's text, which also reports errors at a line.

use crate::Malformed;

/// Most lines of a patch: each takes some memory.
const MAX_LINES: usize = 200_000;

/// A reader of lines.
pub(super) struct Reader<'t> {
    field: &'static str,
    lines: Vec<&'t str>,
    /// Index of the next line.
    at: usize,
}

impl<'t> Reader<'t> {
    /// Reads `text`, which came in `field`.
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

    /// Returns the next line without consuming it.
    pub(super) fn peek(&self) -> Option<&'t str> {
        self.lines.get(self.at).copied()
    }

    /// Returns the line after the next without consuming it.
    pub(super) fn peek_second(&self) -> Option<&'t str> {
        self.lines.get(self.at + 1).copied()
    }

    pub(super) fn next(&mut self) -> Option<&'t str> {
        let line = self.peek()?;
        self.at += 1;
        Some(line)
    }

    /// Returns the number of the next line, from 1.
    pub(super) const fn number(&self) -> usize {
        self.at + 1
    }

    /// Describes an error at the next line.
    pub(super) fn fault(&self, message: impl AsRef<str>) -> Malformed {
        self.fault_at(self.number(), message)
    }

    /// Describes an error at line `number`.
    pub(super) fn fault_at(&self, number: usize, message: impl AsRef<str>) -> Malformed {
        Malformed::new(self.field, format!("line {number}: {}", message.as_ref()))
    }

    /// Describes an error of the whole text.
    pub(super) fn fault_of_all(&self, message: &str) -> Malformed {
        Malformed::new(self.field, message)
    }

    /// Parses the path in line `number`.
    pub(super) fn path(&self, number: usize, text: &str) -> Result<jail::SandboxPath, Malformed> {
        jail::SandboxPath::parse(text).map_err(|refusal| {
            let mut malformed = Malformed::refused(self.field, refusal);
            malformed.message = format!("line {number}: {}", malformed.message);
            malformed
        })
    }
}
