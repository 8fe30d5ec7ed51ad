//! Checkpoints sent elsewhere: what is kept out of this host's reach proves later that nothing was written anew.
//!
//! A newer checkpoint says all that an older one said, so only the last one is ever sent, and a receiver that is slow or
//! gone costs nothing but itself: the writer never waits.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use audit::Checkpoint;
use tokio::sync::watch;

use super::thread::Signed;

/// Between attempts to deliver one checkpoint: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Where checkpoints go.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hooks {
    /// Each is appended to this file, an empty line between.
    pub(crate) file: Option<PathBuf>,
}

impl Hooks {
    /// Delivers until the log is closed and its last checkpoint is delivered. Ends when it cannot be then.
    pub(crate) async fn run(self, mut checkpoints: watch::Receiver<Option<Signed>>) {
        let Some(file) = self.file else { return };
        loop {
            let checkpoint = checkpoints.borrow_and_update().clone();
            if let Some((checkpoint, _)) = checkpoint {
                deliver(&file, checkpoint, &mut checkpoints).await;
            }
            if checkpoints.changed().await.is_err() {
                return;
            }
        }
    }
}

/// Tries until it succeeds, a newer one is there, or the log is closed.
async fn deliver(file: &Path, checkpoint: Checkpoint, newer: &mut watch::Receiver<Option<Signed>>) {
    let mut pause = PAUSES.0;
    loop {
        let (path, note) = (file.to_owned(), checkpoint.note.clone());
        let appended = tokio::task::spawn_blocking(move || append(&path, &note)).await;
        match appended.map_err(io::Error::other).and_then(|result| result) {
            Ok(()) => return,
            Err(error) => {
                tracing::warn!(size = checkpoint.size, error = %error, "a checkpoint could not be appended to its file");
            }
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(PAUSES.1),
            changed = newer.changed() => {
                // Seen again by the caller.
                if changed.is_ok() {
                    newer.mark_changed();
                }
                return;
            }
        }
    }
}

/// One write, so that a reader finds whole checkpoints.
fn append(path: &Path, note: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).mode(0o644).open(path)?;
    let text = if file.metadata()?.len() == 0 { note.to_owned() } else { format!("\n{note}") };
    file.write_all(text.as_bytes())?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn checkpoint(size: u64) -> Checkpoint {
        let key = tempfile::tempdir().unwrap();
        let (mut writer, _) = audit::Writer::open(&key.path().join("log")).unwrap();
        let signer = writer.signer(&key.path().join("key")).unwrap();
        for _ in 1..size {
            writer.append(&audit::Event::new(audit::Kind::Alert)).unwrap();
        }
        writer.checkpoint(&signer).unwrap().unwrap()
    }

    #[tokio::test]
    async fn the_last_one_arrives_although_the_file_failed_and_the_log_was_closed() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("gone/checkpoints");
        let (sender, receiver) = watch::channel(None);
        let run = tokio::spawn(Hooks { file: Some(file.clone()) }.run(receiver));
        sender.send_replace(Some((checkpoint(1), String::new())));
        // The first cannot be delivered; the second replaces it.
        tokio::time::sleep(Duration::from_millis(50)).await;
        fs::create_dir(directory.path().join("gone")).unwrap();
        let last = [checkpoint(2), checkpoint(3)];
        for checkpoint in &last {
            sender.send_replace(Some((checkpoint.clone(), String::new())));
            while !fs::read_to_string(&file).is_ok_and(|text| text.ends_with(&checkpoint.note)) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        drop(sender);
        run.await.unwrap();
        let text = fs::read_to_string(file).unwrap();
        let expected = Checkpoint::parse_all(&text).unwrap();
        assert_eq!(expected[expected.len() - 2..], last);
    }
}
