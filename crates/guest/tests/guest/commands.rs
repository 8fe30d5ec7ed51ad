//! Tests the environment, the results and the restrictions of commands.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;

use jail::SandboxPath;
use operations::{Bounds, Exec, KillMethod, Operation, Reason};
use tokio_util::sync::CancellationToken;
use worker_protocol::client::LaneError;

use crate::harness::{Group, Guest, command, result, sh};

#[tokio::test]
async fn a_command_runs_and_reports_its_end() {
    let guest = Guest::start().await;
    let done = guest.ran(command(&["true"])).await;
    assert_eq!((done.exit_code, done.signal, done.timed_out), (Some(0), None, false));
    assert_eq!(
        (
            done.kill.as_ref().unwrap().ended,
            done.kill.as_ref().unwrap().left,
            done.kill.as_ref().unwrap().method()
        ),
        (0, 0, KillMethod::NoneNeeded)
    );
    assert!(done.wall_time_us > 0 && done.peak_memory_bytes > 100_000, "{done:?}");
    assert_eq!(guest.ran(sh("exit 7")).await.exit_code, Some(7));
    let killed = guest.ran(sh("kill -9 $$")).await;
    assert_eq!((killed.exit_code, killed.signal), (Some(137), Some(9)));
    let busy = guest.ran(sh("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done")).await;
    assert!(busy.cpu_time_us > 1000, "{busy:?}");
}

#[tokio::test]
async fn arguments_are_passed_as_they_are() {
    let guest = Guest::start().await;
    let echoed = guest.ran(command(&["echo", "$HOME", "*", "a b", "; true", "ä"])).await;
    assert_eq!(echoed.stdout, "$HOME * a b ; true ä\n");
}

#[tokio::test]
async fn the_environment_is_exactly_this() {
    let guest = Guest::start().await;
    let mut exec = command(&["env"]);
    exec.env.insert("EXTRA".to_owned(), "a=b c".to_owned());
    exec.env.insert("LANG".to_owned(), "de".to_owned());
    let mut lines: Vec<_> = guest.ran(exec).await.stdout.lines().map(str::to_owned).collect();
    lines.sort();
    let path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let identity = [
        "GIT_AUTHOR_EMAIL=agent@cofferdam.invalid",
        "GIT_AUTHOR_NAME=Cofferdam agent",
        "GIT_COMMITTER_EMAIL=agent@cofferdam.invalid",
        "GIT_COMMITTER_NAME=Cofferdam agent",
    ];
    let rest = ["HOME=/tmp", "LANG=de", path, "TERM=dumb"];
    assert_eq!(lines, [&["EXTRA=a=b c"][..], &identity, &rest].concat());
}

#[tokio::test]
async fn standard_input_is_given_and_closed() {
    let guest = Guest::start().await;
    assert_eq!(guest.ran(command(&["cat"])).await.stdout, "");
    let counted = guest.ran(Exec { stdin: vec![b'x'; 1_000_000], ..command(&["wc", "-c"]) }).await;
    assert_eq!(counted.stdout.trim(), "1000000");
    // A command that does not read it is none the worse.
    let ignored = guest.ran(Exec { stdin: vec![b'x'; 1_000_000], ..command(&["true"]) }).await;
    assert_eq!(ignored.exit_code, Some(0));
}

#[tokio::test]
async fn output_of_both_streams_is_complete() {
    let guest = Guest::start().await;
    let bounds = Bounds { max_output_bytes: 4_000_000, ..Bounds::default() };
    let script = "head -c 1500000 /dev/zero | tr '\\0' a; head -c 700001 /dev/zero | tr '\\0' b >&2";
    let exec = Operation::Exec(sh(script));
    let done = result(guest.finish(exec, bounds, None, CancellationToken::new()).await.unwrap().outcome);
    assert_eq!((done.stdout_bytes, done.stderr_bytes), (1_500_000, 700_001));
    assert!(done.stdout.len() == 1_500_000 && done.stdout.bytes().all(|byte| byte == b'a'));
    assert!(done.stderr.len() == 700_001 && done.stderr.bytes().all(|byte| byte == b'b'));
}

#[tokio::test]
async fn a_command_begins_clean() {
    let guest = Guest::start().await;
    // The listing itself is descriptor 3.
    let fds = guest.ran(command(&["ls", "/proc/self/fd"])).await;
    assert_eq!(fds.stdout.split_whitespace().collect::<Vec<_>>(), ["0", "1", "2", "3"]);
    let status = guest.ran(command(&["cat", "/proc/self/status"])).await.stdout;
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    for signals in ["SigBlk:", "SigIgn:", "SigCgt:"] {
        assert_eq!(field(signals), "0000000000000000", "{signals}");
    }
    assert_eq!(
        (field("NoNewPrivs:"), field("Seccomp:"), field("Umask:")),
        ("1".into(), "2".into(), "0022".into())
    );
    let ids = guest.ran(sh("echo $$ $(cut -d' ' -f5,6 /proc/$$/stat)")).await.stdout;
    let ids: Vec<_> = ids.split_whitespace().collect();
    assert!(ids[0] == ids[1] && ids[0] == ids[2], "not its own session: {ids:?}");
}

#[tokio::test]
async fn set_id_files_cannot_be_made() {
    let guest = Guest::start().await;
    let file = guest.script("tool", "#!/bin/sh\n");
    for mode in ["u+s", "g+s", "4755", "2755"] {
        let refused = guest.ran(command(&["chmod", mode, &file])).await;
        assert_ne!(refused.exit_code, Some(0), "{mode}");
    }
    assert_eq!(guest.ran(command(&["chmod", "0700", &file])).await.exit_code, Some(0));
}

#[tokio::test]
async fn the_working_directory_is_entered_by_handle() {
    let guest = Guest::start().await;
    let project = guest.project();
    fs::create_dir_all(project.join("a/b")).unwrap();
    symlink("a", project.join("inside")).unwrap();
    for (name, target) in [("out", "/etc"), ("fds", "/proc/self/fd"), ("up", "..")] {
        symlink(target, project.join(name)).unwrap();
    }
    fs::write(project.join("file"), "").unwrap();
    let at = |path: &str| Exec { cwd: SandboxPath::parse(path).unwrap(), ..command(&["pwd"]) };
    let real = fs::canonicalize(&project).unwrap();
    assert_eq!(guest.ran(at("a/b")).await.stdout.trim(), real.join("a/b").to_str().unwrap());
    assert_eq!(guest.ran(at("inside/b")).await.stdout.trim(), real.join("a/b").to_str().unwrap());
    assert!(guest.ran(at("@state")).await.stdout.trim().ends_with("/state"));
    for (path, reason) in [
        ("out", Reason::SandboxViolation),
        ("fds", Reason::SandboxViolation),
        ("up", Reason::SandboxViolation),
        ("@pkg", Reason::SandboxViolation),
        ("gone", Reason::NotFound),
        ("file", Reason::InvalidArgument),
    ] {
        let refused = guest.refused(at(path)).await;
        assert_eq!(refused.reason, reason, "{path}: {}", refused.message);
        assert!(!refused.message.contains(project.to_str().unwrap()), "a host path: {}", refused.message);
    }
}

#[tokio::test]
async fn programs_are_found_or_refused_with_a_reason() {
    let guest = Guest::start().await;
    symlink("/bin/rm", guest.project().join("ls")).unwrap();
    let denied = guest.project().join("ls").to_str().unwrap().to_owned();
    let text = guest.script("text", "echo text");
    let no_interpreter = guest.script("nowhere", "#!/no/such/interpreter\n");
    let fine = guest.script("fine", "#!/bin/sh\necho fine $0 $1\n");
    for (program, reason) in [
        ("no-such-program", Reason::NotFound),
        ("/no/such/program", Reason::NotFound),
        // A path from the directory means `/workspace/fine`, and this guest has no mount there.
        ("./fine", Reason::NotFound),
        ("rm", Reason::CommandNotAllowed),
        (&denied, Reason::CommandNotAllowed),
        ("/etc/passwd", Reason::PermissionDenied),
        ("/etc", Reason::PermissionDenied),
        (&no_interpreter, Reason::NotFound),
    ] {
        let refused = guest.refused(command(&[program])).await;
        assert_eq!(refused.reason, reason, "{program}: {}", refused.message);
    }
    assert_eq!(guest.ran(command(&[&fine, "x"])).await.stdout, format!("fine {fine} x\n"));
    assert_eq!(guest.ran(command(&[&text])).await.stdout, "text\n", "a file without #! is for sh");
}

#[tokio::test]
async fn a_placed_command_waits_for_its_cgroup() {
    let guest = Guest::start().await;
    let group = Arc::new(Group::default());
    let exec = Operation::Exec(sh("echo $$; sleep 1000 & exit 3"));
    let finished = guest.finish(exec, Bounds::default(), Some(group.clone()), CancellationToken::new()).await;
    let done = result(finished.unwrap().outcome);
    assert_eq!(done.stdout.trim().parse().ok(), *group.pid.lock());
    assert_eq!((done.exit_code, done.kill.as_ref().unwrap().method()), (Some(3), KillMethod::CgroupV2Kill));
    assert_eq!(*group.forced.lock(), Some(false));
}

#[tokio::test]
async fn a_command_without_a_cgroup_runs_no_instruction() {
    let guest = Guest::start().await;
    let group = Arc::new(Group { refuse: true, ..Group::default() });
    let exec = Operation::Exec(command(&["touch", "ran"]));
    let finished = guest.finish(exec, Bounds::default(), Some(group), CancellationToken::new()).await;
    assert_eq!(finished, Err(LaneError::NotPlaced("refused".to_owned())));
    assert!(!guest.project().join("ran").exists());
}

#[tokio::test]
async fn many_commands_run_at_once() {
    let guest = Arc::new(Guest::start().await);
    let calls: Vec<_> = (0..32)
        .map(|i| {
            let guest = Arc::clone(&guest);
            tokio::spawn(async move { guest.ran(sh(&format!("read x; echo {i} $x; exit {i}"))).await })
        })
        .collect();
    for (i, call) in (0..).zip(calls) {
        let done = call.await.unwrap();
        assert_eq!((done.exit_code, done.stdout.trim()), (Some(i), i.to_string().as_str()));
    }
}
