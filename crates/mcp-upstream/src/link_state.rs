//! What a wire and its link share.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio_util::sync::CancellationToken;

/// What a wire tells its link.
#[derive(Clone, Default)]
pub(super) struct LinkState {
    /// The server said that it has other tools now.
    pub(super) changed: Arc<AtomicBool>,
    /// Cancelled when nothing more can be asked; ends a program.
    pub(super) end: CancellationToken,
}
