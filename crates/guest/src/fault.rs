//! What ends the guest.

use std::io;

use thiserror::Error;
use worker_protocol::frame::FrameError;

/// Why the guest ends other than by the end of its input. Goes to standard error, which the daemon keeps.
#[derive(Debug, Error)]
pub(crate) enum Fault {
    /// The stream, or the set-up.
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Frame(#[from] FrameError),
    /// A frame that cannot come now.
    #[error("{0}")]
    Unexpected(&'static str),
    /// The command filter cannot be made.
    #[error("the system-call filter: {0}")]
    Filter(#[from] seccompiler::BackendError),
}
