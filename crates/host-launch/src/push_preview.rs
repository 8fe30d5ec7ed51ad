//! The effects of a push on its refs, as the run's own repository shows them to a reviewer.
//!
//! The process that answers has read files of an agent, so an answer can be anything. The caller bounds it, and makes it visible.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::args::{JailMount, Task};
use crate::layer::LayerError;
use crate::spawn::Launcher;

/// Most commits of an update that are listed.
pub const MOST_COMMITS: usize = 50;
/// Most bytes of the diffs of a push.
pub const MOST_DIFF: u64 = 256 * 1024;

/// The effects of a push.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PushPreview {
    /// The effects of each update, in their order.
    #[prost(message, repeated, tag = "1")]
    pub updates: Vec<UpdatePreview>,
}

/// The effects of an update of one ref.
#[derive(Clone, PartialEq, prost::Message)]
pub struct UpdatePreview {
    /// Ids of objects that the repository lacks, or that cannot be read.
    #[prost(string, repeated, tag = "1")]
    pub unknown: Vec<String>,
    /// Remarks, such as the message of a tag.
    #[prost(string, repeated, tag = "2")]
    pub remarks: Vec<String>,
    /// Commits that the ref gains, from its new one on.
    #[prost(message, repeated, tag = "3")]
    pub gained: Vec<PushedCommit>,
    /// True if it gains more.
    #[prost(bool, tag = "4")]
    pub gains_more: bool,
    /// Commits that the ref loses, from its old one on.
    #[prost(message, repeated, tag = "5")]
    pub lost: Vec<PushedCommit>,
    /// True if it loses more.
    #[prost(bool, tag = "6")]
    pub loses_more: bool,
    /// Files and lines that change, and the diff.
    #[prost(string, tag = "7")]
    pub diff: String,
    /// True if a part of the diff is left out, because it is too long or cannot be read.
    #[prost(bool, tag = "8")]
    pub is_cut: bool,
}

/// A commit.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PushedCommit {
    #[prost(string, tag = "1")]
    pub id: String,
    /// Name and address of the author, as the commit says.
    #[prost(string, tag = "2")]
    pub author: String,
    /// Date of the author.
    #[prost(string, tag = "3")]
    pub date: String,
    /// First line of the message.
    #[prost(string, tag = "4")]
    pub subject: String,
}

impl Launcher {
    /// Returns the effects of updates, of which each has an old and a new id. An id of zeros is no object.
    ///
    /// `repository` is a work tree or a git directory, which is read as `owner`. There may be [`crate::ancestry::MOST_PAIRS`] updates.
    pub fn preview_push(
        &self,
        repository: BorrowedFd<'_>,
        updates: Vec<(String, String)>,
        owner: (u32, u32),
        timeout: Duration,
    ) -> Result<PushPreview, LayerError> {
        let (count, task) = (updates.len(), Task::PreviewPush(updates));
        let preview: PushPreview = self.ask(&[(JailMount::Source, repository)], owner, task, timeout)?;
        if preview.updates.len() == count { Ok(preview) } else { Err(LayerError::Answer) }
    }
}
