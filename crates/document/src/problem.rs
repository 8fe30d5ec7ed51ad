//! A problem of a document, with its location and, if possible, a suggestion.

use std::fmt;

use serde::Serialize;

/// One problem of a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    pub file: String,
    /// 1-based line, if it is known.
    pub line: Option<usize>,
    /// Key path, such as `profiles.review.exec.rules[2].prefix`; empty for the file as a whole.
    pub key: String,
    pub message: String,
    /// Word that was probably meant, or text to write instead.
    pub suggestion: Option<String>,
}

impl Problem {
    pub fn in_file(file: &str, message: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            line: None,
            key: String::new(),
            message: message.into(),
            suggestion: None,
        }
    }

    #[must_use]
    pub fn suggest(mut self, suggestion: impl Into<String>) -> Self {
        self.suggestion = Some(suggestion.into());
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.message)?;
        match &self.suggestion {
            Some(suggestion) => write!(f, " ({suggestion})"),
            None => Ok(()),
        }
    }
}

/// Formats all problems of `what`, one per line.
pub fn list(f: &mut fmt::Formatter<'_>, what: &str, problems: &[Problem]) -> fmt::Result {
    match problems.len() {
        1 => write!(f, "1 problem in {what}:")?,
        count => write!(f, "{count} problems in {what}:")?,
    }
    problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
}
