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
mod checkpoint;
mod delete;
mod describe;
mod edit;
mod exec;
mod git;
mod glob;
mod grep;
mod list;
mod mcp;
mod patch;
mod process;
mod properties;
mod read;
mod record;
mod session;
mod shell;
mod variable;
mod write;

#[cfg(test)]
mod tests;

use serde_json::Value;
use wire::v1;

use crate::{CommandLimits, Malformed, OpResult, Patch};
use describe::{Answer, Class, Describe, Request, Sketch};
use record::stands_for;

pub use checkpoint::Checkpoint;
pub use delete::Delete;
pub use describe::{Delivery, Effect, Encoding, Lane, Part};
pub use edit::{Edit, EditChange};
pub use exec::Exec;
pub(crate) use exec::check_env;
pub use git::{
    Git, GitDiffFlag, GitFetch, GitFormat, GitLogFlag, GitPull, GitPullMode, GitPush, GitPushed, GitRefName,
    GitRemote, GitRevision, GitRevisions,
};
pub use glob::Glob;
pub use grep::Grep;
pub use list::List;
pub use mcp::Mcp;
pub use process::{Process, ProcessProgram, TerminalSize};
pub use read::{Read, ReadPart, Transfer};
pub use session::{Session, SessionInput};
pub use shell::Shell;
pub use write::{UploadId, Uploaded, Write};

/// Table of operations: for each its kind, its message in the API, and the classes that policy and record use.
macro_rules! operations {
    ($($(#[$doc:meta])* $module:ident::$kind:ident($message:ident) [$($class:ident),*],)*) => {
        /// One canonical operation.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Operation {
            $($(#[$doc])* $kind($kind),)*
        }

        const CLASSES: &[Class] = &[$($($module::$class,)*)*];
        const KINDS: &[&str] = &[$(stringify!($module),)*];

        impl Operation {
            /// Names that policy and record use. Tools of upstream servers have further names, see [`crate::McpTool::canonical`].
            pub const NAMES: [&'static str; CLASSES.len()] = [$($($module::$class.name,)*)*];

            fn parse_anywhere(operation: v1::Operation, limits: CommandLimits) -> Result<Self, Malformed> {
                match operation.kind {
                    $(Some(v1::operation::Kind::$kind(message)) => {
                        Request::parse(message, limits).map(Self::$kind)
                    })*
                    None => {
                        let kinds = KINDS.join(", ");
                        Err(Malformed::new("operation", format!("is missing: set exactly one of {kinds}")))
                    }
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

            fn described_mut(&mut self) -> &mut dyn Describe {
                match self {
                    $(Self::$kind(operation) => operation,)*
                }
            }
        }

        $(
            impl TryFrom<v1::$message> for Operation {
                type Error = Malformed;

                fn try_from(message: v1::$message) -> Result<Self, Malformed> {
                    let parsed = Request::parse(message, CommandLimits::USUAL).map(Self::$kind);
                    parsed.and_then(Self::within_mounts)
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
                $(OpResult::$kind(_) => &[$($module::$class.name),*],)*
            };
            names.contains(&name)
        }

        /// Refuses a result that no worker of this project sends, and removes texts that only the daemon may set.
        pub fn check_answer(result: &mut OpResult) -> Result<(), Malformed> {
            match result {
                $(OpResult::$kind(result) => result.check(),)*
            }
        }

        /// Returns the number of bytes that the program of a session wrote. Other results have none.
        pub fn output_bytes(result: &OpResult) -> u64 {
            match result {
                $(OpResult::$kind(result) => result.output_bytes(),)*
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

operations! {
    /// Read one regular file.
    read::Read(ReadRequest)[CLASS],
    /// List a directory.
    list::List(ListRequest)[CLASS],
    /// Find files by name.
    glob::Glob(GlobRequest)[CLASS],
    /// Find text in files.
    grep::Grep(GrepRequest)[CLASS],
    /// Run one command, without a shell.
    exec::Exec(ExecRequest)[CLASS],
    /// Run a shell script.
    shell::Shell(ShellRequest)[CLASS],
    /// Create or overwrite one file.
    write::Write(WriteRequest)[CLASS],
    /// Change one file.
    edit::Edit(EditRequest)[CLASS],
    /// Change several files, all or none.
    patch::Patch(PatchRequest)[CLASS],
    /// Remove one file or an empty directory.
    delete::Delete(DeleteRequest)[CLASS],
    /// Git in the workspace.
    git::Git(GitRequest)[STATUS, DIFF, LOG, SHOW, ADD, COMMIT, FETCH, PULL, PUSH],
    /// Start a process that stays.
    process::Process(ProcessRequest)[CLASS],
    /// Give a session something to do.
    session::Session(SessionRequest)[CLASS],
    /// Keep the state of the run, or go back to one that is kept.
    checkpoint::Checkpoint(CheckpointRequest)[CREATE, LIST, RESTORE],
    /// Call a tool of an upstream MCP server.
    mcp::Mcp(McpRequest)[],
}
