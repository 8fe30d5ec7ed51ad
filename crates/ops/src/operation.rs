//! What an agent may ask for, parsed into types that cannot be wrong.

use std::collections::BTreeMap;
use std::time::Duration;

use jail::SandboxPath;
use serde_json::{Map, Value};

use crate::{Git, McpTool, Patch};

/// One canonical operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Read one regular file.
    Read(Read),
    /// List a directory.
    List(List),
    /// Find files by name.
    Glob(Glob),
    /// Find text in files.
    Grep(Grep),
    /// Run one command, without a shell.
    Exec(Exec),
    /// Run a shell script.
    Shell(Shell),
    /// Create or overwrite one file.
    Write(Write),
    /// Change one file.
    Edit(Edit),
    /// Change several files, all or none.
    Patch(Patch),
    /// Remove one file or an empty directory.
    Delete(Delete),
    /// Git in the workspace.
    Git(Git),
    /// Call a tool of an upstream MCP server.
    Mcp(Mcp),
}

/// Who executes an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lane {
    /// `coffer-agent`, in the container.
    Container,
    /// `coffer-hand`, jailed on the host.
    Host,
    /// An MCP server that the operator has named.
    Upstream,
}

impl Operation {
    /// The names that policy and record use: `read`, `git.commit`, … Tools of upstream servers have names beside these,
    /// [`McpTool::canonical`].
    pub const NAMES: [&'static str; 16] = [
        "read",
        "list",
        "glob",
        "grep",
        "exec",
        "shell",
        "write",
        "edit",
        "patch",
        "delete",
        "git.status",
        "git.diff",
        "git.log",
        "git.show",
        "git.add",
        "git.commit",
    ];

    /// Name of this operation in policy and record.
    pub fn name(&self) -> &str {
        match self {
            Self::Mcp(mcp) => mcp.tool.canonical(),
            other => other.kind(),
        }
    }

    /// The name under which calls of it count together: its own, or `mcp.SERVER` for all tools of an upstream server.
    pub fn family(&self) -> &str {
        match self {
            Self::Mcp(mcp) => mcp.tool.family(),
            other => other.kind(),
        }
    }

    /// What kind of operation it is: its name, or `mcp`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Read(_) => "read",
            Self::List(_) => "list",
            Self::Glob(_) => "glob",
            Self::Grep(_) => "grep",
            Self::Exec(_) => "exec",
            Self::Shell(_) => "shell",
            Self::Write(_) => "write",
            Self::Edit(_) => "edit",
            Self::Patch(_) => "patch",
            Self::Delete(_) => "delete",
            Self::Git(Git::Status) => "git.status",
            Self::Git(Git::Diff { .. }) => "git.diff",
            Self::Git(Git::Log { .. }) => "git.log",
            Self::Git(Git::Show { .. }) => "git.show",
            Self::Git(Git::Add { .. }) => "git.add",
            Self::Git(Git::Commit { .. }) => "git.commit",
            Self::Mcp(_) => "mcp",
        }
    }

    /// Where it is executed.
    pub fn lane(&self) -> Lane {
        match self {
            Self::Read(_)
            | Self::List(_)
            | Self::Glob(_)
            | Self::Grep(_)
            | Self::Exec(_)
            | Self::Shell(_) => Lane::Container,
            Self::Write(_) | Self::Edit(_) | Self::Patch(_) | Self::Delete(_) | Self::Git(_) => Lane::Host,
            Self::Mcp(_) => Lane::Upstream,
        }
    }

    /// The paths that it names: whole paths of its own, not what a command's arguments may mean.
    pub fn paths(&self) -> Vec<&SandboxPath> {
        match self {
            Self::Read(Read { path, .. })
            | Self::List(List { path, .. })
            | Self::Glob(Glob { path, .. })
            | Self::Grep(Grep { path, .. })
            | Self::Exec(Exec { cwd: path, .. })
            | Self::Shell(Shell { cwd: path, .. })
            | Self::Write(Write { path, .. })
            | Self::Edit(Edit { path, .. })
            | Self::Delete(Delete { path, .. }) => vec![path],
            Self::Patch(patch) => patch.paths().iter().collect(),
            Self::Git(Git::Diff { paths, .. } | Git::Log { paths, .. } | Git::Add { paths }) => {
                paths.iter().collect()
            }
            Self::Git(Git::Show { file, paths, .. }) => file.iter().chain(paths).collect(),
            Self::Git(Git::Status | Git::Commit { .. }) | Self::Mcp(_) => Vec::new(),
        }
    }

    /// Whether it may change anything, so that its receipt has to be durable before the answer.
    pub fn has_effect(&self) -> bool {
        matches!(
            self,
            Self::Exec(_)
                | Self::Shell(_)
                | Self::Write(_)
                | Self::Edit(_)
                | Self::Patch(_)
                | Self::Delete(_)
                | Self::Git(Git::Add { .. } | Git::Commit { .. })
                | Self::Mcp(_)
        )
    }

    /// For operations that run a program of the container: until when everything of it is ended. `None` for all others.
    pub fn command_timeout(&self) -> Option<Duration> {
        match self {
            Self::Exec(exec) => Some(exec.timeout),
            Self::Shell(shell) => Some(shell.timeout),
            _ => None,
        }
    }
}

/// How bytes of a file are put into a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encoding {
    /// Text.
    #[default]
    Utf8,
    /// RFC 4648 base64, with padding.
    Base64,
}

/// Which part of a file to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReadPart {
    /// All of it.
    #[default]
    Whole,
    /// Lines, 1-based and inclusive; `last: None` is the end of the file.
    Lines {
        /// First line, at least 1.
        first: u64,
        /// Last line, not before `first`.
        last: Option<u64>,
    },
    /// Bytes.
    Bytes {
        /// First byte, 0-based.
        offset: u64,
        /// How many; `None` is to the end of the file.
        limit: Option<u64>,
    },
}

/// Read one regular file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// The file.
    pub path: SandboxPath,
    /// Which part.
    pub part: ReadPart,
    /// Encoding of the returned content.
    pub encoding: Encoding,
}

/// List a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List {
    /// The directory.
    pub path: SandboxPath,
    /// Levels to descend, 1 to 16.
    pub depth: u32,
    /// Include names that begin with a dot.
    pub include_hidden: bool,
    /// Include symbolic links.
    pub include_symlinks: bool,
    /// At most so many entries, 1 to 10,000.
    pub max_entries: u32,
}

/// Find files by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob {
    /// Directory to search in.
    pub path: SandboxPath,
    /// Pattern, relative to `path`, at most 1,024 bytes.
    pub pattern: String,
    /// Include hidden files and what ignore files exclude.
    pub include_ignored: bool,
    /// At most so many results, 1 to 10,000.
    pub max_results: u32,
}

/// Find text in files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grep {
    /// Directory or file.
    pub path: SandboxPath,
    /// Literal text or regular expression, 1 to 4,096 bytes. The `/…/i` form has been resolved already.
    pub pattern: String,
    /// `pattern` is a regular expression.
    pub regex: bool,
    /// Ignore case.
    pub case_insensitive: bool,
    /// Lines of context before, 0 to 20.
    pub before: u32,
    /// Lines of context after, 0 to 20.
    pub after: u32,
    /// Only files whose path, relative to `path`, matches.
    pub glob: Option<String>,
    /// At most so many matches, 1 to 1,000.
    pub max_matches: u32,
    /// Search hidden and ignored files, too.
    pub include_ignored: bool,
}

/// Run one command: argv, never a shell string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exec {
    /// A bare name to be looked up in PATH, or an absolute path. No NUL, not empty.
    pub command: String,
    /// Arguments without NUL; at most 4,096 of them and 128 KiB together.
    pub args: Vec<String>,
    /// Working directory.
    pub cwd: SandboxPath,
    /// Additional environment: names of `[A-Za-z_][A-Za-z0-9_]*`, values without NUL.
    pub env: BTreeMap<String, String>,
    /// Standard input, at most 1 MiB.
    pub stdin: Vec<u8>,
    /// Until everything of it is ended. More than zero, at most 120 s.
    pub timeout: Duration,
    /// Refuse it unless policy knows that it only reads, inside the mounts.
    pub only_reads: bool,
}

/// Run a shell script: `bash -lc SCRIPT`, or `sh -lc SCRIPT` where there is no bash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shell {
    /// The script, without NUL, not blank, at most 64 KiB.
    pub script: String,
    /// Working directory.
    pub cwd: SandboxPath,
    /// Additional environment, as for [`Exec`].
    pub env: BTreeMap<String, String>,
    /// Standard input, at most 1 MiB.
    pub stdin: Vec<u8>,
    /// Until everything of it is ended. More than zero, at most 120 s.
    pub timeout: Duration,
}

/// Create or overwrite one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The file.
    pub path: SandboxPath,
    /// Its whole new content, decoded.
    pub content: Vec<u8>,
    /// SHA-256 that the present content must have, lower-case hex, 64 digits.
    pub if_match_sha256: Option<String>,
    /// Refuse when there is a file already.
    pub create_only: bool,
}

/// Change one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// The file.
    pub path: SandboxPath,
    /// How.
    pub change: EditChange,
    /// SHA-256 that the present content must have, lower-case hex, 64 digits.
    pub if_match_sha256: Option<String>,
}

/// How a file is changed.
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

/// Remove one file or an empty directory. It goes to the run's trash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delete {
    /// The file or directory; not a mount itself.
    pub path: SandboxPath,
    /// SHA-256 that the present content must have, lower-case hex, 64 digits. With it only a file is removed.
    pub if_match_sha256: Option<String>,
}

/// Call a tool of an upstream MCP server. What it does is for the server to know: it counts as a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mcp {
    /// Which.
    pub tool: McpTool,
    /// Its arguments: at most 256 KiB of JSON in at most 32 levels.
    pub arguments: Map<String, Value>,
}

impl Mcp {
    /// The arguments as JSON.
    pub fn arguments_json(&self) -> String {
        Value::Object(self.arguments.clone()).to_string()
    }
}
