//! The content of a patch in either format: files, and hunks of lines.

use jail::SandboxPath;

/// One file of a patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePatch {
    /// The file, or the old name of a file that moves.
    pub path: SandboxPath,
    pub action: Action,
}

/// Change of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// The file must not exist yet.
    Create {
        /// The whole content.
        content: String,
    },
    /// The file must exist.
    Delete {
        /// The content that the file must have; `None`: any content.
        content: Option<String>,
    },
    /// The file must exist.
    Update {
        /// The new name, at which no file may exist.
        moved_to: Option<SandboxPath>,
        /// Hunks in the order of the text; none if the file only moves.
        hunks: Vec<Hunk>,
    },
}

/// Lines to find, and the lines that replace them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hunk {
    /// Line of the patch's text at which the hunk begins, from 1.
    pub at: usize,
    pub place: HunkPosition,
    pub lines: Vec<Line>,
}

/// Position of a hunk's lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HunkPosition {
    /// At a line number, as in unified diffs. A last line without a newline differs from one with it.
    Stated {
        /// Line in the old file, from 1; 0 if no line is before it.
        old: u64,
        /// Line in the new file, likewise.
        new: u64,
    },
    /// Somewhere after these lines, as in the envelope. The newline of the last line does not matter.
    Anchored {
        /// Lines in their order in the file, compared without the white space around them.
        anchors: Vec<String>,
        /// True if the lines are the file's last.
        at_end: bool,
    },
}

/// Line of a hunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub kind: Kind,
    /// Text without the newline. A `\r` before it stays.
    pub text: String,
    /// True if a newline follows.
    pub newline: bool,
}

/// Role of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// In the file before and after.
    Context,
    /// Only in the file before.
    Removed,
    /// Only in the file after.
    Added,
}

impl Line {
    pub fn is_old(&self) -> bool {
        self.kind != Kind::Added
    }

    pub fn is_new(&self) -> bool {
        self.kind != Kind::Removed
    }
}

impl Hunk {
    /// Returns the lines that must be in the file.
    pub fn old(&self) -> impl DoubleEndedIterator<Item = &Line> {
        self.lines.iter().filter(|line| line.is_old())
    }

    /// Returns the text of some lines, with their newlines.
    pub fn text<'l>(lines: impl Iterator<Item = &'l Line>) -> String {
        let mut text = String::new();
        for line in lines {
            text.push_str(&line.text);
            if line.newline {
                text.push('\n');
            }
        }
        text
    }

    pub(super) fn changes_nothing(&self) -> bool {
        self.lines.iter().all(|line| line.kind == Kind::Context)
    }
}
