//! Bases: trees of files that many runs begin on, and that none of them changes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use harness::v1::result::Kind as Answer;
use harness::v1::run::Changes;
use harness::{
    Clients, Daemon, RunHandle, Setup, as_user, calls, git, own, reason, record, requests, until, v1,
};
use tonic::Status;

use crate::cli::{json, out};

pub(crate) fn directory(path: &Path) -> v1::base_source::Source {
    v1::base_source::Source::Directory(v1::DirectorySource { path: path.display().to_string() })
}

fn clone(repository: &Path, revision: &str) -> v1::base_source::Source {
    let (repository, revision) = (repository.display().to_string(), revision.to_owned());
    v1::base_source::Source::Clone(v1::CloneWorkspace {
        repository,
        revision,
        ..v1::CloneWorkspace::default()
    })
}

pub(crate) async fn make(clients: &mut Clients, source: v1::base_source::Source) -> Result<v1::Base, Status> {
    let source = Some(v1::BaseSource { source: Some(source) });
    let request = v1::CreateBaseRequest { source, ..v1::CreateBaseRequest::default() };
    Ok(clients.bases.create_base(request).await?.into_inner().base.unwrap())
}

pub(crate) async fn list(clients: &mut Clients) -> Vec<v1::Base> {
    clients.bases.list_bases(v1::ListBasesRequest::default()).await.unwrap().into_inner().bases
}

pub(crate) async fn get(clients: &mut Clients, id: &str) -> Result<v1::Base, Status> {
    let request = v1::GetBaseRequest { base_id: id.to_owned() };
    Ok(clients.bases.get_base(request).await?.into_inner().base.unwrap())
}

pub(crate) async fn verify(clients: &mut Clients, id: &str) -> v1::VerifyBaseResponse {
    let request = v1::VerifyBaseRequest { base_id: id.to_owned() };
    clients.bases.verify_base(request).await.unwrap().into_inner()
}

async fn delete(clients: &mut Clients, id: &str) -> Result<(), Status> {
    let request = v1::DeleteBaseRequest { base_id: id.to_owned() };
    clients.bases.delete_base(request).await.map(drop)
}

/// Names of the trees that the daemon has.
pub(crate) fn trees(daemon: &Daemon) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(daemon.state_dir().join("bases")) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

async fn discard(run: &mut RunHandle) {
    run.stop().await;
    run.discard().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_runs_on_one_base_see_its_files_and_each_its_own_changes() {
    let daemon = Daemon::start().await;
    let source = daemon.workspace("w", &[("a.txt", "one\n"), ("gone.txt", "bye\n"), ("d/x.txt", "x\n")]);
    let mut clients = daemon.connect().await;
    let base = make(&mut clients, directory(&source)).await.unwrap();
    let id = base.base_id.clone();
    assert_eq!((base.principal.as_str(), base.files, base.size_bytes), ("uid:0", 5, 10));
    // It is a copy: its source may go.
    std::fs::remove_dir_all(&source).unwrap();

    // Its deny list has no `rm`.
    let mut one = daemon.run_on(requests::base("harness", &id)).await;
    let mut other = daemon.run_on(requests::base("open", &id)).await;
    assert_eq!((one.run.ownership.as_str(), one.run.changes()), ("idmapped", Changes::Pending));
    one.ok(calls::write("mine.txt", "of one\n")).await;
    assert_eq!(one.exec(&["sh", "-c", "echo changed >a.txt; rm gone.txt; cat d/x.txt"]).await.stdout, "x\n");
    assert_eq!(other.exec(&["cat", "a.txt", "gone.txt"]).await.stdout, "one\nbye\n");
    assert_eq!(other.fails(calls::read("mine.txt")).await.reason, "NOT_FOUND");
    other.ok(calls::write("mine.txt", "of the other\n")).await;
    let Answer::Read(found) = one.ok(calls::read("mine.txt")).await else { panic!("not a read") };
    assert_eq!(found.content, "of one\n");
    let diff = one.diff().await;
    let paths: Vec<_> = diff.changes.iter().map(|change| change.path.as_str()).collect();
    assert_eq!(paths, ["a.txt", "gone.txt", "mine.txt"]);
    assert!(diff.changes.iter().all(|change| change.objection.is_empty()), "{diff:?}");
    let mut users = get(&mut clients, &id).await.unwrap().used_by;
    users.sort();
    assert_eq!(users, [one.id(), other.id()]);

    // The base has no part of it, and is not deleted while they need it.
    assert!(verify(&mut clients, &id).await.intact);
    assert_eq!(reason(&delete(&mut clients, &id).await.unwrap_err()), "PRECONDITION_FAILED");
    discard(&mut other).await;
    one.stop().await;
    let refused = one.accept(false).await.unwrap_err();
    assert!(
        reason(&refused) == "PRECONDITION_FAILED" && refused.message().contains("never changes"),
        "{refused}"
    );
    let refused = delete(&mut clients, &id).await.unwrap_err();
    assert!(refused.message().contains(one.id()), "its changes are shown beside the base: {refused}");
    assert_eq!(one.diff().await.changes.len(), 3);
    let listed = clients.runs.list_workspaces(v1::ListWorkspacesRequest::default()).await.unwrap();
    let [kept] = &listed.into_inner().workspaces[..] else { panic!("not one") };
    assert_eq!((kept.workspace_id.as_str(), kept.kind.as_str()), (one.id(), "base"));
    one.discard().await.unwrap();
    assert_eq!(verify(&mut clients, &id).await.digest, base.digest);

    delete(&mut clients, &id).await.unwrap();
    assert!(trees(&daemon).is_empty() && list(&mut clients).await.is_empty());
    assert_eq!(reason(&delete(&mut clients, &id).await.unwrap_err()), "NOT_FOUND");
    let refused = daemon.run_with(requests::base("open", &id)).await.err().unwrap();
    assert_eq!(reason(&refused), "NOT_FOUND");
    for kind in ["base_created", "base_deleted"] {
        let [event] = &clients.events("", kind).await[..] else { panic!("not one {kind}") };
        let details = &record(event)["details"];
        assert_eq!((details["base"].as_str(), details["digest"].as_str()), (Some(&*id), Some(&*base.digest)));
        assert_eq!((details["bytes"].as_u64(), details["files"].as_u64()), (Some(10), Some(5)));
    }
    assert!(daemon.mounts().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_on_a_base_of_a_clone_works_with_git_as_on_a_clone() {
    let daemon = Daemon::start().await;
    let repository = daemon.repository("r", &[("a.txt", "one\n")]);
    git(&repository, &["tag", "v1"]);
    std::fs::write(repository.join("a.txt"), "two\n").unwrap();
    git(&repository, &["commit", "-q", "-a", "-m", "second"]);
    own(&repository, 4321);
    let mut clients = daemon.connect().await;
    let base = make(&mut clients, clone(&repository, "v1")).await.unwrap();
    for content in ["first run\n", "second run\n"] {
        let mut run = daemon.run_on(requests::base("open", &base.base_id)).await;
        assert_eq!(run.exec(&["cat", "a.txt"]).await.stdout, "one\n");
        let status = v1::git_request::Command::Status(v1::GitStatus {});
        let clean = format!("{:?}", run.ok(calls::git(status)).await);
        assert!(!clean.contains("a.txt"), "{clean}");
        run.ok(calls::write("a.txt", content)).await;
        run.ok(calls::git_add(&["a.txt"])).await;
        run.ok(calls::git_commit(content)).await;
        let log = format!("{:?}", run.ok(calls::git_log("HEAD")).await);
        assert!(
            log.contains(content.trim()) && log.contains("first") && !log.contains("\"second\""),
            "{log}"
        );
        discard(&mut run).await;
    }
    assert!(verify(&mut clients, &base.base_id).await.intact);
    let refused = make(&mut clients, clone(&repository, "no-such-branch")).await.unwrap_err();
    assert!(
        reason(&refused) == "INVALID_ARGUMENT" && refused.message().contains("no-such-branch"),
        "{refused}"
    );
    assert_eq!(trees(&daemon), [base.base_id]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_base_of_the_same_commit_is_found_and_of_another_one_is_made() {
    let daemon = Daemon::start().await;
    let repository = daemon.repository("r", &[("a.txt", "one\n")]);
    let mut clients = daemon.connect().await;
    let mut reuse = async |source| {
        let source = Some(v1::BaseSource { source: Some(source) });
        let request = v1::CreateBaseRequest { source, reuse: true, ..v1::CreateBaseRequest::default() };
        clients.bases.create_base(request).await.map(|made| {
            let made = made.into_inner();
            (made.base.unwrap().base_id, made.reused)
        })
    };
    let (first, is_old) = reuse(clone(&repository, "")).await.unwrap();
    assert!(!is_old);
    // HEAD is this branch.
    for revision in ["", "main"] {
        assert_eq!(reuse(clone(&repository, revision)).await.unwrap(), (first.clone(), true), "{revision}");
    }
    // A clone at a commit has no branch, and a new tag would be in a new clone.
    let commit = git(&repository, &["rev-parse", "HEAD"]);
    let (detached, is_old) = reuse(clone(&repository, commit.trim())).await.unwrap();
    assert!(!is_old && detached != first);
    git(&repository, &["tag", "v1"]);
    own(&repository, 4321);
    let (tagged, is_old) = reuse(clone(&repository, "")).await.unwrap();
    assert!(!is_old && tagged != first);
    std::fs::write(repository.join("a.txt"), "two\n").unwrap();
    git(&repository, &["commit", "-q", "-a", "-m", "second"]);
    own(&repository, 4321);
    let (second, is_old) = reuse(clone(&repository, "main")).await.unwrap();
    assert!(!is_old && second != tagged);
    assert_eq!(reuse(clone(&repository, "main")).await.unwrap(), (second.clone(), true));
    // The same commit in another repository is another source.
    let copy = daemon.roots().join("copy");
    let copied = std::process::Command::new("cp").arg("-a").args([&repository, &copy]).status().unwrap();
    assert!(copied.success());
    assert!(!reuse(clone(&copy, "main")).await.unwrap().1);
    assert_eq!(reason(&reuse(directory(&repository)).await.unwrap_err()), "INVALID_ARGUMENT");
    let refused = reuse(clone(&repository, "none")).await.unwrap_err();
    assert!(refused.message().contains("none"), "{refused}");

    let mut run = daemon.run_on(requests::base("open", &second)).await;
    assert_eq!(run.exec(&["cat", "a.txt"]).await.stdout, "two\n");
    discard(&mut run).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_directory_becomes_a_harmless_base_or_none() {
    let daemon = Daemon::start().await;
    let source = daemon.workspace("w", &[("d/a.txt", "a\n"), ("closed/a.txt", "a\n")]);
    let secret = daemon.outside().join("secret");
    std::fs::write(&secret, "it sings").unwrap();
    symlink(&secret, source.join("out")).unwrap();
    std::fs::write(source.join(OsStr::from_bytes(b"\xff\n\x1b[2J")), "odd").unwrap();
    std::fs::write(source.join("set-uid"), "x").unwrap();
    for (name, kind) in [("fifo", &["p"][..]), ("d/whiteout", &["c", "0", "0"]), ("disk", &["b", "7", "0"])] {
        let made = std::process::Command::new("mknod").arg(source.join(name)).args(kind).status().unwrap();
        assert!(made.success());
    }
    let mark = (source.join("d"), "user.overlay.opaque");
    rustix::fs::setxattr(mark.0, mark.1, b"y", rustix::fs::XattrFlags::empty()).unwrap();
    own(&source, 4321);
    std::fs::set_permissions(source.join("set-uid"), std::fs::Permissions::from_mode(0o6755)).unwrap();
    let mut clients = daemon.connect().await;
    let base = make(&mut clients, directory(&source)).await.unwrap();
    assert_eq!((base.left_out, verify(&mut clients, &base.base_id).await.intact), (3, true));
    let tree = daemon.state_dir().join("bases").join(&base.base_id);
    let uid = |name: &str| std::fs::symlink_metadata(tree.join(name)).unwrap().uid();
    assert_eq!((uid("d/a.txt"), uid("out")), (4321, 4321));
    assert_eq!(std::fs::metadata(tree.join("set-uid")).unwrap().mode() & 0o6000, 0);
    let names = std::fs::read_dir(&tree).unwrap().count();
    assert_eq!(names, std::fs::read_dir(&source).unwrap().count() - 2, "a FIFO and a device");
    assert_eq!(std::fs::read_link(tree.join("out")).unwrap(), secret);

    let mut run = daemon.run_on(requests::base("open", &base.base_id)).await;
    assert_eq!(run.exec(&["sh", "-c", "ls d; cat d/a.txt; cat out"]).await.stdout, "a.txt\na\n");
    discard(&mut run).await;

    // A file that its owner cannot read is not left out without a word.
    std::fs::set_permissions(source.join("closed"), std::fs::Permissions::from_mode(0o000)).unwrap();
    let refused = make(&mut clients, directory(&source)).await.unwrap_err();
    assert!(reason(&refused) == "PRECONDITION_FAILED" && refused.message().contains("closed"), "{refused}");
    assert!(!refused.message().contains(&*daemon.outside().to_string_lossy()), "{refused}");
    for (path, why) in [
        (daemon.outside().to_owned(), "SANDBOX_VIOLATION"),
        (source.join("none"), "NOT_FOUND"),
        (source.join("set-uid"), "INVALID_ARGUMENT"),
        (PathBuf::from("w"), "INVALID_ARGUMENT"),
    ] {
        assert_eq!(
            reason(&make(&mut clients, directory(&path)).await.unwrap_err()),
            why,
            "{}",
            path.display()
        );
    }
    assert_eq!(trees(&daemon), [base.base_id]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_base_exists_for_its_principal_and_for_operators_alone() {
    let access = "access: [{ uid: 4321, roles: [orchestrator] }, { uid: 4322, roles: [orchestrator] }]\n";
    let daemon = Daemon::start_with(Setup { config: access.to_owned(), ..Setup::default() }).await;
    daemon.expose();
    let source = daemon.workspace("w", &[("a.txt", "one\n")]);
    let made = source.clone();
    let base = as_user(4321, &daemon.socket(), async move |mut clients| {
        make(&mut clients, directory(&made)).await.unwrap()
    })
    .await;
    let id = base.base_id.clone();
    as_user(4322, &daemon.socket(), async move |mut clients| {
        let refused = make(&mut clients, directory(&source)).await.unwrap_err();
        assert_eq!(reason(&refused), "PERMISSION_DENIED", "another user's directory");
        assert!(list(&mut clients).await.is_empty());
        let verify = v1::VerifyBaseRequest { base_id: id.clone() };
        for refused in [
            get(&mut clients, &id).await.unwrap_err(),
            delete(&mut clients, &id).await.unwrap_err(),
            clients.bases.verify_base(verify).await.unwrap_err(),
            clients.runs.create_run(requests::base("open", &id)).await.unwrap_err(),
        ] {
            assert_eq!(reason(&refused), "NOT_FOUND", "{refused}");
        }
    })
    .await;
    let mut clients = daemon.connect().await;
    assert_eq!(get(&mut clients, &base.base_id).await.unwrap(), base, "an operator");
    let mut run = daemon.run_on(requests::base("open", &base.base_id)).await;
    assert_eq!(run.exec(&["cat", "a.txt"]).await.stdout, "one\n");
    discard(&mut run).await;
    let id = base.base_id;
    as_user(4321, &daemon.socket(), async move |mut clients| delete(&mut clients, &id).await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_base_whose_daemon_is_killed_meanwhile_leaves_nothing() {
    const FILES: usize = 20_000;
    let mut daemon = Daemon::start().await;
    let source = daemon.workspace("w", &[]);
    for name in 0..FILES {
        std::fs::write(source.join(name.to_string()), "x").unwrap();
    }
    own(&source, 4321);
    for reached in [0, 1, 500, 5_000, 15_000] {
        let mut clients = daemon.connect().await;
        let asked = directory(&source);
        let making = tokio::spawn(async move { make(&mut clients, asked).await });
        let bases = daemon.state_dir().join("bases");
        until("the copy does not begin", async || {
            let part = trees(&daemon).into_iter().find(|name| name.contains(".part"));
            let count = |name| std::fs::read_dir(bases.join(name)).map_or(0, Iterator::count);
            making.is_finished() || part.is_some_and(|name: String| count(name) >= reached)
        })
        .await;
        daemon.kill().await;
        let was_made = making.await.unwrap().is_ok();
        daemon.launch().await;
        let mut clients = daemon.connect().await;
        let listed = list(&mut clients).await;
        // An answer may be lost with the daemon, and a base that was answered may not.
        assert!(listed.len() <= 1 && listed.len() >= usize::from(was_made), "{reached}: {listed:?}");
        until("a part of a base is left", async || trees(&daemon).len() == listed.len()).await;
        for base in listed {
            assert!(verify(&mut clients, &base.base_id).await.intact, "{reached}");
            delete(&mut clients, &base.base_id).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_base_and_a_run_on_it_outlive_the_daemon() {
    let mut daemon = Daemon::start().await;
    let source = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut clients = daemon.connect().await;
    let base = make(&mut clients, directory(&source)).await.unwrap();
    let mut run = daemon.run_on(requests::base("open", &base.base_id)).await;
    run.ok(calls::write("b.txt", "two\n")).await;
    daemon.relaunch().await;
    let mut clients = daemon.connect().await;
    let mut run = RunHandle { clients: clients.clone(), ..run };
    let shown = run.show().await;
    assert_eq!((shown.state(), shown.restarts), (v1::run::State::Ready, 1), "{}", shown.failure);
    assert_eq!(run.exec(&["cat", "a.txt", "b.txt"]).await.stdout, "one\ntwo\n");
    assert_eq!(get(&mut clients, &base.base_id).await.unwrap().used_by, [run.id()]);
    assert_eq!(reason(&delete(&mut clients, &base.base_id).await.unwrap_err()), "PRECONDITION_FAILED");
    run.stop().await;
    assert_eq!(run.diff().await.changes[0].path, "b.txt");
    run.delete().await;
    assert!(verify(&mut clients, &base.base_id).await.intact);
    delete(&mut clients, &base.base_id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_the_host_to_a_base_is_found_by_its_digest() {
    let daemon = Daemon::start().await;
    let source = daemon.workspace("w", &[("a.txt", "one\n"), ("d/b.txt", "two\n")]);
    let base = out(&daemon, &["base", "create", "--directory", &source.display().to_string()]).await;
    let base = base.trim();
    assert_eq!(out(&daemon, &["base", "verify", &base[28..]]).await, "intact\n");
    let mut clients = daemon.connect().await;
    let tree = daemon.state_dir().join("bases").join(base);
    let recorded = get(&mut clients, base).await.unwrap().digest;
    std::fs::write(tree.join("a.txt"), "ONE\n").unwrap();
    let changed = verify(&mut clients, base).await;
    assert!(!changed.intact && changed.digest != recorded && changed.failure.is_empty(), "{changed:?}");
    let shown = changed.base.unwrap();
    assert!(shown.digest == recorded && shown.changed);
    assert!(get(&mut clients, base).await.unwrap().changed);
    assert!(out(&daemon, &["base", "list"]).await.contains("CHANGED"));
    let refused = daemon.run_with(requests::base("open", base)).await.err().unwrap();
    assert!(
        reason(&refused) == "PRECONDITION_FAILED" && refused.message().contains("verify it again"),
        "{refused}"
    );
    std::fs::write(tree.join("a.txt"), "one\n").unwrap();
    let restored = verify(&mut clients, base).await;
    assert!(restored.intact && !restored.base.unwrap().changed);
    discard(&mut daemon.run_on(requests::base("open", base)).await).await;
    std::fs::set_permissions(tree.join("d"), std::fs::Permissions::from_mode(0o000)).unwrap();
    let closed = verify(&mut clients, base).await;
    assert!(!closed.intact && closed.digest.is_empty() && closed.failure.contains('d'), "{closed:?}");
    std::fs::remove_dir_all(&tree).unwrap();
    assert!(!verify(&mut clients, base).await.failure.is_empty());
    let on_record = clients.events("", "base_changed").await;
    let found: Vec<_> = on_record.iter().map(|event| record(event)["details"]["found"].clone()).collect();
    assert_eq!(found, [changed.digest.as_str(), "", ""]);

    let shown = json(&daemon, &["base", "show", base]).await;
    assert_eq!(shown["base"]["digest"].as_str(), Some(&*recorded));
    assert_eq!(json(&daemon, &["base", "list"]).await["bases"].as_array().unwrap().len(), 1);
    out(&daemon, &["base", "delete", base]).await;
    assert_eq!(out(&daemon, &["--output", "name", "base", "list"]).await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_on_a_base_count_in_the_quota_of_their_run_and_the_base_does_not() {
    const MIB: u64 = 1 << 20;
    let daemon = Daemon::start().await;
    let source = daemon.workspace("w", &[]);
    std::fs::write(source.join("large"), vec![b'x'; 24 << 20]).unwrap();
    own(&source, 4321);
    let mut clients = daemon.connect().await;
    let base = make(&mut clients, directory(&source)).await.unwrap();
    let limits = Some(v1::Limits { disk_bytes: 16 * MIB, disk_files: 1_000, ..v1::Limits::default() });
    let request = v1::CreateRunRequest { limits, ..requests::base("open", &base.base_id) };
    let mut run = daemon.run_on(request).await;
    assert_eq!(run.exec(&["wc", "-c", "large"]).await.stdout, format!("{} large\n", 24 * MIB));
    assert_eq!(run.exec(&["sh", "-c", "echo y >small"]).await.exit_code, Some(0));
    // A file of the base is copied into the layer before it is changed.
    let grown = run.ran(calls::shell("echo y >>large && sleep 5")).await;
    assert!(grown.exit_code != Some(0), "{grown:?}");
    run.stop().await;
    run.delete().await;
    assert!(verify(&mut clients, &base.base_id).await.intact);
}

#[tokio::test(flavor = "multi_thread")]
async fn unused_bases_make_room_for_new_ones_and_used_ones_do_not() {
    let bounds = "bases: { max_count: 2, max_bytes: 8MiB }\n";
    let daemon = Daemon::start_with(Setup { config: bounds.to_owned(), ..Setup::default() }).await;
    let source = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut clients = daemon.connect().await;
    let first = make(&mut clients, directory(&source)).await.unwrap().base_id;
    let second = make(&mut clients, directory(&source)).await.unwrap().base_id;
    // The older one is used last.
    let mut run = daemon.run_on(requests::base("open", &first)).await;
    run.stop().await;
    run.delete().await;
    let third = make(&mut clients, directory(&source)).await.unwrap().base_id;
    let ids: Vec<_> = list(&mut clients).await.into_iter().map(|base| base.base_id).collect();
    assert_eq!(ids, [third.as_str(), first.as_str()]);
    let [deleted] = &clients.events("", "base_deleted").await[..] else { panic!("not one") };
    let details = &record(deleted)["details"];
    assert_eq!((details["base"].as_str(), details["cause"].as_str()), (Some(&*second), Some("limit")));

    let mut runs = [
        daemon.run_on(requests::base("open", &first)).await,
        daemon.run_on(requests::base("open", &third)).await,
    ];
    let refused = make(&mut clients, directory(&source)).await.unwrap_err();
    assert!(reason(&refused) == "WRITE_LIMIT" && refused.message().contains("max_count"), "{refused}");
    std::fs::write(source.join("large"), vec![b'x'; 9 << 20]).unwrap();
    own(&source, 4321);
    let refused = make(&mut clients, directory(&source)).await.unwrap_err();
    assert!(refused.message().contains("larger than 8 MiB"), "{refused}");
    assert_eq!(trees(&daemon).len(), 2);
    for run in &mut runs {
        discard(run).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clone_whose_files_are_far_larger_than_its_repository_is_refused_and_leaves_nothing() {
    const MIB: u64 = 1 << 20;
    let bounds = "bases: { max_bytes: 64MiB }\n";
    let daemon = Daemon::start_with(Setup { config: bounds.to_owned(), ..Setup::default() }).await;
    let repository = daemon.repository("r", &[("a.txt", "one\n")]);
    git(&repository, &["tag", "v1"]);
    let zeros = repository.join("zeros");
    std::fs::File::create(&zeros).unwrap().set_len(1 << 30).unwrap();
    git(&repository, &["add", "zeros"]);
    git(&repository, &["commit", "-q", "-m", "zeros"]);
    std::fs::remove_file(&zeros).unwrap();
    own(&repository, 4321);
    let mut clients = daemon.connect().await;
    let refused = make(&mut clients, clone(&repository, "")).await.unwrap_err();
    assert_eq!(reason(&refused), "WRITE_LIMIT");
    assert!(refused.message().contains("MiB and may take 64 MiB"), "{refused}");
    assert!(trees(&daemon).is_empty() && list(&mut clients).await.is_empty());

    let limits = Some(v1::Limits { disk_bytes: 64 * MIB, disk_files: 1_000, ..v1::Limits::default() });
    let request = v1::CreateRunRequest { limits, ..requests::clone("open", &repository) };
    let refused = daemon.run_with(request).await.err().unwrap();
    assert_eq!(reason(&refused), "WRITE_LIMIT");
    assert!(refused.message().contains("limits.disk_mib"), "{refused}");
    let workspaces = daemon.state_dir().join("workspaces");
    until("a part of a clone is left", async || {
        std::fs::read_dir(&workspaces).map_or(0, Iterator::count) == 0
    })
    .await;

    // The repository itself is small.
    let base = make(&mut clients, clone(&repository, "v1")).await.unwrap();
    assert!(base.size_bytes < 8 * MIB, "{base:?}");
    let mut run = daemon.run_on(requests::base("open", &base.base_id)).await;
    assert_eq!(run.exec(&["cat", "a.txt"]).await.stdout, "one\n");
    discard(&mut run).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_gives_the_same_base_also_at_once_and_after_a_restart() {
    let mut daemon = Daemon::start().await;
    let sources = ["one", "other"].map(|name| daemon.workspace(name, &[("a.txt", "one\n")]));
    let asked = |source: &Path, id: &str| v1::CreateBaseRequest {
        source: Some(v1::BaseSource { source: Some(directory(source)) }),
        request_id: id.to_owned(),
        ..v1::CreateBaseRequest::default()
    };
    let (mut clients, mut again) = (daemon.connect().await, daemon.connect().await);
    let (first, second) = tokio::join!(
        clients.bases.create_base(asked(&sources[0], "a")),
        again.bases.create_base(asked(&sources[0], "a"))
    );
    let (first, second) = (first.unwrap().into_inner(), second.unwrap().into_inner());
    let id = first.base.unwrap().base_id;
    assert_eq!(second.base.unwrap().base_id, id);
    assert!(first.reused != second.reused, "one of them made it");
    let refused = clients.bases.create_base(asked(&sources[1], "a")).await.unwrap_err();
    assert_eq!(reason(&refused), "ALREADY_EXISTS");
    let refused = clients.bases.create_base(asked(&sources[1], "a\n")).await.unwrap_err();
    assert_eq!(reason(&refused), "INVALID_ARGUMENT");

    daemon.relaunch().await;
    let mut clients = daemon.connect().await;
    let found = clients.bases.create_base(asked(&sources[0], "a")).await.unwrap().into_inner();
    assert!(found.reused && found.base.unwrap().base_id == id);
    let other = clients.bases.create_base(asked(&sources[0], "b")).await.unwrap().into_inner();
    assert!(!other.reused && trees(&daemon).len() == 2);
    // The id lasts as long as its base.
    delete(&mut clients, &id).await.unwrap();
    let anew = clients.bases.create_base(asked(&sources[0], "a")).await.unwrap().into_inner();
    assert!(!anew.reused && anew.base.unwrap().base_id != id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_principal_has_a_limit_of_its_own_and_names_count_in_the_limit_for_all() {
    let bounds = "bases: { max_per_principal: 1, max_bytes: 1MiB }\n";
    let daemon = Daemon::start_with(Setup { config: bounds.to_owned(), ..Setup::default() }).await;
    let source = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut clients = daemon.connect().await;
    make(&mut clients, directory(&source)).await.unwrap();
    let second = make(&mut clients, directory(&source)).await.unwrap().base_id;
    assert_eq!(trees(&daemon), [second.as_str()], "an unused one makes room");
    let mut run = daemon.run_on(requests::base("open", &second)).await;
    let refused = make(&mut clients, directory(&source)).await.unwrap_err();
    assert!(
        reason(&refused) == "WRITE_LIMIT" && refused.message().contains("max_per_principal"),
        "{refused}"
    );
    discard(&mut run).await;

    // 200 names count 800 KiB, and with the content of one it is more than the limit.
    for name in 0..200 {
        std::fs::write(source.join(name.to_string()), "").unwrap();
    }
    own(&source, 4321);
    make(&mut clients, directory(&source)).await.unwrap();
    std::fs::write(source.join("0"), vec![b'x'; 300 << 10]).unwrap();
    let refused = make(&mut clients, directory(&source)).await.unwrap_err();
    assert!(reason(&refused) == "WRITE_LIMIT" && refused.message().contains("max_bytes"), "{refused}");
    assert_eq!(trees(&daemon).len(), 1);
}
