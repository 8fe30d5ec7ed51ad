//! A word of a script.

/// One word, without its quotes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    /// Some of it was quoted or escaped: it is no keyword, and no end of a here-document is looked for in it.
    pub(super) quoted: bool,
}

impl Word {
    /// Whether it is this keyword.
    pub(super) fn is(&self, keyword: &str) -> bool {
        !self.quoted && self.text == keyword
    }

    /// Whether it stands before a command without being it: a keyword or an assignment.
    pub(super) fn is_prelude(&self) -> bool {
        const KEYWORDS: [&str; 9] = ["if", "then", "else", "elif", "while", "until", "do", "!", "coproc"];
        KEYWORDS.contains(&self.text.as_str()) || self.assignment().is_some()
    }

    /// `name=value` and `name+=value`.
    pub(super) fn assignment(&self) -> Option<(&str, &str)> {
        let (name, value) = self.text.split_once('=')?;
        let name = name.strip_suffix('+').unwrap_or(name);
        is_name(name).then_some((name, value))
    }
}

/// Whether a variable can have this name.
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
