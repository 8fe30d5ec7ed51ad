//! Finds recordings, and ends the sessions that a previous daemon left open.
//!
//! A recording is kept as long as its run is known, and is removed with it.

#![expect(clippy::disallowed_methods, reason = "recordings, which no run sees")]

use std::path::{Path, PathBuf};

use audit::Event;
use identity::{RunId, SessionId};
use runs::{Directories, remove_tree};

use super::record;
use store::recording::digest_of;

/// Returns the path of a session's recording.
pub(super) fn path(directories: &Directories, run: &str, session: SessionId) -> PathBuf {
    directories.recordings(run).join(format!("{session}.cast"))
}

/// Returns the session of a `session_opened` or `session_closed` record.
pub fn session_of(event: &Event) -> Option<SessionId> {
    let named = event.details.as_ref()?.get("session_id")?.as_str()?;
    SessionId::parse(named).ok()
}

/// Returns the end of a session that a previous daemon has left open. Reads the session's recording.
// The daemon made both ids. They are parsed all the same, because they become a path.
pub fn interrupted(opened: &Event, directories: &Directories) -> Event {
    let run = opened.run_id.as_deref().and_then(|run| RunId::parse(run).ok());
    let recording = run
        .zip(session_of(opened))
        .and_then(|(run, session)| digest_of(&path(directories, &run.to_string(), session)));
    record::interrupted(opened, recording)
}

/// Removes the recordings of runs that are no longer known.
pub async fn remove_leftovers(recordings: &Path, is_known: impl Fn(RunId) -> bool) {
    for entry in std::fs::read_dir(recordings).into_iter().flatten().flatten() {
        let run = entry.file_name().to_str().and_then(|name| RunId::parse(name).ok());
        if !run.is_some_and(&is_known) {
            tracing::warn!(path = %entry.path().display(), "removing the recordings of a run that is gone");
            remove_tree(entry.path()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use audit::{Event, Kind};
    use identity::{RunId, SessionId};
    use runs::Directories;

    use super::{interrupted, path, remove_leftovers, session_of};
    use crate::record::details;

    #[tokio::test]
    async fn leftover_recordings_are_removed_and_open_sessions_closed() {
        let place = tempfile::tempdir().unwrap();
        let directories = Directories { state: place.path().to_owned() };
        let (known, gone, session) = (RunId::new(), RunId::new(), SessionId::new());
        for run in [known, gone] {
            let recording = path(&directories, &run.to_string(), session);
            std::fs::create_dir_all(recording.parent().unwrap()).unwrap();
            std::fs::write(recording, "{}\n").unwrap();
        }
        std::fs::create_dir(place.path().join("sessions/x")).unwrap();
        remove_leftovers(&place.path().join("sessions"), |run| run == known).await;
        let left: Vec<_> = std::fs::read_dir(place.path().join("sessions")).unwrap().flatten().collect();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].file_name().to_str(), Some(known.to_string().as_str()));

        let opened = |run: RunId| {
            Event::new(Kind::SessionOpened).run(run.to_string()).principal("uid:7").details(details(session))
        };
        let closed = interrupted(&opened(known), &directories);
        assert_eq!((closed.kind, session_of(&closed)), (Kind::SessionClosed, Some(session)));
        assert_eq!(closed.principal.as_deref(), Some("uid:7"));
        assert_eq!(closed.outcome.unwrap().facts.unwrap()["recording"]["bytes"], 3);
        let closed = interrupted(&opened(gone), &directories);
        assert!(closed.outcome.unwrap().facts.unwrap()["recording"].is_null());
    }
}
