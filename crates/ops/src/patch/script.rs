//! What a patch says, whatever form it had: files, and hunks of lines.

use jail::SandboxPath;

/// One file of a patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FilePatch {
    /// The file; the old name of one that moves.
    pub(crate) path: SandboxPath,
    pub(crate) action: Action,
}

/// What becomes of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// There must be none yet.
    Create {
        /// The whole content.
        content: String,
    },
    /// It must be there.
    Delete {
        /// All that must be in it. `None`: whatever is in it.
        content: Option<String>,
    },
    /// It must be there.
    Update {
        /// Its new name, at which there must be nothing.
        moved_to: Option<SandboxPath>,
        /// In the order of the text; none where the file only moves.
        hunks: Vec<Hunk>,
    },
}

/// Lines to be found, and what they become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hunk {
    /// Line of the patch's text at which it begins, from 1.
    pub(crate) at: usize,
    pub(crate) place: HunkPosition,
    pub(crate) lines: Vec<Line>,
}

/// Where a hunk's lines are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HunkPosition {
    /// At a line, as unified diffs say it. A last line without a newline is another line than one with it.
    Stated {
        /// Line in the old file, from 1; 0 where nothing is before it.
        old: u64,
        /// Line in the new file, likewise.
        new: u64,
    },
    /// Somewhere behind these lines, as the envelope says it. Whether the last line has a newline does not matter.
    Anchored {
        /// Each is behind the one before. Compared without the white space around them.
        anchors: Vec<String>,
        /// The lines are the file's last.
        at_end: bool,
    },
}

/// A line of a hunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) kind: Kind,
    /// Without the newline. A `\r` before it stays.
    pub(crate) text: String,
    /// Whether a newline follows.
    pub(crate) newline: bool,
}

/// What a line is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// In the file, before and after.
    Context,
    /// Only before.
    Removed,
    /// Only after.
    Added,
}

impl Line {
    pub(crate) fn is_old(&self) -> bool {
        self.kind != Kind::Added
    }

    pub(crate) fn is_new(&self) -> bool {
        self.kind != Kind::Removed
    }
}

impl Hunk {
    /// The lines that must be in the file.
    pub(crate) fn old(&self) -> impl DoubleEndedIterator<Item = &Line> {
        self.lines.iter().filter(|line| line.is_old())
    }

    /// The text of some lines, with their newlines.
    pub(crate) fn text<'l>(lines: impl Iterator<Item = &'l Line>) -> String {
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
