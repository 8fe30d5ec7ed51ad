//! Makes a backup while the daemon works.

#![expect(clippy::disallowed_methods, reason = "a directory of the daemon's own")]

use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use audit::{Event, Kind};
use audit_service::AuditLog;
use backup::{Head, STORE, Sources, USAGE, VERSION, WriteError};
use identity::Principal;
use operations::Reason;
use refusal::{Refusal, chain};
use serde_json::json;
use timestamp::UnixMillis;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use wire::v1::BackupMade;

use crate::send::{Events, Sending};

/// Time that a backup may take. Old segments of the log wait for its end.
const LONGEST: Duration = Duration::from_secs(3_600);
/// Directory of the snapshots in a state directory. It is emptied at each start, so its name is not one for an operator's backups.
const DIRECTORY: &str = "snapshots";
/// Number of backups at a time. Each reads the whole log.
const AT_ONCE: usize = 1;

/// Makes backups.
pub struct Backups {
    state_dir: PathBuf,
    /// Directory of the snapshots, which have no name.
    directory: PathBuf,
    /// Bytes of the file system that stay free.
    min_free: u64,
    audit: Arc<AuditLog>,
    turns: Semaphore,
}

impl Backups {
    /// Opens the directory for snapshots in the state directory.
    pub fn open(state_dir: &Path, min_free: u64, audit: Arc<AuditLog>) -> io::Result<Self> {
        let directory = state_dir.join(DIRECTORY);
        // A previous daemon may have died while it made a snapshot.
        match std::fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        DirBuilder::new().mode(0o700).create(&directory)?;
        let turns = Semaphore::new(AT_ONCE);
        Ok(Self { state_dir: state_dir.to_owned(), directory, min_free, audit, turns })
    }

    /// Makes a backup and sends it, framed by two records.
    pub async fn create(&self, principal: &Principal, events: Events) -> Result<(), Refusal> {
        let Ok(_turn) = self.turns.try_acquire() else {
            return Err(Refusal::new(
                Reason::Overloaded,
                "another backup is being made: try again when it is done",
            ));
        };
        let id = uuid::Uuid::now_v7().to_string();
        let record = |details: serde_json::Value| {
            let event = Event::new(Kind::BackupCreated).principal(&principal.name).details(details);
            self.audit.record(event)
        };
        record(json!({ "backup_id": id, "state": "begun" })).await?;
        let made = self.send(id.clone(), &events).await;
        let details = match &made {
            Ok(made) => json!({
                "backup_id": id, "state": "sent", "bytes": made.size_bytes, "sha256": made.sha256, "log_size": made.log_size,
            }),
            Err(refusal) => json!({ "backup_id": id, "state": "failed", "why": refusal.message }),
        };
        record(details).await?;
        events.made(made?).await;
        Ok(())
    }

    async fn send(&self, backup_id: String, events: &Events) -> Result<BackupMade, Refusal> {
        let (store, usage) = (self.snapshot(STORE).await?, self.snapshot(USAGE).await?);
        let store = store.ok_or_else(|| Refusal::internal("copying the store", &"it is not there"))?;
        // After the snapshot: the log has each record that the store relies on.
        self.audit.settle().await;
        let (checkpoint, verifier_key) = self.audit.checkpoint().await?;
        let head = Head {
            version: VERSION,
            backup_id: backup_id.clone(),
            made_at_ms: UnixMillis::now().0,
            release: env!("CARGO_PKG_VERSION").to_owned(),
            log_size: checkpoint.size,
            checkpoint: checkpoint.note,
            verifier_key: verifier_key.clone(),
        };
        let _held = self.audit.hold_segments().await;
        let (state_dir, log) = (self.state_dir.clone(), self.audit.directory().to_owned());
        let mut sending = Sending::new(events.clone(), Handle::current(), LONGEST);
        let sent = tokio::task::spawn_blocking(move || {
            let sources = Sources { store, usage, state_dir: &state_dir, log: &log };
            backup::write(&mut sending, &head, &sources)?;
            Ok::<_, WriteError>(sending.finish()?)
        });
        let sent = sent.await.map_err(|error| Refusal::internal("making a backup", &error))?;
        let (size_bytes, sha256) = sent.map_err(|error| refused(&error))?;
        Ok(BackupMade { backup_id, size_bytes, sha256, log_size: checkpoint.size, verifier_key })
    }

    /// Copies a database of the state directory, if it is there.
    async fn snapshot(&self, name: &'static str) -> Result<Option<File>, Refusal> {
        let path = self.state_dir.join(name);
        let to = self.directory.join(uuid::Uuid::new_v4().to_string());
        let min_free = self.min_free;
        let copied = tokio::task::spawn_blocking(move || {
            let bytes = match std::fs::metadata(&path) {
                Ok(metadata) => metadata.len(),
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(Refusal::internal("copying the store", &error)),
            };
            if !has_space(&to, bytes.saturating_add(min_free)) {
                return Err(no_space());
            }
            let copied = store::snapshot(&path, &to);
            copied.map(Some).map_err(|error| Refusal::internal("copying the store", &chain(&error)))
        });
        copied.await.map_err(|error| Refusal::internal("copying the store", &error))?
    }
}

/// Returns true if the file system of a path that does not exist yet has so many bytes free.
fn has_space(path: &Path, bytes: u64) -> bool {
    let free = path.parent().and_then(|directory| rustix::fs::statvfs(directory).ok());
    free.is_some_and(|free| free.f_bavail.saturating_mul(free.f_frsize) >= bytes)
}

fn no_space() -> Refusal {
    Refusal::new(
        Reason::Overloaded,
        "the state disk has no space for a copy of the store beside what the log needs: free some, and try again",
    )
}

fn refused(error: &WriteError) -> Refusal {
    let kind = match error {
        WriteError::KeyRotated => {
            return Refusal::new(
                Reason::PreconditionFailed,
                "the audit log's key was rotated while the backup was made: make it again",
            );
        }
        WriteError::Io(error) => error.kind(),
        _ => ErrorKind::Other,
    };
    match kind {
        ErrorKind::BrokenPipe => {
            Refusal::new(Reason::Cancelled, "the client left before the backup was whole")
        }
        ErrorKind::TimedOut => Refusal::new(Reason::TimedOut, "the client did not read the backup in time"),
        _ => Refusal::internal("making a backup", &chain(error)),
    }
}

#[cfg(test)]
mod tests {
    use audit_service::Settings;
    use store::{OutcomeBounds, Store};
    use wire::v1::create_backup_response::Event as Sent;

    use super::*;

    fn operator() -> Principal {
        Principal { name: "uid:0".to_owned(), ..Principal::anonymous() }
    }

    /// A daemon's state with a log that no client takes at once.
    async fn backups(place: &Path) -> (Backups, Arc<AuditLog>) {
        let _store = Store::open(&place.join(STORE), OutcomeBounds::WIDE).unwrap();
        let signing = Some((place.join("keys/audit.key"), 1_000));
        std::fs::create_dir(place.join("keys")).unwrap();
        let (log, _, _) =
            AuditLog::open(&place.join("audit"), Settings { signing, ..Settings::default() }).unwrap();
        let filler = "an ordinary sentence without a secret ".repeat(20);
        for _ in 0..8_000 {
            log.enqueue(Event::new(Kind::WorkerEvent).details(json!({ "text": filler }))).await.unwrap();
        }
        log.settle().await;
        let log = Arc::new(log);
        (Backups::open(place, 0, log.clone()).unwrap(), log)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn two_backups_at_once_are_refused_and_the_first_is_whole() {
        let place = tempfile::tempdir().unwrap();
        let (backups, log) = backups(place.path()).await;
        let backups = Arc::new(backups);
        let (events, mut receiver) = Events::new();
        let first = tokio::spawn({
            let backups = backups.clone();
            async move { backups.create(&operator(), events).await.map_err(|refusal| refusal.message) }
        });
        let Ok(Sent::Data(mut archive)) = receiver.recv().await.unwrap().map(|sent| sent.event.unwrap())
        else {
            panic!("no data")
        };
        let (others, _) = Events::new();
        let refused = backups.create(&operator(), others).await.unwrap_err();
        assert_eq!(refused.reason, Reason::Overloaded);
        let mut made = None;
        while let Some(sent) = receiver.recv().await {
            match sent.unwrap().event.unwrap() {
                Sent::Data(data) => archive.extend(data),
                Sent::Made(last) => made = Some(last),
            }
        }
        first.await.unwrap().unwrap();
        assert_eq!(made.unwrap().size_bytes, archive.len() as u64);
        let unpacked = tempfile::tempdir().unwrap();
        let checked = backup::check(archive.as_slice(), unpacked.path()).unwrap();
        assert!(checked.records > 8_000, "{checked:?}");
        assert_eq!(std::fs::read_dir(place.path().join(DIRECTORY)).unwrap().count(), 0, "no copy is left");
        drop(log);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_client_that_leaves_is_on_record_and_the_next_one_gets_its_backup() {
        let place = tempfile::tempdir().unwrap();
        let (backups, log) = backups(place.path()).await;
        let (events, receiver) = Events::new();
        drop(receiver);
        let refused = backups.create(&operator(), events).await.unwrap_err();
        assert_eq!(refused.reason, Reason::Cancelled);
        let mut follow = log.read_after(8_000, false);
        let mut states = Vec::new();
        while let Some(lines) = follow.next().await.unwrap() {
            let of = |line: &Arc<audit_service::Line>| {
                let event = &line.record.event;
                (event.kind == Kind::BackupCreated).then(|| event.details.as_ref().unwrap()["state"].clone())
            };
            states.extend(lines.iter().filter_map(of));
        }
        assert_eq!(states, ["begun", "failed"]);
        let (events, mut receiver) = Events::new();
        let reading = tokio::spawn(async move { while receiver.recv().await.is_some() {} });
        backups.create(&operator(), events).await.unwrap();
        reading.await.unwrap();
    }
}
