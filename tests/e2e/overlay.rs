//! Copy-on-write workspaces: nothing changes beneath until somebody accepts it.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use harness::v1::file_change::Kind;
use harness::v1::result::Kind as Answer;
use harness::v1::run::Changes;
use harness::{Daemon, RunHandle, calls, git, reason, record, requests, v1};

fn kinds(diff: &v1::DiffRunResponse) -> Vec<(&str, Kind)> {
    diff.changes.iter().map(|change| (change.path.as_str(), change.kind())).collect()
}

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// Changes made by both lanes: see the test below.
async fn work(run: &mut RunHandle) {
    run.ok(calls::write("hand.txt", "by the host worker\n")).await;
    run.ok(calls::replace("a.txt", "one", "ONE")).await;
    let done = run.exec(&["/workspace/probe", "layer-work"]).await;
    assert!(done.stdout.lines().all(|line| line.ends_with(" ok")), "{}", done.stdout);
}

async fn begin(daemon: &Daemon) -> (std::path::PathBuf, RunHandle) {
    let files = [
        ("a.txt", "one\ntwo\n"),
        ("b.sh", "#!/bin/sh\n"),
        ("gone.txt", "bye\n"),
        ("old/x.txt", "x\n"),
        ("same.txt", "same\n"),
        ("probe", ""),
    ];
    let beneath = daemon.workspace("w", &files);
    std::fs::copy(harness::probe(), beneath.join("probe")).unwrap();
    std::fs::set_permissions(beneath.join("probe"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let run = daemon.run_on(requests::overlay("open", &beneath)).await;
    (beneath, run)
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_changes_are_visible_only_to_both_lanes_of_the_run() {
    let daemon = Daemon::start().await;
    let (beneath, mut run) = begin(&daemon).await;
    assert_eq!((run.run.ownership.as_str(), run.run.changes()), ("idmapped", Changes::Pending));
    assert!(run.diff().await.changes.is_empty());
    work(&mut run).await;

    // What one lane makes the other sees, and its owner is the run's user to both.
    assert_eq!(run.exec(&["cat", "hand.txt", "a.txt"]).await.stdout, "by the host worker\nONE\ntwo\n");
    let Answer::Read(found) = run.ok(calls::read("agent.txt")).await else { panic!("not a read") };
    assert_eq!(found.content, "by the agent\n");
    run.ok(calls::replace("agent.txt", "agent", "agent and the host worker")).await;

    // Nothing of it beneath.
    let untouched = |what: &str| {
        let mut names: Vec<_> =
            std::fs::read_dir(&beneath).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["a.txt", "b.sh", "gone.txt", "old", "probe", "same.txt"], "{what}");
        assert_eq!(read(beneath.join("a.txt")), "one\ntwo\n", "{what}");
    };
    untouched("while the run lives");
    let living = run.diff().await;
    let expected = [
        ("a.txt", Kind::Modified),
        ("agent.txt", Kind::Added),
        ("b.sh", Kind::Modified),
        ("gone.txt", Kind::Deleted),
        ("hand.txt", Kind::Added),
        ("link", Kind::Added),
        ("new", Kind::Added),
        ("new/deep", Kind::Added),
        ("new/deep/x.txt", Kind::Added),
        ("old/x.txt", Kind::Deleted),
        ("old/y.txt", Kind::Added),
    ];
    assert_eq!(kinds(&living), expected);
    assert_eq!(reason(&run.accept(false).await.unwrap_err()), "PRECONDITION_FAILED");
    assert_eq!(reason(&run.discard().await.unwrap_err()), "PRECONDITION_FAILED");

    run.stop().await;
    untouched("when the run has ended");
    let diff = run.diff().await;
    assert_eq!(diff, living);
    assert!((diff.total, diff.truncated) == (11, false));
    assert!(
        diff.changes.iter().all(|change| change.objection.is_empty() && change.obstacle.is_empty()),
        "{diff:?}"
    );
    assert!(diff.unified_diff.contains("-one\n+ONE\n two\n"), "{}", diff.unified_diff);

    // The diff is one: git makes the same of a copy.
    let copy = daemon.outside().join("copy");
    std::fs::create_dir_all(copy.join("old")).unwrap();
    for name in ["a.txt", "b.sh", "gone.txt", "old/x.txt", "same.txt"] {
        std::fs::copy(beneath.join(name), copy.join(name)).unwrap();
    }
    std::fs::set_permissions(copy.join("b.sh"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let patch = daemon.outside().join("overlay.patch");
    std::fs::write(&patch, &diff.unified_diff).unwrap();
    git(&copy, &["apply", "--unsafe-paths", &patch.display().to_string()]);

    let accepted = run.accept(false).await.unwrap();
    assert_eq!((accepted.applied, accepted.left_out.len()), (11, 0));
    assert_eq!(accepted.run.unwrap().changes(), Changes::Accepted);
    for at in [&beneath, &copy] {
        assert_eq!(read(at.join("a.txt")), "ONE\ntwo\n");
        assert_eq!(read(at.join("hand.txt")), "by the host worker\n");
        assert_eq!(read(at.join("agent.txt")), "by the agent and the host worker\n");
        assert_eq!(read(at.join("new/deep/x.txt")), "x\n");
        assert_eq!(read(at.join("old/y.txt")), "y\n");
        assert_eq!(std::fs::read_link(at.join("link")).unwrap(), Path::new("a.txt"));
        assert!(!at.join("gone.txt").exists() && !at.join("old/x.txt").exists());
        assert_eq!(std::fs::metadata(at.join("b.sh")).unwrap().mode() & 0o777, 0o755);
    }
    for name in ["a.txt", "new", "new/deep/x.txt", "link"] {
        assert_eq!(std::fs::symlink_metadata(beneath.join(name)).unwrap().uid(), 4321, "{name}");
    }
    let left = std::fs::read_dir(daemon.state_dir().join("overlays")).unwrap().count();
    assert_eq!((left, daemon.mounts()), (0, vec![]));

    // It is on record, and over.
    let id = run.id().to_owned();
    let events = run.clients.events(&id, "workspace_change").await;
    let phases: Vec<_> = events.iter().map(|event| record(event)["details"]["phase"].clone()).collect();
    assert_eq!(phases, ["begun", "done"]);
    assert_eq!(run.accept(false).await.unwrap().applied, 0, "again is no error");
    assert_eq!(reason(&run.discard().await.unwrap_err()), "PRECONDITION_FAILED");
    run.delete().await;
    assert_eq!(read(beneath.join("a.txt")), "ONE\ntwo\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn discarded_changes_leave_no_trace() {
    let daemon = Daemon::start().await;
    let (beneath, mut run) = begin(&daemon).await;
    work(&mut run).await;
    run.stop().await;

    // A run is not forgotten over changes that nobody has settled.
    let request = v1::DeleteRunRequest { run_id: run.id().to_owned(), delete_workspace: false };
    let refused = run.clients.runs.delete_run(request).await.unwrap_err();
    assert!(reason(&refused) == "PRECONDITION_FAILED" && refused.message().contains("accepted"), "{refused}");

    assert_eq!(run.discard().await.unwrap().changes(), Changes::Discarded);
    assert_eq!(run.discard().await.unwrap().changes(), Changes::Discarded, "again is no error");
    assert_eq!(reason(&run.accept(true).await.unwrap_err()), "PRECONDITION_FAILED");
    assert_eq!(read(beneath.join("a.txt")), "one\ntwo\n");
    assert_eq!(std::fs::read_dir(&beneath).unwrap().count(), 6);
    assert_eq!(std::fs::read_dir(daemon.state_dir().join("overlays")).unwrap().count(), 0);
    run.delete().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_changed_beneath_are_not_overwritten_unasked() {
    let daemon = Daemon::start().await;
    let (beneath, mut run) = begin(&daemon).await;
    work(&mut run).await;
    run.stop().await;
    // By its owner: one that the agent changed too, one that it deleted, one that it left alone, and one that is new.
    std::fs::write(beneath.join("a.txt"), "one, of its owner\ntwo\n").unwrap();
    std::fs::write(beneath.join("gone.txt"), "still wanted\n").unwrap();
    std::fs::write(beneath.join("hand.txt"), "of its owner\n").unwrap();
    std::fs::write(beneath.join("mine.txt"), "mine\n").unwrap();

    let diff = run.diff().await;
    let objections: Vec<_> = diff
        .changes
        .iter()
        .filter(|change| !change.objection.is_empty())
        .map(|change| change.path.as_str())
        .collect();
    assert_eq!(objections, ["a.txt", "gone.txt", "hand.txt"]);
    let refused = run.accept(false).await.unwrap_err();
    assert_eq!(reason(&refused), "PRECONDITION_FAILED");
    for path in objections {
        assert!(refused.message().contains(path), "{refused}");
    }
    assert_eq!(read(beneath.join("gone.txt")), "still wanted\n");
    assert!(!beneath.join("agent.txt").exists(), "nothing was applied");
    assert_eq!(run.show().await.changes(), Changes::Pending);

    run.accept(true).await.unwrap();
    assert_eq!(read(beneath.join("a.txt")), "ONE\ntwo\n");
    assert_eq!(read(beneath.join("hand.txt")), "by the host worker\n");
    assert!(!beneath.join("gone.txt").exists());
    assert_eq!(read(beneath.join("mine.txt")), "mine\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_is_worked_on_in_an_overlay() {
    let daemon = Daemon::start().await;
    let repository = daemon.repository("r", &[("a.txt", "one\n")]);
    let head = git(&repository, &["rev-parse", "HEAD"]);
    let mut run = daemon.run_on(requests::overlay("open", &repository)).await;
    run.ok(calls::replace("a.txt", "one", "two")).await;
    run.ok(calls::git_add(&["a.txt"])).await;
    run.ok(calls::git_commit("two")).await;
    run.stop().await;
    assert_eq!(git(&repository, &["rev-parse", "HEAD"]), head);
    run.accept(false).await.unwrap();
    assert_ne!(git(&repository, &["rev-parse", "HEAD"]), head);
    assert_eq!(git(&repository, &["status", "--porcelain"]), "");
    assert_eq!(git(&repository, &["show", "-s", "--format=%s"]).trim(), "two");
    git(&repository, &["fsck", "--strict"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_an_overlay_has_changes_to_settle() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let mut run = daemon.run("open", &workspace).await;
    let request = v1::DiffRunRequest { run_id: run.id().to_owned(), ..Default::default() };
    let refused = run.clients.runs.diff_run(request).await.unwrap_err();
    assert!(
        reason(&refused) == "PRECONDITION_FAILED" && refused.message().contains("not an overlay"),
        "{refused}"
    );
    assert_eq!(run.run.changes(), Changes::Unspecified);
    run.stop().await;
    assert_eq!(reason(&run.accept(false).await.unwrap_err()), "PRECONDITION_FAILED");
    assert_eq!(reason(&run.discard().await.unwrap_err()), "PRECONDITION_FAILED");
}
