//! Runs and workspaces in the store: their records are JSON.

use std::collections::{BTreeMap, BTreeSet};

use identity::RunId;
use store::{Store, StoreError};

use crate::record::{Kept, Record};

/// Adds a run, with its secret variables. `request` is the id and digest of the request that made it.
pub fn insert(
    store: &Store,
    record: &Record,
    request: Option<(&str, &[u8])>,
    secrets: &BTreeMap<String, String>,
) -> Result<(), StoreError> {
    insert_with(store, record, request, secrets, None)
}

/// Adds a run as [`insert`] does, and the workspace that is made for it.
pub(crate) fn insert_with(
    store: &Store,
    record: &Record,
    request: Option<(&str, &[u8])>,
    secrets: &BTreeMap<String, String>,
    workspace: Option<&Kept>,
) -> Result<(), StoreError> {
    let run = serde_json::to_string(record)?;
    let workspace = workspace.map(serde_json::to_string).transpose()?;
    store.insert_run_and_workspace(record.id, &run, request, secrets, workspace.as_deref())
}

/// Writes a run's new state. If the run has ended, its secrets are deleted.
pub(crate) async fn update(store: &Store, record: &Record) -> Result<(), StoreError> {
    let (id, text, has_ended) = (record.id, serde_json::to_string(record)?, record.state.has_ended());
    store.with(move |store| store.update_run(id, &text, has_ended)).await
}

/// Returns all runs, oldest first.
pub fn all(store: &Store) -> Result<Vec<Record>, StoreError> {
    store.runs()?.iter().map(|record| Ok(serde_json::from_str(record)?)).collect()
}

/// Returns the runs that have not ended.
pub fn living(store: &Store) -> Result<BTreeSet<RunId>, StoreError> {
    let runs = all(store)?;
    Ok(runs.into_iter().filter(|record| !record.state.has_ended()).map(|record| record.id).collect())
}

/// Returns the run that a request made, with that request's digest.
pub fn by_request(store: &Store, request_id: &str) -> Result<Option<(Record, Vec<u8>)>, StoreError> {
    let found = store.run_by_request(request_id)?;
    found.map(|(record, digest)| Ok((serde_json::from_str(&record)?, digest))).transpose()
}

pub(crate) fn insert_workspace(store: &Store, workspace: &Kept) -> Result<(), StoreError> {
    store.insert_workspace(workspace.id, &serde_json::to_string(workspace)?)
}

pub(crate) fn workspaces(store: &Store) -> Result<Vec<Kept>, StoreError> {
    store.workspaces()?.iter().map(|record| Ok(serde_json::from_str(record)?)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::time::Duration;

    use serde_json::{Value, json};
    use store::{OutcomeBounds, Store};

    use crate::record::{Changes, EndCause, Hold, Kept, Record, State, Workspace};

    /// A record with every field, in the form that the store has.
    fn full() -> Value {
        let id = "0190b0c0-0000-7000-8000-000000000001";
        let directory = json!({ "device": 64_769, "inode": 42, "uid": 1_000 });
        json!({
            "id": id,
            "spec": {
                "profile": "review",
                "image": "image:1",
                "workspace": { "overlay": { "path": "/srv/code" } },
                "pkg_path": "/srv/pkg",
                "agent_id": "alice",
                "role": "worker",
                "limits": {
                    "memory_bytes": 1, "cpu_millis": 2, "pids": 3, "file_size_bytes": 4, "open_files": 5,
                    "disk_bytes": 6, "disk_files": 7, "output_bytes": 8,
                },
                "ttl": { "secs": 3_600, "nanos": 0 },
                "idle_timeout": { "secs": 60, "nanos": 5 },
                "labels": { "team": "a" },
                "principal": "uid:1000",
                "token": "aa",
                "env": { "A": "b" },
                "secret_env": ["TOKEN"],
                "lease": { "secs": 30, "nanos": 0 },
                "writable_paths": ["/cache"],
            },
            "state": "paused",
            "failure": "none",
            "created_at": 1_700_000_000_000_000_001_i64,
            "ready_at": 1_700_000_000_000_000_002_i64,
            "ended_at": 1_700_000_000_000_000_003_i64,
            "started": {
                "image_id": "sha256:1",
                "container_id": "c1",
                "hardening": [["no-new-privileges", "true"]],
                "ownership": "idmapped",
                "workspace_path": "/srv/code",
                "layer": {
                    "changes": "pending", "since": [1_700_000_000, 9], "inode": 7,
                    "owner": { "uid": 1_000, "gid": 100 }, "begun": false,
                },
                "fingerprint": {
                    "container_started": "2026-01-01T00:00:00Z",
                    "guest": "/usr/lib/cofferdam/coffer-guest",
                    "owner": { "uid": 1_000, "gid": 100 },
                    "is_mapped": true,
                    "workspace": directory, "state": directory, "private": directory, "pkg": directory,
                    "log": directory, "root": directory,
                    "warm": id,
                    "linked": {
                        "path": "/srv/repository", "repository": directory, "work_tree": "w", "own": directory,
                    },
                },
                "cold_because": "first-of-its-kind",
            },
            "restarts": 2,
            "adopted_at": 1_700_000_000_000_000_004_i64,
            "holds": [
                { "hold": "operator", "by": "uid:0", "since": 1_700_000_000_000_000_005_i64 },
                { "hold": { "approval": "p" }, "by": null, "since": 1_700_000_000_000_000_006_i64 },
                { "hold": { "alert": "a" }, "by": null, "since": 1_700_000_000_000_000_007_i64 },
                { "hold": { "terminal": "t" }, "by": "uid:7", "since": 1_700_000_000_000_000_008_i64 },
            ],
            "extended": { "secs": 7_200, "nanos": 0 },
            "issued": "bb",
            "end_cause": "idle_timeout",
        })
    }

    fn open(place: &Path) -> Store {
        Store::open(&place.join("store.db"), OutcomeBounds::WIDE).unwrap()
    }

    #[tokio::test]
    async fn a_record_of_an_earlier_daemon_is_read_and_written_again_as_it_was() {
        let place = tempfile::tempdir().unwrap();
        let store = open(place.path());
        let id = serde_json::from_value(full()["id"].clone()).unwrap();
        store.insert_run(id, &full().to_string(), Some(("q", b"digest")), &BTreeMap::new()).unwrap();

        let (record, digest) = super::by_request(&store, "q").unwrap().unwrap();
        assert_eq!((record.id, record.state, digest.as_slice()), (id, State::Paused, &b"digest"[..]));
        assert_eq!(record.spec.workspace, Workspace::Overlay { path: "/srv/code".into() });
        assert_eq!(record.layer().unwrap().changes, Changes::Pending);
        let holds: Vec<_> = record.holds.iter().map(|held| &held.hold).collect();
        let text = |text: &str| text.to_owned();
        assert_eq!(
            holds,
            [
                &Hold::Operator,
                &Hold::Approval(text("p")),
                &Hold::Alert(text("a")),
                &Hold::Terminal(text("t"))
            ]
        );
        assert_eq!(record.ttl(), Some(Duration::from_secs(7_200)));
        assert_eq!((record.made_as(), record.end_cause), (Some(id), Some(EndCause::IdleTimeout)));

        super::update(&store, &record).await.unwrap();
        let written: Value = serde_json::from_str(&store.runs().unwrap()[0]).unwrap();
        assert_eq!(written, full());
        assert_eq!(super::living(&store).unwrap(), [id].into());
        super::update(&store, &Record { state: State::Stopped, ..record }).await.unwrap();
        assert!(super::living(&store).unwrap().is_empty());
    }

    #[test]
    fn a_record_without_the_fields_that_came_later_is_read() {
        let mut old = full();
        let part = |of: &mut Value, gone: &[&str]| {
            for name in gone {
                assert!(of.as_object_mut().unwrap().remove(*name).is_some(), "{name}");
            }
        };
        part(&mut old, &["restarts", "adopted_at", "holds", "extended", "issued", "end_cause"]);
        part(&mut old["spec"], &["token", "env", "secret_env", "lease", "writable_paths"]);
        part(&mut old["spec"]["limits"], &["disk_bytes", "disk_files", "output_bytes"]);
        part(&mut old["started"]["fingerprint"], &["log", "root", "warm", "linked"]);
        part(&mut old["started"], &["layer", "cold_because"]);
        let record: Record = serde_json::from_value(old.clone()).unwrap();
        assert_eq!((record.restarts, record.spec.limits.disk().bytes), (0, 1 << 30));
        part(&mut old["started"], &["fingerprint"]);
        assert_eq!(serde_json::from_value::<Record>(old).unwrap().made_as(), None);
    }

    #[test]
    fn a_run_is_stored_together_with_its_workspace_or_not_at_all() {
        let place = tempfile::tempdir().unwrap();
        let store = open(place.path());
        let mut made = full();
        made["spec"]["workspace"] = json!("managed");
        let record: Record = serde_json::from_value(made).unwrap();
        let kept = Kept::of(&record).unwrap();
        let insert = || super::insert_with(&store, &record, None, &BTreeMap::new(), Some(&kept));
        insert().unwrap();
        assert_eq!(store.runs().unwrap().len(), 1);
        assert_eq!(store.workspaces().unwrap(), [serde_json::to_string(&kept).unwrap()]);
        store.delete_workspace(kept.id).unwrap();
        assert!(insert().unwrap_err().is_conflict(), "the run is there already");
        assert!(store.workspaces().unwrap().is_empty());
    }

    #[test]
    fn workspaces_are_read_as_they_were_written() {
        let place = tempfile::tempdir().unwrap();
        let store = open(place.path());
        let written = json!({
            "id": full()["id"], "principal": "uid:0", "created_at": 1_700_000_000_000_000_001_i64,
            "workspace": { "clone": { "repository": "/srv/repository", "revision": "main" } },
        });
        let id = serde_json::from_value(written["id"].clone()).unwrap();
        store.insert_workspace(id, &written.to_string()).unwrap();
        let [kept]: [Kept; 1] = super::workspaces(&store).unwrap().try_into().unwrap();
        assert_eq!(kept.id, id);
        super::insert_workspace(&store, &kept).unwrap();
        assert_eq!(store.workspaces().unwrap(), [serde_json::to_string(&kept).unwrap()]);
        // It was written by a daemon that stored no quota.
        let mut again = serde_json::to_value(&kept).unwrap();
        assert_eq!(again.as_object_mut().unwrap().remove("disk_bytes"), Some(json!(0)));
        assert_eq!(again, written);
    }
}
