//! The page on backup and restore.

use harness::{Daemon, calls, requests};

use super::{Operator, block};

const PAGE: &str = include_str!("../../../docs/src/operating/backup.md");

/// Copies a daemon, loses its state and restores it. Returns the output of the commands that verify it.
async fn restored(copied_while_it_runs: bool) -> String {
    let mut daemon = Daemon::start().await;
    let mut operator = Operator::of(&daemon);
    let home = operator.home().to_owned();
    let etc = home.join("etc");
    std::fs::create_dir(&etc).unwrap();
    std::fs::create_dir(home.join("elsewhere")).unwrap();
    std::fs::copy(daemon.config_path(), etc.join("cofferd.yaml")).unwrap();
    operator.config = etc.join("cofferd.yaml");
    operator.replaced = vec![
        ("/mnt/backup", home.join("backup").display().to_string()),
        ("/mnt/elsewhere", home.join("elsewhere").display().to_string()),
        ("/etc/cofferdam", etc.display().to_string()),
        ("/var/lib/cofferdam", daemon.state_dir().display().to_string()),
    ];
    let mut run = daemon.run_on(requests::managed("open")).await;
    run.ok(calls::write("a.txt", "kept")).await;
    assert_eq!(run.exec(&["cat", "a.txt"]).await.stdout, "kept");
    let id = run.id().to_owned();
    operator.does(block(PAGE, "evidence")).await;
    if copied_while_it_runs {
        operator.does(block(PAGE, "copy")).await;
        daemon.stop().await;
    } else {
        daemon.stop().await;
        operator.does(block(PAGE, "copy")).await;
    }
    // The disk is lost.
    std::fs::rename(daemon.state_dir(), daemon.outside().join("lost")).unwrap();
    std::fs::remove_dir_all(&etc).unwrap();
    operator.does(block(PAGE, "restore")).await;
    assert!(etc.join("cofferd.yaml").exists());
    daemon.launch().await;

    let told = operator.does(block(PAGE, "verify")).await;
    assert_eq!(told.matches("intact: ").count(), 2, "{told}");
    assert!(told.contains(&id[id.len() - 8..]), "{told}");
    let mut clients = daemon.connect().await;
    let operations = clients.events(&id, "call_receipt").await;
    assert_eq!(operations.len(), 2, "{operations:?}");
    if copied_while_it_runs {
        let shown = operator.does(&format!("coffer run show {id}")).await;
        let next = format!("coffer run create --workspace {id}");
        assert!(shown.contains("restore from a backup") && shown.contains(&next), "{shown}");
    }
    // The workspace is there, and the next run continues in it.
    let next = format!(
        "RUN=$(coffer run create --profile open --workspace {id}); coffer call exec $RUN -- cat a.txt"
    );
    assert_eq!(operator.does(&next).await, "kept");
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_running_daemon_is_restored_and_its_runs_have_failed() {
    let told = restored(true).await;
    assert!(told.contains("FAILED"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_stopped_daemon_is_restored_with_the_ends_of_its_runs() {
    let told = restored(false).await;
    assert!(told.contains("STOPPED") && !told.contains("FAILED"), "{told}");
}
