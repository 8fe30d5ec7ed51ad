//! cofferd in a container, its clients in another, as `deploy/compose.yaml` puts them together: the main job from the
//! first command to the last, by a user that is not root, with a reviewer who is somebody else.
//!
//! What is special about a daemon in a container, and would be seen here: its mounts have to reach the host, it has to
//! find the processes and cgroups of containers beside its own, the host lane's jail has to be possible with the few
//! capabilities that it has, and who a client is has to survive a socket between two containers.

#![allow(clippy::unwrap_used)] // what cannot be set up fails its test

mod egress;
mod stack;

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::time::{Duration, Instant};

use harness::git;
use serde_json::Value;
use stack::{AGENT, REVIEWER, Said, Stack, containers_of};

const DONE: i32 = 0;
const DENIED: i32 = 3;
const AWAITING_APPROVAL: i32 = 4;
// Of `call exec`, beside the codes of commands.
const COMMAND_AWAITS: i32 = 123;
const COMMAND_TIMED_OUT: i32 = 124;
const COMMAND_DENIED: i32 = 126;

#[test]
fn the_main_job_is_done_between_containers() {
    let mut stack = Stack::up();
    let source = stack.repository("project", &[("README.md", "# Hello\n"), ("src/main.c", "int main;\n")]);

    let run = stack.coffer(
        AGENT,
        &[
            "run",
            "create",
            "--profile",
            "review",
            "--role",
            "director",
            "--clone",
            &source.display().to_string(),
        ],
    );
    let run = run.ended(DONE).trim().to_owned();
    assert_eq!(containers_of(&run).len(), 1, "the run's container is on the host's engine, beside cofferd's");
    assert!(!stack.mounts().is_empty(), "the run's mounts have reached the host");

    // The client's own container has no engine and no root: what is told is about the daemon's.
    let judged = stack.coffer(AGENT, &["doctor"]);
    let judged = judged.ended(DONE);
    for told in ["the daemon's, as the daemon reports it", "root, with the capabilities", "engine", "version"]
    {
        assert!(judged.contains(told), "{told}: {judged}");
    }

    look_around(&stack, &run);
    run_commands(&stack, &run);
    edit_and_commit(&stack, &run);

    let made = stack.workspace_of(&run);
    assert_eq!(git(&made, &["log", "--format=%s"]), "Greet the world\nfirst\n");
    assert_eq!(git(&made, &["status", "--porcelain"]), "");
    assert_eq!(std::fs::metadata(made.join("README.md")).unwrap().uid(), AGENT);
    assert_eq!(git(&source, &["log", "--format=%s"]), "first\n", "the source of the clone is as it was");

    let verified = stack.coffer(AGENT, &["audit", "verify"]);
    assert!(verified.ended(DONE).starts_with("intact: "));
    let record = stack.coffer(AGENT, &["audit", "tail", "--run", &run, "--kind", "call_receipt"]);
    let record = record.ended(DONE);
    for operation in ["read", "list", "grep", "exec", "edit", "git.add", "git.commit"] {
        assert!(record.contains(&format!(" {operation} ")), "{operation} is not on record:\n{record}");
    }

    assert_eq!(stack.errors(), Vec::<String>::new());

    stack.coffer(AGENT, &["run", "stop", &run]).ended(DONE);
    assert_eq!(left_of(&run), Vec::<String>::new());
    assert_eq!(stack.mounts(), Vec::<String>::new(), "the run's mounts have gone from the host");

    // An agent can make deleting harder: in a sticky directory only owners may.
    std::fs::set_permissions(made.join("src"), std::fs::Permissions::from_mode(0o1777)).unwrap();
    stack.coffer(AGENT, &["run", "delete", &run, "--workspace"]).ended(DONE);
    assert!(!made.exists());
    stack.down();
}

#[test]
fn clients_are_identified_by_their_user() {
    let mut stack = Stack::up();
    let create = &["run", "create", "--profile", "review", "--managed"];
    for client in [REVIEWER, 4999] {
        let refused = stack.coffer(client, create);
        assert!(refused.failed(DENIED).contains("PERMISSION_DENIED"));
    }
    let run = stack.coffer(AGENT, create);
    let run = run.ended(DONE).trim().to_owned();
    let shown: Value =
        serde_json::from_str(stack.coffer(AGENT, &["--output", "json", "run", "show", &run]).ended(DONE))
            .unwrap();
    assert_eq!(shown["run"]["principal"], format!("uid:{AGENT}"), "{shown:#}");

    // The images have grpcurl where the tests know of one.
    if std::env::var_os("COFFERDAM_GRPCURL").is_some() {
        let socket = "/run/cofferdam/cofferd.sock";
        let health = &["grpcurl", "-plaintext", "-unix", socket, "grpc.health.v1.Health/Check"];
        assert!(stack.client(REVIEWER, health).ended(DONE).contains("SERVING"));
    }

    // Root may do everything, and root's own files are mapped to the run's user like any other's.
    let roots = stack.directory("roots-own", 0);
    let bound =
        stack.coffer(0, &["run", "create", "--profile", "review", "--bind", &roots.display().to_string()]);
    let bound = bound.ended(DONE).trim();
    assert!(stack.coffer(0, &["call", "list", bound]).ended(DONE).contains("@project/file"));

    // Runs that are left when the daemon is told to end go with it.
    stack.down();
    for run in [&run, bound] {
        assert_eq!(containers_of(run), Vec::<String>::new());
    }
}

/// The containers of a run that has ended. They are given time: mounts are gone when it has.
fn left_of(run: &str) -> Vec<String> {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let containers = containers_of(run);
        if containers.is_empty() || Instant::now() > until {
            return containers;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn look_around(stack: &Stack, run: &str) {
    assert_eq!(stack.coffer(AGENT, &["call", "read", run, "README.md"]).ended(DONE), "# Hello\n");
    let listed = stack.coffer(AGENT, &["call", "list", run]);
    let listed = listed.ended(DONE);
    assert!(listed.contains("@project/README.md") && listed.contains("@project/src"), "{listed}");
    let found = stack.coffer(AGENT, &["call", "grep", run, "main"]);
    assert!(found.ended(DONE).contains("src/main.c"));
}

fn run_commands(stack: &Stack, run: &str) {
    assert_eq!(
        stack.coffer(AGENT, &["call", "exec", run, "--", "wc", "-l", "README.md"]).ended(DONE),
        "1 README.md\n"
    );
    let refused = stack.coffer(AGENT, &["call", "exec", run, "--", "rm", "-rf", "."]);
    assert!(refused.failed(COMMAND_DENIED).contains("COMMAND_NOT_ALLOWED"));

    // A command that takes too long is asked to end, and the cgroup of its own shows that all has ended.
    let late = &["--output", "json", "call", "exec", run, "--timeout", "1s", "--", "sleep", "1000"];
    let late = consented(stack, run, "late", late);
    let late: Value = serde_json::from_str(late.ended(COMMAND_TIMED_OUT)).unwrap();
    assert_eq!(late["result"]["exec"]["timedOut"], true, "{late:#}");
    assert_eq!(late["result"]["exec"]["signal"], 15, "{late:#}");
    let method = late["result"]["exec"]["kill"]["method"].as_str().unwrap();
    assert!(method.starts_with("CGROUP_"), "{late:#}");
}

fn edit_and_commit(stack: &Stack, run: &str) {
    let edit = &["call", "edit", run, "README.md", "--old", "Hello", "--new", "Hello, world"];
    let edited = consented(stack, run, "edit", edit);
    assert!(edited.ended(DONE).contains("\n-# Hello\n+# Hello, world\n"));
    assert_eq!(stack.coffer(AGENT, &["call", "read", run, "README.md"]).ended(DONE), "# Hello, world\n");
    consented(stack, run, "add", &["call", "git", run, "add", "README.md"]).ended(DONE);
    consented(stack, run, "commit", &["call", "git", run, "commit", "-m", "Greet the world"]).ended(DONE);
}

/// The agent asks, may not consent itself, the reviewer consents, and the agent asks again for what came of it.
fn consented(stack: &Stack, run: &str, request: &str, call: &[&str]) -> Said {
    // Options end at `--`.
    let options = call.iter().position(|word| *word == "--").unwrap_or(call.len());
    let with = |manner: &[&'static str]| {
        let (before, after) = call.split_at(options);
        let request = ["--request-id", request];
        stack.coffer(AGENT, &[before, &request, manner, after].concat())
    };
    let awaits = if call.contains(&"exec") { COMMAND_AWAITS } else { AWAITING_APPROVAL };
    with(&[]).ended(awaits);
    let waiting = stack.coffer(REVIEWER, &["--output", "json", "approval", "list", "--run", run]);
    let waiting: Value = serde_json::from_str(waiting.ended(DONE)).unwrap();
    let approval = waiting["approvals"][0]["approvalId"].as_str().unwrap();
    stack.coffer(AGENT, &["approval", "approve", approval]).failed(DENIED);
    stack.coffer(REVIEWER, &["approval", "approve", approval]).ended(DONE);
    with(&["--wait"])
}
