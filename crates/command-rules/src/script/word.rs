//! A word of a script.

/// One word, without its quotes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    /// A part of it was quoted or escaped. So it is not a keyword, and a here-document that it ends is literal.
    pub(super) quoted: bool,
}

impl Word {
    /// Returns true if the word is this keyword.
    pub(super) fn is(&self, keyword: &str) -> bool {
        !self.quoted && self.text == keyword
    }

    /// Returns true if the word precedes a command without being one: a keyword or an assignment.
    pub(super) fn is_prelude(&self) -> bool {
        self.is_keyword() || self.assignment().is_some()
    }

    /// Returns true if the word is one of the keywords that another command follows.
    pub(super) fn is_keyword(&self) -> bool {
        const KEYWORDS: [&str; 9] = ["if", "then", "else", "elif", "while", "until", "do", "!", "coproc"];
        KEYWORDS.contains(&self.text.as_str())
    }

    /// Splits `name=value`, `name+=value` and `name[subscript]=value` into name and value.
    pub(super) fn assignment(&self) -> Option<(&str, &str)> {
        let length = self.text.find(|c: char| !is_name_character(c)).filter(|length| *length > 0)?;
        let (name, rest) = self.text.split_at(length);
        let rest =
            if rest.starts_with('[') { &rest[rest.find("]=").or(rest.find("]+="))? + 1..] } else { rest };
        Some((name, rest.strip_prefix('+').unwrap_or(rest).strip_prefix('=')?))
    }
}

fn is_name_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}
