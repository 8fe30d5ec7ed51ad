//! Runs whose boundary is gVisor: `runtime: runsc`. What holds in every container is tried again here, against the kernel
//! that commands ask then; docs/src/isolation.md has the table of what differs. Needs an engine that knows the runtime, which
//! `ensure_runsc` of deploy/lib/runsc.sh sees to.

#![allow(clippy::unwrap_used, clippy::expect_used)] // what cannot be set up fails its test

mod attacks;
mod egress;
mod ends;
mod files;
mod forward;
#[path = "../security/inside.rs"]
#[allow(dead_code, reason = "shared with the security tests, which use all of it")]
mod inside;
mod lanes;
mod lasting;
mod life;
mod limits;
mod terminal;

use harness::{Daemon, Setup, v1};

use inside::Inside;

/// Commands need nobody's consent, and the boundary is gVisor.
const POLICY: &str = "profiles:
  open:
    runtime: runsc
    default_role: director
    workspace: read-write
    unattended: true
    operations: {read: allow, list: allow, glob: allow, grep: allow, exec: allow, shell: allow, write: allow, edit: allow}
    exec: {default: allow, env: ['*'], max_timeout_s: 120}
    limits: {memory_mib: 512, pids: 64}
    approvals: {freeze: false}
    forward: allow
    rate_limits:
      operations: {default: {minute: unlimited, hour: unlimited, day: unlimited}}
      run: {minute: unlimited, hour: unlimited, day: unlimited}
      principal: {minute: unlimited, hour: unlimited, day: unlimited}
";

async fn daemon() -> Daemon {
    let roles = include_str!("../../crates/policy/policies/roles.yaml").to_owned();
    let policy = vec![("open.yaml", POLICY.to_owned()), ("roles.yaml", roles)];
    Daemon::start_with(Setup { policy, ..Setup::default() }).await
}

/// A daemon, and a run with the probe in its workspace.
async fn enter() -> (Daemon, Inside) {
    enter_with(v1::CreateRunRequest::default()).await
}

async fn enter_with(request: v1::CreateRunRequest) -> (Daemon, Inside) {
    let daemon = daemon().await;
    let inside = Inside::enter_with(&daemon, "w", request).await;
    (daemon, inside)
}

/// Names of the processes in the sandbox, but for the probe that asks, sorted. Nobody outside sees them. Those that are over
/// and only wait to be reaped have none.
async fn processes(inside: &mut Inside) -> Vec<String> {
    let lines = inside.probe(&["processes"]).await;
    let mut names: Vec<String> =
        lines.iter().filter_map(|line| line.split_once(' ')).map(|(_, name)| name.to_owned()).collect();
    names.retain(|name| !name.is_empty() && *name != format!("{} processes", inside::PROBE));
    names.sort();
    names
}

/// What is in a sandbox when nothing runs in it.
const IDLE: [&str; 3] =
    ["/.cofferdam/guest hold", "/.cofferdam/guest relay", "/.cofferdam/guest serve --relayed"];
