//! `coffer demo`, `up`, `down` and `init`: they do what they say, and what is temporary leaves nothing.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use harness::{binary, docker, mounts_beneath, until};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader};

/// Longer than a demonstration takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);
/// User of the daemon of `coffer up`, who has no daemon otherwise.
const USER: u32 = 43_210;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Removes the variables of the test's own environment.
fn plain(command: &mut Command) -> &mut Command {
    for variable in ["COFFERDAM_ENDPOINT", "COFFERDAM_RUN", "COFFERDAM_TOKEN", "NO_COLOR", "SUDO_UID"] {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null())
}

/// Runs a command to its end without blocking the test's runtime. It is killed with the test.
async fn ended(command: Command) -> Output {
    let mut command = tokio::process::Command::from(command);
    let output = command.kill_on_drop(true).output();
    tokio::time::timeout(PATIENCE, output).await.expect("coffer does not end").unwrap()
}

fn coffer(words: &[&str]) -> Command {
    let mut command = Command::new(binary("coffer"));
    plain(&mut command).args(words);
    command
}

/// Returns the private directory and the run that a demonstration names.
fn named(told: &str) -> (PathBuf, String) {
    let from = told.find("/var/tmp/cofferdam-demo.").expect(told);
    let directory = told[from..].split_whitespace().next().unwrap().trim_end_matches("/projects/tally");
    let run = told.split("the run: ").nth(1).expect(told).split_whitespace().next().unwrap();
    (directory.into(), run.to_owned())
}

/// Returns the command lines that name a directory.
fn processes_of(directory: &Path) -> Vec<String> {
    let directory = directory.to_str().unwrap();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines.map(|line| text(&line)).filter(|line| line.contains(directory)).collect()
}

fn containers_of(run: &str) -> String {
    let filter = format!("label=io.cofferdam.run={run}");
    let listed = docker().args(["ps", "--all", "--quiet", "--filter", &filter]).output().unwrap();
    assert!(listed.status.success(), "{}", text(&listed.stderr));
    text(&listed.stdout)
}

async fn nothing_is_left(told: &str) {
    let (directory, run) = named(told);
    assert!(!directory.exists(), "{} is left", directory.display());
    assert_eq!(mounts_beneath(&directory), [""; 0]);
    // The engine and the kernel may need a moment after the end of the daemon.
    until("a process is left", async || processes_of(&directory).is_empty()).await;
    until("a container is left", async || containers_of(&run).is_empty()).await;
}

/// Ends a daemon that a failed test would leave.
struct DownAtTheEnd(Vec<String>);

impl Drop for DownAtTheEnd {
    fn drop(&mut self) {
        let words: Vec<&str> =
            ["down", "--delete"].into_iter().chain(self.0.iter().map(String::as_str)).collect();
        let _ = for_user(&words).output();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_demonstration_comes_to_its_end_and_leaves_nothing() {
    let Output { status, stderr, .. } = ended(coffer(&["demo"])).await;
    let told = text(&stderr);
    assert!(status.success(), "{told}");
    for part in [
        "$ coffer run create --profile review --agent alice --clone /var/tmp/cofferdam-demo.",
        "Command not allowed: rm (COMMAND_NOT_ALLOWED)",
        "wrong: the sum is 9, and should be 12",
        "waiting for consent; its human reads what would happen:",
        "+awk '{ sum += $2 } END { print sum }' \"$1\"",
        "$ coffer call git $RUN commit -m 'Add up the first price, too'",
        "ok: the sum is 12",
        "intact: ",
        "That was Cofferdam, in ",
    ] {
        assert!(told.contains(part), "{part}\n{told}");
    }
    nothing_is_left(&told).await;
}

/// Starts a demonstration, sends the signal after its run was made, and returns its exit code and what it told.
async fn interrupted(signal: Signal) -> (Option<i32>, String) {
    let mut command = tokio::process::Command::from(coffer(&["demo"]));
    let mut child = command.stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut told = String::new();
    let mut is_sent = false;
    let all = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            told.push_str(&line);
            told.push('\n');
            if line.contains("the run: ") && !is_sent {
                let pid = i32::try_from(child.id().unwrap()).unwrap();
                kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
                is_sent = true;
            }
        }
        child.wait().await.unwrap()
    };
    let status = tokio::time::timeout(PATIENCE, all).await.expect("coffer does not end");
    (status.code(), told)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_demonstration_leaves_nothing() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let (status, told) = interrupted(signal).await;
        assert_eq!(status, Some(code), "{told}");
        assert!(!told.contains("That was Cofferdam"), "{told}");
        nothing_is_left(&told).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_daemon_is_ended_by_down() {
    let Output { status, stderr, .. } = ended(coffer(&["demo", "--keep"])).await;
    let told = text(&stderr);
    assert!(status.success(), "{told}");
    let (directory, _) = named(&told);
    let _down = DownAtTheEnd(vec![directory.display().to_string()]);
    assert!(!processes_of(&directory).is_empty(), "{told}");
    let down = ended(coffer(&["down", "--delete", directory.to_str().unwrap()])).await;
    assert!(down.status.success(), "{}", text(&down.stderr));
    nothing_is_left(&told).await;
}

/// Returns `coffer` as sudo starts it for the user of this test.
fn for_user(words: &[&str]) -> Command {
    let mut command = coffer(words);
    command.env("SUDO_UID", USER.to_string()).env("SUDO_GID", USER.to_string());
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_is_up_serves_its_user_until_down() {
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (project, other) = (home.path().join("project"), home.path().join("other"));
    for directory in [&project, &other] {
        fs::create_dir(directory).unwrap();
    }
    fs::write(project.join("Cargo.toml"), "").unwrap();
    let program = home.path().join("coffer");
    fs::copy(binary("coffer"), &program).unwrap();
    let directory = PathBuf::from(format!("/var/lib/cofferdam-up/{USER}"));

    let _down = DownAtTheEnd(Vec::new());
    let up = ended(for_user(&["up", project.to_str().unwrap()])).await;
    assert!(up.status.success(), "{}", text(&up.stderr));
    let endpoint = format!("unix:{}/cofferd.sock", directory.display());
    assert_eq!(text(&up.stdout), format!("export COFFERDAM_ENDPOINT={endpoint}\n"));
    assert!(text(&up.stderr).contains("Cargo.toml: the profile allows cargo build"), "{}", text(&up.stderr));

    let again = ended(for_user(&["up", project.to_str().unwrap()])).await;
    assert!(again.status.success() && text(&again.stderr).contains("is up already"), "{again:?}");
    assert_eq!(again.stdout, up.stdout);
    let elsewhere = ended(for_user(&["up", other.to_str().unwrap()])).await;
    assert_eq!(elsewhere.status.code(), Some(1), "{elsewhere:?}");

    let own = async |words: &[&str]| {
        let mut own = Command::new(&program);
        plain(&mut own).env("COFFERDAM_ENDPOINT", &endpoint).uid(USER).gid(USER).args(words);
        ended(own).await
    };
    let policy = own(&["policy", "show"]).await;
    assert!(policy.status.success() && text(&policy.stdout).contains("project"), "{policy:?}");
    let made = own(&["run", "create", "--profile", "review", "--role", "director", "--managed"]).await;
    let run = text(&made.stdout);
    let waits = own(&["call", "write", run.trim(), "a.txt", "--content", "x"]).await;
    assert_eq!(waits.status.code(), Some(4), "{made:?} {waits:?}");
    let listed = text(&own(&["approval", "list"]).await.stderr);
    assert!(listed.contains("1 of them asked by you: ") && listed.contains("you decide, too"), "{listed}");
    assert!(!listed.contains("another user"), "{listed}");

    let down = ended(for_user(&["down", "--delete"])).await;
    assert!(down.status.success(), "{}", text(&down.stderr));
    assert!(!directory.exists() && processes_of(&directory).is_empty());
    let nothing = ended(for_user(&["down"])).await;
    assert!(nothing.status.success() && text(&nothing.stderr).contains("Nothing is up."), "{nothing:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_missing_need_is_named_with_what_to_do() {
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = home.path().join("coffer");
    fs::copy(binary("coffer"), &program).unwrap();
    let demo = |words: &[&str]| {
        let mut command = Command::new(&program);
        plain(&mut command).arg("demo").args(words).env("PATH", "/nonexistent");
        command
    };
    let cofferd = |version: &str| {
        let path = home.path().join("cofferd");
        fs::write(&path, format!("#!/bin/sh\necho 'cofferd {version}'\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    let said = async |command: Command| {
        let output = ended(command).await;
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        text(&output.stderr)
    };

    let alone = said(demo(&[])).await;
    assert!(alone.contains("cofferd is neither beside") && alone.contains("hint: install"), "{alone}");
    cofferd("0.0.0");
    let old = said(demo(&[])).await;
    assert!(old.contains("is not cofferd ") && old.contains("of the same release"), "{old}");
    cofferd(env!("CARGO_PKG_VERSION"));
    let mut user = demo(&[]);
    user.uid(USER).gid(USER);
    let user = said(user).await;
    assert!(user.contains("needs root") && user.contains("run `sudo /var/tmp/"), "{user}");
    let mut lonely = demo(&[]);
    lonely.env("DOCKER_HOST", "unix:///nonexistent/docker.sock");
    let lonely = said(lonely).await;
    assert!(
        lonely.contains("engine: no answer on ") && lonely.contains("hint: install and start Docker"),
        "{lonely}"
    );
    let bare = said(demo(&["--busybox", "/nonexistent/busybox"])).await;
    assert!(
        bare.contains("the default image cannot be made: no busybox at ") && bare.contains("busybox-static"),
        "{bare}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn written_configuration_is_one_that_the_daemon_accepts() {
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let (project, configuration) = (home.path().join("project"), home.path().join("configuration"));
    fs::create_dir(&project).unwrap();
    fs::write(project.join("package.json"), "{}").unwrap();
    let words = ["init", configuration.to_str().unwrap(), "--project", project.to_str().unwrap()];
    let init = ended(for_user(&words)).await;
    assert!(init.status.success(), "{}", text(&init.stderr));
    assert!(text(&init.stderr).contains("package.json: the profile allows npm test"), "{init:?}");
    assert_eq!(text(&init.stdout).lines().count(), 5, "{init:?}");

    let file = configuration.join("cofferd.yaml");
    let mut check = Command::new(binary("cofferd"));
    check.arg("--config").arg(&file).arg("--check-config");
    let check = ended(check).await;
    assert!(check.status.success(), "{}", text(&check.stderr));
    let policy = configuration.join("policies");
    let check = ended(coffer(&["policy", "check", policy.to_str().unwrap()])).await;
    assert!(check.status.success() && text(&check.stdout).contains("project"), "{check:?}");

    let again = ended(for_user(&words)).await;
    assert_eq!(again.status.code(), Some(2), "{again:?}");
    assert!(text(&again.stderr).contains("nothing was written"), "{again:?}");
}
