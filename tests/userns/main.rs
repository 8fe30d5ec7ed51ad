//! Runs on an engine that maps the users of its containers: root of a user namespace, `root_in_user_namespace`, and all other
//! profiles. `tests/mapped-engine.sh` starts the engine beside the one of the other tests, and ends it.

#![allow(clippy::unwrap_used, clippy::expect_used)] // what cannot be set up fails its test

mod attacks;
#[path = "../security/attempts.rs"]
mod attempts;
mod images;
#[path = "../security/inside.rs"]
#[allow(dead_code, reason = "shared with the security tests, which use all of it")]
mod inside;
mod life;
mod ordinary;
mod packages;
mod workspaces;

use harness::{Daemon, Setup, use_mapped_engine, v1};

/// Commands are root, and need nobody's consent.
const POLICY: &str = "profiles:
  rooted:
    default_role: director
    workspace: read-write
    root: writable-layer
    root_in_user_namespace: true
    tmp: exec
    unattended: true
    allowed_images: ['*']
    operations: {read: allow, list: allow, exec: allow, shell: allow, process: allow, write: allow, edit: allow}
    exec: {deny_list: off, default: allow, env: ['*'], max_timeout_s: 300}
    limits: {memory_mib: 1024, pids: 256}
    approvals: {freeze: false}
    rate_limits:
      operations: {default: {minute: unlimited, hour: unlimited, day: unlimited}}
      run: {minute: unlimited, hour: unlimited, day: unlimited}
      principal: {minute: unlimited, hour: unlimited, day: unlimited}
";

fn setup() -> Setup {
    let shipped = [
        ("roles.yaml", include_str!("../../crates/policy/policies/roles.yaml")),
        ("open.yaml", include_str!("../../crates/policy/policies/open.yaml")),
        ("harness.yaml", include_str!("../../crates/policy/policies/harness.yaml")),
        ("rooted.yaml", POLICY),
    ];
    let policy = shipped.map(|(name, text)| (name, text.to_owned())).to_vec();
    Setup { policy, config: "harness_on_bind: allow\n".to_owned(), ..Setup::default() }
}

/// A daemon on the engine that maps users.
async fn daemon() -> Daemon {
    use_mapped_engine();
    Daemon::start_with(setup()).await
}

/// A request for a run of Debian whose commands are root.
fn rooted(request: v1::CreateRunRequest) -> v1::CreateRunRequest {
    v1::CreateRunRequest { profile: "rooted".to_owned(), image: harness::debian(), ..request }
}
