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
mod read;
mod shell;
mod write;

#[cfg(test)]
mod tests;

use std::time::Duration;

use jail::SandboxPath;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use wire::v1;

use crate::{Malformed, Patch};

pub use delete::Delete;
pub use edit::{Edit, EditChange};
pub use exec::Exec;
pub use git::{Git, GitDiffFlag, GitFormat, GitLogFlag, GitRevision, GitRevisions};
pub use glob::Glob;
pub use grep::Grep;
pub use list::List;
pub use mcp::Mcp;
pub use read::{Read, ReadPart};
pub use shell::Shell;
pub use write::Write;

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

/// How bytes of a file are put into a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encoding {
    /// Text.
    #[default]
    Utf8,
    /// RFC 4648 base64, with padding.
    Base64,
}

/// What the API asks with, and how it becomes an operation.
trait Request: Sized {
    /// The message of the API.
    type Message;

    /// Validates.
    fn parse(message: Self::Message) -> Result<Self, Malformed>;

    /// The canonical message: it parses to this operation.
    fn message(&self) -> Self::Message;

    /// What a message asks for that may be no operation.
    fn sketch(message: &Self::Message) -> Sketch<'_>;
}

/// What everybody else asks of an operation.
trait Describe {
    /// The operation's kind: its name, or `mcp`.
    fn kind(&self) -> &'static str;

    /// Its name in policy and record.
    fn name(&self) -> &str {
        self.kind()
    }

    /// The name under which calls of it count together.
    fn family(&self) -> &str {
        self.kind()
    }

    /// Where it is executed.
    fn lane(&self) -> Lane;

    /// Whether it may change anything.
    fn has_effect(&self) -> bool;

    /// The paths that it names.
    fn paths(&self) -> Vec<&SandboxPath>;

    /// Until when everything of a command is ended.
    fn timeout(&self) -> Option<Duration> {
        None
    }

    /// Replaces contents of files in the JSON form of the message.
    fn hide_contents(&self, _message: &mut Value) {}
}

/// What a message asks for that nobody has validated: the operation's name, empty where the message does not say it, and the texts
/// that say where and what. No content.
struct Sketch<'m>(&'static str, Vec<(&'static str, Texts<'m>)>);

/// A text, or some.
enum Texts<'m> {
    One(&'m str),
    Many(&'m [String]),
}

/// The table of operations: for each its kind, its message in the API, and the names that policy and record have for it.
macro_rules! operations {
    ($($(#[$doc:meta])* $kind:ident($message:ident) [$($name:literal),*],)*) => {
        /// One canonical operation.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Operation {
            $($(#[$doc])* $kind($kind),)*
        }

        impl Operation {
            /// The names that policy and record use. Tools of upstream servers have names beside these,
            /// [`crate::McpTool::canonical`].
            pub const NAMES: [&'static str; 16] = [$($($name,)*)*];

            /// Validates a request.
            pub fn parse(operation: v1::Operation) -> Result<Self, Malformed> {
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
                    Request::parse(message).map(Self::$kind)
                }
            }
        )*

        fn sketch(kind: &v1::operation::Kind) -> Sketch<'_> {
            match kind {
                $(v1::operation::Kind::$kind(message) => <$kind as Request>::sketch(message),)*
            }
        }
    };
}

const MISSING: &str = "is missing: set exactly one of read, list, glob, grep, exec, shell, write, edit, patch, delete, git, mcp";

operations! {
    /// Read one regular file.
    Read(ReadRequest)["read"],
    /// List a directory.
    List(ListRequest)["list"],
    /// Find files by name.
    Glob(GlobRequest)["glob"],
    /// Find text in files.
    Grep(GrepRequest)["grep"],
    /// Run one command, without a shell.
    Exec(ExecRequest)["exec"],
    /// Run a shell script.
    Shell(ShellRequest)["shell"],
    /// Create or overwrite one file.
    Write(WriteRequest)["write"],
    /// Change one file.
    Edit(EditRequest)["edit"],
    /// Change several files, all or none.
    Patch(PatchRequest)["patch"],
    /// Remove one file or an empty directory.
    Delete(DeleteRequest)["delete"],
    /// Git in the workspace.
    Git(GitRequest)["git.status", "git.diff", "git.log", "git.show", "git.add", "git.commit"],
    /// Call a tool of an upstream MCP server.
    Mcp(McpRequest)[],
}

impl Operation {
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
        self.described().kind()
    }

    /// Where it is executed.
    pub fn lane(&self) -> Lane {
        self.described().lane()
    }

    /// The paths that it names: whole paths of its own, not what a command's arguments may mean.
    pub fn paths(&self) -> Vec<&SandboxPath> {
        self.described().paths()
    }

    /// Whether it may change anything, so that its receipt has to be durable before the answer.
    pub fn has_effect(&self) -> bool {
        self.described().has_effect()
    }

    /// For operations that run a program of the container: until when everything of it is ended. `None` for all others.
    pub fn command_timeout(&self) -> Option<Duration> {
        self.described().timeout()
    }

    /// Replaces contents of files in the JSON form of the message, without the operation's own name around it: size and SHA-256
    /// stand for them in the record.
    pub fn hide_contents(&self, message: &mut Value) {
        self.described().hide_contents(message);
    }
}

/// The entry of a content in the record: its size in bytes and its SHA-256.
pub fn stands_for(content: &[u8]) -> Value {
    json!({ "bytes": content.len(), "sha256": hex::encode(Sha256::digest(content)) })
}

/// Items of a list that the record of a refusal has.
const RECORDED_ITEMS: usize = 32;

/// For the record of a request that may be no operation: its name as far as the request says it, else empty, and the texts in it
/// that say where and what, each as `cut` leaves it. No content of a file is among them.
pub fn recorded(
    operation: &v1::Operation,
    cut: impl Fn(&str) -> Value,
) -> (&'static str, Map<String, Value>) {
    let Some(kind) = &operation.kind else { return ("", Map::new()) };
    let Sketch(name, texts) = sketch(kind);
    let texts = texts.into_iter().map(|(field, texts)| {
        let value = match texts {
            Texts::One(text) => cut(text),
            Texts::Many(texts) => texts.iter().take(RECORDED_ITEMS).map(|text| cut(text)).collect(),
        };
        (field.to_owned(), value)
    });
    (name, texts.collect())
}
