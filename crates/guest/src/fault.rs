//! Errors that end the guest.

use std::io;

use thiserror::Error;
use worker_protocol::frame::FrameError;

/// Reason that the guest ends, other than the end of its input. It goes to standard error, which the daemon keeps.
#[derive(Debug, Error)]
pub(crate) enum Fault {
    /// The stream or the setup failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Frame(#[from] FrameError),
    /// A frame arrived that is not allowed now.
    #[error("{0}")]
    Unexpected(&'static str),
    /// The system-call filter of the commands cannot be made.
    #[error("the system-call filter: {0}")]
    Filter(#[from] seccompiler::BackendError),
}
