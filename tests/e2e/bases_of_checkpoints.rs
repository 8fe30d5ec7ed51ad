//! Bases that are made of checkpoints.

use harness::forks::{checkpoint, delete};
use harness::v1::base_source::Source;
use harness::{Clients, Daemon, Setup, as_user, calls, reason, requests, v1};
use tonic::Status;

async fn make(clients: &mut Clients, checkpoint: &str) -> Result<v1::Base, Status> {
    let of = v1::CheckpointWorkspace { checkpoint_id: checkpoint.to_owned() };
    let source = Some(v1::BaseSource { source: Some(Source::Checkpoint(of)) });
    let request = v1::CreateBaseRequest { source, ..v1::CreateBaseRequest::default() };
    Ok(clients.bases.create_base(request).await?.into_inner().base.unwrap())
}

/// Returns the files of a run on the base, with their contents.
async fn files(daemon: &Daemon, base: &str) -> String {
    let mut run = daemon.run_on(requests::base("open", base)).await;
    let script = "find . -type f | sort | while read -r f; do echo \"$f $(cat \"$f\")\"; done";
    let found = run.exec(&["sh", "-c", script]).await.stdout;
    run.stop().await;
    run.discard().await.unwrap();
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_base_of_a_checkpoint_has_the_files_of_that_moment() {
    const CHANGE: &str =
        "echo new >new.txt; echo changed >a.txt; rm gone.txt; rm -r d; mkdir d; echo y >d/y.txt";
    const CHANGED: &str = "./a.txt changed\n./d/y.txt y\n./new.txt new\n";
    let daemon = Daemon::start().await;
    let source = daemon.workspace("w", &[("a.txt", "one\n"), ("gone.txt", "bye\n"), ("d/x.txt", "x\n")]);
    let first = daemon.base(&source).await;
    let mut clients = daemon.connect().await;
    for asked in [
        requests::base("harness", &first),
        requests::overlay("harness", &source),
        requests::managed("harness"),
    ] {
        let mut run = daemon.run_on(asked).await;
        run.exec(&["sh", "-c", "mkdir -p d; touch gone.txt"]).await;
        assert_eq!(run.exec(&["sh", "-c", CHANGE]).await.exit_code, Some(0));
        let kept = checkpoint(&mut clients, run.id()).await.unwrap().checkpoint_id;
        // What the run does later is not in it.
        run.ok(calls::write("later.txt", "later\n")).await;
        let base = make(&mut clients, &kept).await.unwrap();
        assert_eq!((base.files, base.size_bytes), (5, 14), "{base:?}");
        assert!(
            matches!(base.source.unwrap().source, Some(Source::Checkpoint(of)) if of.checkpoint_id == kept)
        );
        assert_eq!(files(&daemon, &base.base_id).await, CHANGED);

        // It needs neither the checkpoint nor the run.
        run.stop().await;
        delete(&mut clients, &kept).await.unwrap();
        assert_eq!(files(&daemon, &base.base_id).await, CHANGED);
    }
    assert_eq!(files(&daemon, &first).await, "./a.txt one\n./d/x.txt x\n./gone.txt bye\n");
    assert!(daemon.mounts().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_that_a_principal_may_not_use_or_that_is_gone_makes_no_base() {
    let access = "access: [{ uid: 4321, roles: [orchestrator] }]\n";
    let daemon = Daemon::start_with(Setup { config: access.to_owned(), ..Setup::default() }).await;
    daemon.expose();
    let mut clients = daemon.connect().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    run.ok(calls::write("a.txt", "x")).await;
    let kept = checkpoint(&mut clients, run.id()).await.unwrap().checkpoint_id;
    let id = kept.clone();
    let stranger = async move |mut clients: Clients| make(&mut clients, &id).await.unwrap_err();
    let refused = as_user(4321, &daemon.socket(), stranger).await;
    assert_eq!(reason(&refused), "NOT_FOUND");
    delete(&mut clients, &kept).await.unwrap();
    assert_eq!(reason(&make(&mut clients, &kept).await.unwrap_err()), "NOT_FOUND");
    assert_eq!(reason(&make(&mut clients, "../x").await.unwrap_err()), "INVALID_ARGUMENT");
    let trees = std::fs::read_dir(daemon.state_dir().join("bases"));
    assert!(trees.into_iter().flatten().next().is_none());
}
