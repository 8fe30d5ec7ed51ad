#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod base64;
mod bound;
mod bounds;
#[cfg(feature = "read")]
mod cancel;
pub mod deny;
mod digest;
mod failure;
mod git;
mod hint;
mod limits;
mod mcp;
mod operation;
mod outcome;
mod patch;
pub mod raw;
#[cfg(feature = "read")]
mod read;
mod reason;
mod trash;
#[cfg(feature = "write")]
mod write;

pub use base64::{decode_base64, encode_base64};
pub use bound::{Binder, Bound, FileState, FileStates, Held, Preview, before_effect, changed, is_void};
pub use bounds::Bounds;
#[cfg(feature = "read")]
pub use cancel::Cancel;
pub use git::{Git, GitDiffFlag, GitFormat, GitLogFlag, GitRevision, GitRevisions};
pub use hint::{Hint, Named};
pub use limits::{EndedBy, Limit};
pub use mcp::{McpTool, is_mcp_server};
pub use operation::{
    Delete, Edit, EditChange, Encoding, Exec, Glob, Grep, Lane, List, Mcp, Operation, Read, ReadPart, Shell,
    Write,
};
pub use outcome::{
    DeleteResult, EditResult, Entry, EntryType, ExecResult, FileChange, GitResult, GlobResult, GrepMatch,
    GrepResult, KillEvidence, ListResult, McpContent, McpResult, OpResult, Outcome, PatchResult, PatchedFile,
    ReadResult, ToolFailure, WriteResult,
};
pub use patch::{FrontMatter, Patch, PatchChange};
pub use raw::Malformed;
#[cfg(feature = "read")]
pub use read::{glob, grep, list, read, read_at_once, take_helpers_time, thread_time};
pub use reason::Reason;
pub use trash::{MAX_TRASH_RECORD, TRASH_RECORD_SUFFIX, TrashEntry, TrashRecord};
#[cfg(feature = "write")]
pub use write::{
    Recovered, delete, edit, patch, preview_delete, preview_edit, preview_patch, preview_write, recover,
    write,
};
