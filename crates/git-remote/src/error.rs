//! The reasons why an operation with a server fails.

use std::io;

use git_wire::BadPacket;
use text::{Shape, excerpt_of};

use crate::url::BadUrl;

/// Most characters of a server's words in an error.
const WORDS: usize = 1_000;

/// The reason why an operation with a server failed. It is fit for an agent: foreign words are bounded and cleaned.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    #[error(transparent)]
    Url(#[from] BadUrl),
    #[error("there is no connection to the server: {0}")]
    Dial(#[source] io::Error),
    #[error("the connection to the server failed: {0}")]
    Io(#[source] io::Error),
    #[error("the server closed the connection before its answer was complete")]
    Closed,
    #[error("the operation with the server did not end in time")]
    TimedOut,
    #[error("the server sent more than the {0} bytes that this operation may receive")]
    TooMuch(u64),
    #[error("access was refused with status {status}{}", said(.words))]
    Denied { status: u16, words: String },
    #[error("the server has no such repository, or does not show it (status 404){}", said(.words))]
    NotFound { words: String },
    #[error(
        "the server redirects to another place (status {0}), which is not followed; use the repository's own URL"
    )]
    Redirect(u16),
    #[error("the server answered with status {status}{}", said(.words))]
    Status { status: u16, words: String },
    #[error("the answer is not that of a git server over smart HTTP: {0}")]
    NotGit(&'static str),
    #[error("the answer of the server is malformed: {0}")]
    Malformed(&'static str),
    #[error("the answer of the server is malformed: {0}")]
    Packet(#[from] BadPacket),
    #[error("the server says: {0}")]
    Said(String),
    #[error("the server lists more than {0} refs")]
    TooManyRefs(u32),
    #[error("the server lacks `{0}`, which this operation needs")]
    Lacks(&'static str),
    #[error(
        "the history of the server's repository is cut, so its commits would be here without their parents"
    )]
    Shallow,
    #[error("the repository is of the object format {0}; only sha1 can be used here")]
    Format(String),
    #[error("the server has no ref `{0}`")]
    NoRef(String),
    #[error("two refs of the server would become `{0}`")]
    Ambiguous(String),
    #[error("the pack of the server is not valid: {0}")]
    Pack(String),
    #[error("the server did not send the object {0} that it lists")]
    Missing(String),
    #[error(
        "`info/grafts`, `shallow` or `objects/info/commit-graph` of the repository gives a commit parents that it does not \
         have: remove the file, and push again"
    )]
    Grafted,
    #[error("the repository of the run: {0}")]
    Repository(String),
}

impl From<git2::Error> for RemoteError {
    fn from(error: git2::Error) -> Self {
        Self::Repository(shown(error.message()))
    }
}

/// Returns a server's words as they may be shown.
pub(crate) fn shown(words: &str) -> String {
    excerpt_of(words.trim(), Shape::Block, WORDS)
}

fn said(words: &str) -> String {
    if words.is_empty() { String::new() } else { format!(": {words}") }
}

impl RemoteError {
    /// Returns the error of a status that is not 200, with the words of its body.
    pub(crate) fn of_status(status: u16, words: &str) -> Self {
        let words = shown(words);
        match status {
            300..=399 => Self::Redirect(status),
            401 | 403 | 407 => Self::Denied { status, words },
            404 | 410 => Self::NotFound { words },
            _ => Self::Status { status, words },
        }
    }
}

/// Returns the error that a packet says.
pub(crate) fn said_by(packet: &[u8]) -> Option<RemoteError> {
    let words = packet.strip_prefix(b"ERR ")?;
    Some(RemoteError::Said(shown(&String::from_utf8_lossy(words))))
}
