//! The operations that an agent may request: one module for each, and the table of all.
//!
//! Trust boundary: [`Operation::parse`] is the only way from a request to an operation. It is the one place that enforces the bounds
//! which the types of this crate promise.
//!
//! [`Operation::message`] is the canonical message of an operation. Both lanes receive it, consent is bound to it, and it parses to the
//! same operation.
//!
//! Errors name a field by its canonical path, such as `grep.max_matches`.

mod check;
mod delete;
mod edit;
mod exec;
mod git;
mod glob;
mod grep;
mod list;
mod mcp;
mod patch;
mod process;
mod read;
mod record;
mod session;
mod shell;
mod write;

#[cfg(test)]
mod tests;

use std::time::Duration;

use jail::{Mount, PathRefusal, SandboxPath};
use serde_json::{Map, Value};
use wire::v1;

use crate::{CommandLimits, Malformed, OpResult, Patch};
use record::stands_for;

pub use delete::Delete;
pub use edit::{Edit, EditChange};
pub use exec::Exec;
pub(crate) use exec::check_env;
pub use git::{Git, GitDiffFlag, GitFormat, GitLogFlag, GitRevision, GitRevisions};
pub use glob::Glob;
pub use grep::Grep;
pub use list::List;
pub use mcp::Mcp;
pub use process::{Process, ProcessProgram, TerminalSize};
pub use read::{Read, ReadPart, Transfer};
pub use session::{Session, SessionInput};
pub use shell::Shell;
pub use write::{UploadId, Uploaded, Write};

/// Executor of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lane {
    /// `coffer-guest`, in the container.
    Container,
    /// `coffer-host-worker`, jailed on the host.
    Host,
    /// An MCP server that the operator has configured.
    Upstream,
}

/// Kind of effect of an operation. It determines risk, protection of paths, quotas and the durability of receipts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Shows names and states, and leaves out protected ones.
    Looks,
    /// Reads files that it names.
    Reads,
    /// Runs a program of the container.
    Runs,
    /// Adds to files.
    Writes,
    /// Removes files.
    Deletes,
    /// Adds to the repository of the workspace.
    Commits,
    /// Has an effect that only an upstream server knows.
    Foreign,
}

/// Properties that all operations of one name share.
#[derive(Debug, Clone, Copy)]
struct Class {
    name: &'static str,
    lane: Lane,
    effect: Effect,
}

/// Encoding of a file's bytes in a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encoding {
    /// Text.
    #[default]
    Utf8,
    /// RFC 4648 base64, with padding.
    Base64,
}

/// Part of the description that a reviewer sees of an operation.
///
/// It may contain secrets. The caller redacts each part before showing it.
#[derive(Debug, Clone, PartialEq)]
pub enum Part<'o> {
    /// Text that the agent chose, with its name.
    Line(String),
    /// Values that the agent chose, with their name.
    Argv(&'o str, &'o [String]),
    /// A text that the agent chose, under its name.
    Text(&'static str, &'o [u8]),
    /// Values that the agent chose, under their name.
    Values(&'static str, &'o Map<String, Value>),
}

/// Conversion between a message of the API and an operation.
trait Request: Sized {
    /// The message of the API.
    type Message;

    /// Validates a message.
    fn parse(message: Self::Message) -> Result<Self, Malformed>;

    /// Returns the canonical message, which parses to this operation.
    fn message(&self) -> Self::Message;

    /// Returns the message without large file contents, which the record does not keep.
    fn outline(&self) -> Self::Message {
        self.message()
    }

    fn sketch(message: &Self::Message) -> Sketch;
}

/// Properties of an operation. [`Operation`] documents each method.
trait Describe {
    fn class(&self) -> Class;

    fn name(&self) -> &str {
        self.class().name
    }

    fn family(&self) -> &str {
        self.class().name
    }

    fn paths(&self) -> Vec<&SandboxPath>;

    fn sought(&self) -> (Vec<&SandboxPath>, Option<&str>) {
        (self.paths(), None)
    }

    fn written_bytes(&self) -> usize {
        0
    }

    fn timeout(&self) -> Option<Duration> {
        None
    }

    fn is_transfer(&self) -> bool {
        false
    }

    fn unseen_input(&self) -> bool {
        false
    }

    /// Parses texts that hold JSON and puts the values into the JSON of the message.
    fn take_apart(&self, _message: &mut Value) {}

    /// Replaces file contents by their size and SHA-256 in the JSON of the outline.
    fn hide_contents(&self, _message: &mut Value) {}

    fn parts(&self) -> Vec<Part<'_>> {
        Vec::new()
    }
}

/// Processing of an operation's result.
trait Answer {
    /// Refuses a result that no worker of this project sends, and removes texts that only the daemon may set.
    fn check(&mut self) -> Result<(), Malformed> {
        Ok(())
    }

    /// Returns the facts that the record keeps: sizes, hashes and counts.
    fn facts(&self) -> Value;
}

/// Summary of a message that has not been validated: its operation's name, empty if missing, and its texts about paths and targets.
///
/// The texts are keyed by name. File content is never included.
type Sketch = (&'static str, Value);

/// Table of operations: for each its kind, its message in the API, and the classes that policy and record use.
macro_rules! operations {
    ($($(#[$doc:meta])* $kind:ident($message:ident) [$($class:expr),*],)*) => {
        /// One canonical operation.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Operation {
            $($(#[$doc])* $kind($kind),)*
        }

        const CLASSES: &[Class] = &[$($($class,)*)*];

        impl Operation {
            /// Names that policy and record use. Tools of upstream servers have further names, see [`crate::McpTool::canonical`].
            pub const NAMES: [&'static str; 18] = [$($($class.name,)*)*];

            /// Validates a request.
            pub fn parse(operation: v1::Operation) -> Result<Self, Malformed> {
                match operation.kind {
                    $(Some(v1::operation::Kind::$kind(message)) => Self::try_from(message),)*
                    None => Err(Malformed::new("operation", MISSING)),
                }
            }

            /// Validates a request, and accepts files outside of the mounts.
            fn parse_anywhere(operation: v1::Operation) -> Result<Self, Malformed> {
                match operation.kind {
                    $(Some(v1::operation::Kind::$kind(message)) => Request::parse(message).map(Self::$kind),)*
                    None => Err(Malformed::new("operation", MISSING)),
                }
            }

            /// Returns the canonical message. It parses to this operation, and equal operations have equal bytes.
            pub fn message(&self) -> v1::Operation {
                let kind = match self {
                    $(Self::$kind(operation) => v1::operation::Kind::$kind(operation.message()),)*
                };
                v1::Operation { kind: Some(kind) }
            }

            fn outline(&self) -> v1::Operation {
                let kind = match self {
                    $(Self::$kind(operation) => v1::operation::Kind::$kind(operation.outline()),)*
                };
                v1::Operation { kind: Some(kind) }
            }

            fn described(&self) -> &dyn Describe {
                match self {
                    $(Self::$kind(operation) => operation,)*
                }
            }
        }

        $(
            impl TryFrom<v1::$message> for Operation {
                type Error = Malformed;

                fn try_from(message: v1::$message) -> Result<Self, Malformed> {
                    Request::parse(message).map(Self::$kind).and_then(Self::within_mounts)
                }
            }
        )*

        /// Summarises a request for the record, even if it is not a valid operation.
        pub fn sketch(operation: &v1::Operation) -> Sketch {
            match &operation.kind {
                $(Some(v1::operation::Kind::$kind(message)) => <$kind as Request>::sketch(message),)*
                None => ("", Value::Null),
            }
        }

        /// Returns true if this kind of result can answer an operation of this name.
        pub fn answers(result: &OpResult, name: &str) -> bool {
            let names: &[&str] = match result {
                $(OpResult::$kind(_) => &[$($class.name),*],)*
            };
            names.contains(&name)
        }

        /// Refuses a result that no worker of this project sends, and removes texts that only the daemon may set.
        pub fn check_answer(result: &mut OpResult) -> Result<(), Malformed> {
            match result {
                $(OpResult::$kind(result) => result.check(),)*
            }
        }

        /// Returns the facts that the record keeps of a result: sizes, hashes and counts, and the beginning of a command's output.
        pub fn facts(result: &OpResult) -> Value {
            match result {
                $(OpResult::$kind(result) => result.facts(),)*
            }
        }
    };
}

const MISSING: &str = "is missing: set exactly one of read, list, glob, grep, exec, shell, write, edit, patch, delete, git, mcp, process, session";

operations! {
    /// Read one regular file.
    Read(ReadRequest)[read::CLASS],
    /// List a directory.
    List(ListRequest)[list::CLASS],
    /// Find files by name.
    Glob(GlobRequest)[glob::CLASS],
    /// Find text in files.
    Grep(GrepRequest)[grep::CLASS],
    /// Run one command, without a shell.
    Exec(ExecRequest)[exec::CLASS],
    /// Run a shell script.
    Shell(ShellRequest)[shell::CLASS],
    /// Create or overwrite one file.
    Write(WriteRequest)[write::CLASS],
    /// Change one file.
    Edit(EditRequest)[edit::CLASS],
    /// Change several files, all or none.
    Patch(PatchRequest)[patch::CLASS],
    /// Remove one file or an empty directory.
    Delete(DeleteRequest)[delete::CLASS],
    /// Git in the workspace.
    Git(GitRequest)[git::STATUS, git::DIFF, git::LOG, git::SHOW, git::ADD, git::COMMIT],
    /// Start a process that stays.
    Process(ProcessRequest)[process::CLASS],
    /// Give a session something to do.
    Session(SessionRequest)[session::CLASS],
    /// Call a tool of an upstream MCP server.
    Mcp(McpRequest)[],
}

impl Operation {
    /// Validates a request against the limits of a profile. [`Self::parse`] uses the default limits.
    pub fn parse_within(operation: v1::Operation, limits: CommandLimits) -> Result<Self, Malformed> {
        match operation.kind {
            Some(v1::operation::Kind::Exec(message)) => Exec::parse_within(message, limits).map(Self::Exec),
            Some(v1::operation::Kind::Shell(message)) => {
                Shell::parse_within(message, limits).map(Self::Shell)
            }
            Some(v1::operation::Kind::Process(message)) => {
                Process::parse_within(message, limits).map(Self::Process)
            }
            _ if limits.container_paths => Self::parse_anywhere(operation),
            _ => Self::parse(operation),
        }
    }

    fn within_mounts(self) -> Result<Self, Malformed> {
        match self.outside() {
            None => Ok(self),
            Some(path) => {
                let given = path.excerpt();
                let field = format!("{}.path", self.kind());
                Err(Malformed::refused(&field, PathRefusal::AbsoluteOutside { given }))
            }
        }
    }

    /// Returns the path that the operation names outside of the mounts, among the container's own files.
    pub fn outside(&self) -> Option<&SandboxPath> {
        self.paths().into_iter().find(|path| path.mount() == Mount::Container)
    }

    /// Returns true if consent covers only the text of the operation, and no state of files.
    ///
    /// A process reads files for as long as it runs, and a session's shell runs beside the run's other commands. So no state of any file
    /// can be guaranteed to them.
    pub fn binds_words(&self) -> bool {
        matches!(self, Self::Process(_) | Self::Session(_))
    }

    /// Returns true if a command reads input from a file, which the reviewer cannot see.
    pub fn unseen_input(&self) -> bool {
        self.described().unseen_input()
    }

    /// Returns the name of this operation in policy and record: `read`, `git.commit`, `mcp.SERVER.TOOL`.
    pub fn name(&self) -> &str {
        self.described().name()
    }

    /// Returns the name under which calls are counted: the operation's own, or `mcp.SERVER` for all tools of an upstream server.
    pub fn family(&self) -> &str {
        self.described().family()
    }

    /// Returns the kind of operation: its name, or `mcp`.
    pub fn kind(&self) -> &'static str {
        self.described().class().name
    }

    /// Returns the lane that executes it.
    pub fn lane(&self) -> Lane {
        match self.described().class().lane {
            // The host has no such path.
            Lane::Host if self.outside().is_some() => Lane::Container,
            lane => lane,
        }
    }

    /// Returns the kind of effect.
    pub fn effect(&self) -> Effect {
        self.described().class().effect
    }

    /// Returns the effect of the operations with a name in policy and record, or `None` for an unknown name.
    pub fn effect_of(name: &str) -> Option<Effect> {
        let class = CLASSES.iter().find(|class| class.name == name);
        class.map(|class| class.effect).or_else(|| name.starts_with("mcp.").then_some(Effect::Foreign))
    }

    /// Returns true if the operation may change anything. Its receipt then has to be durable before the answer.
    pub fn has_effect(&self) -> bool {
        !matches!(self.effect(), Effect::Looks | Effect::Reads)
    }

    /// Returns true if the operation adds to a mount that `is_one` accepts. The effects of commands on mounts are unknown.
    pub fn adds_to(&self, is_one: impl Fn(Mount) -> bool) -> bool {
        match self.effect() {
            Effect::Writes => self.paths().iter().any(|path| is_one(path.mount())),
            Effect::Commits => is_one(Mount::Project),
            Effect::Looks | Effect::Reads | Effect::Runs | Effect::Deletes | Effect::Foreign => false,
        }
    }

    /// Returns the paths that the operation itself names. Arguments of a command are not interpreted.
    pub fn paths(&self) -> Vec<&SandboxPath> {
        self.described().paths()
    }

    /// Returns the host paths that the operation changes. Operations that only look, and those of the other lane, have none.
    pub fn changed_paths(&self) -> Vec<&SandboxPath> {
        if self.has_effect() && self.lane() == Lane::Host { self.paths() } else { Vec::new() }
    }

    /// Returns the paths whose content or existence may be secret, and the name pattern that the operation searches for.
    pub fn sought(&self) -> (Vec<&SandboxPath>, Option<&str>) {
        self.described().sought()
    }

    /// Returns the least number of bytes that the file will have. Only the lane knows how large a patch makes a file.
    pub fn written_bytes(&self) -> usize {
        self.described().written_bytes()
    }

    /// Returns true if a file or a tree is moved into the run or out of it. The limits of transfers then apply to its size.
    pub fn is_transfer(&self) -> bool {
        self.described().is_transfer()
    }

    /// Returns true if the content is sent as output, piece by piece.
    pub fn is_download(&self) -> bool {
        self.is_transfer() && self.effect() == Effect::Reads
    }

    /// Returns the time until all processes of the operation are ended, or `None` if it runs no program of the container.
    pub fn command_timeout(&self) -> Option<Duration> {
        self.described().timeout()
    }

    /// Returns the parts that a reviewer sees. Operations with a preview have none.
    pub fn parts(&self) -> Vec<Part<'_>> {
        self.described().parts()
    }

    /// Refuses a command that asks for more time than `longest`.
    pub fn check_timeout(&self, longest: Duration) -> Result<(), Malformed> {
        let Some(timeout) = self.command_timeout() else { return Ok(()) };
        exec::check_timeout(&format!("{}.timeout_ms", self.kind()), timeout, longest)
    }
}
