//! The side of an operator who wants another program to become the daemon.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Formats;
use crate::channel::{Channel, ChannelError, Message};
use crate::socket;

/// Time that a daemon has to answer.
const ANSWER: Duration = Duration::from_secs(10);
/// Time that an upgrade may take: each of its steps has a shorter bound.
const UPGRADE: Duration = Duration::from_secs(420);

/// Reason that no other process became the daemon.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error(
        "no daemon can be taken over: none serves this state_dir, it is of a version without take-over, or this user may not"
    )]
    NoDaemon(#[source] io::Error),
    #[error("the daemon cannot hand over: {0}")]
    Refused(String),
    #[error("the program did not take over, and the earlier daemon goes on: {0}")]
    Failed(String),
    #[error("the hand-over was interrupted")]
    Channel(#[from] ChannelError),
}

impl RequestError {
    /// Returns true if only a restart changes the daemon's program. Nothing was tried.
    pub fn needs_restart(&self) -> bool {
        matches!(self, Self::NoDaemon(_) | Self::Refused(_))
    }
}

/// An upgrade as the daemon sees it before it begins.
#[derive(Debug, PartialEq, Eq)]
pub struct Report {
    /// Version of the daemon.
    pub version: String,
    /// Reasons that the program cannot take over.
    pub hindrances: Vec<String>,
    /// Things that would end, a sentence for each.
    pub ends: Vec<String>,
}

/// Asks what would not survive an upgrade to a program with these formats.
pub fn check(state_dir: &Path, formats: Formats) -> Result<Report, RequestError> {
    match ask(state_dir, &Message::Check { formats }, ANSWER)?.1 {
        Message::Report { version, hindrances, ends } => Ok(Report { version, hindrances, ends }),
        _ => Err(ChannelError::Unknown.into()),
    }
}

/// Has the daemon start this program as its successor, and waits until the program serves.
pub fn upgrade(state_dir: &Path, program: PathBuf, formats: Formats) -> Result<(), RequestError> {
    match ask(state_dir, &Message::Upgrade { program, formats }, UPGRADE)?.1 {
        Message::Ready => Ok(()),
        Message::Refused { why } => Err(RequestError::Refused(why)),
        Message::Failed { why } => Err(RequestError::Failed(why)),
        _ => Err(ChannelError::Unknown.into()),
    }
}

fn ask(state_dir: &Path, request: &Message, patience: Duration) -> Result<(Channel, Message), RequestError> {
    let channel = socket::reach(state_dir).map_err(RequestError::NoDaemon)?;
    channel.send(request, &[])?;
    let (answer, _) = channel.receive(patience)?;
    Ok((channel, answer))
}
