//! Patches through the API: all files or none, with what a reviewer sees, and the front matter of the `fs` dialect.

use std::fs;

use harness::v1::call_response::Status;
use harness::v1::operation::Kind as Operation;
use harness::v1::patch_request::Change;
use harness::v1::patched_file::Change as Became;
use harness::v1::result::Kind as Answer;
use harness::{Daemon, reason, v1};

const DIFF: &str = "\
--- a/src/a.rs
+++ b/src/a.rs
@@ -1 +1 @@
-fn a() {}
+fn a() -> u8 { 1 }
--- /dev/null
+++ b/src/new.rs
@@ -0,0 +1 @@
+fn new() {}
--- a/old.txt
+++ /dev/null
@@ -1 +0,0 @@
-old
";

fn patch(change: Change) -> Operation {
    Operation::Patch(v1::PatchRequest { change: Some(change) })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_patch_changes_all_of_its_files_or_none() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("src/a.rs", "fn a() {}\n"), ("old.txt", "old\n")]);
    let mut run = daemon.run("review", &workspace).await;

    let waiting = run.waits(patch(Change::UnifiedDiff(DIFF.to_owned())));
    let id = run.id().to_owned();
    let approval = run.clients.pending_approval(&id).await;
    for line in [
        "change: @project/src/a.rs\n",
        "create: @project/src/new.rs\n",
        "delete (to the run's trash): @project/old.txt\n",
        "+fn a() -> u8 { 1 }\n",
    ] {
        assert!(approval.preview.contains(line), "{}", approval.preview);
    }
    assert!(workspace.join("old.txt").exists(), "nothing happens before consent");
    run.clients.approve(&approval.approval_id).await.unwrap();
    let response = waiting.await.unwrap().unwrap();
    let Some(Answer::Patch(done)) = response.kind().cloned() else {
        panic!("not patched: {:?}", response.error)
    };
    let became: Vec<_> = done.files.iter().map(|file| (file.path.as_str(), file.change())).collect();
    assert_eq!(
        became,
        [
            ("@project/src/a.rs", Became::Updated),
            ("@project/src/new.rs", Became::Created),
            ("@project/old.txt", Became::Deleted)
        ]
    );
    assert_eq!(fs::read_to_string(workspace.join("src/a.rs")).unwrap(), "fn a() -> u8 { 1 }\n");
    assert_eq!(fs::read_to_string(workspace.join("src/new.rs")).unwrap(), "fn new() {}\n");
    assert!(!workspace.join("old.txt").exists());
    let trash = daemon.state_dir().join("host-worker").join(run.id()).join("trash");
    assert_eq!(fs::read_to_string(trash.join(&done.files[2].trash_entry)).unwrap(), "old\n");

    // The second file does not fit any more: nobody is asked, and nothing changes.
    let refused = run.call(patch(Change::UnifiedDiff(DIFF.to_owned()))).await.unwrap_err();
    assert_eq!(reason(&refused), "PRECONDITION_FAILED", "{}", refused.message());
    let protected = DIFF.replace("b/src/new.rs", "b/.git/hooks/pre-commit");
    let refused = run.call(patch(Change::UnifiedDiff(protected))).await.unwrap_err();
    assert_eq!(reason(&refused), "SANDBOX_VIOLATION", "{}", refused.message());
}

#[tokio::test(flavor = "multi_thread")]
async fn front_matter_changes_in_the_fs_dialect() {
    let daemon = Daemon::start().await;
    let workspace =
        daemon.workspace("w", &[("flow.md", "---\ntitle: T\nstepsCompleted: [a]\n---\n# Body\n")]);
    let mut run = daemon.run("open", &workspace).await;
    let arguments = serde_json::json!({"path": "@project/flow.md", "patch": {
        "operation": "updateFrontmatter",
        "update": {"stepsCompleted": {"append": ["a", "b"]}, "currentNodeId": {"set": "n2"}},
    }});
    let operation = v1::DialectCall {
        dialect: "fs".to_owned(),
        name: "fs.apply_patch".to_owned(),
        arguments_json: arguments.to_string(),
    };
    let response = run.call(operation).await.unwrap();
    assert_eq!(response.status(), Status::Succeeded, "{}", response.rendered);
    let rendered: serde_json::Value = serde_json::from_str(&response.rendered).unwrap();
    assert_eq!((rendered["ok"].as_bool(), rendered["path"].as_str()), (Some(true), Some("@project/flow.md")));
    let text = fs::read_to_string(workspace.join("flow.md")).unwrap();
    assert!(text.ends_with("---\n# Body\n") && text.contains("title: T\n"), "{text}");
    assert!(text.contains('b') && text.contains("n2"), "{text}");
}
