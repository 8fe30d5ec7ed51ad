//! Attacks by a process that constantly changes the files of a call.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use harness::v1::call_response::Status;
use harness::v1::operation::Kind as Operation;
use harness::v1::result::Kind as Answer;
use harness::{Daemon, RunHandle, Setup, calls, git, own, v1};
use tokio::task::JoinHandle;

use super::{EVIL, GOOD, PROFILE, UID, delete, review};

/// A call that goes on.
type Flipper = JoinHandle<Result<v1::CallResponse, tonic::Status>>;

/// Of one of them. A command lives for two minutes at most.
const FLIPPERS_LIFE: Duration = Duration::from_secs(60);

/// For a flipper to have made something.
const PATIENCE: Duration = Duration::from_secs(60);

/// A profile in which a command of the run can flip files without asking, with the approvals of the shipped ones.
fn flipping() -> Setup {
    let profile = "profiles:\n  p:\n    workspace: read-write\n    operations: {read: allow, write: ask, edit: ask, exec: allow, shell: ask, delete: ask, git.add: ask}\n    exec:\n      default: ask\n      rules: [{prefix: [sh, flip.sh], decision: allow, justification: It flips., match: [sh flip.sh]}]\n    approvals: {freeze: true}\n    rate_limits:\n      operations: {default: {minute: unlimited, hour: unlimited, day: unlimited}}\n      run: {minute: unlimited, hour: unlimited, day: unlimited}\n      principal: {minute: unlimited, hour: unlimited, day: unlimited}\n".to_owned();
    let roles = "roles: {director: {allow: '*'}}\n".to_owned();
    Setup { policy: vec![("profile.yaml", profile), ("roles.yaml", roles)], ..Default::default() }
}

/// A process of the run exchanges two files without end, by names and in target; whatever a call was approved for, it is done with
/// what was there when its reviewer looked.
#[tokio::test(flavor = "multi_thread")]
async fn x7_a_process_of_the_run_that_flips_files_gains_nothing() {
    let daemon = Daemon::start_with(flipping()).await;
    let workspace = daemon.repository("w", &[("run.sh", GOOD), ("f", "echo GOOD\n"), ("g", "echo GOOD\n")]);
    let flip = "while [ ! -e stop ]; do for word in EVIL GOOD; do echo echo $word > new; mv new run.sh; echo echo $word > f; echo x >> ticks; done; done\n";
    fs::write(workspace.join("flip.sh"), flip).unwrap();
    own(&workspace, UID);
    let mut run = daemon.run("p", &workspace).await;
    let (mut contents, mut flipper, mut next) = ([0; 2], None, Instant::now());
    for round in 0..effort::cases(10, 500) {
        for call in [
            calls::exec(&["sh", "run.sh"]),
            calls::shell("sh run.sh; sh run.sh; cat f"),
            calls::write("run.sh", GOOD),
            calls::replace("run.sh", "echo", "print"),
            delete("run.sh"),
            calls::git_add(&["f"]),
        ] {
            if Instant::now() >= next {
                flips(&mut run, &workspace, &mut flipper).await;
                next = Instant::now() + FLIPPERS_LIFE;
            }
            // After a delete the flipper makes it again, once the run goes on.
            until(|| workspace.join("run.sh").exists()).await;
            let waiting = run.waits(call.clone());
            let id = run.id().to_owned();
            let approval = run.clients.pending_approval(&id).await;
            // It stands still, so that this is what there is.
            let seen = ["run.sh", "f"].map(|name| fs::read_to_string(workspace.join(name)).unwrap());
            run.clients.approve(&approval.approval_id).await.unwrap();
            let done = waiting.await.unwrap().unwrap();
            assert_eq!(done.status(), Status::Succeeded, "round {round}: {:?}", done.error);
            contents[usize::from(seen[0].contains("EVIL"))] += 1;
            let words = |script: &str| script.replace("echo ", "");
            match done.kind().cloned().unwrap() {
                Answer::Exec(exec) => assert_eq!(exec.stdout, words(&seen[0]), "round {round}"),
                Answer::Shell(shell) => {
                    assert_eq!(shell.stdout, words(&seen[0]).repeat(2) + &seen[1], "round {round}");
                }
                Answer::Write(write) => assert_eq!(write.sha256_before, sha256(&seen[0]), "round {round}"),
                Answer::Edit(edit) => assert_eq!(edit.sha256_before, sha256(&seen[0]), "round {round}"),
                Answer::Delete(deleted) => assert_eq!(deleted.sha256, sha256(&seen[0]), "round {round}"),
                Answer::Git(_) => assert_eq!(git(&workspace, &["show", ":f"]), seen[1], "round {round}"),
                other => panic!("{other:?}"),
            }
        }
    }
    end(&workspace, &mut flipper).await;
    println!("seen good and evil: {contents:?}");
}

/// Starts it anew.
async fn flips(run: &mut RunHandle, workspace: &Path, flipper: &mut Option<Flipper>) {
    end(workspace, flipper).await;
    for name in ["stop", "ticks"] {
        let _ = fs::remove_file(workspace.join(name));
    }
    let (command, args) = ("sh".to_owned(), vec!["flip.sh".to_owned()]);
    let request = v1::ExecRequest { command, args, timeout_ms: Some(120_000), ..Default::default() };
    *flipper = Some(run.waits(Operation::Exec(request)));
    until(|| fs::metadata(workspace.join("ticks")).is_ok_and(|ticks| ticks.len() >= 20)).await;
}

/// Waits until the flipper has done so.
async fn until(it_has: impl Fn() -> bool) {
    let done = async {
        while !it_has() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, done).await.expect("nothing flips the files");
}

/// Ends it. It has flipped up to now.
async fn end(workspace: &Path, flipper: &mut Option<Flipper>) {
    let Some(flipper) = flipper.take() else { return };
    fs::write(workspace.join("stop"), "").unwrap();
    assert_eq!(flipper.await.unwrap().unwrap().status(), Status::Succeeded);
}

fn sha256(text: &str) -> String {
    use sha2::{Digest as _, Sha256};
    hex::encode(Sha256::digest(text))
}

/// A process of the host flips a file while approved calls of the host lane replace, change, delete and stage it: what they
/// displace or stage is what their reviewer saw, or they refuse.
#[tokio::test(flavor = "multi_thread")]
async fn p5_a_process_of_the_host_that_flips_files_gains_nothing_from_the_host_lane() {
    let daemon = Daemon::start_with(review()).await;
    let workspace = daemon.repository("w", &[("f", GOOD)]);
    let mut run = daemon.run(PROFILE, &workspace).await;
    let file = workspace.join("f");
    let (mut happened, mut refused) = (0, 0);
    for round in 0..effort::cases(10, 500) {
        for (number, call) in [
            calls::write("f", "new\n"),
            calls::replace("f", "echo", "print"),
            delete("f"),
            calls::git_add(&["f"]),
        ]
        .into_iter()
        .enumerate()
        {
            fs::write(&file, GOOD).unwrap();
            own(&workspace, UID);
            git(&workspace, &["reset", "-q"]);
            // So that there is something to add.
            if number == 3 {
                fs::write(&file, "echo good\n").unwrap();
            }
            let good = fs::read_to_string(&file).unwrap();
            let waiting = run.waits(call);
            let id = run.id().to_owned();
            let approval = run.clients.pending_approval(&id).await;
            let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
            let flipper = std::thread::spawn({
                let (stop, file, good) = (stop.clone(), file.clone(), good.clone());
                move || {
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        for content in [EVIL, &good] {
                            // What the call has made is let be.
                            let Ok(now) = fs::read_to_string(&file) else { continue };
                            if now == EVIL || now == good {
                                let _ = fs::OpenOptions::new().write(true).open(&file).and_then(|file| {
                                    std::os::unix::fs::FileExt::write_all_at(&file, content.as_bytes(), 0)
                                });
                            }
                        }
                    }
                }
            });
            run.clients.approve(&approval.approval_id).await.unwrap();
            let done = waiting.await.unwrap();
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            flipper.join().unwrap();
            let Some(result) = done
                .ok()
                .filter(|done| done.status() == Status::Succeeded)
                .and_then(|done| done.kind().cloned())
            else {
                refused += 1;
                continue;
            };
            happened += 1;
            match result {
                Answer::Write(write) => assert_eq!(write.sha256_before, sha256(&good), "round {round}"),
                Answer::Edit(edit) => {
                    assert_eq!(edit.sha256_before, sha256(&good), "round {round}");
                    assert!(edit.diff.contains("+print GOOD"), "round {round}: {}", edit.diff);
                }
                Answer::Delete(deleted) => assert_eq!(deleted.sha256, sha256(&good), "round {round}"),
                Answer::Git(_) => assert_eq!(git(&workspace, &["show", ":f"]), good, "round {round}"),
                other => panic!("{other:?}"),
            }
        }
    }
    println!("{happened} happened to what was seen, {refused} were refused");
    assert!(refused > 0, "the flipper was never in the way");
}
