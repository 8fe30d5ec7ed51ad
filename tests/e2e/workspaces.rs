//! Tests workspaces that outlive their runs: listed, used again, and deleted on request.

use std::path::{Path, PathBuf};

use harness::{Clients, Daemon, RunHandle, calls, git, own, reason, requests, v1};

async fn list(clients: &mut Clients, measure: bool) -> Vec<v1::KeptWorkspace> {
    let request = v1::ListWorkspacesRequest { measure, ..Default::default() };
    clients.runs.list_workspaces(request).await.unwrap().into_inner().workspaces
}

async fn delete(clients: &mut Clients, id: &str) -> Result<(), tonic::Status> {
    let request = v1::DeleteWorkspaceRequest { workspace_id: id.to_owned() };
    clients.runs.delete_workspace(request).await.map(drop)
}

async fn forget(run: &mut RunHandle) {
    run.stop().await;
    let request = v1::DeleteRunRequest { run_id: run.id().to_owned(), ..Default::default() };
    run.clients.runs.delete_run(request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_managed_workspace_outlives_its_run_and_the_run_s_record() {
    let mut daemon = Daemon::start().await;
    let mut first = daemon.run_on(requests::managed("open")).await;
    let id = first.id().to_owned();
    let path = PathBuf::from(&first.run.workspace_path);
    first.ok(calls::write("a.txt", "12345")).await;
    let [kept] = &list(&mut first.clients, false).await[..] else { panic!("not one") };
    assert_eq!(
        (kept.workspace_id.as_str(), kept.kind.as_str(), kept.used_by.as_str()),
        (&*id, "managed", &*id)
    );
    assert_eq!((kept.principal.as_str(), kept.size_bytes), ("uid:0", None));
    assert_eq!(PathBuf::from(&kept.path), path);
    assert_eq!(reason(&delete(&mut first.clients, &id).await.unwrap_err()), "PRECONDITION_FAILED");
    // Its own run uses it, and nobody else may.
    let refused = daemon.run_with(requests::kept("open", &id)).await.err().unwrap();
    assert_eq!(reason(&refused), "PRECONDITION_FAILED");

    forget(&mut first).await;
    daemon.stop().await;
    daemon.launch().await;
    let mut clients = daemon.connect().await;
    let [kept] = &list(&mut clients, true).await[..] else { panic!("not one") };
    assert_eq!((kept.used_by.as_str(), kept.size_bytes), ("", Some(5)));

    // No later run gets its id, and with that the say over it.
    let taken = v1::CreateRunRequest {
        request_id: "again".to_owned(),
        run_id: id.clone(),
        ..requests::managed("open")
    };
    assert_eq!(reason(&daemon.run_with(taken).await.err().unwrap()), "ALREADY_EXISTS");
    assert!(path.join("a.txt").exists());

    let mut second = daemon.run_on(requests::kept("open", &id)).await;
    assert_eq!(second.exec(&["cat", "a.txt"]).await.stdout, "12345");
    second.ok(calls::write("b.txt", "x")).await;
    assert_eq!(list(&mut clients, false).await[0].used_by, second.id());
    assert_eq!(reason(&delete(&mut clients, &id).await.unwrap_err()), "PRECONDITION_FAILED");
    second.stop().await;
    second.delete().await;
    assert!(path.join("b.txt").exists(), "it was not made for that run");

    delete(&mut clients, &id).await.unwrap();
    assert!(!path.exists());
    assert!(list(&mut clients, false).await.is_empty());
    assert_eq!(reason(&delete(&mut clients, &id).await.unwrap_err()), "NOT_FOUND");
    let refused = daemon.run_with(requests::kept("open", &id)).await.err().unwrap();
    assert_eq!(reason(&refused), "NOT_FOUND");
    assert_eq!(clients.events(&id, "workspace_change").await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn clones_and_unsettled_changes_are_listed_by_pages() {
    let daemon = Daemon::start().await;
    let repository = daemon.repository("r", &[("a.txt", "one\n")]);
    let mut clone = daemon.run_on(requests::clone("open", &repository)).await;
    let mut overlay = daemon.run_on(requests::overlay("open", &repository)).await;
    overlay.ok(calls::write("b.txt", "123")).await;
    clone.stop().await;
    overlay.stop().await;
    let mut clients = daemon.connect().await;
    let mut pages = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = v1::ListWorkspacesRequest { page_size: 1, page_token, measure: true };
        let page = clients.runs.list_workspaces(request).await.unwrap().into_inner();
        assert_eq!(page.workspaces.len(), 1);
        pages.extend(page.workspaces);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    let [newer, older] = &pages[..] else { panic!("{pages:?}") };
    assert_eq!(
        (newer.workspace_id.as_str(), newer.kind.as_str(), newer.size_bytes),
        (overlay.id(), "overlay", Some(3))
    );
    assert_eq!((older.workspace_id.as_str(), older.kind.as_str()), (clone.id(), "clone"));
    assert_eq!(
        (&newer.path, &older.repository),
        (&repository.display().to_string(), &repository.display().to_string())
    );

    // Deleting the changes is discarding them; a run that is deleted with its workspace leaves nothing.
    delete(&mut clients, overlay.id()).await.unwrap();
    assert_eq!(overlay.show().await.changes(), v1::run::Changes::Discarded);
    let path = PathBuf::from(&clone.run.workspace_path);
    clone.delete().await;
    assert!(!path.exists() && repository.join("a.txt").exists());
    assert!(list(&mut clients, false).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_linked_work_tree_is_cloned_only_where_its_repository_names_it() {
    let daemon = Daemon::start().await;
    let [main, other] = ["main", "other"].map(|name| daemon.repository(name, &[("a.txt", "one\n")]));
    let [tree, beside] = ["tree", "beside"].map(|name| main.with_file_name(name));
    for (repository, tree) in [(&main, &tree), (&other, &beside)] {
        git(repository, &["worktree", "add", "-q", "-b", "agent", tree.to_str().unwrap()]);
        std::fs::write(tree.join("a.txt"), "by an agent\n").unwrap();
        git(tree, &["commit", "-q", "-a", "-m", "second"]);
        for path in [repository, tree] {
            own(path, 4321);
        }
    }
    let mut clone = daemon.run_on(requests::clone("open", &tree)).await;
    let log = calls::git_log("HEAD");
    assert!(format!("{:?}", clone.ok(log).await).contains("second"));
    clone.stop().await;
    // An agent that could write the directory points it at another repository of the same owner.
    std::fs::write(tree.join(".git"), format!("gitdir: {}/.git/worktrees/beside\n", other.display()))
        .unwrap();
    own(&tree, 4321);
    let refused = daemon.run_with(requests::clone("open", &tree)).await.err().unwrap();
    assert!(refused.message().contains("does not name it"), "{refused:?}");
    std::fs::write(tree.join(".git"), "gitdir: /etc/.git/worktrees/tree\n").unwrap();
    own(&tree, 4321);
    let refused = daemon.run_with(requests::clone("open", &tree)).await.err().unwrap();
    assert!(refused.message().contains("its repository cannot be used"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_on_sibling_work_trees_commit_at_once_and_after_their_daemon_was_killed() {
    const COMMITS: usize = 3;
    let mut daemon = Daemon::start().await;
    let [main, other] = ["main", "other"].map(|name| daemon.repository(name, &[("a.txt", "one\n")]));
    let trees = ["left", "right"].map(|name| main.with_file_name(name));
    for tree in &trees {
        git(&main, &["worktree", "add", "-q", tree.to_str().unwrap()]);
        own(tree, 4321);
    }
    git(&other, &["worktree", "add", "-q", other.with_file_name("beside").to_str().unwrap()]);
    for repository in [&main, &other] {
        own(repository, 4321);
    }
    let commits = |mut run: RunHandle, name: &'static str| async move {
        for number in 0..COMMITS {
            run.ok(calls::write("a.txt", &format!("{name} {number}\n"))).await;
            run.ok(calls::git_add(&["a.txt"])).await;
            run.ok(calls::git_commit(&format!("{name} {number}"))).await;
        }
        run
    };
    let left = daemon.run_on(requests::bind("open", &trees[0])).await;
    let right = daemon.run_on(requests::bind("open", &trees[1])).await;
    let (mut left, right) = tokio::join!(commits(left, "left"), commits(right, "right"));
    let subjects = |branch: &str| git(&main, &["log", "--format=%s", branch]).lines().count();
    assert_eq!((subjects("left"), subjects("right"), subjects("main")), (4, 4, 1));

    // The container sees nothing of the repository, and what it writes into `.git` leads nowhere.
    let script = format!(
        "test ! -e {} && echo 'gitdir: {}/.git/worktrees/beside' > /workspace/.git",
        main.display(),
        other.display()
    );
    assert!(format!("{:?}", left.ok(calls::shell(&script)).await).contains("exit_code: Some(0)"));
    let left = commits(left, "left").await;
    daemon.relaunch().await;
    let clients = daemon.connect().await;
    let left = RunHandle { clients: clients.clone(), ..left };
    let right = RunHandle { clients, ..right };
    let (mut left, mut right) = tokio::join!(commits(left, "left"), commits(right, "right"));
    assert_eq!((subjects("left"), subjects("right"), subjects("main")), (10, 7, 1));
    assert_eq!(git(&other, &["log", "--format=%s", "--all"]).lines().count(), 1);
    git(&main, &["fsck", "--strict"]);
    left.stop().await;
    right.stop().await;
    // A later run believes the file only as far as the repository does.
    let mut again = daemon.run_on(requests::bind("open", &trees[0])).await;
    again.ok(calls::write("b.txt", "new\n")).await;
    let refused = format!("{:?}", again.call(calls::git_log("HEAD")).await);
    assert!(refused.contains("a run on a clone of it has git"), "{refused}");
    again.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn git_in_an_overlay_of_a_linked_work_tree_writes_into_its_layer_alone() {
    let mut daemon = Daemon::start().await;
    let main = daemon.repository("main", &[("a.txt", "one\n")]);
    let tree = main.with_file_name("tree");
    git(&main, &["worktree", "add", "-q", tree.to_str().unwrap()]);
    for path in [&main, &tree] {
        own(path, 4321);
    }
    let files = |path: &Path| {
        let listed = std::process::Command::new("find")
            .arg(path)
            .args(["-type", "f", "-printf", "%P %T@ %s\n", "-o", "-printf", "%P %m\n"])
            .output();
        let mut lines: Vec<_> =
            String::from_utf8(listed.unwrap().stdout).unwrap().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let before = files(&main);
    let git_state = || {
        let log = git(&tree, &["log", "--format=%s", "--all"]);
        (log, git(&tree, &["--no-optional-locks", "status", "--porcelain"]))
    };

    let mut run = daemon.run_on(requests::overlay("open", &tree)).await;
    run.ok(calls::write("a.txt", "two\n")).await;
    run.ok(calls::write("b.txt", "new\n")).await;
    run.ok(calls::git_add(&["a.txt", "b.txt"])).await;
    run.ok(calls::git_commit("in the layer")).await;
    let log = |answer: v1::result::Kind| match answer {
        v1::result::Kind::Git(log) => log.output,
        other => panic!("{other:?}"),
    };
    let seen = log(run.ok(calls::git_log("HEAD")).await);
    assert!(seen.contains("in the layer") && seen.contains("first"), "{seen}");
    // The container does not see the repository, nor its layer.
    let script = format!("test ! -e {} && test ! -e /workspace/repository", main.display());
    assert_eq!(run.ran(calls::shell(&script)).await.exit_code, Some(0));
    assert_eq!(files(&main), before, "the repository");
    assert_eq!(git_state(), ("first\n".to_owned(), String::new()));

    // It goes on after its daemon was killed, and so do the commits.
    daemon.relaunch().await;
    let mut run = RunHandle { clients: daemon.connect().await, ..run };
    run.ok(calls::write("c.txt", "more\n")).await;
    run.ok(calls::git_add(&["c.txt"])).await;
    run.ok(calls::git_commit("after the daemon")).await;
    let seen = log(run.ok(calls::git_log("HEAD")).await);
    assert!(seen.contains("in the layer") && seen.contains("after the daemon"), "{seen}");
    run.stop().await;
    assert_eq!(files(&main), before, "the repository");

    // Files are accepted. Commits are not: they would be in a repository that is not the workspace.
    let paths: Vec<_> = run.diff().await.changes.into_iter().map(|change| change.path).collect();
    assert_eq!(paths, ["a.txt", "b.txt", "c.txt"]);
    run.accept(false).await.unwrap();
    assert_eq!(files(&main), before, "the repository");
    assert_eq!(git_state(), ("first\n".to_owned(), " M a.txt\n?? b.txt\n?? c.txt\n".to_owned()));
}
