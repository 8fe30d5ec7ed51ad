//! Deleting: with consent, into a trash that only the operator sees, until the run is deleted.

use std::fs;
use std::path::{Path, PathBuf};

use harness::v1::call_response::Status;
use harness::v1::operation::Kind as Operation;
use harness::v1::result::Kind as Answer;
use harness::v1::trash_service_client::TrashServiceClient;
use harness::{Daemon, RunHandle, binary, reason, record, v1};

fn delete(path: &str) -> Operation {
    Operation::Delete(v1::DeleteRequest { path: path.to_owned(), ..Default::default() })
}

/// Where the run's trash is on the host.
fn trash(daemon: &Daemon, run: &RunHandle) -> PathBuf {
    daemon.state_dir().join("host-worker").join(run.id()).join("trash")
}

fn names(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_file_is_in_the_trash_until_the_run_is_deleted() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("old.txt", "one two three\n"), ("src/kept.rs", "fn a() {}\n")]);
    fs::create_dir(workspace.join("empty")).unwrap();
    let mut run = daemon.run("review", &workspace).await;

    let (approval, response) = run.consented(delete("old.txt")).await;
    let Some(Answer::Delete(deleted)) = response.kind().cloned() else {
        panic!("not deleted: {:?}", response.error)
    };
    let expected =
        format!("to the run's trash: the file @project/old.txt, 14 bytes, sha256 {}\n", deleted.sha256);
    assert_eq!((approval.preview, approval.risk.as_str()), (expected, "critical"));
    assert!(!workspace.join("old.txt").exists());
    assert_eq!((deleted.size_bytes, deleted.r#type()), (14, v1::entry::Type::File));

    let trash = trash(&daemon, &run);
    let entry = &deleted.trash_entry;
    assert_eq!(names(&trash), [entry.clone(), format!("{entry}.json")]);
    assert_eq!(fs::read_to_string(trash.join(entry)).unwrap(), "one two three\n");
    assert!(fs::read_to_string(trash.join(format!("{entry}.json"))).unwrap().contains("@project/old.txt"));
    let seen = run.exec(&["find", "/workspace", "/state", "-name", "*.json"]).await;
    assert_eq!((seen.stdout.as_str(), seen.exit_code), ("", Some(0)), "nothing in the container sees it");

    let (approval, response) = run.consented(delete("empty")).await;
    assert_eq!(approval.preview, "to the run's trash: the empty directory @project/empty\n");
    assert_eq!(response.status(), Status::Succeeded);
    assert!(!workspace.join("empty").exists());

    // What would fail asks nobody.
    let refused = run.call(delete("src")).await.unwrap_err();
    assert_eq!(reason(&refused), "PRECONDITION_FAILED");
    assert!(refused.message().contains("the directory is not empty"), "{}", refused.message());
    let refused = run.call(delete(".git/config")).await.unwrap_err();
    assert_eq!(reason(&refused), "SANDBOX_VIOLATION");

    let events = run.clients.of_call(&response.call_id).await;
    let receipt = record(events.last().unwrap());
    assert_eq!(receipt["outcome"]["facts"]["path"], "@project/empty", "{receipt}");
    assert_eq!(receipt["operation"], "delete");

    shows_its_trash_to_whoever_may_use_it(&daemon, &mut run, entry).await;
    run.stop().await;
    assert_eq!(names(&trash).len(), 4, "it stays while the run's record does");
    run.delete().await;
    assert!(!trash.exists());
    assert!(workspace.join("src/kept.rs").exists());
    assert_eq!(daemon.leftovers(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn huge_file_is_deleted_permanently_with_consent() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("huge", "")]);
    fs::File::options()
        .write(true)
        .open(workspace.join("huge"))
        .and_then(|file| file.set_len(300 << 20))
        .unwrap();
    let mut run = daemon.run("open", &workspace).await;
    let (approval, response) = run.consented(delete("huge")).await;
    assert_eq!(
        approval.preview,
        "the run's trash has no space for it, so it will be GONE FOR GOOD: the file @project/huge, \
         314572800 bytes, too many to be read\n"
    );
    let Some(Answer::Delete(deleted)) = response.kind().cloned() else {
        panic!("not deleted: {:?}", response.error)
    };
    assert!(deleted.gone_for_good && deleted.trash_entry.is_empty(), "{deleted:?}");
    assert!(!workspace.join("huge").exists());
    assert_eq!(names(&trash(&daemon, &run)), Vec::<String>::new());
    let events = run.clients.of_call(&response.call_id).await;
    assert_eq!(record(events.last().unwrap())["outcome"]["facts"]["gone_for_good"], true);
}

async fn shows_its_trash_to_whoever_may_use_it(daemon: &Daemon, run: &mut RunHandle, entry: &str) {
    let mut client = TrashServiceClient::new(run.clients.channel.clone());
    let run_id = run.id().to_owned();
    let list = |page_size: u32, page_token: &str| v1::ListTrashRequest {
        run_id: run_id.clone(),
        page_size,
        page_token: page_token.to_owned(),
    };
    let first = client.list_trash(list(1, "")).await.unwrap().into_inner();
    let second = client.list_trash(list(1, &first.next_page_token)).await.unwrap().into_inner();
    let paths: Vec<_> =
        [first.entries, second.entries].concat().into_iter().map(|entry| entry.path).collect();
    assert_eq!(paths, ["@project/old.txt", "@project/empty"]);
    assert_eq!(second.next_page_token, "");
    let read = |entry: &str, offset| v1::ReadTrashRequest {
        run_id: run_id.clone(),
        entry: entry.to_owned(),
        offset,
        max_bytes: 4,
    };
    let piece = client.read_trash(read(entry, 4)).await.unwrap().into_inner();
    assert_eq!((piece.data, piece.entry.unwrap().size_bytes), (b"two ".to_vec(), 14));
    for wrong in ["", "../../../store.db", "1-1-1", &format!("{entry}.json")] {
        let refused = client.read_trash(read(wrong, 0)).await.unwrap_err();
        assert_eq!(reason(&refused), "NOT_FOUND", "{wrong}");
    }

    let run_id = run_id.as_str();
    let coffer = async |line: &[&str]| {
        let mut command = tokio::process::Command::new(binary("coffer"));
        command.env("COFFERDAM_ENDPOINT", format!("unix:{}", daemon.socket().display())).args(line);
        let output = command.output().await.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let table = coffer(&["trash", "list", run_id]).await;
    assert!(table.contains(entry) && table.contains("@project/old.txt"), "{table}");
    assert_eq!(coffer(&["trash", "show", run_id, entry]).await, "one two three\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn file_changed_during_review_is_not_deleted() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "seen\n")]);
    let mut run = daemon.run("open", &workspace).await;
    let asked = run.asks(delete("a.txt")).await;
    // The run stands still; the host does not.
    fs::write(workspace.join("a.txt"), "unseen\n").unwrap();
    run.clients.approve(&asked.approval_id).await.unwrap();
    let call = run.outcome(&asked.call_id).await;
    assert_eq!((call.status(), call.error.unwrap().reason.as_str()), (Status::Denied, "PRECONDITION_FAILED"));
    assert_eq!(fs::read_to_string(workspace.join("a.txt")).unwrap(), "unseen\n");
    assert_eq!(names(&trash(&daemon, &run)), Vec::<String>::new());
}
