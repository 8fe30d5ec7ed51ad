//! Operations of git with a server: fetch, pull and push of the host lane, by the rules and with the secret of the run's profile.

use std::path::{Path, PathBuf};

use harness::v1::git_pull::Mode::{FfOnly, Merge};
use harness::v1::git_request::Command;
use harness::v1::result::Kind as Answer;
use harness::{Daemon, RunHandle, Setup, calls, git, own, v1};

use super::super::details;
use super::forge::Forge;
use super::{Keys, SECRET};

/// A run on a clone of the server's repository `org/app`. The fields keep the server, its keys and the daemon.
struct World {
    run: RunHandle,
    workspace: PathBuf,
    forge: Forge,
    daemon: Daemon,
    _keys: Keys,
}

impl World {
    /// `decision` is the profile's about each of the three operations.
    async fn new(decision: &str) -> Self {
        let keys = Keys::make();
        let forge = Forge::start(&keys.certificates).await;
        let daemon = daemon(&keys, forge.port, decision).await;
        let workspace = clone(&daemon, &forge);
        let run = daemon.run("out", &workspace).await;
        Self { run, workspace, forge, daemon, _keys: keys }
    }

    async fn ok(&mut self, command: Command) -> v1::GitResult {
        match self.run.ok(calls::git(command)).await {
            Answer::Git(result) => result,
            other => panic!("{other:?}"),
        }
    }

    /// Makes a call that fails, and checks that it has changed neither the files, nor the branch, nor the server.
    async fn fails(&mut self, command: Command, reason: &str, words: &[&str]) {
        let state =
            |world: &Self| (world.git(&["status", "--porcelain"]), world.head(), world.forge.refs("app"));
        let before = state(self);
        let failure = self.run.fails(calls::git(command.clone())).await;
        assert_eq!(failure.reason, reason, "{command:?}: {failure:?}");
        for words in words {
            assert!(failure.message.contains(words), "{command:?}: {failure:?}");
        }
        assert!(!failure.message.contains(SECRET), "{failure:?}");
        assert_eq!(state(self), before, "{command:?}");
    }

    fn git(&self, args: &[&str]) -> String {
        let said = git(&self.workspace, args);
        // The test is root, and the files are the owner's.
        own(&self.workspace, 4321);
        said.trim_end().to_owned()
    }

    fn head(&self) -> String {
        self.git(&["rev-parse", "HEAD"])
    }

    /// Commits a file in the workspace.
    fn commit(&self, file: &str, content: &str) -> String {
        std::fs::write(self.workspace.join(file), content).unwrap();
        self.git(&["add", file]);
        self.git(&["commit", "-q", "-m", &format!("say {file}")]);
        self.head()
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.workspace.join(file)).unwrap_or_default()
    }
}

async fn daemon(keys: &Keys, port: u16, decision: &str) -> Daemon {
    let config = format!(
        "egress: {{ authorities: ['{}'], hosts: {{ files.example.org: 127.0.0.1 }} }}\n\
         secrets: {{ model: {{ file: '{}' }} }}\n",
        keys.certificates.authority().display(),
        keys.file().display()
    );
    let operations = format!(
        "read: allow, write: allow, git.status: allow, git.log: allow, git.fetch: {decision}, git.pull: {decision}, \
         git.push: {decision}"
    );
    let policy = format!(
        "profiles:\n  out:\n    workspace: read-write\n    operations: {{ {operations} }}\n    egress: {{ networks: [\"127.0.0.0/8\"], \
         rules: [{{ host: files.example.org, ports: [{port}], scheme: git, repos: [org/app], fetch: allow, \
         push: {{ refs: [\"refs/heads/agent/*\"] }}, \
         inject: {{ basic: {{ user: x, password: \"${{secret:model}}\" }} }}, decision: allow }}] }}\n  none:\n    \
         workspace: read-write\n    operations: {{ {operations} }}\nroles: {{ director: {{ allow: \"*\" }} }}\n"
    );
    Daemon::start_with(Setup { config, policy: vec![("out.yaml", policy)], ..Default::default() }).await
}

/// Makes a workspace with a clone of the server's repository, whose remote has the URL of the server.
fn clone(daemon: &Daemon, forge: &Forge) -> PathBuf {
    let workspace = daemon.workspace("clone", &[]);
    git(&workspace, &["clone", "-q", forge.path("app").to_str().unwrap(), "."]);
    set_url(&workspace, &format!("https://files.example.org:{}/org/app.git", forge.port));
    // Neither of them has an effect.
    git(&workspace, &["config", "url.https://evil.example.org/.insteadOf", "https://files.example.org"]);
    git(&workspace, &["config", "http.proxy", "http://evil.example.org:1"]);
    own(&workspace, 4321);
    workspace
}

fn set_url(workspace: &Path, url: &str) {
    git(workspace, &["config", "remote.origin.url", url]);
}

fn fetch() -> Command {
    Command::Fetch(v1::GitFetch::default())
}

fn pull(mode: v1::git_pull::Mode) -> Command {
    Command::Pull(v1::GitPull { mode: mode.into(), ..v1::GitPull::default() })
}

fn push(remote_ref: &str) -> v1::GitPush {
    let to = v1::GitPushRef { remote_ref: remote_ref.to_owned(), ..v1::GitPushRef::default() };
    v1::GitPush { refs: vec![to], ..v1::GitPush::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn s40_a_fetch_brings_commits_and_changes_no_file() {
    let mut world = World::new("allow").await;
    let before = world.head();
    let new = world.forge.commit("main", "second", "second\n");
    let topic = world.forge.commit("topic", "topic", "topic\n");
    let fetched = world.ok(fetch()).await;
    let update = |name: &str, old_id: &str, new_id: &str| v1::GitRefUpdate {
        name: name.to_owned(),
        old_id: old_id.to_owned(),
        new_id: new_id.to_owned(),
    };
    assert_eq!(
        fetched.updates,
        [update("refs/remotes/origin/main", &before, &new), update("refs/remotes/origin/topic", "", &topic),]
    );
    assert_eq!(fetched.remote, format!("files.example.org:{}/org/app.git", world.forge.port));
    assert_eq!(fetched.commits, 2);
    assert!(fetched.received_bytes > 0, "{fetched:?}");
    assert_eq!((world.head(), world.read("second")), (before, String::new()));
    assert_eq!(world.git(&["rev-parse", "refs/remotes/origin/main"]), new);
    assert_eq!(world.git(&["log", "-1", "--format=%s", "origin/topic"]), "change topic");
    world.git(&["fsck", "--strict"]);

    let again = world.ok(fetch()).await;
    assert!(again.updates.is_empty() && again.output.contains("up to date"), "{again:?}");

    let one = v1::GitFetch {
        remote: format!("https://files.example.org:{}/org/app.git", world.forge.port),
        refs: vec!["topic".to_owned()],
        ..v1::GitFetch::default()
    };
    let by_url = world.ok(Command::Fetch(one)).await;
    assert_eq!(by_url.updates, [update("refs/fetched/heads/topic", "", &topic)]);

    let receipts = details(&mut world.run, "egress_receipt", 1).await;
    assert!(receipts.iter().all(|receipt| receipt["host"] == "files.example.org"), "{receipts:?}");
    let seen = world.forge.authenticated.lock().clone();
    assert!(!seen.is_empty() && seen.iter().all(|request| !request.contains("receive-pack")), "{seen:?}");
    let config = world.read(".git/config");
    assert!(!config.contains(SECRET), "{config}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s41_a_pull_moves_the_branch_and_its_files_forward() {
    let mut world = World::new("allow").await;
    std::fs::write(world.workspace.join("mine"), "not tracked\n").unwrap();
    own(&world.workspace, 4321);
    world.forge.commit("main", "d/second", "second\n");
    let new = world.forge.commit("main", "first", "changed\n");
    let pulled = world.ok(pull(FfOnly)).await;
    assert_eq!((pulled.commit.as_str(), pulled.commits), (new.as_str(), 2), "{pulled:?}");
    assert_eq!(world.head(), new);
    assert_eq!((world.read("d/second"), world.read("first")), ("second\n".into(), "changed\n".into()));
    assert_eq!(world.git(&["status", "--porcelain"]), "?? mine");
    assert_eq!(world.git(&["symbolic-ref", "HEAD"]), "refs/heads/main");
    let again = world.ok(pull(FfOnly)).await;
    assert!(again.commit.is_empty() && again.output.contains("up to date"), "{again:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s42_a_pull_merges_only_if_asked_and_has_the_author_of_the_profile() {
    let mut world = World::new("allow").await;
    let ours = world.commit("ours", "ours\n");
    let theirs = world.forge.commit("main", "theirs", "theirs\n");
    world.fails(pull(FfOnly), "PRECONDITION_FAILED", &["diverged", "nothing was changed"]).await;
    let hook = world.workspace.join(".git/hooks/post-merge");
    std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
    std::fs::write(&hook, "#!/bin/sh\necho > /workspace/planted\n").unwrap();
    let merged = world.ok(pull(Merge)).await;
    assert_eq!(world.head(), merged.commit);
    assert_eq!(world.git(&["log", "-1", "--format=%P"]), format!("{ours} {theirs}"));
    assert_eq!((world.read("ours"), world.read("theirs")), ("ours\n".into(), "theirs\n".into()));
    assert_eq!(world.git(&["log", "-1", "--format=%an"]), "Cofferdam agent");
    assert_eq!(world.git(&["status", "--porcelain"]), "");
    assert_eq!(world.read("planted"), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn s43_a_pull_with_conflicts_names_them_and_changes_nothing() {
    let mut world = World::new("allow").await;
    world.commit("first", "ours\n");
    world.forge.commit("main", "first", "theirs\n");
    world.fails(pull(Merge), "PRECONDITION_FAILED", &["conflicts", "\nfirst\n"]).await;
    assert_eq!(world.read("first"), "ours\n");
    assert!(!world.workspace.join(".git/MERGE_HEAD").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn s44_a_pull_overwrites_no_change_and_writes_no_protected_path() {
    let mut world = World::new("allow").await;
    world.forge.commit("main", "first", "theirs\n");
    world.forge.commit("main", "new", "theirs\n");
    std::fs::write(world.workspace.join("first"), "not staged\n").unwrap();
    own(&world.workspace, 4321);
    world.fails(pull(FfOnly), "PRECONDITION_FAILED", &["local changes", "\nfirst\n"]).await;
    world.git(&["add", "first"]);
    world.fails(pull(FfOnly), "PRECONDITION_FAILED", &["\nfirst\n"]).await;
    world.git(&["checkout", "-q", "HEAD", "--", "first"]);
    std::fs::write(world.workspace.join("new"), "not tracked\n").unwrap();
    own(&world.workspace, 4321);
    world.fails(pull(FfOnly), "PRECONDITION_FAILED", &["\nnew\n"]).await;
    std::fs::write(world.workspace.join(".git/info/exclude"), "new\n").unwrap();
    own(&world.workspace, 4321);
    world.fails(pull(FfOnly), "PRECONDITION_FAILED", &["\nnew\n"]).await;
    assert_eq!(world.read("new"), "not tracked\n");
    std::fs::remove_file(world.workspace.join("new")).unwrap();
    world.forge.commit("main", "node_modules/.bin/tool", "#!/bin/sh\n");
    world.fails(pull(FfOnly), "SANDBOX_VIOLATION", &["node_modules/.bin"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s45_a_reviewer_consents_to_the_ids_of_a_push() {
    let mut world = World::new("ask").await;
    let old = world.head();
    let new = world.commit("one", "one\n");
    let (approval, response) = world.run.consented(calls::git(Command::Push(push("agent/x")))).await;
    let shown = [
        "create refs/heads/agent/x",
        new.as_str(),
        "1 commit",
        "say one",
        "+one",
        "files.example.org",
        "nothing",
    ];
    for part in shown {
        assert!(approval.preview.contains(part), "{part}: {}", approval.preview);
    }
    assert!(!approval.preview.contains(SECRET) && !approval.operation_json.contains(SECRET));
    let Some(Answer::Git(pushed)) = response.into_kind() else { panic!("no push") };
    assert_eq!(world.forge.id("agent/x"), Some(new.clone()));
    assert_eq!(pushed.updates[0].new_id, new);
    assert_eq!(world.git(&["rev-parse", "refs/remotes/origin/agent/x"]), new);
    let records = details(&mut world.run, "git_push", 1).await;
    assert_eq!(records[0]["refs"][0]["ref"], "refs/heads/agent/x", "{records:?}");

    // The branch moves at the server while the reviewer reads.
    let later = world.commit("two", "two\n");
    let waiting = world.run.waits(calls::git(Command::Push(push("agent/x"))));
    let id = world.run.id().to_owned();
    let approval = world.run.clients.pending_approval(&id).await;
    assert!(approval.preview.contains(&format!("from {new}")), "{}", approval.preview);
    let elsewhere = world.forge.commit("agent/x", "elsewhere", "elsewhere\n");
    world.run.clients.approve(&approval.approval_id).await.unwrap();
    let refused = waiting.await.unwrap();
    let refused = refused.map_or_else(|status| status.message().to_owned(), |answer| format!("{answer:?}"));
    assert!(!refused.contains("Succeeded"), "{refused}");
    assert_eq!(world.forge.id("agent/x"), Some(elsewhere), "{refused}");
    assert_ne!(old, later);

    // A pull shows the files and binds both commits.
    world.git(&["reset", "-q", "--hard", &old]);
    let theirs = world.forge.commit("main", "first", "theirs\n");
    let (approval, response) = world.run.consented(calls::git(pull(FfOnly))).await;
    for part in [old.as_str(), theirs.as_str(), "+theirs", "fast-forward"] {
        assert!(approval.preview.contains(part), "{part}: {}", approval.preview);
    }
    let Some(Answer::Git(pulled)) = response.into_kind() else { panic!("no pull") };
    assert_eq!((pulled.commit, world.head()), (theirs.clone(), theirs));
    let (approval, _) = world.run.consented(calls::git(fetch())).await;
    assert!(approval.preview.contains("fetch from files.example.org"), "{}", approval.preview);
}

#[tokio::test(flavor = "multi_thread")]
async fn s46_the_rule_judges_a_push_that_a_call_may_make() {
    let mut world = World::new("allow").await;
    world.commit("one", "one\n");
    world
        .fails(Command::Push(push("")), "PRECONDITION_FAILED", &["refs/heads/main: no rule allows this ref"])
        .await;
    world.ok(Command::Push(push("agent/x"))).await;
    let first = world.forge.id("agent/x").unwrap();
    // A commit beside the one that the server has.
    world.git(&["commit", "-q", "--amend", "-m", "another"]);
    world.fails(Command::Push(push("agent/x")), "PRECONDITION_FAILED", &["would lose commits"]).await;
    let mut forced = v1::GitPush { force: true, ..push("agent/x") };
    forced.refs[0].expected = "7".repeat(40);
    world.fails(Command::Push(forced.clone()), "PRECONDITION_FAILED", &["not the expected id", &first]).await;
    forced.refs[0].expected = first.clone();
    world.fails(Command::Push(forced), "PRECONDITION_FAILED", &["no rule allows a forced update"]).await;
    let mut deleted = push("agent/x");
    deleted.refs[0].delete = true;
    world.fails(Command::Push(deleted), "PRECONDITION_FAILED", &["no rule allows to delete"]).await;
    let other = v1::GitPush {
        remote: format!("https://files.example.org:{}/org/other.git", world.forge.port),
        ..push("agent/x")
    };
    world.fails(Command::Push(other), "PRECONDITION_FAILED", &["no rule allows this repository"]).await;
    let mut both = push("agent/y");
    both.refs.extend(push("main").refs);
    world
        .fails(
            Command::Push(both),
            "PRECONDITION_FAILED",
            &["no rule allows this ref", "Nothing was updated"],
        )
        .await;
    assert_eq!(world.forge.id("agent/x"), Some(first));
}

#[tokio::test(flavor = "multi_thread")]
async fn s47_other_ways_to_a_server_are_refused_in_words() {
    let mut world = World::new("allow").await;
    let workspace = world.workspace.clone();
    for (url, words) in [
        ("git@files.example.org:org/app.git", "https"),
        ("ssh://git@files.example.org/org/app.git", "https"),
        ("http://files.example.org/org/app.git", "https"),
        ("/source", "https"),
        ("https://user:word@files.example.org/org/app.git", "a user or a password"),
    ] {
        set_url(&workspace, url);
        own(&workspace, 4321);
        world.fails(fetch(), "INVALID_ARGUMENT", &["origin", words]).await;
    }
    let away =
        v1::GitFetch { remote: "https://evil.example.org/org/app.git".to_owned(), ..v1::GitFetch::default() };
    let failure = world.run.fails(calls::git(Command::Fetch(away))).await;
    assert!(!failure.message.contains("127.0.0.1"), "{failure:?}");
    let unknown = v1::GitFetch { remote: "upstream".to_owned(), ..v1::GitFetch::default() };
    world.fails(Command::Fetch(unknown), "NOT_FOUND", &["no remote 'upstream'"]).await;

    let second = world.daemon.workspace("second", &[]);
    git(&second, &["clone", "-q", world.forge.path("app").to_str().unwrap(), "."]);
    set_url(&second, &format!("https://files.example.org:{}/org/app.git", world.forge.port));
    own(&second, 4321);
    let mut closed = world.daemon.run("none", &second).await;
    let failure = closed.fails(calls::git(fetch())).await;
    assert!(failure.message.contains("no `egress` rules"), "{failure:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s48_submodules_and_files_of_lfs_are_refused_by_name() {
    let mut world = World::new("allow").await;
    let pointer = format!(
        "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 5\n",
        "4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393"
    );
    world.forge.commit("main", "d/big.bin", &pointer);
    world.fails(pull(FfOnly), "PRECONDITION_FAILED", &["Git LFS", "\nd/big.bin"]).await;
    // A fetch takes the commits, since it checks nothing out.
    assert_eq!(world.ok(fetch()).await.commits, 0, "the failed pull has downloaded them");

    world.commit("big.bin", &pointer);
    world.fails(Command::Push(push("agent/lfs")), "PRECONDITION_FAILED", &["Git LFS", "\nbig.bin"]).await;
    world.git(&["reset", "-q", "--hard", "HEAD~1"]);

    let head = world.head();
    world.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{head},sub")]);
    world.git(&["commit", "-q", "-m", "a submodule"]);
    world.ok(Command::Push(push("agent/sub"))).await;
    world.git(&["reset", "-q", "--hard", "HEAD~1"]);
    let branch = Command::Pull(v1::GitPull { branch: "agent/sub".to_owned(), ..v1::GitPull::default() });
    world.fails(branch, "PRECONDITION_FAILED", &["submodules", "\nsub"]).await;
}
