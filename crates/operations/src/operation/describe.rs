//! The properties by which the other crates tell operations apart, and the traits that each operation implements.

use std::time::Duration;

use jail::SandboxPath;
use serde_json::{Map, Value};
use wire::v1::{ExecResult, ProcessRequest};

use super::{Exec, Operation, Transfer, Write};
use crate::{CommandLimits, Malformed, McpTool, OpResult};

/// Executor of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lane {
    /// `coffer-guest`, in the container.
    Container,
    /// `coffer-host-worker`, jailed on the host.
    Host,
    /// An MCP server that the operator has configured.
    Upstream,
    /// The daemon itself.
    Daemon,
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
    /// Adds to the repository of the workspace, to its files through a merge, or to a remote repository.
    Commits,
    /// Keeps a copy of the run's state, and changes none of its files.
    Keeps,
    /// Has an effect that only an upstream server knows.
    Foreign,
}

/// Way in which the daemon carries out an operation and gets its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// Content that is sent as output, piece by piece. It is not repeated, because its reader has a part of it.
    Stream,
    /// A look without an effect. It is repeated if its worker was lost.
    Look,
    /// A change of files or of the repository, made once.
    Effect,
    /// A command with its output, its limits and its process tree.
    Command,
    /// The start of a process that outlives the call.
    Process,
    /// Input for a process that an earlier call started.
    Session,
    /// A request to an upstream server.
    Upstream,
    /// A look at the checkpoints of the run, or their use.
    Checkpoint,
}

impl Delivery {
    /// Returns true if programs of the container run after the call.
    pub fn outlives_call(self) -> bool {
        matches!(self, Self::Process | Self::Session)
    }
}

/// Properties that all operations of one name share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Class {
    pub(super) name: &'static str,
    pub(super) lane: Lane,
    pub(super) effect: Effect,
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
pub(super) trait Request: Sized {
    /// The message of the API.
    type Message;

    /// Validates a message. The limits are those of a profile for its commands.
    fn parse(message: Self::Message, limits: CommandLimits) -> Result<Self, Malformed>;

    /// Returns the canonical message, which parses to this operation.
    fn message(&self) -> Self::Message;

    /// Returns the message without large file contents, which the record does not keep.
    fn outline(&self) -> Self::Message {
        self.message()
    }

    fn sketch(message: &Self::Message) -> Sketch;
}

/// Declares the trait of the operations' properties, and the methods of [`Operation`] that ask for those with a default.
macro_rules! properties {
    ({ $($item:tt)* } $($(#[$doc:meta])* $name:ident -> $type:ty = $default:expr;)*) => {
        /// Properties of an operation. [`Operation`] documents each method.
        pub(super) trait Describe {
            $($item)*
            $(fn $name(&self) -> $type { $default })*
        }

        impl Operation {
            $($(#[$doc])* pub fn $name(&self) -> $type { self.described().$name() })*
        }
    };
}

properties! {
    {
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

        fn delivery(&self) -> Delivery {
            match self.class().effect {
                Effect::Looks | Effect::Reads => Delivery::Look,
                Effect::Runs => Delivery::Command,
                Effect::Writes | Effect::Deletes | Effect::Commits => Delivery::Effect,
                Effect::Foreign => Delivery::Upstream,
                Effect::Keeps => Delivery::Checkpoint,
            }
        }

        fn timeout_mut(&mut self) -> Option<&mut Duration> {
            None
        }

        fn staging(&self) -> Option<Write> {
            None
        }

        fn preview_kind(&self) -> &'static str {
            self.class().name
        }

        fn ended(&self, _: ExecResult) -> Option<OpResult> {
            None
        }

        /// Parses texts that hold JSON and puts the values into the JSON of the message.
        fn take_apart(&self, _message: &mut Value) {}

        /// Replaces file contents by their size and SHA-256 in the JSON of the outline.
        fn hide_contents(&self, _message: &mut Value) {}
    }

    /// Returns the least number of bytes that the file will have. Only the lane knows how large a patch makes a file.
    written_bytes -> usize = 0;
    /// Returns the time until all processes of the operation are ended, or `None` if it runs no program of the container.
    command_timeout -> Option<Duration> = None;
    /// Returns the kind of transfer if a file or a tree is moved into the run or out of it.
    ///
    /// The limits of transfers then apply to its size.
    transfer -> Option<Transfer> = None;
    /// Returns the command line of an operation that runs one without a shell.
    command -> Option<&Exec> = None;
    /// Returns the upstream server's tool that the operation calls.
    tool -> Option<&McpTool> = None;
    /// Returns the working directory of a command, a script or a process. A session's is not known.
    cwd -> Option<&SandboxPath> = None;
    /// Returns the file that a command reads as its standard input. No reviewer sees its content.
    input_file -> Option<&SandboxPath> = None;
    /// Returns true if the host lane needs a way to a server for it.
    uses_network -> bool = false;
    /// Returns true if the operation covers all files beneath the directories that it names.
    ///
    /// It covers the whole project if it names none.
    searches_beneath -> bool = false;
    /// Returns true if the answer or the repository gets the content of a file that the operation changes.
    shows_changed -> bool = false;
    /// Returns the command or the script in the form of the list of processes.
    process -> ProcessRequest = ProcessRequest::default();
    /// Returns the parts that a reviewer sees. An operation with a preview has those that the preview does not show.
    parts -> Vec<Part<'_>> = Vec::new();
}

/// Processing of an operation's result.
pub(super) trait Answer {
    /// Refuses a result that no worker of this project sends, and removes texts that only the daemon may set.
    fn check(&mut self) -> Result<(), Malformed> {
        Ok(())
    }

    /// Returns the facts that the record keeps: sizes, hashes and counts.
    fn facts(&self) -> Value;

    /// Returns the number of bytes that a program wrote, if the result has them.
    fn output_bytes(&self) -> u64 {
        0
    }
}

/// Summary of a message that has not been validated: its operation's name, empty if missing, and its texts about paths and targets.
///
/// The texts are keyed by name. File content is never included.
pub(super) type Sketch = (&'static str, Value);
