//! What was approved is what happens: between the reviewer's look and the answer somebody changes what the call will use, in
//! every way that we know: `tests/SPEC.md` has the list of kinds.

mod commands;
mod files;
mod flips;
mod git;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, lchown};
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::v1::call_response::Status;
use harness::v1::operation::Kind as Operation;
use harness::v1::result::Kind as Answer;
use harness::{Daemon, RunHandle, Setup, calls, v1};

/// How often each kind is tried.
fn times() -> u32 {
    effort::cases(1, 20)
}

const UID: u32 = 4321;

/// The workspace of a run, as a process of the host sees it.
struct Target {
    workspace: PathBuf,
    container: String,
}

impl Target {
    fn at(&self, name: &str) -> PathBuf {
        self.workspace.join(name)
    }

    /// Writes a file in target, or makes it.
    fn put(&self, name: &str, content: &str) {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Puts another file in the target of one.
    fn replace(&self, name: &str, content: &str) {
        self.put("aside", content);
        fs::rename(self.at("aside"), self.at(name)).unwrap();
    }

    /// Writes over a file without a trace in its size or its time.
    fn disguise(&self, name: &str, content: &str) {
        let file = fs::File::options().write(true).open(self.at(name)).unwrap();
        let modified = file.metadata().unwrap().modified().unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, content.as_bytes(), 0).unwrap();
        file.set_modified(modified).unwrap();
    }

    fn chmod(&self, name: &str, mode: u32) {
        fs::set_permissions(self.at(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Another directory with the same files.
    fn exchange_directory(&self, name: &str) {
        let old = self.at("old");
        fs::rename(self.at(name), &old).unwrap();
        fs::create_dir(self.at(name)).unwrap();
        for entry in fs::read_dir(&old).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), self.at(name).join(entry.file_name())).unwrap();
        }
    }

    fn git(&self, arguments: &[&str]) {
        harness::git(&self.workspace, arguments);
    }

    /// In the container, past the daemon, as nobody but the host's owner can.
    fn within(&self, script: &str) {
        let done = Command::new("docker").args(["exec", &self.container, "sh", "-c", script]).status();
        assert!(done.unwrap().success(), "{script}");
    }

    /// As it was before anything.
    fn clear(&self) {
        for entry in fs::read_dir(&self.workspace).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                fs::remove_dir_all(path).unwrap();
            } else {
                fs::remove_file(path).unwrap();
            }
        }
    }

    /// Gives what is new to the workspace's owner, and leaves everything else alone.
    fn give(&self) {
        let mut todo = vec![self.workspace.clone()];
        while let Some(path) = todo.pop() {
            let meta = fs::symlink_metadata(&path).unwrap();
            if meta.uid() != UID {
                lchown(&path, Some(UID), Some(UID)).unwrap();
            }
            if meta.is_dir() {
                todo.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            }
        }
    }
}

/// One kind of swap: what there is, what is asked for, and what is changed under the reviewer.
struct Kind {
    name: &'static str,
    before: fn(&Target),
    call: fn() -> Operation,
    swap: fn(&Target),
}

const GOOD: &str = "echo GOOD\n";
const EVIL: &str = "echo EVIL\n";

fn kind(name: &'static str, before: fn(&Target), call: fn() -> Operation, swap: fn(&Target)) -> Kind {
    Kind { name, before, call, swap }
}
fn delete(path: &str) -> Operation {
    Operation::Delete(v1::DeleteRequest { path: path.to_owned(), ..Default::default() })
}

/// The shipped profile that has somebody watch.
const PROFILE: &str = "review";

/// With that profile as it is shipped, but for how often it may be tried.
fn review() -> Setup {
    let shipped = include_str!("../../../crates/policy/policies/review.yaml");
    let lines = shipped.lines().map(|line| {
        let limit = line.find("{ minute: ").filter(|_| line.ends_with(" }"));
        limit.map_or_else(|| line.to_owned(), |at| line[..at].to_owned() + UNLIMITED)
    });
    let review = lines.collect::<Vec<_>>().join("\n");
    let roles = include_str!("../../../crates/policy/policies/roles.yaml").to_owned();
    Setup { policy: vec![("review.yaml", review), ("roles.yaml", roles)], ..Default::default() }
}

const UNLIMITED: &str = "{ minute: unlimited, hour: unlimited, day: unlimited }";

async fn none_goes_through(kinds: Vec<Kind>) {
    let daemon = Daemon::start_with(review()).await;
    let workspace = daemon.workspace("w", &[]);
    let mut run = daemon.run(PROFILE, &workspace).await;
    let container = daemon.containers().into_iter().next().unwrap();
    let target = Target { workspace, container };
    let mut went_through = Vec::new();
    for Kind { name, before, call, swap } in &kinds {
        for _ in 0..times() {
            target.clear();
            before(&target);
            target.give();
            let waiting = run.waits(call());
            let id = run.id().to_owned();
            let approval = run.clients.pending_approval(&id).await;
            assert!(approval.freezes_run, "{name}");
            swap(&target);
            target.give();
            let tree = tree(&target.workspace);
            run.clients.approve(&approval.approval_id).await.unwrap();
            let answer = waiting.await.unwrap();
            let failure = match answer {
                Ok(call) if call.status() == Status::Succeeded => {
                    went_through.push((*name, format!("{:?}", call.result)));
                    break;
                }
                Ok(call) => call.error.unwrap().message,
                Err(refused) => refused.message().to_owned(),
            };
            assert!(!failure.is_empty(), "{name}");
            if self::tree(&target.workspace) != tree {
                went_through.push((*name, "it changed something".to_owned()));
                break;
            }
        }
        // Without the swap it happens: the refusal is the swap's doing.
        target.clear();
        before(&target);
        target.give();
        let (_, done) = run.consented(call()).await;
        assert_eq!(done.status(), Status::Succeeded, "{name}: {:?}", done.error);
        if let Some(Answer::Exec(exec)) = done.kind() {
            assert!(!exec.stdout.contains("EVIL"), "{name}");
        }
    }
    assert!(went_through.is_empty(), "{went_through:#?}");
    println!("{} kinds of swaps, {} times each: none went through", kinds.len(), times());
}

/// Names, kinds, permissions and contents; of the repository only what says what is committed and staged.
fn tree(at: &Path) -> Vec<(PathBuf, u32, Vec<u8>)> {
    let mut found = Vec::new();
    let mut todo = vec![at.to_owned()];
    while let Some(directory) = todo.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            // An object that nothing leads to is no change, and neither is the log of a lock that was tried.
            if path.ends_with(".git/objects") {
                continue;
            }
            let content = if meta.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
            if meta.is_dir() {
                todo.push(path.clone());
            }
            found.push((path, meta.permissions().mode(), content));
        }
    }
    found.sort();
    found
}

harness::tests! {
    x7_no_swap_of_a_file_that_a_command_uses_goes_through: none_goes_through(commands::kinds()),
    p5_no_swap_of_a_file_that_is_to_be_changed_goes_through: none_goes_through(files::kinds()),
    g7_no_swap_of_staged_or_committed_content_succeeds: none_goes_through(git::kinds()),
}

/// What is remembered is bound like what is asked.
#[tokio::test(flavor = "multi_thread")]
async fn x7_a_remembered_consent_is_for_the_same_files() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("-d.sh", GOOD)]);
    let mut run: RunHandle = daemon.run(PROFILE, &workspace).await;
    let call = || calls::exec(&["sh", "--", "-d.sh"]);
    let waiting = run.waits(call());
    let id = run.id().to_owned();
    let approval = run.clients.pending_approval(&id).await;
    run.clients
        .approve_and_remember(&approval.approval_id, v1::approval::Remember::Digest, &[])
        .await
        .unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().status(), Status::Succeeded);
    let again = run.call(call()).await.unwrap();
    assert_eq!(again.status(), Status::Succeeded, "nothing has changed: {:?}", again.error);
    fs::write(workspace.join("-d.sh"), EVIL).unwrap();
    let asks = run.call(call()).await.unwrap();
    assert_eq!(asks.status(), Status::PendingApproval, "{asks:?}");
}
