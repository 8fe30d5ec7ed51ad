//! The jail as the kernel sees it, and the life of a host worker.
#![allow(clippy::unwrap_used, clippy::expect_used)] // also outside of test functions

mod support;

use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use host_launch::{HostWorkerSpec, Marks, Namespaces, TreeBounds};
use operations::{Edit, EditChange, Git, OpResult, Operation, Reason};
use support::{DEADLINE, Hand, SHORT, Scratch, WAITING, directory, fifo, launcher, paths, run, write};
use wire::worker::v1::{FromWorker, Hello, from_worker, to_worker};

/// The keeper, the host worker and the processes that wait for operations, by their ids on the host.
fn processes(host_worker: &Hand) -> Vec<u32> {
    let keeper = host_worker.process.pid();
    let host_worker = children(keeper, 3, 1)[0];
    [vec![keeper, host_worker], children(host_worker, 4, WAITING)].concat()
}

/// The children, oldest first, when there are so many and each has so many filters. A process gets its filter last; the first that
/// waits is made after the hello, and the others when it is quiet.
fn children(pid: u32, filters: u32, least: usize) -> Vec<u32> {
    let began = Instant::now();
    loop {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let found: Vec<u32> = children.split_whitespace().map(|child| child.parse().unwrap()).collect();
        let is_ready = |child: &u32| status(*child, "Seccomp_filters").parse::<u32>().unwrap() >= filters;
        if found.len() >= least && found.iter().all(is_ready) {
            return found;
        }
        assert!(
            began.elapsed() < DEADLINE,
            "{pid} has no {least} children with {filters} filters: {children}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn status(pid: u32, field: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn names(path: String) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Returns type and state of a Unix socket that this network namespace made, in the digits of the kernel.
fn unix_socket(inode: &str) -> [String; 2] {
    let sockets = fs::read_to_string("/proc/self/net/unix").unwrap();
    let mut lines = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let fields = lines.find(|fields| fields.get(6) == Some(&inode)).unwrap();
    [fields[4], fields[5]].map(str::to_owned)
}

#[test]
fn host_worker_has_no_host_privileges() {
    for uid in [1234, 0] {
        let scratch = Scratch::owned_by(uid);
        let host_worker = scratch.host_worker();
        for (at, pid) in processes(&host_worker).into_iter().enumerate() {
            for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
                assert_eq!(status(pid, set), "0000000000000000", "{set}");
            }
            assert_eq!(status(pid, "Uid"), format!("{uid} {uid} {uid} {uid}"));
            assert_eq!(status(pid, "Gid"), format!("{uid} {uid} {uid} {uid}"));
            assert_eq!(status(pid, "Groups"), "");
            assert_eq!(status(pid, "NoNewPrivs"), "1");
            assert_eq!(status(pid, "Seccomp"), "2");
            assert_eq!(status(pid, "Threads"), "1");
            assert_eq!(status(pid, "Umask"), "0022");
            assert_eq!(names(format!("/proc/{pid}/root")), ["pkg", "private", "state", "workspace"]);
            assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), PathBuf::from("/"));
            let mut fds: Vec<u32> =
                names(format!("/proc/{pid}/fd")).iter().map(|fd| fd.parse().unwrap()).collect();
            fds.sort_unstable();
            assert_eq!(fds[..3], [0, 1, 2]);
            let mut sockets = Vec::new();
            for fd in &fds[3..] {
                // Between the host worker and the processes that wait.
                let what = fs::read_link(format!("/proc/{pid}/fd/{fd}")).unwrap();
                let what = what.to_str().unwrap();
                if let Some(inode) = what.strip_prefix("socket:[") {
                    sockets.push(unix_socket(inode.trim_end_matches(']')));
                } else {
                    assert!(what.starts_with("pipe:") || what == "anon_inode:[pidfd]", "{fd}: {what}");
                }
            }
            // The host worker's own, over which the daemon sends it ways to servers: of a connected pair for messages.
            let expected = if at == 1 { vec![["0005", "03"].map(str::to_owned)] } else { Vec::new() };
            assert_eq!(sockets, expected, "process {at}");
            assert_eq!(fs::read(format!("/proc/{pid}/environ")).unwrap(), b"");
            let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap();
            assert_eq!(mounts.lines().count(), 5, "{mounts}");
            for mount in mounts.lines() {
                let fields: Vec<_> = mount.split(' ').collect();
                let writable = matches!(fields[4], "/workspace" | "/state" | "/private");
                let expected = if writable { "rw" } else { "ro" };
                assert!(fields[5].starts_with(&format!("{expected},nosuid,nodev,noexec")), "{mount}");
                assert!(fields[6] == "-", "no propagation: {mount}");
            }
            let interfaces = fs::read_to_string(format!("/proc/{pid}/net/dev")).unwrap();
            assert_eq!(
                interfaces
                    .lines()
                    .skip(2)
                    .map(|line| line.split(':').next().unwrap().trim())
                    .collect::<Vec<_>>(),
                ["lo"]
            );
            for namespace in ["mnt", "net", "ipc", "uts", "cgroup"] {
                let own = fs::read_link(format!("/proc/self/ns/{namespace}")).unwrap();
                assert_ne!(fs::read_link(format!("/proc/{pid}/ns/{namespace}")).unwrap(), own, "{namespace}");
            }
        }
        let [_, host_worker_pid, waiting @ ..] = &processes(&host_worker)[..] else { panic!() };
        for waiting in waiting {
            assert_eq!(names(format!("/proc/{waiting}/fd")).len(), 4, "three, and the way out");
        }
        assert_eq!(status(*host_worker_pid, "NSpid").split(' ').next_back(), Some("1"));
    }
}

#[test]
fn a_task_on_the_tree_of_a_run_may_read_and_nothing_else() {
    let scratch = Scratch::new();
    // So many that the task can be looked at.
    for number in 0..20_000 {
        fs::create_dir(scratch.workspace().join(number.to_string())).unwrap();
    }
    scratch.own();
    let (from, into) = (directory(&scratch.workspace()), directory(&scratch.dir.path().join("state")));
    let (owner, most) = ((scratch.uid, scratch.uid), TreeBounds { bytes: 1 << 20, files: 30_000 });
    let saving = std::thread::spawn(move || {
        launcher().save((from.as_fd(), into.as_fd()), owner, (most, Marks::Listed), DEADLINE)
    });
    let mut seen = None;
    while seen.is_none() && !saving.is_finished() {
        let threads = fs::read_dir("/proc/self/task").unwrap().flatten();
        let mut listed = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
        seen = listed.find_map(|listed| listed.split_whitespace().find_map(capabilities));
    }
    assert_eq!(saving.join().unwrap().unwrap().files, 20_001);
    let (none, reading) = ("0000000000000000", "0000000000000004");
    assert_eq!(seen.unwrap(), [none, reading, reading, none, none]);
}

/// Returns the capabilities of a process that has its filter already.
fn capabilities(pid: &str) -> Option<[String; 5]> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_default().trim().to_owned()
    };
    (field("Seccomp") == "2").then(|| ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"].map(field))
}

#[test]
fn a_host_worker_sees_only_the_mounts_that_it_was_given() {
    let scratch = Scratch::new();
    // A mount beneath the workspace is not part of it.
    let inner = scratch.workspace().join("inner");
    fs::create_dir(&inner).unwrap();
    run(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&inner));
    fs::write(inner.join("secret"), "x").unwrap();
    let host_worker = scratch.host_worker();
    let pid = processes(&host_worker)[1];
    assert_eq!(names(format!("/proc/{pid}/root/workspace/inner")), [] as [&str; 0]);
    run(Command::new("umount").arg(&inner));
}

#[test]
fn a_probe_reports_the_jail() {
    let report = launcher().probe().unwrap();
    assert_eq!(report.namespaces, Namespaces::Privileged);
}

#[test]
fn program_that_is_not_a_host_worker_is_an_error() {
    let scratch = Scratch::new();
    let spec = HostWorkerSpec {
        workspace: directory(&scratch.workspace()),
        state: None,
        pkg: None,
        private: None,
        linked: None,
        owner_uid: 1234,
        owner_gid: 1234,
    };
    assert!(host_launch::Launcher::of("/nonexistent").serve(&spec).is_err());
    let words =
        host_launch::Launcher::of("/bin/sh").serve(&spec).unwrap().wait(Duration::from_secs(30)).unwrap();
    assert!(!words.is_empty());
}

#[test]
fn a_broken_protocol_ends_the_host_worker() {
    type Break = fn(&mut Hand);
    let scratch = Scratch::new();
    let breaks: [Break; 3] = [
        |host_worker| {
            let hello = Hello { protocol: worker_protocol::PROTOCOL, nonce: Vec::new(), ..Hello::default() };
            host_worker.send(0, to_worker::Body::Hello(hello));
        },
        |host_worker| host_worker.raw(&u32::MAX.to_be_bytes()),
        |host_worker| host_worker.raw(&[0, 0, 0, 2, 0xff, 0xff]),
    ];
    for break_it in breaks {
        let mut host_worker = scratch.host_worker();
        break_it(&mut host_worker);
        assert_eq!(host_worker.receive(), None);
    }
}

#[test]
fn answers_a_ping_while_something_hangs_and_ends_with_its_channel() {
    let scratch = Scratch::new();
    scratch.init();
    scratch.write("d/x", "x");
    fifo(scratch.workspace().join("d/.gitignore"));
    let mut host_worker = scratch.host_worker();
    let hanging = host_worker.begin(&Operation::Git(Git::Status), DEADLINE, false);
    host_worker.ping();
    assert!(matches!(host_worker.receive(), Some(FromWorker { body: Some(from_worker::Body::Pong(_)), .. })));
    host_worker.cancel(hanging);
    assert_eq!(host_worker.outcome(hanging).unwrap_err().reason, Reason::Cancelled);
    let timed = host_worker.begin(&Operation::Git(Git::Status), SHORT, false);
    assert_eq!(host_worker.outcome(timed).unwrap_err().reason, Reason::TimedOut);

    // Longer than it is waited for.
    host_worker.begin(&Operation::Git(Git::Status), Duration::from_secs(120), false);
    let pid = children(host_worker.process.pid(), 3, 1)[0];
    let began = Instant::now();
    assert_eq!(host_worker.process.wait(Duration::from_secs(30)).unwrap(), "");
    assert!(began.elapsed() < Duration::from_secs(30), "it did not end by itself");
    assert!(!PathBuf::from(format!("/proc/{pid}")).exists());
}

#[test]
fn the_process_of_an_operation_has_one_task_and_every_restriction() {
    for uid in [1234, 0] {
        let scratch = Scratch::owned_by(uid);
        scratch.init();
        scratch.write("d/x", "x");
        fifo(scratch.workspace().join("d/.gitignore"));
        for operation in [Git::Status, Git::Add { paths: paths(&["d"]) }].map(Operation::Git) {
            let mut host_worker = scratch.host_worker();
            let hanging = host_worker.begin(&operation, DEADLINE, false);
            let host_worker_pid = children(host_worker.process.pid(), 3, 1)[0];
            // The others wait already.
            let pid = children(host_worker_pid, 4, 2)[0];
            assert_eq!(fs::read_dir(format!("/proc/{pid}/task")).unwrap().count(), 1);
            for (field, value) in [
                ("Uid", format!("{uid} {uid} {uid} {uid}")),
                ("CapEff", "0000000000000000".to_owned()),
                ("CapPrm", "0000000000000000".to_owned()),
                ("CapBnd", "0000000000000000".to_owned()),
                ("NoNewPrivs", "1".to_owned()),
                ("Seccomp", "2".to_owned()),
                ("Seccomp_filters", "4".to_owned()),
            ] {
                assert_eq!(status(pid, field), value, "{field}");
            }
            let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
            let limit = |name: &str| limits.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
            assert_eq!(limit("Max processes").split_whitespace().nth(2), Some("0"));
            assert_eq!(limit("Max address space").split_whitespace().nth(3), Some("536870912"));
            host_worker.cancel(hanging);
            assert!(host_worker.outcome(hanging).is_err());
        }
    }
}

#[test]
fn many_calls_at_once_are_all_answered() {
    let scratch = Scratch::new();
    scratch.init();
    let mut host_worker = scratch.host_worker();
    let writes: Vec<_> = (0..30)
        .map(|n| host_worker.begin(&write(&format!("f{n}"), format!("{n}\n")), DEADLINE, false))
        .collect();
    for id in writes {
        host_worker.outcome(id).unwrap();
    }
    // git's own lock would fail all but one of these, were they not one after the other.
    let adds: Vec<_> = (0..30)
        .map(|n| {
            host_worker.begin(
                &Operation::Git(Git::Add { paths: paths(&[&format!("f{n}")]) }),
                Duration::from_secs(120),
                false,
            )
        })
        .collect();
    for id in adds {
        host_worker.outcome(id).unwrap();
    }
    assert_eq!(scratch.git(&["ls-files"]).lines().count(), 30);

    scratch.write("d/x", "x");
    fifo(scratch.workspace().join("d/.gitignore"));
    let flood: Vec<_> =
        (0..200).map(|_| host_worker.begin(&Operation::Git(Git::Status), DEADLINE, false)).collect();
    let overloaded = host_worker.outcome(flood[199]).unwrap_err();
    assert_eq!(overloaded.reason, Reason::Overloaded);
    host_worker.cancel(flood[0]);
    host_worker.cancel(flood[40]);
    assert_eq!(
        host_worker.outcome(flood[40]).unwrap_err().reason,
        Reason::Cancelled,
        "a waiting call can be cancelled"
    );
    assert_eq!(host_worker.outcome(flood[0]).unwrap_err().reason, Reason::Cancelled);
}

#[test]
fn files_belong_to_the_owner_and_stay_in_their_mounts() {
    for uid in [1234, 0] {
        let scratch = Scratch::owned_by(uid);
        let mut host_worker = scratch.host_worker();
        let written = host_worker.write("d/new.txt", "hello\n").unwrap();
        assert!(written.created);
        let metadata = fs::metadata(scratch.workspace().join("d/new.txt")).unwrap();
        assert_eq!((metadata.uid(), metadata.gid(), metadata.mode() & 0o7777), (uid, uid, 0o644));
        host_worker.write("@state/note", "x").unwrap();
        assert_eq!(fs::read_to_string(scratch.dir.path().join("state/note")).unwrap(), "x");
        for path in ["@pkg/x", ".git/hooks/pre-commit"] {
            assert_eq!(host_worker.write(path, "x").unwrap_err().reason, Reason::SandboxViolation, "{path}");
        }
        symlink(scratch.outside(), scratch.workspace().join("link")).unwrap();
        symlink(scratch.outside().join("canary"), scratch.workspace().join("canary")).unwrap();
        let before = support::fingerprint(&scratch.outside());
        assert!(host_worker.write("link/canary", "x").is_err());
        let _ = host_worker.write("canary", "x");
        let edit = Edit {
            path: "canary2".parse().unwrap(),
            change: EditChange::Create { content: "x\n".to_owned() },
            if_match_sha256: None,
        };
        host_worker.edit(edit.clone()).unwrap();
        assert!(host_worker.edit(edit).is_err(), "create is exclusive");
        assert_eq!(support::fingerprint(&scratch.outside()), before);
    }
}

#[test]
fn a_preview_writes_nothing() {
    let scratch = Scratch::new();
    scratch.write("a", "one\n");
    let mut host_worker = scratch.host_worker();
    let before = support::fingerprint(&scratch.workspace());
    let id = host_worker.begin(&write("a", "two\n"), DEADLINE, true);
    let OpResult::Edit(preview) = host_worker.outcome(id).unwrap() else { panic!("a preview is a diff") };
    assert!(preview.diff.contains("-one\n+two\n"), "{}", preview.diff);
    assert_eq!(support::fingerprint(&scratch.workspace()), before);
}
