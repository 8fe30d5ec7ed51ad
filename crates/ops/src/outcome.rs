//! What a lane answers. Serialised, these types are also what JSON dialects render.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Encoding, EndedBy, Hint, Limit, Reason};

/// How a call ended in its lane: a tool that failed is an ordinary outcome, for the model to see.
pub type Outcome = Result<OpResult, ToolFailure>;

/// A tool that ran and failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolFailure {
    /// Stable reason.
    pub reason: Reason,
    /// What was attempted, what was wrong, what to try. Never a host path, never a secret, and no name of an argument or a
    /// tool: callers have names of their own.
    pub message: String,
    /// Facts to act on.
    pub details: BTreeMap<String, String>,
    /// What to try that has a name.
    pub hints: Vec<Hint>,
}

impl ToolFailure {
    /// A failure without details.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), details: BTreeMap::new(), hints: Vec::new() }
    }

    /// The same with one more thing to try.
    #[must_use]
    pub fn hint(mut self, hint: Hint) -> Self {
        self.hints.push(hint);
        self
    }

    /// The same with its hints in the message, as far as the caller has a name for them.
    #[must_use]
    pub fn told(mut self, say: impl FnMut(Hint) -> Option<String>) -> Self {
        let said: Vec<String> = std::mem::take(&mut self.hints).into_iter().filter_map(say).collect();
        if !said.is_empty() {
            self.message = format!("{}; {}", self.message, said.join(", or "));
        }
        self
    }

    /// The same with one more fact.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }
}

/// The result of an operation that did what was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum OpResult {
    /// Of `read`.
    Read(ReadResult),
    /// Of `list`.
    List(ListResult),
    /// Of `glob`.
    Glob(GlobResult),
    /// Of `grep`.
    Grep(GrepResult),
    /// Of `exec`.
    Exec(ExecResult),
    /// Of `shell`.
    Shell(ExecResult),
    /// Of `write`.
    Write(WriteResult),
    /// Of `edit`.
    Edit(EditResult),
    /// Of `patch`.
    Patch(PatchResult),
    /// Of `delete`.
    Delete(DeleteResult),
    /// Of `git`.
    Git(GitResult),
    /// Of a tool of an upstream MCP server.
    Mcp(McpResult),
}

impl OpResult {
    /// How a command ended, when this is the result of one: of `exec` or `shell`.
    pub fn command(&self) -> Option<&ExecResult> {
        match self {
            Self::Exec(result) | Self::Shell(result) => Some(result),
            _ => None,
        }
    }

    /// The same, to be completed.
    pub fn command_mut(&mut self) -> Option<&mut ExecResult> {
        match self {
            Self::Exec(result) | Self::Shell(result) => Some(result),
            _ => None,
        }
    }
}

/// A file, or the asked part of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ReadResult {
    /// Path in alias form.
    pub path: String,
    /// The content; its beginning when `truncated`; empty when `binary` and text was asked for.
    pub content: String,
    /// Encoding of `content`.
    #[serde(serialize_with = "encoding_name")]
    pub encoding: Encoding,
    /// Size of the whole file, bytes.
    pub size_bytes: u64,
    /// SHA-256 of the whole file, lower-case hex.
    pub sha256: String,
    /// Lines of the whole file; a last line without newline counts.
    pub total_lines: u64,
    /// First line in `content`; 0 when there is none or bytes were asked for.
    pub start_line: u64,
    /// Last line in `content`, inclusive; 0 likewise.
    pub end_line: u64,
    /// There is more than `content`.
    pub truncated: bool,
    /// The file is not UTF-8 text.
    pub binary: bool,
    /// What to ask for next; empty when there is nothing to say.
    pub hint: String,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the signature that serde asks for
fn encoding_name<S: serde::Serializer>(encoding: &Encoding, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match encoding {
        Encoding::Utf8 => "utf-8",
        Encoding::Base64 => "base64",
    })
}

/// Kinds of directory entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EntryType {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A FIFO, socket or device.
    Other,
}

/// A directory entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Path in alias form.
    pub path: String,
    /// Last component.
    pub name: String,
    /// What it is.
    #[serde(rename = "type")]
    pub entry_type: EntryType,
    /// Size in bytes; 0 for anything but files.
    pub size_bytes: u64,
    /// Modification time, seconds since 1970-01-01 UTC.
    pub modified_unix_seconds: i64,
}

/// Entries of a directory, sorted by path, byte by byte.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ListResult {
    /// The directory, alias form.
    pub path: String,
    /// The entries.
    pub entries: Vec<Entry>,
    /// There are more.
    pub truncated: bool,
    /// Entries seen; at least so many when `truncated`.
    pub total_entries: u64,
    /// What to do when truncated.
    pub hint: String,
}

/// Paths that matched a glob, sorted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct GlobResult {
    /// In alias form.
    pub paths: Vec<String>,
    /// There are more, or the walk reached its bound.
    pub truncated: bool,
    /// What to do when truncated.
    pub hint: String,
}

/// A matching line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GrepMatch {
    /// Path in alias form.
    pub path: String,
    /// 1-based.
    pub line: u64,
    /// The line without newline, clipped at 400 characters.
    pub text: String,
    /// Lines before it, oldest first.
    pub before: Vec<String>,
    /// Lines after it.
    pub after: Vec<String>,
}

/// Matches, by path and line.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct GrepResult {
    /// The matches.
    pub matches: Vec<GrepMatch>,
    /// The search stopped early.
    pub truncated: bool,
    /// What to do when truncated.
    pub hint: String,
    /// Files looked into.
    pub files_searched: u64,
    /// Files with a match.
    pub files_matched: u64,
    /// Files left out: binary or unreadable.
    pub files_skipped: u64,
}

/// Proof that nothing of a command is left.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct KillEvidence {
    /// Processes that had to be ended.
    pub ended: u32,
    /// Processes still there at the last look.
    pub left: u32,
    /// `none-needed`, `cgroup-v2-kill`, `cgroup-v1-freezer` or `descendants`.
    pub method: String,
    /// From the first signal to the last look, microseconds.
    pub took_us: u64,
}

/// How a command ended, and what it wrote.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ExecResult {
    /// Standard output, head and tail when it was too long.
    pub stdout: String,
    /// Standard error, likewise.
    pub stderr: String,
    /// Exit code; `None` when a signal ended it, or nobody knows how it ended. [`Self::told`] has one for signals.
    pub exit_code: Option<i32>,
    /// Signal that ended it.
    pub signal: Option<i32>,
    /// The timeout ended it.
    pub timed_out: bool,
    /// Bytes written to standard output.
    pub stdout_bytes: u64,
    /// Bytes written to standard error.
    pub stderr_bytes: u64,
    /// Bytes left out of `stdout`.
    pub stdout_omitted_bytes: u64,
    /// Bytes left out of `stderr`.
    pub stderr_omitted_bytes: u64,
    /// CPU time of it and all that it started, microseconds; from an agent of it and what it waited for.
    pub cpu_time_us: u64,
    /// Peak resident memory of its largest process, bytes: among itself, what it waited for, and what was still there
    /// when it was ended; from an agent without the last.
    pub peak_memory_bytes: u64,
    /// Wall-clock time, microseconds.
    pub wall_time_us: u64,
    /// How it was made sure that nothing is left.
    pub kill: KillEvidence,
    /// What ended it before its time.
    pub ended_by: Option<EndedBy>,
    /// Limits of the run that were reached while it ran.
    pub limits_hit: Vec<Limit>,
    /// What that means and what to do about it.
    pub hint: String,
}

impl ExecResult {
    /// As clients are told: 128 and the number of the signal stand for the exit code, as in shells, since a code that is left out
    /// is read as 0. Not where the command was ended before its time was over.
    #[must_use]
    pub fn told(mut self) -> Self {
        if !self.timed_out {
            self.exit_code = self.exit_code.or(self.signal.map(|signal| 128 + signal));
        }
        self
    }

    /// Why a command that ran is a call that failed: whatever its exit code is, which may be 0 of one that hears SIGTERM, nobody
    /// waited for the end of its work.
    pub fn failure(&self) -> Option<ToolFailure> {
        let (reason, why) = match self.ended_by {
            _ if self.timed_out => (Reason::TimedOut, "the command was ended when its time was over"),
            Some(EndedBy::Cancelled) => (Reason::Cancelled, "the call was cancelled and its command ended"),
            Some(EndedBy::OutputLimit) => {
                (Reason::WriteLimit, "the command wrote more output than it may and was ended")
            }
            _ if self.exit_code.is_none() && self.signal.is_none() => {
                (Reason::Internal, "nobody knows how the command ended")
            }
            _ => return None,
        };
        let message = format!("{why}; what it had written until then is in the result");
        Some(ToolFailure::new(reason, message))
    }
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct WriteResult {
    /// Path in alias form.
    pub path: String,
    /// Bytes of the new content.
    pub bytes_written: u64,
    /// SHA-256 before; empty when there was no file.
    pub sha256_before: String,
    /// SHA-256 after.
    pub sha256_after: String,
    /// There was no file before.
    pub created: bool,
}

/// What an edit did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct EditResult {
    /// Path in alias form.
    pub path: String,
    /// Unified diff, bounded.
    pub diff: String,
    /// The diff was cut.
    pub diff_truncated: bool,
    /// SHA-256 before; empty when the file is new.
    pub sha256_before: String,
    /// SHA-256 after.
    pub sha256_after: String,
    /// Places changed.
    pub replacements: u32,
}

/// What became of one file of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FileChange {
    /// There was none before.
    Created,
    /// It has another content.
    Updated,
    /// It is in the run's trash.
    Deleted,
    /// It has another name, and perhaps another content.
    Moved,
}

/// One file of a patch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PatchedFile {
    /// Path in alias form; the new one of a file that was moved.
    pub path: String,
    /// What became of it.
    pub change: FileChange,
    /// Where it was before it was moved; empty for others.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub moved_from: String,
    /// SHA-256 before; empty when there was no file.
    pub sha256_before: String,
    /// SHA-256 after; empty when there is no file any more.
    pub sha256_after: String,
    /// Bytes of the new content.
    pub bytes_written: u64,
    /// Its entry in the run's trash when it was deleted; empty for others.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub trash_entry: String,
}

/// What a patch did, to all of its files.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct PatchResult {
    /// The files, in the order of the patch.
    pub files: Vec<PatchedFile>,
    /// What whoever asked for it should know, a line each: a hunk that was applied elsewhere, a comment that was lost.
    pub notes: Vec<String>,
    /// Unified diff, bounded.
    pub diff: String,
    /// The diff was cut.
    pub diff_truncated: bool,
}

/// What was removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeleteResult {
    /// Path in alias form.
    pub path: String,
    /// A file or a directory.
    #[serde(rename = "type")]
    pub entry_type: EntryType,
    /// Size of the file, bytes; 0 for a directory.
    pub size_bytes: u64,
    /// SHA-256 of the file's content; empty for a directory, and for a file that is larger than anything that the trash takes.
    pub sha256: String,
    /// Its entry in the run's trash, kept until the run is deleted; empty in a preview.
    pub trash_entry: String,
    /// The trash had no room for it, so that it is nowhere.
    pub gone_for_good: bool,
}

/// What git said.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct GitResult {
    /// In the form of the git command, bounded.
    pub output: String,
    /// `output` was cut.
    pub truncated: bool,
    /// Bytes left out.
    pub omitted_bytes: u64,
    /// The new commit, 40 hex digits; empty for other commands.
    pub commit: String,
}

/// What a tool of an upstream MCP server answered. All of it is the server's word.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct McpResult {
    /// The server's name in the policy.
    pub server: String,
    /// The tool's name as the server says it.
    pub tool: String,
    /// The items, as far as there was room.
    pub content: Vec<McpContent>,
    /// What fits the tool's output schema, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structured_content: Option<Value>,
    /// Something was left out.
    pub truncated: bool,
    /// Items that were left out whole.
    pub omitted_items: u32,
    /// Bytes of texts and items that were left out.
    pub omitted_bytes: u64,
    /// Bytes of the whole answer as JSON.
    pub total_bytes: u64,
    /// SHA-256 of the whole answer as JSON, lower-case hex.
    pub sha256: String,
}

/// One item of an answer, after the Model Context Protocol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum McpContent {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// A picture.
    Image {
        /// Its media type.
        mime_type: String,
        /// Base64.
        data: String,
    },
    /// A sound.
    Audio {
        /// Its media type.
        mime_type: String,
        /// Base64.
        data: String,
    },
    /// A resource of the server's, with its content.
    Resource {
        /// The server's name for it. Nothing here opens it.
        uri: String,
        /// Its media type; may be empty.
        mime_type: String,
        /// Its content: text, or base64.
        data: String,
        /// `data` is base64.
        is_base64: bool,
    },
    /// The name of a resource of the server's.
    ResourceLink {
        /// The server's name for it. Nothing here opens it.
        uri: String,
        /// For people.
        name: String,
        /// Its media type; may be empty.
        mime_type: String,
    },
}
