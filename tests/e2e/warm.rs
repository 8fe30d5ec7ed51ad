//! H: runs in containers that were there before, against runs in containers of their own.

use std::collections::{BTreeMap, BTreeSet};

use harness::v1::run::{ColdBecause, StartKind};
use harness::v1::{self, CreateRunRequest};
use harness::{Daemon, RunHandle, Setup, calls, inspect, reason, record, requests, until};
use serde_json::Value;

/// A daemon with this pool.
pub(crate) async fn pooled(pool: &str) -> Daemon {
    Daemon::start_with(Setup { config: format!("pool: {pool}\n"), ..Setup::default() }).await
}

const ONE: &str = "[{ profile: open, min: 1, max: 1 }]";

/// The engine's word on a container, without what is each container's own and without its mounts.
fn settings(run: &RunHandle) -> Value {
    let mut found = inspect(&run.run.container_id);
    found["HostConfig"]["Mounts"] = Value::Null;
    found["Config"]["Labels"] = Value::Null;
    serde_json::json!([found["HostConfig"], found["Config"], found["Image"]])
}

/// What is on top at each mount point of the run: its options, what file system it is of, and that one's options.
async fn mounts(run: &mut RunHandle) -> BTreeMap<String, String> {
    let table = run.exec(&["cat", "/proc/self/mountinfo"]).await.stdout;
    let line = |line: &str| {
        let (mount, rest) = line.split_once(" - ").unwrap();
        let fields: Vec<_> = mount.split(' ').collect();
        (fields[4].to_owned(), format!("{} {rest}", fields[5]))
    };
    // Of several at one place the last one is on top. Layers of the engine have names of their own.
    table.lines().map(line).filter(|(at, _)| at != "/").collect()
}

/// What a command finds itself in.
const SURROUNDINGS: &str = "id; ulimit -a; grep -E '^(Cap|NoNewPrivs|Seccomp|Uid|Gid|Groups)' /proc/self/status; env | sort; \
    cat /etc/passwd /etc/group; ls -A / /tmp /state; stat -c '%u %g %a %n' /* /workspace/* /state/logs; \
    cat /sys/fs/cgroup/*/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null; pwd; hostname";

/// The same work in each run, and what came of it.
async fn work(run: &mut RunHandle) -> Vec<String> {
    let mut came = Vec::new();
    let git_log = calls::git_log("");
    for operation in [
        calls::read("a.txt"),
        calls::write("b.txt", "two\n"),
        calls::replace("a.txt", "one", "another"),
        calls::exec(&[
            "sh",
            "-c",
            "cat a.txt b.txt; echo three > c.txt; stat -c '%u %s' c.txt; touch /state/logs/x",
        ]),
        calls::shell(
            "wc -l *.txt; ls -A /state; until [ -s /state/logs/execution.jsonl ]; do sleep 0.1; done",
        ),
        calls::shell("tail -n 1 /state/logs/execution.jsonl | wc -l"),
        calls::list("."),
        calls::grep("@project", "another"),
        calls::git_add(&["."]),
        calls::git_commit("second"),
        calls::list("@pkg"),
        calls::write("@state/note", "kept\n"),
        calls::read("@state/note"),
    ] {
        let answer = match run.call(operation).await {
            Ok(answer) => answer,
            Err(refused) => {
                came.push(reason(&refused));
                continue;
            }
        };
        let (status, error) = (answer.status(), answer.error.as_ref().map(|error| error.reason.clone()));
        let said = match answer.kind().cloned() {
            Some(v1::result::Kind::Exec(ran) | v1::result::Kind::Shell(ran)) => {
                format!("{:?} {} {}", ran.exit_code, ran.stdout, ran.stderr)
            }
            Some(v1::result::Kind::Read(read)) => read.content,
            Some(v1::result::Kind::List(list)) => {
                list.entries.into_iter().map(|entry| entry.path + " ").collect()
            }
            _ => String::new(),
        };
        came.push(format!("{status:?} {error:?} {said}"));
    }
    let log = run.call(git_log).await.unwrap();
    came.push(format!("{:?}", log.status()));
    came
}

#[tokio::test(flavor = "multi_thread")]
async fn h1_a_warm_run_is_in_every_respect_as_a_cold_one() {
    let (warm_daemon, cold_daemon) = (pooled(ONE).await, Daemon::start().await);
    warm_daemon.pool_is_full(1).await;
    let mut of = Vec::new();
    for (daemon, kind) in [(&warm_daemon, StartKind::Warm), (&cold_daemon, StartKind::Cold)] {
        let workspace = daemon.repository("w", &[("a.txt", "one\n")]);
        let mut run = daemon.run("open", &workspace).await;
        assert_eq!(run.run.start_kind(), kind, "{}", daemon.log());
        assert_eq!(run.show().await.start_kind(), kind);
        let surroundings = run.ran(calls::shell(SURROUNDINGS)).await.stdout;
        let came = work(&mut run).await;
        assert_eq!(std::fs::read_to_string(workspace.join("a.txt")).unwrap(), "another\n");
        let facts: BTreeMap<_, _> =
            run.run.hardening.iter().map(|fact| (fact.name.clone(), fact.value.clone())).collect();
        of.push((
            settings(&run),
            mounts(&mut run).await,
            surroundings,
            came,
            facts,
            run.run.limits,
            run.run.ownership.clone(),
        ));
        let id = run.id().to_owned();
        let states = run.clients.events(&id, "run_state").await;
        let ready = &record(&states[0])["details"];
        assert_eq!(ready["start_kind"], kind.as_str_name(), "{ready}");
    }
    let (warm, cold) = (&mut of.remove(0), &mut of.remove(0));
    assert_eq!(warm.0, cold.0);
    // runc takes `nosuid` and `nodev` from a bind that it makes read-only. What is mounted later keeps them.
    let log = |mounts: &mut BTreeMap<String, String>| mounts.remove("/state/logs").unwrap();
    let (of_warm, of_cold) = (log(&mut warm.1), log(&mut cold.1));
    assert!(of_warm.starts_with("ro,nosuid,nodev,") && of_cold.starts_with("ro,"), "{of_warm}, {of_cold}");
    assert_eq!(warm.1, cold.1);
    assert_eq!(warm.2, cold.2);
    assert_eq!(warm.3, cold.3);
    assert_eq!((&warm.5, &warm.6), (&cold.5, &cold.6));
    // The engine was asked for other mounts, which are not those that are seen; what is seen is told, too.
    let own =
        |facts: &mut BTreeMap<String, String>| (facts.remove("mounts"), facts.remove("mounted_when_claimed"));
    let seen = "/workspace read-write, /state read-write, /state/logs read-only";
    assert_eq!(own(&mut warm.4).1.as_deref(), Some(seen));
    assert_eq!(own(&mut cold.4).1, None);
    assert_eq!(warm.4, cold.4);
}

#[tokio::test(flavor = "multi_thread")]
async fn h2_a_warm_container_serves_one_run_and_the_next_sees_nothing_of_it() {
    let daemon = pooled("[{ profile: open, min: 1, max: 2 }]").await;
    daemon.pool_is_full(1).await;
    let mut one = daemon.run_on(requests::managed("open")).await;
    assert_eq!(one.run.start_kind(), StartKind::Warm);
    let leave = "echo s3cret > /tmp/left; echo s3cret > /state/left; echo s3cret > /workspace/left; \
        (setsid sleep 600 &) ; export LEFT=s3cret";
    assert_eq!(one.ran(calls::shell(leave)).await.exit_code, Some(0));
    let container = one.run.container_id.clone();
    one.stop().await;
    daemon.pool_is_full(2).await;
    let mut other = daemon.run_on(requests::managed("open")).await;
    assert_eq!(other.run.start_kind(), StartKind::Warm);
    assert_ne!(other.run.container_id, container);
    let seen =
        "ls -A /tmp /workspace /state; env; cat /proc/[0-9]*/cmdline /proc/self/mountinfo | tr '\\0' ' '";
    let seen = other.ran(calls::shell(seen)).await.stdout;
    for left in ["left", "s3cret", "sleep 600", one.id()] {
        assert!(!seen.contains(left), "{left}: {seen}");
    }
    // Its removal goes on after the end of its run was told.
    until("it is still there", async || !daemon.containers().contains(&container)).await;
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h3_a_run_without_a_waiting_container_is_cold_and_fills_the_pool() {
    let daemon = pooled("[{ profile: open, min: 0, max: 1 }]").await;
    let mut cold = daemon.run_on(requests::managed("open")).await;
    assert_eq!(cold.run.start_kind(), StartKind::Cold);
    let because = [ColdBecause::FirstOfItsKind, ColdBecause::NoneWaits];
    assert!(because.contains(&cold.run.cold_because()), "{:?}", cold.run.cold_because());
    // The pool may not have known yet that it could have been asked.
    let warm = tokio::time::timeout(std::time::Duration::from_secs(60), async {
        loop {
            let mut run = daemon.run_on(requests::managed("open")).await;
            if run.run.start_kind() == StartKind::Warm {
                return run;
            }
            run.stop().await;
        }
    });
    let mut warm = warm.await.expect("none was made to wait");
    for run in [&mut cold, &mut warm] {
        assert_eq!(run.exec(&["cat", "/etc/hostname"]).await.exit_code, Some(0));
        run.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h3_a_run_that_needs_another_container_is_cold() {
    let daemon = pooled(ONE).await;
    daemon.pool_is_full(1).await;
    let package = daemon.workspace("package", &[("p.txt", "p\n")]);
    let limits = |limits| CreateRunRequest { limits: Some(limits), ..requests::managed("open") };
    let others = [
        (
            CreateRunRequest { pkg_path: package.display().to_string(), ..requests::managed("open") },
            ColdBecause::PkgPath,
        ),
        (limits(v1::Limits { pids: 100, ..Default::default() }), ColdBecause::FirstOfItsKind),
        (limits(v1::Limits { memory_bytes: 256 << 20, ..Default::default() }), ColdBecause::FirstOfItsKind),
        (limits(v1::Limits { cpu_millis: 500, ..Default::default() }), ColdBecause::FirstOfItsKind),
        (limits(v1::Limits { open_files: 100, ..Default::default() }), ColdBecause::FirstOfItsKind),
        (requests::managed("strict"), ColdBecause::NoPool),
        (requests::managed("harness"), ColdBecause::NoPool),
    ];
    for (request, because) in others {
        let mut run = daemon.run_on(request.clone()).await;
        assert_eq!(run.run.start_kind(), StartKind::Cold, "{request:?}");
        assert_eq!(run.run.cold_because(), because, "{request:?}");
        assert_eq!(run.show().await.cold_because(), because);
        run.ok(calls::list(".")).await;
        run.stop().await;
    }
    // What is not the container's may differ, the profile's name included.
    let mut labelled = requests::managed("build");
    labelled.labels = [("team".to_owned(), "red".to_owned())].into();
    labelled.limits = Some(v1::Limits { disk_bytes: 8 << 30, ..Default::default() });
    assert_eq!(daemon.run_on(labelled).await.run.start_kind(), StartKind::Warm);
}

#[tokio::test(flavor = "multi_thread")]
async fn h4_every_kind_of_workspace_can_be_claimed() {
    let daemon = pooled("[{ profile: open, min: 1, max: 2 }, { profile: review, min: 1, max: 1 }]").await;
    let repository = daemon.repository("r", &[("a.txt", "one\n")]);
    let beneath = daemon.workspace("o", &[("a.txt", "one\n")]);
    let base = daemon.base(&beneath).await;
    daemon.pool_is_full(2).await;
    let mut full = 2;
    for request in [
        requests::clone("open", &repository),
        requests::base("open", &base),
        requests::overlay("open", &beneath),
        requests::managed("open"),
    ] {
        let mut run = daemon.run_on(request.clone()).await;
        assert_eq!(run.run.start_kind(), StartKind::Warm, "{request:?}\n{}", daemon.log());
        run.ok(calls::write("b.txt", "two\n")).await;
        assert_eq!(run.exec(&["cat", "b.txt"]).await.stdout, "two\n");
        assert_eq!(
            run.exec(&["sh", "-c", "echo three > c.txt; stat -c %u c.txt b.txt"]).await.stdout,
            "1001\n1001\n"
        );
        run.stop().await;
        if request == requests::overlay("open", &beneath) {
            assert_eq!(run.diff().await.changes.len(), 2);
            run.accept(false).await.unwrap();
            assert_eq!(std::fs::read_to_string(beneath.join("c.txt")).unwrap(), "three\n");
        }
        full += 1;
        daemon.pool_is_full(full).await;
    }
    // A workspace that the profile lets nobody write.
    let mut reads = daemon.run("review", &repository).await;
    assert_eq!(reads.run.start_kind(), StartKind::Warm);
    reads.ok(calls::read("a.txt")).await;
    let pid = inspect(&reads.run.container_id)["State"]["Pid"].as_u64().unwrap();
    let table = std::fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap();
    let top = table.lines().rfind(|line| line.split(' ').nth(4) == Some("/workspace")).unwrap();
    assert!(top.contains(" ro,nosuid,nodev,"), "{top}");
    reads.stop().await;
}

/// What the kernel shows at `/workspace` of each container, as paths of the file system.
fn shown(containers: &[String]) -> Vec<String> {
    let of = |container: &String| {
        let pid = inspect(container)["State"]["Pid"].as_u64().unwrap();
        // One that is being made has none.
        let table = std::fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
        let at = |line: &str| {
            let fields: Vec<_> = line.split(' ').collect();
            (fields[4] == "/workspace").then(|| fields[3].to_owned())
        };
        table.lines().filter_map(at).collect::<Vec<_>>()
    };
    containers.iter().flat_map(of).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn h5_concurrent_runs_have_separate_containers_and_workspaces() {
    let daemon = pooled("[{ profile: open, min: 3, max: 6 }]").await;
    daemon.pool_is_full(1).await;
    let mut creating = Vec::new();
    for _ in 0..8 {
        let mut clients = daemon.connect().await;
        creating.push(tokio::spawn(async move {
            let created = clients.runs.create_run(requests::managed("open")).await.unwrap();
            RunHandle { run: Box::new(created.into_inner().run.unwrap()), clients }
        }));
    }
    let mut runs = Vec::new();
    for created in creating {
        runs.push(created.await.unwrap());
    }
    let warm = runs.iter().filter(|run| run.run.start_kind() == StartKind::Warm).count();
    assert!(warm >= 3, "{warm}");
    let containers: BTreeSet<_> = runs.iter().map(|run| run.run.container_id.clone()).collect();
    assert_eq!(containers.len(), runs.len());
    for run in &mut runs {
        let id = run.id().to_owned();
        assert_eq!(run.ran(calls::shell(&format!("echo {id} > mine; ls"))).await.stdout, "mine\n");
    }
    let seen = shown(&containers.into_iter().collect::<Vec<_>>());
    for run in &runs {
        let mine = format!("/workspaces/{}", run.id());
        assert_eq!(seen.iter().filter(|path| path.ends_with(&mine)).count(), 1, "{mine}: {seen:?}");
        assert_eq!(
            std::fs::read_to_string(daemon.state_dir().join(format!("workspaces/{}/mine", run.id())))
                .unwrap()
                .trim(),
            run.id()
        );
    }
    // And none that waits has any.
    let waiting: Vec<_> = daemon
        .containers()
        .into_iter()
        .filter(|id| runs.iter().all(|run| run.run.container_id != *id))
        .collect();
    assert!(shown(&waiting).iter().all(|path| path.contains("/state/mounts/")), "{:?}", shown(&waiting));
}

#[tokio::test(flavor = "multi_thread")]
async fn h6_a_stop_removes_waiting_containers() {
    for (config, left) in [("", 0), ("runs: { on_stop: leave }\n", 1)] {
        let config = format!("pool: [{{ profile: open, min: 3, max: 3 }}]\n{config}");
        let mut daemon = Daemon::start_with(Setup { config, ..Setup::default() }).await;
        daemon.pool_is_full(1).await;
        let run = daemon.run_on(requests::managed("open")).await;
        assert_eq!(run.run.start_kind(), StartKind::Warm);
        daemon.stop().await;
        assert_eq!(daemon.containers().len(), left);
        let points: BTreeSet<_> =
            daemon.mounts().into_iter().filter(|at| at.contains("/state/mounts/")).collect();
        assert_eq!(points.len(), 3 * left, "{points:?}");
        if left == 1 {
            daemon.launch().await;
            RunHandle { clients: daemon.connect().await, ..run }.stop().await;
            daemon.stop().await;
            assert_eq!((daemon.containers(), daemon.mounts()), (vec![], vec![]));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h7_a_policy_that_changes_the_container_replaces_waiting_ones() {
    let policy = |pids: u32| {
        format!(
            "profiles: {{ p: {{ operations: {{ read: allow, list: allow }}, limits: {{ pids: {pids} }} }} }}\nroles: {{ director: {{ allow: '*' }} }}\n"
        )
    };
    let setup = Setup {
        config: "pool: [{ profile: p, min: 1, max: 1 }]\n".to_owned(),
        policy: vec![("p.yaml", policy(100))],
        ..Default::default()
    };
    let daemon = Daemon::start_with(setup).await;
    daemon.pool_is_full(1).await;
    let stale = daemon.containers();
    std::fs::write(daemon.policy_dir().join("p.yaml"), policy(200)).unwrap();
    let mut clients = daemon.connect().await;
    clients.policy.reload_policy(v1::ReloadPolicyRequest::default()).await.unwrap();
    daemon.pool_is_full(2).await;
    assert!(daemon.containers().iter().all(|container| !stale.contains(container)));
    let run = daemon.run_on(requests::managed("p")).await;
    assert_eq!(run.run.start_kind(), StartKind::Warm);
    assert_eq!(inspect(&run.run.container_id)["HostConfig"]["PidsLimit"], 200);
    // A profile that is gone has none that wait, and the daemon goes on.
    std::fs::write(daemon.policy_dir().join("p.yaml"), policy(200).replace("p: {", "q: {")).unwrap();
    clients.policy.reload_policy(v1::ReloadPolicyRequest::default()).await.unwrap();
    until("what waited for another profile is still there", async || {
        daemon.containers() == [run.run.container_id.clone()]
    })
    .await;
    assert_eq!(daemon.run_on(requests::managed("q")).await.run.start_kind(), StartKind::Cold);
}

#[tokio::test(flavor = "multi_thread")]
async fn h8_altered_warm_container_is_not_used() {
    for tampered in [
        &["kill"][..],
        &["restart", "--time", "0"],
        &["rm", "--force"],
        &["pause"],
        &["update", "--memory", "1g", "--memory-swap", "1g"],
    ] {
        let daemon = pooled(ONE).await;
        daemon.pool_is_full(1).await;
        let waiting = daemon.containers();
        let [container] = &waiting[..] else { panic!("{waiting:?}") };
        let arguments = [tampered, &[container.as_str()]].concat();
        let done = std::process::Command::new("docker").args(&arguments).output().unwrap();
        // The pool may have begun to remove it between the two halves of a restart.
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success() || said.contains("marked for removal"), "{arguments:?}: {said}");
        let mut run = daemon.run_on(requests::managed("open")).await;
        assert_ne!(&run.run.container_id, container, "{tampered:?}");
        assert_eq!(run.exec(&["cat", "/etc/hostname"]).await.exit_code, Some(0));
        let memory = inspect(&run.run.container_id)["HostConfig"]["Memory"].as_u64();
        assert_eq!(memory, Some(4 << 30), "{tampered:?}");
        // It is not kept either.
        until(&format!("{tampered:?}: it is still there"), async || !daemon.containers().contains(container))
            .await;
        run.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn h9_a_pool_that_the_policy_cannot_have_is_refused_at_the_start() {
    let daemon = Daemon::start().await;
    let config = std::fs::read_to_string(daemon.config_path()).unwrap();
    let check = |pool: &str| {
        let file = daemon.outside().join("other.yaml");
        std::fs::write(&file, format!("{config}pool: {pool}\n")).unwrap();
        let arguments = [std::ffi::OsStr::new("--check-config"), "--config".as_ref(), file.as_os_str()];
        let done = std::process::Command::new(harness::binary("cofferd")).args(arguments).output().unwrap();
        (done.status.success(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let (ok, said) = check("[{ profile: opne, max: 1 }]");
    assert!(!ok && said.contains("pool[0].profile"), "{said}");
    assert!(check("[{ profile: harness, max: 1 }]").0);
    assert!(check("{ min: 1, max: 2 }").0);
}

#[tokio::test(flavor = "multi_thread")]
async fn h9_a_missing_image_is_reported_once_and_harms_no_other_pool() {
    let daemon = pooled(
        "[{ profile: open, image: 'cofferdam-none:1', min: 1, max: 1 }, { profile: open, min: 1, max: 1 }]",
    )
    .await;
    daemon.pool_is_full(1).await;
    assert_eq!(daemon.run_on(requests::managed("open")).await.run.start_kind(), StartKind::Warm);
    assert_eq!(daemon.log().matches("no warm containers of this kind").count(), 1);
    let missing = CreateRunRequest { image: "cofferdam-none:1".to_owned(), ..requests::managed("open") };
    assert_eq!(reason(&daemon.run_with(missing).await.err().unwrap()), "IMAGE_MISSING");
}
