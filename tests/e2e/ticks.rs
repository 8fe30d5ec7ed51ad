//! Commands that write a byte again and again, by which a test sees whether they run on.

use std::path::Path;
use std::time::Duration;

/// In which a command that counts would have counted far.
pub(crate) const QUIET: Duration = Duration::from_millis(500);

pub(crate) fn counted(workspace: &Path) -> usize {
    std::fs::read(workspace.join("ticks")).map_or(0, |ticks| ticks.len())
}

/// Until the file has more than `count` bytes.
pub(crate) async fn counts_beyond(workspace: &Path, count: usize) {
    let on = async {
        // A command has no other way to tell.
        while counted(workspace) <= count {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), on).await.expect("the command does not count");
}
