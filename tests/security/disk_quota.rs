//! C4 for the disk: what one run takes of the daemon's disk is bounded, whether the kernel holds it or the daemon measures; its
//! neighbours go on, and it can free space for itself. A kernel without the quota format that ext4 uses (CONFIG_QFMT_V2) cannot mount
//! such a file system: there what is about the kernel says so and has nothing to try.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use harness::v1::disk_use::State as Use;
use harness::v1::exec_result::EndedBy;
use harness::v1::operation::Kind as Operation;
use harness::v1::run_service_client::RunServiceClient;
use harness::v1::{self, state_disk};
use harness::{Daemon, RunHandle, Setup, binary, calls, reason, record, requests};

const MIB: u64 = 1 << 20;
/// Of the file system that has the state directory.
const DISK: u64 = 512 * MIB;
/// Of each run.
const QUOTA: v1::Limits = v1::Limits {
    memory_bytes: 0,
    cpu_millis: 0,
    pids: 0,
    file_size_bytes: 0,
    open_files: 0,
    disk_bytes: 64 * MIB,
    disk_files: 2_000,
};
/// An event that has not come by then does not come.
const LOOKS: u32 = 600;

/// Who counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Kernel,
    Measuring,
}

/// A daemon whose state directory is a small file system of its own, which goes with it. `None`: the kernel has no project
/// quotas.
async fn on_a_small_disk(by: By) -> Option<Daemon> {
    let mut daemon = Daemon::start_with(Setup::default()).await;
    daemon.stop().await;
    let image = daemon.outside().join("disk");
    std::fs::File::create(&image).unwrap().set_len(DISK).unwrap();
    let (features, options) = match by {
        By::Kernel => (&["-O", "quota,project", "-E", "quotatype=prjquota"][..], "loop,prjquota"),
        By::Measuring => (&["-O", "^quota,^project"][..], "loop"),
    };
    let state = daemon.state_dir();
    succeeds(Command::new("mkfs.ext4").args(["-q", "-m", "0"]).args(features).arg(&image));
    let mounted = Command::new("mount").args(["-o", options]).arg(&image).arg(&state).output().unwrap();
    let why = String::from_utf8_lossy(&mounted.stderr);
    if by == By::Kernel && why.contains("wrong fs type, bad option") {
        eprintln!("not tried: this kernel has no project quotas");
        return None;
    }
    assert!(mounted.status.success(), "as root: {why}");
    daemon.launch().await;
    Some(daemon)
}

fn succeeds(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?} as root: {output:?}");
}

async fn small_run(daemon: &Daemon, request: v1::CreateRunRequest) -> RunHandle {
    daemon.run_on(v1::CreateRunRequest { limits: Some(QUOTA), ..request }).await
}

/// A command that was killed for its quota has failed for everybody who is told of it: the status, a dialect, and the record.
async fn has_failed(run: &mut RunHandle, script: &str) {
    let arguments = serde_json::json!({ "command": "sh", "args": ["-c", script] }).to_string();
    let call = v1::DialectCall {
        dialect: "gateway".to_owned(),
        name: "run_command".to_owned(),
        arguments_json: arguments,
    };
    let done = run.call(call).await.unwrap();
    let why = done.error.as_ref().map(|error| error.reason.as_str());
    assert_eq!((done.status(), why), (v1::call_response::Status::Failed, Some("WRITE_LIMIT")), "{done:?}");
    assert!(done.rendered.contains("\"status\":\"failure\""), "{}", done.rendered);
    let outcome = &record(run.clients.of_call(&done.call_id).await.last().unwrap())["outcome"];
    assert_eq!(
        (&outcome["status"], &outcome["reason"]),
        (&"failed".into(), &"WRITE_LIMIT".into()),
        "{outcome}"
    );
    assert_eq!(outcome["facts"]["ended_by"], "disk-quota", "{outcome}");
}

/// What the daemon knows of the run's disk.
async fn use_of(run: &mut RunHandle) -> v1::DiskUse {
    run.show().await.disk.unwrap_or_default()
}

async fn waits_for(run: &mut RunHandle, wanted: Use) -> v1::DiskUse {
    let mut last = v1::DiskUse::default();
    for _ in 0..LOOKS {
        last = use_of(run).await;
        if last.state() == wanted {
            return last;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("never {wanted:?}: {last:?}");
}

/// Five files of 50 MiB, and then nothing for a minute.
fn fill(place: &str) -> Operation {
    calls::shell(&format!(
        "for n in 1 2 3 4 5; do head -c 52428800 /dev/zero >{place}/$n || exit 9; done; sleep 60"
    ))
}

fn delete(path: &str) -> Operation {
    Operation::Delete(v1::DeleteRequest { path: path.to_owned(), ..Default::default() })
}

/// How a command that took too much has ended.
fn assert_ended(result: &v1::ExecResult, by: By) {
    match by {
        By::Kernel => assert!(result.exit_code.is_some_and(|code| code != 0), "{result:?}"),
        By::Measuring => {
            assert_eq!((result.ended_by(), result.exit_code), (EndedBy::DiskQuota, Some(137)), "{result:?}");
            assert!(result.hint.contains("used up its disk quota"), "{result:?}");
        }
    }
}

async fn one_fills_and_another_goes_on(by: By, overlay: bool) {
    let Some(daemon) = on_a_small_disk(by).await else { return };
    let request = |name: &str| {
        let beneath = daemon.workspace(name, &[("kept.txt", "kept\n")]);
        if overlay { requests::overlay("open", &beneath) } else { requests::managed("open") }
    };
    let mut filler = small_run(&daemon, request("filler")).await;
    let mut neighbour = small_run(&daemon, request("neighbour")).await;
    // The workspace and `/state` count together.
    filler.ok(calls::write("@state/first", "x")).await;
    let result = filler.ran(fill("/workspace")).await;
    assert_ended(&result, by);
    neighbour.ok(calls::write("a.txt", "goes on\n")).await;
    assert_eq!(neighbour.exec(&["cat", "a.txt"]).await.stdout, "goes on\n");

    let has = waits_for(&mut filler, Use::Over).await;
    assert_eq!(has.kernel, by == By::Kernel);
    assert_eq!(use_of(&mut neighbour).await.state(), Use::Within);
    if by == By::Kernel {
        assert!(has.used_bytes <= 64 * MIB, "{has:?}");
    }
    for path in ["@state/more", "more"] {
        let refused = filler.call(calls::write(path, "more")).await.unwrap_err();
        assert_eq!(reason(&refused), "WRITE_LIMIT");
        assert!(refused.message().contains("of at most 64.0 MiB in 2000 files"), "{}", refused.message());
    }
    is_on_record(&mut filler).await;
    if by == By::Measuring {
        // A command may free space. One that takes more instead was the last.
        has_failed(&mut filler, "head -c 52428800 /dev/zero >/state/6; sleep 60").await;
        waits_for(&mut filler, Use::Locked).await;
        let refused = filler.call(calls::exec(&["true"])).await.unwrap_err();
        assert_eq!(reason(&refused), "WRITE_LIMIT");
        for path in ["@state/6", "1", "2", "3", "4", "5"] {
            // Some were not even begun.
            if exists(&mut filler, path).await {
                filler.consented(delete(path)).await;
            }
        }
    } else {
        filler.consented(delete("1")).await;
        let emptied = filler.exec(&["sh", "-c", "for n in 2 3 4 5; do : >$n; done"]).await;
        assert_eq!(emptied.exit_code, Some(0), "{emptied:?}");
    }
    waits_for(&mut filler, Use::Within).await;
    filler.ok(calls::write("@state/more", "goes on\n")).await;
    assert_eq!(filler.exec(&["cat", "/state/more"]).await.stdout, "goes on\n");

    // What is left counts until the run is deleted.
    filler.stop().await;
    neighbour.stop().await;
    if overlay {
        filler.discard().await.unwrap();
        neighbour.discard().await.unwrap();
    }
    filler.delete().await;
    assert!(!daemon.state_dir().join("runs").join(filler.id()).exists());
}

async fn exists(run: &mut RunHandle, path: &str) -> bool {
    let (directory, name) = path.split_once('/').unwrap_or(("@project", path));
    match run.ok(calls::list(directory)).await {
        v1::result::Kind::List(list) => list.entries.iter().any(|entry| entry.path.ends_with(name)),
        other => panic!("{other:?}"),
    }
}

async fn is_on_record(run: &mut RunHandle) {
    let id = run.id().to_owned();
    let over = run.clients.events(&id, "disk_space").await;
    assert_eq!(record(&over[0])["details"]["state"], "over");
    for _ in 0..LOOKS {
        let request = v1::ListAlertsRequest { rule: "disk_quota".to_owned(), ..Default::default() };
        let alerts = run.clients.alerts.list_alerts(request).await.unwrap().into_inner().alerts;
        if alerts.iter().any(|alert| alert.run_id == id) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("no alert");
}

harness::tests! {
    c4_the_quota_of_a_managed_workspace_is_enforced_by_the_kernel: one_fills_and_another_goes_on(By::Kernel, false),
    c4_the_quota_of_a_managed_workspace_is_enforced_by_measuring: one_fills_and_another_goes_on(By::Measuring, false),
    c4_the_quota_of_an_overlay_is_enforced_by_the_kernel: one_fills_and_another_goes_on(By::Kernel, true),
    c4_the_quota_of_an_overlay_is_enforced_by_measuring: one_fills_and_another_goes_on(By::Measuring, true),
}

async fn a_root_fills_and_another_goes_on(by: By) {
    let Some(daemon) = on_a_small_disk(by).await else { return };
    let mut filler = small_run(&daemon, requests::managed("harness")).await;
    let mut neighbour = small_run(&daemon, requests::managed("harness")).await;
    // Where programs are installed, and of what the image has.
    let result = filler.ran(fill("/usr")).await;
    assert_ended(&result, by);
    let grown = "echo goes on >/etc/a && cp /bin/busybox /usr/busybox-b && /usr/busybox-b cat /etc/a";
    assert_eq!(neighbour.ran(calls::shell(grown)).await.stdout, "goes on\n");
    let has = waits_for(&mut filler, Use::Over).await;
    assert_eq!(has.kernel, by == By::Kernel);
    assert_eq!(use_of(&mut neighbour).await.state(), Use::Within);
    is_on_record(&mut filler).await;
    // It frees space by itself, and goes on.
    assert_eq!(filler.ran(calls::shell("rm -f /usr/[1-5]")).await.exit_code, Some(0));
    waits_for(&mut filler, Use::Within).await;
    assert_eq!(filler.ran(calls::shell(grown)).await.stdout, "goes on\n");
    // What has no name any more counts while a process has it.
    let open = "exec 3>/usr/a 4>/usr/b && rm /usr/a /usr/b && head -c 52428800 /dev/zero >&3 && head -c 52428800 /dev/zero >&4 && sleep 60";
    let result = filler.ran(calls::shell(open)).await;
    assert_ended(&result, by);
    filler.stop().await;
    assert!(daemon.root_is_gone(filler.id()));
    assert_eq!(neighbour.ran(calls::shell(grown)).await.stdout, "goes on\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn c4_the_quota_of_a_writable_root_is_enforced_by_the_kernel() {
    a_root_fills_and_another_goes_on(By::Kernel).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c4_the_quota_of_a_writable_root_is_enforced_by_measuring() {
    a_root_fills_and_another_goes_on(By::Measuring).await;
}

/// Files in a directory of the host.
fn files(directory: &Path) -> usize {
    std::fs::read_dir(directory).unwrap().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn c4_files_without_content_count_too() {
    for by in [By::Kernel, By::Measuring] {
        let Some(daemon) = on_a_small_disk(by).await else { continue };
        let workspace = daemon.workspace("w", &[]);
        let mut run = small_run(&daemon, requests::bind("open", &workspace)).await;
        let result = run.ran(calls::shell("n=0; while :; do n=$((n+1)); : >/state/$n || exit 9; done")).await;
        assert_ended(&result, by);
        waits_for(&mut run, Use::Over).await;
        let made = files(&daemon.state_dir().join("runs").join(run.id()));
        assert!(made >= 1_900 && (by == By::Measuring || made <= 2_000), "{by:?}: {made}");
        // What is not the daemon's is not its to bound.
        run.ok(calls::write("a.txt", "x")).await;
        let refused = run.call(calls::write("@state/a.txt", "x")).await.unwrap_err();
        assert_eq!(reason(&refused), "WRITE_LIMIT");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_is_reported_before_it_is_full_and_its_last_space_is_reserved() {
    let daemon = on_a_small_disk(By::Measuring).await.unwrap();
    let mut run = small_run(&daemon, requests::managed("open")).await;
    let mut runs = RunServiceClient::new(run.clients.channel.clone());
    let mut disk = async |wanted: state_disk::State| {
        for _ in 0..LOOKS {
            let listed = runs.list_runs(v1::ListRunsRequest::default()).await.unwrap().into_inner();
            if listed.state_disk.unwrap().state() == wanted {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("never {wanted:?}");
    };
    let ballast = daemon.state_dir().join("ballast");
    let free = || {
        let found = rustix::fs::statvfs(daemon.state_dir().as_path()).unwrap();
        found.f_bavail * found.f_frsize
    };
    let leave = |left: u64| {
        let length = (free() + std::fs::metadata(&ballast).map_or(0, |file| file.len()) - left).to_string();
        succeeds(Command::new("fallocate").args(["-l", &length]).arg(&ballast));
    };
    let doctor = || {
        let endpoint = format!("unix:{}", daemon.socket().display());
        let output =
            Command::new(binary("coffer")).env("COFFERDAM_ENDPOINT", endpoint).arg("doctor").output();
        let output = output.unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    disk(state_disk::State::Enough).await;
    assert!(doctor().contains("ok       state disk"), "{}", doctor());

    leave(40 * MIB);
    disk(state_disk::State::Low).await;
    assert!(doctor().contains("limited  state disk"), "{}", doctor());
    run.ok(calls::write("a.txt", "still written\n")).await;

    // A twentieth of the disk is full for the runs; at less than a thirty-second the daemon takes no calls at all.
    leave(20 * MIB);
    disk(state_disk::State::Full).await;
    for operation in [calls::write("b.txt", "never"), calls::exec(&["cat", "a.txt"])] {
        let refused = run.call(operation).await.unwrap_err();
        assert_eq!(reason(&refused), "WRITE_LIMIT");
        assert!(refused.message().contains("the daemon's disk is full"), "{}", refused.message());
    }
    run.ok(calls::read("a.txt")).await;
    let (approval, response) = run.consented(delete("a.txt")).await;
    assert!(approval.preview.contains("GONE FOR GOOD"), "{}", approval.preview);
    assert_eq!(response.status(), v1::call_response::Status::Succeeded, "{:?}", response.error);

    std::fs::remove_file(&ballast).unwrap();
    disk(state_disk::State::Enough).await;
    run.ok(calls::write("b.txt", "again\n")).await;
    let told: Vec<_> = run.clients.events("", "disk_space").await;
    let state = |event| record(event)["details"]["state"].as_str().unwrap().to_owned();
    // The spool has a watch of its own, which may look while there is no space for it.
    let states: Vec<String> = told.iter().map(state).filter(|state| !state.starts_with("spool")).collect();
    assert_eq!(states, ["low", "full", "enough"]);
    assert!(run.clients.verify().await.intact);
}

#[tokio::test(flavor = "multi_thread")]
async fn c4_a_clone_that_is_more_than_its_quota_is_refused() {
    for by in [By::Kernel, By::Measuring] {
        let Some(daemon) = on_a_small_disk(by).await else { continue };
        let repository = daemon.repository("r", &[("a.txt", "one\n")]);
        std::fs::write(repository.join("large"), vec![b'x'; 80 << 20]).unwrap();
        harness::git(&repository, &["add", "large"]);
        harness::git(&repository, &["commit", "-q", "-m", "large"]);
        harness::own(&repository, 4321);
        let request = requests::clone("open", &repository);
        let refused = daemon.run_with(v1::CreateRunRequest { limits: Some(QUOTA), ..request }).await;
        let refused = refused.err().unwrap();
        let reasons = ["WRITE_LIMIT", "INVALID_ARGUMENT"];
        assert!(reasons.contains(&reason(&refused).as_str()), "{by:?}: {refused}");
        assert_eq!(files(&daemon.state_dir().join("workspaces")), 0, "{by:?}");
    }
}
