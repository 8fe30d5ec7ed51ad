//! Fetches a repository of a server into its mirror, and clones the mirror, for the daemon.
//!
//! These calls block, bounded by a timeout. The answer of the jailed process is hostile: it has read bytes of a server.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use prost::Message as _;
use thiserror::Error;
use wire::v1::CloneWorkspace;

use crate::answer::answered;
use crate::args::{JailMount, Task, TreeBounds};
use crate::spawn::{Launcher, finish};

/// Time between the process's own bound and that of the daemon, whichever ends first.
const GRACE: Duration = Duration::from_secs(5);

/// The error of a fetch into a mirror, or of a clone of it.
#[derive(Debug, Error)]
pub enum MirrorError {
    /// The host worker's reason, fit for a client. The mirror is as complete as its references say.
    #[error("{0}")]
    Refused(String),
    /// The excess over the bounds, in words fit for a client. The mirror is as complete as its references say.
    #[error("{0}")]
    Excess(String),
    /// The jail or its process failed. The mirror may be damaged.
    #[error("{0}")]
    Broken(String),
    /// A timeout. The mirror may be damaged.
    #[error("it did not end within {} s", .0.as_secs())]
    TimedOut(Duration),
    /// The process could not be started.
    #[error("cannot start coffer-host-worker: {0}")]
    Start(#[from] io::Error),
}

/// A clone of a mirror.
#[derive(Debug, Clone, Copy)]
pub struct MirroredClone<'a> {
    /// The mirror, which is only read.
    pub mirror: BorrowedFd<'a>,
    /// The target: an empty directory that the owner may write.
    pub workspace: BorrowedFd<'a>,
    /// Address of the repository, for the remote of the clone.
    pub url: &'a str,
    /// Branch, tag or full id of a commit; empty is the server's HEAD.
    pub revision: &'a str,
    /// Most commits down each line of the history; 0 is all of it.
    pub depth: u32,
    /// Most that the clone may have: its repository and its files.
    pub most: TreeBounds,
    /// User and group that own the clone.
    pub owner: (u32, u32),
}

impl Launcher {
    /// Fetches the repository at `url` into its mirror, as `owner`, to whom the mirror belongs. The server may send `most` bytes.
    ///
    /// An empty directory becomes a mirror. `way_out` is the socket over which the process asks for streams to the server.
    pub fn refresh_mirror(
        &self,
        (mirror, way_out): (BorrowedFd<'_>, BorrowedFd<'_>),
        url: &str,
        owner: (u32, u32),
        most: u64,
        timeout: Duration,
    ) -> Result<(), MirrorError> {
        let seconds = u32::try_from(timeout.as_secs()).unwrap_or(u32::MAX);
        let task = Task::Mirror { url: url.to_owned(), most, seconds };
        let mounts = [(JailMount::Workspace, mirror)];
        let (_channel, mut child) = self.start_with(&mounts, Some(way_out), owner, task)?;
        let (status, words) = finish(&mut child, timeout + GRACE)?;
        outcome(status.map(|status| status.code()), words, timeout)
    }

    /// Clones a mirror into an empty directory, within `timeout`. Returns the id of the commit that is checked out.
    ///
    /// The clone has only objects that the references of the mirror reach. After an error the directory may have a part of it.
    pub fn clone_mirror(&self, clone: MirroredClone<'_>, timeout: Duration) -> Result<String, MirrorError> {
        // Later than the daemon's own end: a process that outlives the daemon ends, too.
        let seconds = u32::try_from((timeout + GRACE).as_secs()).unwrap_or(u32::MAX);
        let task = Task::CloneMirror {
            url: clone.url.to_owned(),
            revision: clone.revision.to_owned(),
            depth: clone.depth,
            most: clone.most,
            seconds,
        };
        let mounts = [(JailMount::Source, clone.mirror), (JailMount::Workspace, clone.workspace)];
        let deadline = Instant::now() + timeout;
        let (channel, mut child) = self.start_with(&mounts, None, clone.owner, task)?;
        let done = answered(&channel, &mut child, deadline)?;
        if done.is_too_large() {
            return Err(MirrorError::Broken("it answered more than an id".to_owned()));
        }
        outcome(done.status.map(|status| status.code()), done.words, timeout)?;
        let id = done.answer.ok().and_then(|answer| CloneWorkspace::decode(answer.as_slice()).ok());
        let id = id.map(|found| found.revision).filter(|id| is_id(id));
        id.ok_or_else(|| MirrorError::Broken("it answered without the id of a commit".to_owned()))
    }
}

/// Reads the end of a process: its exit code, unless a signal ended it, or `None` after a timeout.
#[expect(clippy::option_option, reason = "a timeout differs from an end by a signal")]
fn outcome(status: Option<Option<i32>>, words: String, timeout: Duration) -> Result<(), MirrorError> {
    match status {
        Some(Some(0)) => Ok(()),
        Some(Some(4)) => Err(MirrorError::Refused(words)),
        Some(Some(5)) => Err(MirrorError::Excess(words)),
        Some(_) => Err(MirrorError::Broken(words)),
        None => Err(MirrorError::TimedOut(timeout)),
    }
}

fn is_id(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_end_that_the_process_chose_leaves_a_mirror_as_it_was() {
        let end = |status| outcome(status, "why".to_owned(), Duration::from_secs(9));
        assert!(end(Some(Some(0))).is_ok());
        assert!(matches!(end(Some(Some(4))), Err(MirrorError::Refused(why)) if why == "why"));
        assert!(matches!(end(Some(Some(5))), Err(MirrorError::Excess(_))));
        for broken in [Some(1), Some(3), Some(101), None] {
            assert!(matches!(end(Some(broken)), Err(MirrorError::Broken(_))), "{broken:?}");
        }
        assert!(matches!(end(None), Err(MirrorError::TimedOut(_))));
    }

    #[test]
    fn an_answer_that_is_no_id_is_none() {
        assert!(is_id(&"0a".repeat(20)));
        for bad in ["", "HEAD", &"0A".repeat(20), &"0a".repeat(21), &"g0".repeat(20)] {
            assert!(!is_id(bad), "{bad}");
        }
    }
}
