//! F8, F9: files of the container outside of the run's mounts, as operations reach them where the profile says so.

use std::path::Path;
use std::time::{Duration, Instant};

use harness::process::script;
use harness::v1::{self, call_response::Status};
use harness::{Daemon, RunHandle, Setup, calls, debian, reason, record, requests};

use crate::inside::{Inside, lenient};

/// What came of a call: nothing, or the reason why not, wherever it was refused.
async fn outcome(
    run: &mut RunHandle,
    operation: v1::operation::Kind,
) -> Result<v1::result::Kind, (String, String)> {
    match run.call(operation).await {
        Ok(call) if call.status() == Status::Succeeded => Ok(call.into_kind().unwrap()),
        Ok(call) => {
            let error = call.error.unwrap();
            Err((error.reason, error.message))
        }
        Err(status) => Err((reason(&status), status.message().to_owned())),
    }
}

async fn read(run: &mut RunHandle, path: &str) -> Result<String, String> {
    match outcome(run, calls::read(path)).await {
        Ok(v1::result::Kind::Read(read)) => Ok(read.content),
        Ok(other) => panic!("{other:?}"),
        Err((reason, _)) => Err(reason),
    }
}

async fn fails(run: &mut RunHandle, operation: v1::operation::Kind) -> (String, String) {
    outcome(run, operation).await.unwrap_err()
}

async fn shell(run: &mut RunHandle, text: &str) -> String {
    let result = run.ran(calls::shell(text)).await;
    assert_eq!(result.exit_code, Some(0), "{text}: {}", result.stderr);
    result.stdout
}

#[tokio::test(flavor = "multi_thread")]
async fn f8_the_container_s_own_files_are_read_and_written_with_the_rights_of_commands() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    for path in ["/tmp/a/b.txt", "/home/agent/b.txt", "/etc/b.txt", "//usr/./b.txt"] {
        let v1::result::Kind::Write(written) = run.ok(calls::write(path, "one\n")).await else { panic!() };
        assert!(written.created && written.path == path.replace("//usr/.", "/usr"), "{written:?}");
        assert_eq!(read(&mut run, path).await.as_deref(), Ok("one\n"));
        run.ok(calls::replace(path, "one", "two")).await;
        assert_eq!(
            shell(&mut run, &format!("cat {path}; ls -ln {path} | tr -s ' ' | cut -d' ' -f1,3")).await,
            { "two\n-rw-r--r-- 1001\n" }
        );
        let exists = fails(&mut run, calls::create(path, "x")).await;
        assert!(["PRECONDITION_FAILED", "ALREADY_EXISTS"].contains(&&*exists.0), "{exists:?}");
    }
    // The answer tells the place as it was named, and so does the record.
    let id = run.id().to_owned();
    let told: Vec<_> = run.clients.events(&id, "call_intent").await.iter().map(record).collect();
    assert!(told.iter().any(|told| told["operation"] == "write" && told["input"]["path"] == "/tmp/a/b.txt"));
    let receipts: Vec<_> = run.clients.events(&id, "call_receipt").await.iter().map(record).collect();
    let of_write = |told: &&serde_json::Value| told["outcome"]["facts"]["path"] == "/tmp/a/b.txt";
    let hash = harness::files::sha256(b"one\n");
    assert!(receipts.iter().filter(of_write).any(|told| told["outcome"]["facts"]["sha256_after"] == *hash));

    let v1::result::Kind::List(list) = run.ok(calls::list("/tmp/a")).await else { panic!() };
    assert_eq!(list.entries.iter().map(|entry| entry.path.as_str()).collect::<Vec<_>>(), ["/tmp/a/b.txt"]);
    let v1::result::Kind::Grep(grep) = run.ok(calls::grep("/tmp/a", "two")).await else { panic!() };
    assert_eq!((grep.matches.len(), grep.matches[0].path.as_str()), (1, "/tmp/a/b.txt"));
    let glob = v1::GlobRequest { path: "/etc".into(), pattern: "b.*".into(), ..Default::default() };
    let v1::result::Kind::Glob(glob) = run.ok(v1::operation::Kind::Glob(glob)).await else { panic!() };
    assert_eq!(glob.paths, ["/etc/b.txt"]);

    // Links are those of the container. The last name is no link where something is written.
    shell(
        &mut run,
        "ln -s /tmp/a /tmp/link; ln -s ../../../tmp/a/b.txt /tmp/up; mkdir /tmp/closed; chmod 0 /tmp/closed",
    )
    .await;
    run.ok(calls::write("/tmp/link/new/c.txt", "three\n")).await;
    assert_eq!(shell(&mut run, "cat /tmp/a/new/c.txt").await, "three\n");
    assert_eq!(read(&mut run, "/tmp/up").await.as_deref(), Ok("two\n"));
    for (operation, expected, words) in [
        (calls::write("/tmp/up", "x"), "SANDBOX_VIOLATION", "symlink"),
        (calls::read("/tmp"), "INVALID_ARGUMENT", "is a directory"),
        (calls::write("/tmp", "x"), "INVALID_ARGUMENT", "is a directory"),
        (calls::read("/tmp/none"), "NOT_FOUND", "no such file"),
        (calls::read("/tmp/closed/x"), "PERMISSION_DENIED", "permission denied"),
        (calls::write("/tmp/closed/x", "x"), "PERMISSION_DENIED", "permission denied"),
        (calls::write("/new/x", "x"), "PERMISSION_DENIED", "read-only"),
        (calls::list("/tmp/a/b.txt"), "INVALID_ARGUMENT", "is a file"),
        (calls::write("/etc/passwd", "x"), "SANDBOX_VIOLATION", "mount point"),
        (calls::delete("/tmp/a/b.txt"), "SANDBOX_VIOLATION", "absolute paths must be beneath"),
    ] {
        let found = fails(&mut run, operation).await;
        assert!(found.0 == expected && found.1.contains(words), "{expected} {words}: {found:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f8_paths_outside_of_the_mounts_need_the_profile() {
    let profile = |keys: &str| {
        format!(
            "{{workspace: read-write, {keys}, operations: {{read: allow, write: ask, edit: allow, exec: allow}}, \
             approvals: {{freeze: false}}, exec: {{default: allow}}}}"
        )
    };
    let policy = format!(
        "profiles:\n  shut: {}\n  open: {}\nroles: {{director: {{allow: '*'}}}}\n",
        profile("unattended: false"),
        profile("unattended: false, container_paths: allow")
    );
    let daemon = Daemon::start_with(Setup { policy: vec![("p.yaml", policy)], ..Setup::default() }).await;
    let mut shut = daemon.run_on(requests::managed("shut")).await;
    for operation in [calls::read("/etc/passwd"), calls::create("/tmp/a", "x"), calls::write("//tmp/a", "x")]
    {
        let refused = fails(&mut shut, operation).await;
        assert!(refused.0 == "SANDBOX_VIOLATION" && refused.1.contains("absolute paths"), "{refused:?}");
    }
    let mut open = daemon.run_on(requests::managed("open")).await;
    assert!(read(&mut open, "/etc/passwd").await.is_ok());
    open.ok(calls::create("/tmp/a", "x")).await;
    // The root is read-only here.
    let refused = fails(&mut open, calls::create("/etc/a", "x")).await;
    assert!(refused.0 == "PERMISSION_DENIED" && refused.1.contains("read-only"), "{refused:?}");
    // No reviewer is asked about what nobody can show.
    let refused = fails(&mut open, calls::write("/tmp/b", "x")).await;
    assert!(refused.0 == "PERMISSION_DENIED" && refused.1.contains("no preview"), "{refused:?}");
    assert_eq!(open.call(calls::write("b", "x")).await.unwrap().status(), Status::PendingApproval);
    let id = open.id().to_owned();
    let created = record(&open.clients.events(&id, "run_created").await[0]);
    assert_eq!(created["details"]["container_paths"], "allow");
}

#[tokio::test(flavor = "multi_thread")]
async fn f9_no_link_leads_to_the_kernel_s_files_the_guest_or_a_mount() {
    let daemon = lenient().await;
    let request = v1::CreateRunRequest { image: debian(), ..Default::default() };
    let mut inside = Inside::harness(&daemon, "w", request).await;
    std::fs::write(inside.workspace.join("secret.txt"), "of the workspace").unwrap();
    let run = &mut inside.run;
    for path in [
        "/proc/self/environ",
        "/proc/1/root/etc/passwd",
        "/sys/kernel/mm",
        "/dev/zero",
        "/dev/fd/0",
        "/.cofferdam/guest",
    ] {
        assert_eq!(read(run, path).await, Err("SANDBOX_VIOLATION".to_owned()), "{path}");
        assert_eq!(fails(run, calls::write(path, "x")).await.0, "SANDBOX_VIOLATION", "{path}");
        assert_eq!(fails(run, calls::list(path)).await.0, "SANDBOX_VIOLATION", "{path}");
    }
    let v1::result::Kind::List(top) = run.ok(calls::list("/")).await else { panic!() };
    let names: Vec<_> = top.entries.iter().map(|entry| entry.name.as_str()).collect();
    assert!(names.contains(&"etc") && names.contains(&"tmp"), "{names:?}");
    assert!(
        !names.iter().any(|name| ["proc", "sys", "dev", "workspace", "state"].contains(name)),
        "{names:?}"
    );

    let links = [
        ("/proc/self", "environ"),
        ("/proc/self/root", "etc/passwd"),
        ("/proc/self/cwd", "secret.txt"),
        ("/proc/self/fd", "0"),
        ("/dev", "zero"),
        ("/sys", "kernel"),
        ("/.cofferdam", "guest"),
        ("/workspace", "secret.txt"),
        ("../workspace", "secret.txt"),
        ("/tmp/../workspace/.", "secret.txt"),
        ("/state", "logs"),
        ("/pkg", "x"),
    ];
    for (target, name) in links {
        shell(run, &format!("ln -sfn {target} /tmp/l; ln -sfn /tmp/l/{name} /tmp/f; ln -sfn l /tmp/m")).await;
        for path in [format!("/tmp/l/{name}"), "/tmp/f".to_owned(), format!("/tmp/m/{name}")] {
            assert_eq!(read(run, &path).await, Err("SANDBOX_VIOLATION".to_owned()), "{path} by {target}");
            assert_eq!(
                fails(run, calls::write(&path, "x")).await.0,
                "SANDBOX_VIOLATION",
                "{path} by {target}"
            );
        }
        assert_eq!(fails(run, calls::write("/tmp/m/new/x", "x")).await.0, "SANDBOX_VIOLATION", "{target}");
        assert_eq!(fails(run, calls::list("/tmp/m")).await.0, "SANDBOX_VIOLATION", "{target}");
        assert_eq!(fails(run, calls::grep("/tmp/m", "of the")).await.0, "SANDBOX_VIOLATION", "{target}");
        assert_eq!(reason(&run.download("/tmp/f", 0).await.unwrap_err()), "SANDBOX_VIOLATION", "{target}");
        let begin = run.begin("/tmp/m/up");
        assert_eq!(reason(&run.upload_with(begin, b"x").await.unwrap_err()), "SANDBOX_VIOLATION", "{target}");
    }
    // A walk enters no link, and nothing that is mounted.
    let v1::result::Kind::Grep(found) = run.ok(calls::grep("/tmp", "of the workspace")).await else {
        panic!()
    };
    assert_eq!(found.matches, []);

    // What is no file answers at once, and what has no end is bounded.
    shell(run, "cd /tmp; mkfifo pipe; truncate -s 10G hole; perl -MSocket -e 'socket(S,AF_UNIX,SOCK_STREAM,0); bind(S,sockaddr_un(\"/tmp/sock\"))'").await;
    for path in ["/tmp/pipe", "/tmp/sock"] {
        assert_eq!(read(run, path).await, Err("SANDBOX_VIOLATION".to_owned()), "{path}");
        assert_eq!(fails(run, calls::write(path, "x")).await.0, "SANDBOX_VIOLATION", "{path}");
    }
    assert_eq!(fails(run, calls::write("/tmp/hole", "x")).await.0, "WRITE_LIMIT");
    assert_eq!(fails(run, calls::replace("/tmp/hole", "a", "b")).await.0, "WRITE_LIMIT");

    race(&mut inside).await;
    let names = std::fs::read_dir(&inside.workspace).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.collect();
    names.sort();
    assert_eq!(names, ["probe", "secret.txt"], "nothing came into the workspace this way");
    assert_eq!(std::fs::read_to_string(inside.workspace.join("secret.txt")).unwrap(), "of the workspace");
    assert!(!Path::new("/tmp/canary").exists());
}

/// A directory of the container becomes a link and a directory again, all the time.
async fn race(inside: &mut Inside) {
    let run = &mut inside.run;
    let swaps = "cd /tmp; mkdir dir; echo plain >dir/secret.txt; cp dir/secret.txt dir/environ; echo up
        while :; do
            mv -T dir race; mv -T race dir; ln -s /workspace race; rm race; ln -s /proc/self race; rm race
        done";
    let id = run.start(script(swaps)).await.process_id;
    run.until(&id, "up").await;
    for round in 0..effort::cases(60, 2_000) {
        for name in ["secret.txt", "environ"] {
            if let Ok(content) = read(run, &format!("/tmp/race/{name}")).await {
                assert_eq!(content, "plain\n", "round {round}");
            }
        }
        let _ = outcome(run, calls::write("/tmp/race/canary", "x")).await;
        let _ = outcome(run, calls::create("/tmp/race/canary-2", "x")).await;
    }
    run.send(&id, v1::signal_process_request::Signal::Kill).await.unwrap();
    run.waited(&id).await;
}

/// Both lanes read files of the same sizes, and what is refused for its size costs no thread its time.
#[tokio::test(flavor = "multi_thread")]
async fn f9_many_reads_of_a_hole_delay_no_other_read() {
    let daemon = lenient().await;
    let mut inside = Inside::harness(&daemon, "w", v1::CreateRunRequest::default()).await;
    let run = &mut inside.run;
    shell(run, "truncate -s 10G /tmp/hole hole; head -c 100000 /dev/zero | tr '\\0' x | fold >/tmp/plain")
        .await;
    let plain = async |run: &mut RunHandle| {
        let mut slowest = Duration::ZERO;
        for _ in 0..40 {
            let begun = Instant::now();
            assert!(read(run, "/tmp/plain").await.unwrap().starts_with("xxx"));
            slowest = slowest.max(begun.elapsed());
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        slowest
    };
    let alone = plain(run).await;

    let part = |path: &str| v1::ReadRequest { path: path.to_owned(), ..Default::default() };
    let reads = ["/tmp/hole", "hole"].into_iter().flat_map(|path| {
        [
            part(path),
            v1::ReadRequest { start_line: Some(1), end_line: Some(3), ..part(path) },
            v1::ReadRequest { offset: Some(9 << 30), limit: Some(10), ..part(path) },
        ]
    });
    let reads: Vec<_> = reads.map(v1::operation::Kind::Read).collect();
    let waiting: Vec<_> = reads.iter().cycle().take(24).map(|read| run.waits(read.clone())).collect();
    let beside = plain(run).await;
    println!("the slowest read alone: {alone:?}, beside {}: {beside:?}", waiting.len());
    assert!(beside < alone * 20 + Duration::from_secs(5), "{alone:?} alone, {beside:?} beside");
    for answer in waiting {
        let error = answer.await.unwrap().unwrap().error.unwrap();
        assert_eq!(error.reason, "READ_LIMIT", "{error:?}");
        assert_eq!(error.details["size_bytes"], (10_u64 << 30).to_string());
    }
    let of = async |run: &mut RunHandle, operation: fn(&str) -> v1::operation::Kind| {
        let (reason, outside) = fails(run, operation("/tmp/hole")).await;
        let inside = fails(run, operation("hole")).await;
        let outside = outside.replace("/tmp/hole", "@project/hole");
        assert_eq!((&inside.0, &inside.1), (&reason, &outside), "as in the workspace");
        reason
    };
    assert_eq!(of(run, calls::read).await, "READ_LIMIT");
    assert_eq!(of(run, |path| calls::write(path, "x")).await, "WRITE_LIMIT");
    assert_eq!(of(run, |path| calls::replace(path, "a", "b")).await, "WRITE_LIMIT");
}
