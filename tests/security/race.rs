//! P1, G2, G5: a directory, or git's index, is exchanged with a link that leads out, as fast as the kernel can, while the
//! API writes and reads beneath its name.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt as _, chown, lchown, symlink};
use std::path::Path;
use std::process::Command;

use harness::v1;
use harness::v1::operation::Kind as Operation;
use harness::{Daemon, RunHandle, calls, reason};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use tokio::task::JoinHandle;

use crate::inside::{Gate, Inside, contents, exec};

const OUTSIDE: &str = "from outside";

/// Clients that write at the same time, each with files of its own.
const WRITERS: u32 = 16;
/// Bytes of each write: several blocks, so that half of one can be told from all of it.
const SIZE: usize = 10_000;

/// How often something is written. Of 20,000 writes, checking before opening lost thousands.
fn writes() -> u32 {
    effort::cases(2_000, 20_000)
}

/// How often anything else is done.
fn rounds() -> u32 {
    effort::cases(500, 20_000)
}

/// A run in which `dir`, or another thing, is now itself and now a link to `target`.
struct Race {
    daemon: Daemon,
    inside: Inside,
    /// Its end, and how often it had to be started again.
    swapper: JoinHandle<(v1::ExecResult, u32)>,
    /// Held open: a swapper that is started again says that it is ready to nobody.
    _ready: Gate,
}

impl Race {
    async fn begin(name: &str, target: &str) -> Self {
        Self::exchange(name, ["dir", "link"], target).await
    }

    async fn exchange(name: &str, [thing, link]: [&str; 2], target: &str) -> Self {
        let daemon = Daemon::start().await;
        let workspace = daemon.repository(name, &[("tracked", "x\n"), ("dir/file", "from inside\n")]);
        plant(&workspace.join(link), target);
        let outside = daemon.workspace("outside", &[("file", OUTSIDE)]);
        // As open as a directory can be: only the path is in the way.
        std::fs::set_permissions(&outside, std::fs::Permissions::from_mode(0o777)).unwrap();
        let request = v1::CreateRunRequest::default();
        let mut inside = Inside::enter_at(&daemon, workspace, request).await;
        // The same behind the link when it leads to another mount of the run.
        let made = inside.probe(&["file", "/state/file", "5"]).await;
        assert_eq!(made, ["file ok", "size 5"]);

        let mut ready = inside.gate("ready");
        let mut swapping = inside.again(&daemon).await;
        let [thing, link] = [thing, link].map(|name| format!("/workspace/{name}"));
        let mut swapper = tokio::spawn(async move {
            let mut request = exec(&["swap", &thing, &link, "/workspace/ready", "/workspace/stop"]);
            request.timeout_ms = Some(120_000);
            // A long race takes longer than a command may.
            for again in 0.. {
                let result = swapping.exec(request.clone()).await;
                if !result.timed_out {
                    return (result, again);
                }
            }
            unreachable!("the race has an end")
        });
        tokio::select! {
            () = ready.passed() => {}
            ended = &mut swapper => panic!("the swapper ended at once: {:?}", ended.unwrap()),
        }
        Self { daemon, inside, swapper, _ready: ready }
    }

    /// Stops the swapper, which must have been at it all the time.
    async fn end(self) -> (Daemon, Inside) {
        assert!(!self.swapper.is_finished(), "the swapper ended too early");
        std::fs::write(self.inside.workspace.join("stop"), "").unwrap();
        let (result, again) = self.swapper.await.unwrap();
        assert_eq!(result.exit_code, Some(0), "{}", result.stderr);
        let exchanges: u64 = result.stdout.trim().parse().unwrap();
        assert!(again > 0 || exchanges > 1_000, "{exchanges} exchanges are no race");
        (self.daemon, self.inside)
    }
}

/// A link of the owner's at `place`, whatever is there.
fn plant(place: &Path, target: &str) {
    let beside = place.with_extension("new");
    symlink(target, &beside).unwrap();
    lchown(&beside, Some(4321), Some(4321)).unwrap();
    std::fs::rename(&beside, place).unwrap();
}

/// How a call under the race may end: done inside, refused, or beaten by the swapper; never a fault.
fn settled(response: &v1::CallResponse) -> bool {
    let Some(error) = &response.error else { return true };
    let expected =
        ["SANDBOX_VIOLATION", "NOT_FOUND", "PRECONDITION_FAILED", "OVERLOADED", "INVALID_ARGUMENT"];
    assert!(expected.contains(&error.reason.as_str()), "{error:?}");
    false
}

/// What a write is to leave, the same for no other.
fn content(writer: u32, round: u32) -> String {
    format!("{writer} {round}\n").repeat(SIZE).split_at(SIZE).0.to_owned()
}

/// Writes beneath the name that is exchanged, from all clients at once. What was acknowledged last of each name, and how
/// many writes were.
async fn write_all(daemon: &Daemon, run: &RunHandle, times: u32) -> (BTreeMap<String, String>, u32) {
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let mut run = RunHandle { run: run.run.clone(), clients: daemon.connect().await };
        writers.push(tokio::spawn(async move {
            let (mut acknowledged, mut done) = (BTreeMap::new(), 0);
            for round in 0..times / WRITERS {
                let (name, content) = (format!("new-{writer}-{}", round % 8), content(writer, round));
                let response = run.call(calls::write(&format!("dir/{name}"), &content)).await.unwrap();
                if settled(&response) {
                    acknowledged.insert(name, content);
                    done += 1;
                }
            }
            (acknowledged, done)
        }));
    }
    let (mut acknowledged, mut done) = (BTreeMap::new(), 0);
    for writer in writers {
        let (names, count) = writer.await.unwrap();
        acknowledged.extend(names);
        done += count;
    }
    (acknowledged, done)
}

/// Writes under the race: what was acknowledged is there, whole, and nothing else is. The daemon, and what is left to see.
async fn nothing_lands_in(target: &str, writes: u32) -> (Daemon, Inside) {
    let race = Race::begin("w", target).await;
    let began = std::time::Instant::now();
    let (acknowledged, done) = write_all(&race.daemon, &race.inside.run, writes).await;
    println!("{done} of {writes} writes got through, in {:.1} s", began.elapsed().as_secs_f64());
    let (daemon, inside) = race.end().await;
    assert!((1..writes).contains(&done), "{done} writes got through: there was no race");
    let mut found = BTreeMap::new();
    for (path, content) in contents(&inside.workspace) {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(!name.starts_with(".cofferdam-tmp-"), "left behind: {name}");
        if name.starts_with("new-") {
            found.insert(name, String::from_utf8(content).unwrap());
        }
    }
    assert!(found == acknowledged, "a write was lost, came in part, or came without being acknowledged");
    (daemon, inside)
}

#[tokio::test(flavor = "multi_thread")]
async fn p1_no_write_lands_outside_of_the_workspace() {
    let (daemon, _inside) = nothing_lands_in("../outside", writes()).await;
    let outside = contents(&daemon.roots().join("outside"));
    assert_eq!(outside.len(), 1, "{outside:?}");
    assert_eq!(outside[0].1, OUTSIDE.as_bytes());
}

#[tokio::test(flavor = "multi_thread")]
async fn p1_no_write_lands_in_another_mount() {
    let (_daemon, mut inside) = nothing_lands_in("/state", writes() / 10).await;
    assert_eq!(inside.probe(&["list", "/state"]).await, ["/state file logs"], "and the daemon's own");
}

async fn nothing_is_read(target: &str) {
    let mut race = Race::begin("w", target).await;
    let mut done = 0;
    for round in 0..rounds() {
        let operation = match round % 3 {
            0 => calls::read("dir/file"),
            1 => calls::grep("dir", "from"),
            _ => calls::list("dir"),
        };
        let response = race.inside.run.call(operation).await.unwrap();
        if !settled(&response) {
            continue;
        }
        done += 1;
        match response.kind().cloned().unwrap() {
            v1::result::Kind::Read(read) => assert_eq!(read.content, "from inside\n"),
            v1::result::Kind::Grep(grep) => {
                assert!(grep.matches.iter().all(|found| found.text == "from inside"), "{:?}", grep.matches);
            }
            v1::result::Kind::List(list) => {
                assert!(list.entries.iter().all(|entry| entry.size_bytes == 12), "{:?}", list.entries);
            }
            other => panic!("{other:?}"),
        }
    }
    race.end().await;
    assert!((1..rounds()).contains(&done), "{done} calls got through: there was no race");
}

#[tokio::test]
async fn p1_race_reads_nothing_outside_of_the_workspace() {
    nothing_is_read("../outside").await;
}

#[tokio::test]
async fn p1_race_reads_nothing_in_another_mount() {
    nothing_is_read("/state").await;
}

/// Asks for a deletion, and consents when it comes to that. Whether the file is in the trash now.
async fn deletes(run: &mut RunHandle, path: &str) -> bool {
    let asked =
        run.call(Operation::Delete(v1::DeleteRequest { path: path.to_owned(), ..Default::default() })).await;
    let call = match asked {
        Ok(asked) => {
            run.clients.approve(&asked.approval_id).await.unwrap();
            run.outcome(&asked.call_id).await
        }
        // It would fail, so that nobody was asked.
        Err(refused) => {
            let error = v1::ToolFailure { reason: reason(&refused), ..Default::default() };
            v1::CallResponse { error: Some(error), ..Default::default() }
        }
    };
    settled(&call)
}

#[tokio::test]
async fn p1_race_deletes_nothing_outside_of_the_workspace() {
    let mut race = Race::begin("w", "../outside").await;
    let (mut done, times) = (0, rounds() / 5);
    for _ in 0..times {
        settled(&race.inside.run.call(calls::write("dir/file", "from inside\n")).await.unwrap());
        done += u32::from(deletes(&mut race.inside.run, "dir/file").await);
    }
    let (daemon, inside) = race.end().await;
    assert!((1..times).contains(&done), "{done} of {times} deletions got through: there was no race");
    let outside = contents(&daemon.roots().join("outside"));
    assert_eq!(
        outside.iter().map(|(_, content)| content.as_slice()).collect::<Vec<_>>(),
        [OUTSIDE.as_bytes()]
    );
    let trash = contents(&daemon.state_dir().join("host-worker").join(inside.run.id()).join("trash"));
    assert_eq!(trash.len(), 2 * usize::try_from(done).unwrap(), "each has its copy, and nothing else has");
    assert!(trash.iter().all(|(_, content)| content != OUTSIDE.as_bytes()));
}

/// The content of everything in the repository's object store.
fn objects(workspace: &Path) -> String {
    let output = Command::new("git")
        .args(["-c", "safe.directory=*", "cat-file", "--batch-all-objects", "--batch"])
        .current_dir(workspace)
        .output()
        .unwrap();
    assert!(output.status.success());
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test]
async fn g5_race_adds_nothing_from_outside_to_the_repository() {
    let mut race = Race::begin("w", "../outside").await;
    let mut done = 0;
    // A git operation is a process of its own: fewer of them in the same time.
    for _ in 0..rounds() / 10 {
        let response = race.inside.run.call(calls::git_add(&["dir"])).await.unwrap();
        done += u32::from(response.error.is_none());
    }
    let (_daemon, inside) = race.end().await;
    assert!(done > 0, "not a single add got through");
    let objects = objects(&inside.workspace);
    assert!(objects.contains("from inside"), "what is inside is there to be found");
    assert!(!objects.contains(OUTSIDE), "{objects}");
}

#[tokio::test]
async fn c3_a_working_directory_is_entered_without_a_race() {
    let mut race = Race::begin("w", "/state").await;
    let mut done = 0;
    for _ in 0..rounds() / 5 {
        let mut request = exec(&["read", "file"]);
        request.cwd = "dir".to_owned();
        let response = race.inside.run.call(Operation::Exec(request)).await.unwrap();
        if settled(&response) {
            let Some(v1::result::Kind::Exec(result)) = response.kind().cloned() else { panic!() };
            assert_eq!(result.stdout, "file \"from inside\\n\"\n");
            done += 1;
        }
    }
    race.end().await;
    assert!((1..rounds() / 5).contains(&done), "{done} commands got through: there was no race");
}

/// An index is replaced by renaming, which may take the link away: there is one again, and the index is not lost.
fn link_again(git: &Path, target: &str) {
    const LOOKS: u32 = 64;
    let (beside, link) = (git.join("beside"), git.join("link"));
    plant(&beside, target);
    let exchange = || renameat_with(CWD, &beside, CWD, &link, RenameFlags::EXCHANGE).unwrap();
    exchange();
    // While the names are exchanged, one look at both of them is none.
    let has_index = || ["index", "link"].iter().any(|name| !git.join(name).is_symlink());
    if !beside.is_symlink() && !(0..LOOKS).any(|_| has_index()) {
        exchange();
    }
    std::fs::remove_file(beside).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn g2_an_index_that_is_exchanged_with_a_link_changes_nothing_outside() {
    const TARGET: &str = "../../outside/index";
    let mut race = Race::exchange("w", [".git/index", ".git/link"], TARGET).await;
    // What the link leads to is an index, of a repository that has a secret.
    let other = race.daemon.repository("other", &[("canary", "x\n")]);
    let outside = race.daemon.roots().join("outside");
    std::fs::copy(other.join(".git/index"), outside.join("index")).unwrap();
    chown(outside.join("index"), Some(4321), Some(4321)).unwrap();
    let before = contents(&outside);
    let (mut added, mut refused) = (0, 0);
    for round in 0..rounds() / 5 {
        link_again(&race.inside.workspace.join(".git"), TARGET);
        let run = &mut race.inside.run;
        run.ok(calls::write("tracked", &format!("{round}\n"))).await;
        for (place, operation) in
            [calls::git_add(&["tracked"]), calls::git_commit("a race"), calls::git_diff(&["--cached"])]
                .into_iter()
                .enumerate()
        {
            let response = run.call(operation).await.unwrap();
            assert!(!format!("{response:?}").contains("canary"), "{response:?}");
            match settled(&response) {
                true if place == 0 => added += 1,
                true => {}
                false => refused += 1,
            }
        }
    }
    let (daemon, _inside) = race.end().await;
    assert!(added > 0 && refused > 0, "{added} added, {refused} refused: there was no race");
    assert_eq!(contents(&daemon.roots().join("outside")), before);
}
