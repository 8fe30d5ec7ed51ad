//! Bounded text: it keeps the output that fits and counts the rest to the byte.

use operations::GitResult;

/// Collects output up to a limit.
#[derive(Debug)]
pub(super) struct Output {
    text: String,
    most: usize,
    omitted: u64,
}

impl Output {
    pub(super) fn new(most: u64) -> Self {
        Self { text: String::new(), most: usize::try_from(most).unwrap_or(usize::MAX), omitted: 0 }
    }

    /// Appends whole lines. Bytes that are not UTF-8 become U+FFFD; the limit and the count apply to the text as shown.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.push_str(&String::from_utf8_lossy(bytes));
    }

    pub(super) fn push_str(&mut self, text: &str) {
        // After a first omission nothing may follow the gap.
        let space = if self.omitted > 0 { 0 } else { self.most - self.text.len() };
        let kept = char_boundary(text, space);
        self.text.push_str(&text[..kept]);
        self.omitted += (text.len() - kept) as u64;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty() && !self.is_cut()
    }

    /// Returns true if something is left out already.
    pub(super) fn is_cut(&self) -> bool {
        self.omitted > 0
    }

    /// Returns the result with these facts and this output.
    pub(super) fn into_result(self, facts: GitResult) -> GitResult {
        GitResult { output: self.text, truncated: self.omitted > 0, omitted_bytes: self.omitted, ..facts }
    }
}

/// Returns the largest boundary between characters up to `at`.
fn char_boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|index| text.is_char_boundary(*index)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_cut_at_a_character_and_omitted_bytes_are_counted() {
        for most in 0..12 {
            let mut output = Output::new(most);
            for part in ["aä€", "b\u{10348}", "c"] {
                output.push_str(part);
            }
            let whole = "aä€b\u{10348}c";
            let result = output.into_result(GitResult::default());
            assert!(whole.starts_with(&result.output) && result.output.len() as u64 <= most);
            assert_eq!(result.output.len() as u64 + result.omitted_bytes, whole.len() as u64);
            assert_eq!(result.truncated, result.output != whole);
        }
    }
}
