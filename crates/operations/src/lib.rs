#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod base64;
mod bound;
mod bounds;
mod command;
mod command_limits;
pub mod deny;
mod digest;
mod environment;
mod failure;
mod fault;
mod hint;
mod left_out;
mod limits;
mod malformed;
mod mcp;
mod operation;
mod outcome;
pub mod patch;
mod path_pattern;
mod path_rules;
mod reason;
pub mod transport;
mod trash;
mod wrappers;

pub use base64::{decode_base64, encode_base64};
pub use bound::{
    Binder, Bound, FileState, FileStates, Held, Preview, before_effect, changed, is_void, unbound,
};
pub use bounds::Bounds;
pub use command::{CommandEnd, CommandReport, CommandUsage, Exit, Stop, Written};
pub use command_limits::CommandLimits;
pub use digest::{Digest, sha256};
pub use environment::Environment;
pub use failure::FILE_SYSTEM;
pub use fault::{END_CAUSE, Evidence, Fault, Origin, fault_of};
pub use hint::{Hint, Named};
pub use left_out::{ASK_FOR_MORE, beside_more, in_own_words, noted};
pub use limits::{cause, is_space};
pub use malformed::Malformed;
pub use mcp::{McpTool, is_mcp_server};
pub use operation::{
    Checkpoint, Delete, Delivery, Edit, EditChange, Effect, Encoding, Exec, Git, GitDiffFlag, GitFetch,
    GitFormat, GitLogFlag, GitPull, GitPullMode, GitPush, GitPushed, GitRefName, GitRemote, GitRevision,
    GitRevisions, Glob, Grep, Lane, List, Mcp, Operation, Part, Process, ProcessProgram, Read, ReadPart,
    Session, SessionInput, Shell, TerminalSize, Transfer, UploadId, Uploaded, Write, answers, check_answer,
    facts, output_bytes, sketch,
};
pub use outcome::{
    EntryType, FileChange, OpResult, Outcome, ToolFailure, cut_short, cut_short_by, not_ended, unfinished,
};
pub use patch::{FrontMatter, Patch, PatchChange};
pub use path_pattern::{BadPattern, PathPattern};
pub use path_rules::{PathRule, PathRules, RuledAccess, RuledPaths};
pub use reason::Reason;
pub use trash::{MAX_TRASH_RECORD, TRASH_RECORD_SUFFIX, TrashEntry, TrashRecord};
pub use wire::v1::{
    AgentCheckpoint, CheckpointResult, DeleteResult, EditResult, Entry, ExecResult, GitRefUpdate, GitResult,
    GlobResult, GrepMatch, GrepResult, KillEvidence, LeftOut, ListResult, McpContent, McpResult, PatchResult,
    PatchedFile, ProcessResult, ReadResult, SessionResult, WriteResult, exec_result::EndedBy,
    exec_result::Limit, kill_evidence::Method as KillMethod, session_result::State as SessionState,
};
pub use wrappers::is_wrapper;
