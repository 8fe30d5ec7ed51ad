//! Tests each form of a patch through the API: its reviewer sees the effect, and a patch that does not fit asks no reviewer.

use std::fs;

use harness::v1::call_response::Status;
use harness::v1::operation::Kind as Operation;
use harness::v1::patch_request::Change;
use harness::v1::patched_file::Change as Became;
use harness::v1::result::Kind as Answer;
use harness::{Daemon, RunHandle, reason, v1};

fn patch(change: Change) -> Operation {
    Operation::Patch(v1::PatchRequest { change: Some(change) })
}

/// Makes a call that needs consent, and consents: what the reviewer saw, and the result.
async fn with_consent(run: &mut RunHandle, change: Change) -> (String, v1::PatchResult) {
    let (approval, response) = run.consented(patch(change)).await;
    assert_eq!(response.status(), Status::Succeeded, "{response:?}");
    let Some(Answer::Patch(patched)) = response.kind().cloned() else {
        panic!("not patched: {:?}", response.error)
    };
    (approval.preview, patched)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_form_of_a_patch_has_the_effect_that_its_reviewer_saw() {
    let daemon = Daemon::start().await;
    let files =
        [("a.txt", "one\ntwo\n"), ("gone.txt", "bye\n"), ("w.md", "---\ntitle: t # kept\n---\nbody\n")];
    let workspace = daemon.workspace("w", &files);
    let mut run = daemon.run("review", &workspace).await;

    let diff = "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+zwei\n";
    let (preview, patched) = with_consent(&mut run, Change::UnifiedDiff(diff.to_owned())).await;
    assert!(preview.contains("-two\n+zwei\n"), "{preview}");
    assert_eq!(patched.files[0].change(), Became::Updated);
    assert_eq!(fs::read_to_string(workspace.join("a.txt")).unwrap(), "one\nzwei\n");

    let envelope = "*** Begin Patch\n*** Update File: a.txt\n-one\n+eins\n*** Delete File: gone.txt\n\
                    *** Add File: n/new.txt\n+new\n*** End Patch\n";
    let (preview, patched) = with_consent(&mut run, Change::Envelope(envelope.to_owned())).await;
    assert!(preview.contains("+eins") && preview.contains("-bye"), "{preview}");
    let became: Vec<_> = patched.files.iter().map(v1::PatchedFile::change).collect();
    assert_eq!(became, [Became::Updated, Became::Deleted, Became::Created]);
    assert!(!patched.files[1].trash_entry.is_empty());
    assert_eq!(fs::read_to_string(workspace.join("a.txt")).unwrap(), "eins\nzwei\n");
    assert!(!workspace.join("gone.txt").exists());
    let seen = run.exec(&["cat", "n/new.txt"]).await;
    assert_eq!(seen.stdout, "new\n");

    let update = v1::UpdateFrontmatter {
        path: "w.md".to_owned(),
        steps_completed_append: vec!["one".to_owned()],
        ..Default::default()
    };
    with_consent(&mut run, Change::UpdateFrontmatter(update)).await;
    let document = fs::read_to_string(workspace.join("w.md")).unwrap();
    assert_eq!(document, "---\ntitle: t # kept\nstepsCompleted:\n- one\n---\nbody\n");
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn patch_that_does_not_apply_asks_no_reviewer_and_changes_nothing() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n"), ("b.txt", "x\n")]);
    let mut run = daemon.run("review", &workspace).await;
    let refused = async |run: &mut RunHandle, files: &str| {
        let envelope = format!("*** Begin Patch\n*** Update File: a.txt\n-one\n+two\n{files}*** End Patch\n");
        run.call(patch(Change::Envelope(envelope))).await.unwrap_err()
    };
    let status = refused(&mut run, "*** Update File: b.txt\n-y\n+z\n").await;
    assert_eq!(reason(&status), "PRECONDITION_FAILED");
    assert!(status.message().contains("@project/b.txt: hunk 1"), "{}", status.message());
    let status = refused(&mut run, "*** Add File: .git/hooks/pre-commit\n+x\n").await;
    assert_eq!(reason(&status), "SANDBOX_VIOLATION");
    let status = refused(&mut run, "*** Delete File: ../x\n").await;
    assert_eq!(reason(&status), "SANDBOX_VIOLATION");
    assert_eq!(fs::read_to_string(workspace.join("a.txt")).unwrap(), "one\n");
    run.stop().await;
}
