//! State that a transport and its link share.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio_util::sync::CancellationToken;

/// Signals from a transport to its link.
#[derive(Clone, Default)]
pub(super) struct LinkState {
    /// True if the server has announced changed tools.
    pub(super) changed: Arc<AtomicBool>,
    /// Cancelled when the link accepts no further requests; ends a program.
    pub(super) end: CancellationToken,
}
