//! The parts of the daemon that all processes use.

use std::path::PathBuf;
use std::sync::Arc;

use audit_service::AuditLog;
use runs::Runs;
use seal::StreamKey;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::StopRule;

/// Settings for processes.
pub struct Settings {
    /// `state_dir/processes`.
    pub root: PathBuf,
    pub key: StreamKey,
    /// Bytes that must stay free in the file system.
    pub min_free: u64,
    /// Most bytes of the recording of a process's input.
    pub max_recording: u64,
    pub on_stop: StopRule,
}

pub(crate) struct Shared {
    pub(crate) runs: Arc<Runs>,
    pub(crate) audit: Arc<AuditLog>,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
    pub(crate) root: PathBuf,
    pub(crate) key: Arc<StreamKey>,
    pub(crate) min_free: u64,
    pub(crate) max_recording: u64,
    pub(crate) on_stop: StopRule,
}
