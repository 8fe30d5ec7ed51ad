//! Tests runs that were changed while no daemon watched: such a run ends, even if everything else in it would work.

use std::os::unix::fs::{chown, symlink};
use std::path::Path;
use std::process::Command;

use harness::v1::run::State;
use harness::{Daemon, RunHandle, Setup, calls, inspect, reason, record, requests, v1};
use identity::RunId;

use crate::adopted::works;

fn docker(arguments: &[&str]) -> String {
    let output = Command::new("docker").args(arguments).output().unwrap();
    assert!(output.status.success(), "docker {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn command(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// What is done to a run: to its container, its workspace and its mount points.
type Deed = fn(&str, &Path, &Path);

/// Each with what the run's failure says.
const DEEDS: [(&str, Deed, &str); 17] = [
    ("stopped", |container, _, _| drop(docker(&["stop", container])), "container has ended"),
    ("killed", |container, _, _| kill_first(container), "container has ended"),
    ("removed", |container, _, _| drop(docker(&["rm", "-f", container])), "container is gone"),
    ("restarted", |container, _, _| drop(docker(&["restart", container])), "restarted outside"),
    ("paused", |container, _, _| drop(docker(&["pause", container])), "paused"),
    (
        "memory",
        |container, _, _| drop(docker(&["update", "--memory", "2g", "--memory-swap", "2g", container])),
        "memory_bytes",
    ),
    ("pids", |container, _, _| drop(docker(&["update", "--pids-limit", "9999", container])), "pids"),
    (
        "restart-policy",
        |container, _, _| drop(docker(&["update", "--restart", "always", container])),
        "restart",
    ),
    ("network", |container, _, _| connect(container), "surplus"),
    ("device", |container, _, _| add_device(container), "has a network"),
    (
        "replaced",
        |_, workspace, _| {
            std::fs::rename(workspace, workspace.with_extension("old")).unwrap();
            std::fs::create_dir(workspace).unwrap();
            chown(workspace, Some(4321), Some(4321)).unwrap();
        },
        "workspace was replaced by another directory",
    ),
    (
        "linked",
        |_, workspace, _| {
            let other = workspace.with_extension("other");
            std::fs::rename(workspace, &other).unwrap();
            std::fs::create_dir(workspace.with_extension("third")).unwrap();
            symlink(workspace.with_extension("third"), workspace).unwrap();
        },
        "workspace",
    ),
    (
        "moved",
        |_, workspace, _| std::fs::rename(workspace, workspace.with_extension("x")).unwrap(),
        "no longer exists",
    ),
    ("given", |_, workspace, _| chown(workspace, Some(77), None).unwrap(), "now belongs to another user"),
    ("unmounted", |_, _, slots| command("umount", &["-l", &at(slots, "workspace")]), "no longer mounted"),
    ("unmounted-state", |_, _, slots| command("umount", &["-l", &at(slots, "state")]), "no longer mounted"),
    (
        "covered",
        |_, workspace, slots| {
            command("mount", &["--bind", &workspace.display().to_string(), &at(slots, "workspace")]);
        },
        "mounted",
    ),
];

fn at(slots: &Path, name: &str) -> String {
    slots.join(name).display().to_string()
}

fn kill_first(container: &str) {
    let pid = inspect(container)["State"]["Pid"].as_i64().unwrap();
    command("kill", &["-KILL", &pid.to_string()]);
    while inspect(container)["State"]["Running"] == true {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// Name of this test's network.
fn network() -> String {
    format!("cofferdam-test-{}", std::process::id())
}

/// The network, which goes with the value, whatever is connected to it.
struct Network(String);

impl Drop for Network {
    fn drop(&mut self) {
        let connected = "{{range .Containers}}{{.Name}} {{end}}";
        let found =
            Command::new("docker").args(["network", "inspect", "--format", connected, &self.0]).output();
        // The engine keeps such a connection of a container that is gone.
        for name in String::from_utf8_lossy(&found.unwrap().stdout).split_whitespace() {
            let _ = Command::new("docker").args(["network", "disconnect", "--force", &self.0, name]).output();
        }
        let _ = Command::new("docker").args(["network", "rm", &self.0]).output();
    }
}

fn connect(container: &str) {
    let name = network();
    docker(&["network", "create", "--internal", &name]);
    docker(&["network", "connect", &name, container]);
}

/// Behind the engine's back.
fn add_device(container: &str) {
    let pid = inspect(container)["State"]["Pid"].to_string();
    command(
        "nsenter",
        &["--target", &pid, "--net", "ip", "link", "add", "c0", "type", "veth", "peer", "name", "c1"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_was_tampered_with_is_ended_and_not_used() {
    let _network = Network(network());
    let mut daemon = Daemon::start().await;
    let mut runs = Vec::new();
    for (name, deed, words) in DEEDS {
        let workspace = daemon.workspace(name, &[("a.txt", "one\n")]);
        runs.push((daemon.run("open", &workspace).await, workspace, deed, words));
    }
    let good = daemon.workspace("good", &[]);
    let run = daemon.run("open", &good).await;
    daemon.kill().await;
    for (run, workspace, deed, _) in &runs {
        deed(&run.run.container_id, workspace, &daemon.state_dir().join("mounts").join(run.id()));
    }
    daemon.launch().await;
    let clients = daemon.connect().await;
    for (run, _, _, words) in runs {
        let mut run = RunHandle { clients: clients.clone(), ..run };
        let failed = run.show().await;
        assert_eq!(failed.state(), State::Failed, "{words}");
        assert!(failed.failure.contains(words), "{words}: {}", failed.failure);
        assert!(!failed.failure.contains("/var/tmp"), "a path of the host: {}", failed.failure);
        assert!(failed.ended_at.is_some() && failed.adopted_at.is_none());
        assert_eq!(failed.failure_reason, "RUN_LOST", "{words}");
        assert_eq!(reason(&run.call(calls::read("a.txt")).await.unwrap_err()), "RUN_LOST");
        let id = run.id().to_owned();
        let states = run.clients.events(&id, "run_state").await;
        let details = &record(states.last().unwrap())["details"];
        assert_eq!((&details["state"], &details["failure"]), (&"FAILED".into(), &failed.failure.into()));
        run.delete().await;
    }
    // One that nobody touched is none the worse for it.
    assert_eq!(daemon.containers(), std::slice::from_ref(&run.run.container_id));
    let mut run = RunHandle { clients, ..run };
    works(&mut run, &good, "b.txt").await;
    run.stop().await;
    run.delete().await;
    assert_eq!(daemon.leftovers(), [""; 0]);
    assert_eq!(daemon.mounts(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn unclaimed_containers_are_removed_and_foreign_ones_stay() {
    let mut daemon = Daemon::start().await;
    let run = daemon.run_on(requests::managed("open")).await;
    let instance = std::fs::read_to_string(daemon.state_dir().join("instance")).unwrap();
    let name = || format!("cofferdam-{}", RunId::new());
    let made = |instance: &str| {
        let label = format!("io.cofferdam.instance={instance}");
        docker(&["create", "--name", &name(), "--label", &label, &run.run.image_id, "/bin/true"])
    };
    // One that says that it is the run's, but is not the one that the record names.
    let label = format!("io.cofferdam.run={}", run.id());
    let ours = format!("io.cofferdam.instance={}", instance.trim());
    let named = name();
    let of_run =
        ["create", "--name", &named, "--label", &ours, "--label", &label, &run.run.image_id, "/bin/true"];
    let double = docker(&of_run);
    let (nobodys, others) = (made(instance.trim()), made("00000000-0000-4000-8000-000000000000"));
    daemon.kill().await;
    let stray = daemon.state_dir().join("mounts/01890000-0000-7000-8000-000000000000/workspace");
    std::fs::create_dir_all(&stray).unwrap();
    let elsewhere = daemon.roots().display().to_string();
    command("mount", &["--bind", &elsewhere, &stray.display().to_string()]);
    daemon.launch().await;
    assert_eq!(daemon.containers(), std::slice::from_ref(&run.run.container_id), "{nobodys} {double}");
    assert!(!stray.exists());
    assert_eq!(docker(&["inspect", "--format", "{{.Id}}", &others]), others);
    docker(&["rm", &others]);
    let mut run = RunHandle { clients: daemon.connect().await, ..run };
    run.ok(calls::write("a.txt", "x")).await;
}

/// Two profiles, and of them what is left later.
fn policy(later: bool) -> String {
    let profile = |name: &str, more: &str| {
        format!(
            "  {name}:\n    workspace: read-write\n    operations: {{ read: allow, exec: allow, write: allow }}\n\
            \x20   exec: {{ default: allow }}\n{more}"
        )
    };
    let (images, other) = if later {
        ("", String::new())
    } else {
        ("    allowed_images: [\"cofferdam/*\"]\n", profile("short-lived", ""))
    };
    format!(
        "profiles:\n{}{other}roles:\n  director: {{ allow: [read, exec, write] }}\n",
        profile("staying", images)
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_the_policy_of_today_would_not_have_ends() {
    let setup = Setup { policy: vec![("policy.yaml", policy(false))], ..Default::default() };
    let mut daemon = Daemon::start_with(setup).await;
    let stays = daemon.run_on(requests::managed("staying")).await;
    let gone = daemon.run_on(requests::managed("short-lived")).await;
    let reference = docker(&["inspect", "--format", "{{index .RepoTags 0}}", &stays.run.image_id]);
    let request = v1::CreateRunRequest { image: reference, ..requests::managed("staying") };
    let imaged = daemon.run_on(request).await;
    daemon.kill().await;
    std::fs::write(daemon.policy_dir().join("policy.yaml"), policy(true)).unwrap();
    daemon.launch().await;
    let clients = daemon.connect().await;
    for (run, words) in
        [(gone, "no longer has the profile short-lived"), (imaged, "no longer allows its image")]
    {
        let mut run = RunHandle { clients: clients.clone(), ..run };
        let failed = run.show().await;
        assert_eq!(failed.state(), State::Failed);
        assert!(failed.failure.contains(words), "{}", failed.failure);
    }
    assert_eq!(daemon.containers(), std::slice::from_ref(&stays.run.container_id));
    let mut stays = RunHandle { clients, ..stays };
    stays.ok(calls::write("a.txt", "x")).await;
}
