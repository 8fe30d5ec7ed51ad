//! Compares the gateway's judgement of command lines that run without consent with the effects of the programs, and tests the
//! refusals end to end.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};

use harness::{Daemon, RunHandle, calls, debian, inspect, requests, v1};
use serde_json::json;

/// The gateway's own tests hold its table against the same lines.
const LINES: &str = include_str!("../../crates/command-rules/testdata/command_lines.txt");
const DRIVER: &str = include_str!("command_lines.sh");

struct Line {
    verdict: &'static str,
    places: &'static str,
    command: &'static str,
}

/// Those that are tried.
fn lines() -> Vec<Line> {
    let split = |line: &'static str| {
        let mut words = line.splitn(3, ' ');
        let (verdict, places, rest) = (words.next()?, words.next()?, words.next()?);
        let (_word, command) = match rest.strip_prefix('\'') {
            Some(quoted) => quoted.split_once("' ")?,
            None => rest.split_once(' ')?,
        };
        Some(Line { verdict, places, command: command.trim_start() })
    };
    let lines = LINES.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let lines = lines.map(|line| split(line).unwrap_or_else(|| panic!("{line}")));
    lines.filter(|line| line.verdict != "unknown").collect()
}

/// What a line came to in one image.
struct Came {
    succeeded: bool,
    changed: bool,
}

/// Runs all lines in one container of an image.
fn tried(image: &str, lines: &[Line]) -> Vec<Came> {
    let mut child = Command::new("timeout")
        .args(["300", "docker", "run", "--rm", "--interactive", "--network=none", "--read-only"])
        .args(["--tmpfs=/scratch:exec", "--tmpfs=/tmp", image, "sh", "-c", DRIVER])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    for line in lines {
        writeln!(stdin, "{}", line.command).unwrap();
    }
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let report = String::from_utf8(output.stdout).unwrap();
    let came: Vec<Came> = report
        .lines()
        .map(|line| Came { succeeded: line.starts_with("0 "), changed: line.ends_with("changed") })
        .collect();
    assert_eq!(came.len(), lines.len(), "{image}: {report}");
    came
}

#[tokio::test]
async fn programs_have_the_effects_of_the_gateways_table() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("open")).await;
    let default = inspect(&run.show().await.container_id)["Image"].as_str().unwrap().to_owned();
    let lines = lines();
    let images = [('b', "busybox", default), ('d', "Debian", debian())];
    let came: BTreeMap<char, Vec<Came>> =
        images.iter().map(|(place, _, image)| (*place, tried(image, &lines))).collect();

    let mut wrong = Vec::new();
    for (index, Line { verdict, places, command }) in lines.iter().enumerate() {
        let mut changed = false;
        for (place, name, _) in &images {
            let Came { succeeded, changed: here } = came[place][index];
            changed |= here;
            let as_said = if *verdict == "reads" { succeeded } else { here };
            if places.contains(*place) && !as_said || *verdict == "reads" && here {
                wrong.push(format!("{name}: {verdict} {places} {command}: {succeeded}, changed {here}"));
            }
        }
        if *verdict != "reads" && !changed {
            wrong.push(format!("nowhere: {verdict} {command}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let reading = lines.iter().filter(|line| line.verdict == "reads").count();
    assert!(reading >= 100 && lines.len() - reading >= 50, "{reading} of {}", lines.len());
}

/// The reason of a refused call of `bash_command`, and what the model is told; nothing when it ran.
async fn refused(run: &mut RunHandle, command: &str, args: &[&str]) -> Option<(String, String)> {
    let operation = v1::DialectCall {
        dialect: "native".to_owned(),
        name: "bash_command".to_owned(),
        arguments_json: json!({ "command": command, "args": args }).to_string(),
    };
    let response = run.call(operation).await.unwrap();
    let denied = response.status() == v1::call_response::Status::Denied;
    denied.then(|| (response.error.unwrap_or_default().reason, response.rendered))
}

#[tokio::test]
async fn bash_command_only_reads_inside_the_mounts_under_every_profile() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n"), (".git/hooks/pre-commit", "#!/bin/sh\n")]);
    let mut run = daemon.run("open", &workspace).await;
    assert_eq!(refused(&mut run, "find", &[".", "-name", "a.txt"]).await, None);
    for (command, args, expected) in [
        ("find", &[".", "-delete"][..], "COMMAND_NOT_ALLOWED"),
        ("find", &[".", "-exec", "touch", "made", ";"], "COMMAND_NOT_ALLOWED"),
        ("find", &[".", "-fprint", "made"], "COMMAND_NOT_ALLOWED"),
        ("tail", &["-f", "a.txt"], "COMMAND_NOT_ALLOWED"),
        ("wc", &["--files0-from=a.txt"], "COMMAND_NOT_ALLOWED"),
        ("cat", &["/etc/passwd"], "SANDBOX_VIOLATION"),
        ("cat", &["../../x"], "SANDBOX_VIOLATION"),
        ("cat", &[".git/hooks/pre-commit"], "SANDBOX_VIOLATION"),
        ("head", &["/dev/zero"], "SANDBOX_VIOLATION"),
    ] {
        let (reason, told) = refused(&mut run, command, args).await.unwrap_or_default();
        assert_eq!(reason, expected, "{command} {args:?}: {told}");
        assert!(!told.contains(&workspace.display().to_string()), "{told}");
    }
    assert!(workspace.join("a.txt").exists() && !workspace.join("made").exists());
    // Each is on record as what it was.
    let id = run.id().to_owned();
    let receipts = run.clients.events(&id, "call_receipt").await;
    let with = |reason: &str| receipts.iter().filter(|event| event.record_json.contains(reason)).count();
    assert_eq!((with("COMMAND_NOT_ALLOWED"), with("SANDBOX_VIOLATION")), (5, 4));
}

#[tokio::test]
async fn find_that_deletes_asks_like_delete_under_open() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run("open", &workspace).await;
    run.asks(calls::exec(&["find", ".", "-name", "a.txt", "-delete"])).await;
    run.asks(calls::shell("find . -name a.txt -delete")).await;
    assert!(workspace.join("a.txt").exists());
}

/// Their words are harmless, and what they lead to is not: it is looked at where the command runs, as `read` does.
#[tokio::test(flavor = "multi_thread")]
async fn links_to_other_directories_are_not_read_without_consent() {
    const AT_ONCE: usize = 16;
    let daemon = Daemon::start().await;
    let workspace = daemon.repository("w", &[("a.txt", "plain\n"), ("d/b.txt", "plain\n")]);
    harness::git(&workspace, &["remote", "add", "origin", "https://user:hunter2@example.org/x.git"]);
    for (link, target) in [
        ("l3", ".git/config"),
        ("l4", ".git"),
        ("root", "/"),
        ("zero", "/dev/zero"),
        ("self", "/proc/self/environ"),
        ("round", "round"),
        ("plain", "a.txt"),
        ("there", "d"),
    ] {
        std::os::unix::fs::symlink(target, workspace.join(link)).unwrap();
    }
    assert!(Command::new("mkfifo").arg(workspace.join("fifo")).status().unwrap().success());
    harness::own(&workspace, 4321);
    let mut run = daemon.run("review", &workspace).await;
    for argv in [
        &["cat", "l3"][..],
        &["cat", "l4/config"],
        &["cat", "--", "a.txt", "l3"],
        &["head", "-c", "10", "zero"],
        &["head", "-c", "10", "root/dev/zero"],
        &["cat", "root/etc/passwd"],
        &["tail", "-n", "1", "/workspace/root/etc/hostname"],
        &["wc", "-c", "self"],
        &["cat", "round"],
        &["cat", "fifo"],
        &["find", "root/", "-maxdepth", "1"],
        &["find", "l4/hooks", "-name", "x"],
    ] {
        let call = run.call(calls::exec(argv)).await.unwrap();
        let failure = call.error.unwrap_or_else(|| panic!("{argv:?} ran: {:?}", call.result));
        assert_ne!(failure.reason, "INTERNAL", "{argv:?}: {}", failure.message);
        assert!(!failure.message.contains("hunter2"), "{argv:?}: {}", failure.message);
    }
    for argv in [
        &["cat", "a.txt"][..],
        &["cat", "plain"],
        &["find", "there/", "-type", "f"],
        &["wc", "-l", "d/b.txt"],
    ] {
        let done = run.exec(argv).await;
        assert_eq!(done.exit_code, Some(0), "{argv:?}: {}", done.stderr);
    }
    // What is not there is for the command to say.
    assert_eq!(run.exec(&["cat", "none"]).await.exit_code, Some(1));

    // Nobody waits at a pipe that nobody writes to.
    let waiting: Vec<_> = (0..AT_ONCE).map(|_| run.waits(calls::exec(&["cat", "fifo"]))).collect();
    for answer in waiting {
        let failure = answer.await.unwrap().unwrap().error.unwrap();
        assert_eq!(failure.reason, "SANDBOX_VIOLATION", "{}", failure.message);
    }
}
