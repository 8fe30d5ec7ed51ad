//! `edit`: one change of one file.

use jail::SandboxPath;
use serde_json::{Value, json};
use wire::v1::edit_request::Change;
use wire::v1::{CreateFile, EditRequest, EditResult, InsertText, StrReplace};

use super::check::{any_path, content, sha256};
use super::{Answer, Class, Describe, Effect, Lane, Request, Sketch, stands_for};
use crate::{CommandLimits, Malformed};

pub(super) const CLASS: Class = Class { name: "edit", lane: Lane::Host, effect: Effect::Writes };

/// Change one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// The file.
    pub path: SandboxPath,
    /// The change.
    pub change: EditChange,
    /// SHA-256 that the present content must have, lower-case hex, 64 digits.
    pub if_match_sha256: Option<String>,
}

/// Kind of change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EditChange {
    /// Replace text.
    StrReplace {
        /// Text to find; not empty.
        old: String,
        /// Text to put there; differs from `old`.
        new: String,
        /// Every occurrence instead of exactly one.
        replace_all: bool,
    },
    /// Create the file; it must not exist.
    Create {
        /// Its content.
        content: String,
    },
    /// Insert text.
    Insert {
        /// After this line, 1-based; 0 is the beginning.
        after_line: u64,
        /// The text.
        text: String,
    },
}

impl Request for Edit {
    type Message = EditRequest;

    fn parse(message: EditRequest, _: CommandLimits) -> Result<Self, Malformed> {
        let EditRequest { path, change, if_match_sha256 } = message;
        let change =
            change.ok_or_else(|| Malformed::new("edit", "needs one of strReplace, create, insert"))?;
        Ok(Self {
            path: any_path("edit.path", &path)?,
            change: parse_change(change)?,
            if_match_sha256: sha256("edit.if_match_sha256", if_match_sha256)?,
        })
    }

    fn message(&self) -> EditRequest {
        let change = match self.change.clone() {
            EditChange::StrReplace { old, new, replace_all } => {
                Change::StrReplace(StrReplace { old_str: old, new_str: new, replace_all })
            }
            EditChange::Create { content } => Change::Create(CreateFile { content }),
            EditChange::Insert { after_line, text } => Change::Insert(InsertText { after_line, text }),
        };
        EditRequest {
            path: self.path.to_string(),
            change: Some(change),
            if_match_sha256: self.if_match_sha256.clone().unwrap_or_default(),
        }
    }

    fn sketch(message: &EditRequest) -> Sketch {
        (CLASS.name, json!({ "path": message.path }))
    }
}

fn parse_change(change: Change) -> Result<EditChange, Malformed> {
    Ok(match change {
        Change::StrReplace(StrReplace { old_str: old, new_str: new, replace_all }) => {
            content("edit.str_replace.old_str", old.as_bytes())?;
            content("edit.str_replace.new_str", new.as_bytes())?;
            if old.is_empty() {
                return Err(Malformed::new("edit.str_replace.old_str", "is empty: give the text to replace"));
            }
            if old == new {
                return Err(Malformed::new(
                    "edit.str_replace",
                    "the text to replace and the new text are identical: nothing would change",
                ));
            }
            EditChange::StrReplace { old, new, replace_all }
        }
        Change::Create(CreateFile { content: text }) => {
            content("edit.create.content", text.as_bytes())?;
            EditChange::Create { content: text }
        }
        Change::Insert(InsertText { after_line, text }) => {
            content("edit.insert.text", text.as_bytes())?;
            EditChange::Insert { after_line, text }
        }
    })
}

impl Describe for Edit {
    fn class(&self) -> Class {
        CLASS
    }

    fn paths(&self) -> Vec<&SandboxPath> {
        vec![&self.path]
    }

    fn shows_changed(&self) -> bool {
        true
    }

    fn written_bytes(&self) -> usize {
        match &self.change {
            EditChange::StrReplace { new: text, .. }
            | EditChange::Create { content: text }
            | EditChange::Insert { text, .. } => text.len(),
        }
    }

    fn hide_contents(&self, message: &mut Value) {
        match &self.change {
            EditChange::StrReplace { old, new, .. } => {
                message["strReplace"]["oldStr"] = stands_for(old.as_bytes());
                message["strReplace"]["newStr"] = stands_for(new.as_bytes());
            }
            EditChange::Create { content } => message["create"]["content"] = stands_for(content.as_bytes()),
            EditChange::Insert { text, .. } => message["insert"]["text"] = stands_for(text.as_bytes()),
        }
    }
}

impl Answer for EditResult {
    fn facts(&self) -> Value {
        json!({
            "path": self.path, "replacements": self.replacements,
            "sha256_before": self.sha256_before, "sha256_after": self.sha256_after,
        })
    }
}
