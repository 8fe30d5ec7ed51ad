//! Requests to write and to edit a file.

use super::Malformed;
use super::check::{content, required_path, sha256};
use crate::{EditChange, Encoding, Operation, decode_base64};

/// Becomes [`crate::Write`].
#[derive(Debug, Clone, Default)]
pub struct Write {
    /// Required.
    pub path: String,
    /// The whole new content, in `encoding`.
    pub content: String,
    /// Of `content`.
    pub encoding: Encoding,
    /// Empty is no condition.
    pub if_match_sha256: String,
    /// Refuse when there is a file already.
    pub create_only: bool,
}

impl Write {
    /// Validates.
    pub fn into_operation(self) -> Result<Operation, Malformed> {
        let path = required_path("write.path", &self.path)?;
        let bytes = match self.encoding {
            Encoding::Utf8 => self.content.into_bytes(),
            Encoding::Base64 => decode_base64(&self.content)
                .ok_or_else(|| Malformed::new("write.content", "is not RFC 4648 base64 with padding"))?,
        };
        content("write.content", &bytes)?;
        Ok(Operation::Write(crate::Write {
            path,
            content: bytes,
            if_match_sha256: sha256("write.if_match_sha256", self.if_match_sha256)?,
            create_only: self.create_only,
        }))
    }
}

/// Becomes [`crate::Edit`].
#[derive(Debug, Clone)]
pub struct Edit {
    /// Required.
    pub path: String,
    /// How.
    pub change: Change,
    /// Empty is no condition.
    pub if_match_sha256: String,
}

/// Becomes [`EditChange`].
#[derive(Debug, Clone)]
pub enum Change {
    /// Replace text.
    StrReplace {
        /// Not empty.
        old_str: String,
        /// Not the same as `old_str`.
        new_str: String,
        /// Every occurrence instead of exactly one.
        replace_all: bool,
    },
    /// Create the file.
    Create {
        /// Its content.
        content: String,
    },
    /// Insert text.
    Insert {
        /// 0 is the beginning.
        after_line: u64,
        /// The text.
        text: String,
    },
}

impl Edit {
    /// Validates.
    pub fn into_operation(self) -> Result<Operation, Malformed> {
        Ok(Operation::Edit(crate::Edit {
            path: required_path("edit.path", &self.path)?,
            change: self.change.validate()?,
            if_match_sha256: sha256("edit.if_match_sha256", self.if_match_sha256)?,
        }))
    }
}

impl Change {
    fn validate(self) -> Result<EditChange, Malformed> {
        Ok(match self {
            Self::StrReplace { old_str, new_str, replace_all } => {
                content("edit.str_replace.old_str", old_str.as_bytes())?;
                content("edit.str_replace.new_str", new_str.as_bytes())?;
                if old_str.is_empty() {
                    return Err(Malformed::new(
                        "edit.str_replace.old_str",
                        "is empty: give the text to replace",
                    ));
                }
                if old_str == new_str {
                    return Err(Malformed::new(
                        "edit.str_replace",
                        "the text to replace and the new text are identical: nothing would change",
                    ));
                }
                EditChange::StrReplace { old: old_str, new: new_str, replace_all }
            }
            Self::Create { content: text } => {
                content("edit.create.content", text.as_bytes())?;
                EditChange::Create { content: text }
            }
            Self::Insert { after_line, text } => {
                content("edit.insert.text", text.as_bytes())?;
                EditChange::Insert { after_line, text }
            }
        })
    }
}
