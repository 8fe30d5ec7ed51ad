//! What an agent may ask for: one module an operation, and the table of them.
//!
//! Trust boundary: [`Operation::parse`] is the only way from a request to an operation, no matter who wrote the request. Every
//! bound that the types of this crate promise is established there, once. [`Operation::message`] is the canonical message of
//! an operation: both lanes get it, consent is bound to it, and it parses to the same operation.
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

/// Who executes an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lane {
    /// `coffer-guest`, in the container.
    Container,
    /// `coffer-host-worker`, jailed on the host.
    Host,
    /// An MCP server that the operator has named.
    Upstream,
}

/// What an operation does. Risk, protection of paths, quotas and the durability of receipts follow from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Tells names and states, and leaves out what is protected.
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
    /// Does what an upstream server knows.
    Foreign,
}

/// What holds for all operations of one name.
#[derive(Debug, Clone, Copy)]
struct Class {
    name: &'static str,
    lane: Lane,
    effect: Effect,
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

/// A part of what a reviewer sees of an operation. Secrets are in it: the caller hides them, part by part, before it shows them.
#[derive(Debug, Clone, PartialEq)]
pub enum Part<'o> {
    /// One line.
    Line(String),
    /// A program and its arguments.
    Argv(&'o str, &'o [String]),
    /// A text that the agent chose, under its name.
    Text(&'static str, &'o [u8]),
    /// Values that the agent chose, under their name.
    Values(&'static str, &'o Map<String, Value>),
}

/// What the API asks with, and how it becomes an operation.
trait Request: Sized {
    /// The message of the API.
    type Message;

    /// Validates.
    fn parse(message: Self::Message) -> Result<Self, Malformed>;

    /// The canonical message: it parses to this operation.
    fn message(&self) -> Self::Message;

    /// The message without large contents of files, which the record does not keep.
    fn outline(&self) -> Self::Message {
        self.message()
    }

    fn sketch(message: &Self::Message) -> Sketch;
}

/// What everybody else asks of an operation. [`Operation`] says what each means.
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

    /// Takes apart texts that hold JSON, in the JSON of the message.
    fn take_apart(&self, _message: &mut Value) {}

    /// Puts size and SHA-256 in place of contents of files, in the JSON of the outline.
    fn hide_contents(&self, _message: &mut Value) {}

    fn parts(&self) -> Vec<Part<'_>> {
        Vec::new()
    }
}

/// What becomes of an operation's result.
trait Answer {
    /// Refuses a result that none of our workers sends, and takes out the words that are the daemon's.
    fn check(&mut self) -> Result<(), Malformed> {
        Ok(())
    }

    /// What the record keeps of it: sizes, hashes and counts.
    fn facts(&self) -> Value;
}

/// Of a message that nobody has validated: the operation's name, empty where the message does not say it, and the texts that say
/// where and what, by name. No content of a file.
type Sketch = (&'static str, Value);

/// The table of operations: for each its kind, its message in the API, and the classes that policy and record know.
macro_rules! operations {
    ($($(#[$doc:meta])* $kind:ident($message:ident) [$($class:expr),*],)*) => {
        /// One canonical operation.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Operation {
            $($(#[$doc])* $kind($kind),)*
        }

        const CLASSES: &[Class] = &[$($($class,)*)*];

        impl Operation {
            /// The names that policy and record use. Tools of upstream servers have names beside these,
            /// [`crate::McpTool::canonical`].
            pub const NAMES: [&'static str; 18] = [$($($class.name,)*)*];

            /// Validates a request.
            pub fn parse(operation: v1::Operation) -> Result<Self, Malformed> {
                match operation.kind {
                    $(Some(v1::operation::Kind::$kind(message)) => Self::try_from(message),)*
                    None => Err(Malformed::new("operation", MISSING)),
                }
            }

            /// The same, and it may name files outside of the mounts.
            fn parse_anywhere(operation: v1::Operation) -> Result<Self, Malformed> {
                match operation.kind {
                    $(Some(v1::operation::Kind::$kind(message)) => Request::parse(message).map(Self::$kind),)*
                    None => Err(Malformed::new("operation", MISSING)),
                }
            }

            /// The canonical message: it parses to this operation, and equal operations have equal bytes.
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

        /// For the record of a request that may be no operation.
        pub fn sketch(operation: &v1::Operation) -> Sketch {
            match &operation.kind {
                $(Some(v1::operation::Kind::$kind(message)) => <$kind as Request>::sketch(message),)*
                None => ("", Value::Null),
            }
        }

        /// Whether a worker may answer an operation of this name so.
        pub fn answers(result: &OpResult, name: &str) -> bool {
            let names: &[&str] = match result {
                $(OpResult::$kind(_) => &[$($class.name),*],)*
            };
            names.contains(&name)
        }

        /// Refuses a result that none of our workers sends, and takes out of it the words that are the daemon's.
        pub fn check_answer(result: &mut OpResult) -> Result<(), Malformed> {
            match result {
                $(OpResult::$kind(result) => result.check(),)*
            }
        }

        /// What the record keeps of a result: sizes, hashes and counts, and of a command the beginning of its output.
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
    /// Validates a request for a profile that gives commands so much. [`Self::parse`] takes what is usual.
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

    /// The path that it names outside of the mounts, where the container's own files are.
    pub fn outside(&self) -> Option<&SandboxPath> {
        self.paths().into_iter().find(|path| path.mount() == Mount::Container)
    }

    /// Returns true if consent to it is to its words alone. A process reads files for as long as it runs, and a session's shell goes on
    /// among the run's other commands, so that no state of any file can be held for them.
    pub fn binds_words(&self) -> bool {
        matches!(self, Self::Process(_) | Self::Session(_))
    }

    /// Whether a command reads from a file what nobody has seen who judges it.
    pub fn unseen_input(&self) -> bool {
        self.described().unseen_input()
    }

    /// Name of this operation in policy and record: `read`, `git.commit`, `mcp.SERVER.TOOL`.
    pub fn name(&self) -> &str {
        self.described().name()
    }

    /// The name under which calls of it count together: its own, or `mcp.SERVER` for all tools of an upstream server.
    pub fn family(&self) -> &str {
        self.described().family()
    }

    /// What kind of operation it is: its name, or `mcp`.
    pub fn kind(&self) -> &'static str {
        self.described().class().name
    }

    /// Where it is executed.
    pub fn lane(&self) -> Lane {
        match self.described().class().lane {
            // The host has no such place.
            Lane::Host if self.outside().is_some() => Lane::Container,
            lane => lane,
        }
    }

    /// What it does.
    pub fn effect(&self) -> Effect {
        self.described().class().effect
    }

    /// What the operations of a name in policy and record do, `None` where there are none.
    pub fn effect_of(name: &str) -> Option<Effect> {
        let class = CLASSES.iter().find(|class| class.name == name);
        class.map(|class| class.effect).or_else(|| name.starts_with("mcp.").then_some(Effect::Foreign))
    }

    /// Whether it may change anything, so that its receipt has to be durable before the answer.
    pub fn has_effect(&self) -> bool {
        !matches!(self.effect(), Effect::Looks | Effect::Reads)
    }

    /// Whether it adds to one of these mounts. What a command does there nobody can tell.
    pub fn adds_to(&self, is_one: impl Fn(Mount) -> bool) -> bool {
        match self.effect() {
            Effect::Writes => self.paths().iter().any(|path| is_one(path.mount())),
            Effect::Commits => is_one(Mount::Project),
            Effect::Looks | Effect::Reads | Effect::Runs | Effect::Deletes | Effect::Foreign => false,
        }
    }

    /// The paths that it names: whole paths of its own, not what a command's arguments may mean.
    pub fn paths(&self) -> Vec<&SandboxPath> {
        self.described().paths()
    }

    /// The paths of the host that its effect is on: none for an operation that only looks, or of the other lane.
    pub fn changed_paths(&self) -> Vec<&SandboxPath> {
        if self.has_effect() && self.lane() == Lane::Host { self.paths() } else { Vec::new() }
    }

    /// The paths that tell a secret if they are one, and the pattern of names that it looks for.
    pub fn sought(&self) -> (Vec<&SandboxPath>, Option<&str>) {
        self.described().sought()
    }

    /// Bytes that the file will have at least. How large a patch makes a file is known in its lane only.
    pub fn written_bytes(&self) -> usize {
        self.described().written_bytes()
    }

    /// Whether a file or a tree is moved into the run or out of it, whose size the bounds of transfers bound.
    pub fn is_transfer(&self) -> bool {
        self.described().is_transfer()
    }

    /// Whether what it reads goes out as output, piece by piece.
    pub fn is_download(&self) -> bool {
        self.is_transfer() && self.effect() == Effect::Reads
    }

    /// For operations that run a program of the container: until when everything of it is ended. `None` for all others.
    pub fn command_timeout(&self) -> Option<Duration> {
        self.described().timeout()
    }

    /// What a reviewer sees of it: nothing of an operation that has a preview.
    pub fn parts(&self) -> Vec<Part<'_>> {
        self.described().parts()
    }

    /// Refuses a command that asks for more time than `longest`.
    pub fn check_timeout(&self, longest: Duration) -> Result<(), Malformed> {
        let Some(timeout) = self.command_timeout() else { return Ok(()) };
        exec::check_timeout(&format!("{}.timeout_ms", self.kind()), timeout, longest)
    }
}
