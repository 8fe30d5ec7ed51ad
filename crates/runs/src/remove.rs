//! Removes directories that an agent may have filled, without blocking a task.

use std::path::PathBuf;

/// Removes the directory and its contents. Logs a failure.
pub async fn remove_tree(path: PathBuf) {
    let removed =
        tokio::task::spawn_blocking(move || jail::remove_tree(&path).map_err(|error| (path, error)));
    if let Ok(Err((path, error))) = removed.await {
        tracing::warn!(path = %path.display(), error = %error, "a directory of a run was not removed");
    }
}
