//! Changes the YAML front matter of a Markdown file. The body stays byte for byte.
//!
//! The text is edited and not rewritten, so that a person's order, comments and quoting stay wherever possible. Editing YAML as text is a
//! guess, so every guess is checked: the edited text must parse to exactly the wanted values. Otherwise a plainer way is tried: first
//! rewriting the whole entry, then the whole front matter. A note then says what was lost.
//!
//! Keys have the names that documents use, such as `stepsCompleted`. A document that has `steps_completed` keeps that.

mod block;
mod change;
mod edit;
mod entry;
mod yaml;

#[cfg(test)]
mod tests;

use block::Block;
use change::Change;
use jail::SandboxPath;
use operations::{FrontMatter, Reason, ToolFailure};
use serde_yaml::Value;

/// File after the changes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Updated {
    pub(super) text: String,
    /// Descriptions of lost formatting, one line each.
    pub(super) notes: Vec<String>,
}

/// Front matter that cannot be changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Invalid {
    /// Line of the file, from 1.
    line: Option<usize>,
    message: String,
}

impl Invalid {
    fn new(line: Option<usize>, message: impl Into<String>) -> Self {
        Self { line, message: message.into() }
    }

    pub(super) fn failure(&self, path: &SandboxPath) -> ToolFailure {
        let line = self.line.map(|line| format!("line {line}: ")).unwrap_or_default();
        let message = format!("{}: {line}{}", path.excerpt(), jail::excerpt(&self.message));
        let failure = ToolFailure::new(Reason::InvalidFrontmatter, message);
        match self.line {
            Some(line) => failure.with("line", line.to_string()),
            None => failure,
        }
    }
}

/// Makes the changes.
pub(super) fn update(text: &str, asked: &FrontMatter) -> Result<Updated, Invalid> {
    let block = Block::find(text)?;
    let mut notes = Vec::new();
    if !block.is_there() {
        notes.push("there was no front matter: it was added".to_owned());
    }
    let mut yaml = block.yaml();
    let mut value = yaml::parse(&yaml)?;
    for change in change::all(asked, &value) {
        let wanted = change.apply(&value)?;
        if yaml::same(&wanted, &value) {
            continue;
        }
        let (edited, note) = edit(&yaml, &change, &wanted)?;
        notes.extend(note);
        yaml = edited;
        value = wanted;
    }
    notes.dedup();
    Ok(Updated { text: block.with(&yaml), notes })
}

/// Makes the smallest change of the text that gives the wanted values, and returns it with a note on lost formatting.
fn edit(yaml: &str, change: &Change, wanted: &Value) -> Result<(String, Option<String>), Invalid> {
    let is_right = |text: &String| yaml::parse(text).is_ok_and(|value| yaml::same(&value, wanted));
    if let Some(text) = edit::in_place(yaml, change).into_iter().find(is_right) {
        return Ok((text, None));
    }
    if let Some(text) = edit::entry_anew(yaml, change, wanted).filter(is_right) {
        let lost = edit::has_comment(yaml, &change.key);
        let note = lost.then(|| format!("comments within `{}` were not kept", change.key));
        return Ok((text, note));
    }
    let text = yaml::emit(wanted)?;
    if !is_right(&text) {
        return Err(Invalid::new(None, "the front matter would be too long or too deep with this change"));
    }
    Ok((
        text,
        Some("the front matter was written anew: its comments and its layout were not kept".to_owned()),
    ))
}
