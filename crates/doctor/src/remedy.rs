//! Command that sets a finding right. A check returns its remedy, and its hint shows the same command.

use serde::Serialize;

/// Command that may set a finding right. A person decides if it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remedy {
    /// Purpose, as in "to WHY, run COMMAND".
    pub why: String,
    /// Program and arguments. No shell reads them. Begins with `sudo` if it needs root and this user is not root.
    pub command: Vec<String>,
}

impl Remedy {
    /// Returns the command as a person would type it.
    pub fn shown(&self) -> String {
        self.command.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
    }
}

fn quoted(word: &str) -> String {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_=./:,+@%".contains(&b);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_command_can_be_pasted_into_a_shell() {
        let command = ["a b", "", "it's", "x=1"].map(str::to_owned).to_vec();
        let remedy = Remedy { why: String::new(), command };
        assert_eq!(remedy.shown(), r"'a b' '' 'it'\''s' x=1");
    }
}
