//! Limits hold for the sandbox as a whole. What meets one costs its run, and no other.

use harness::v1::{self, run::State};
use harness::{calls, inspect};

use crate::inside::{Inside, exec};
use crate::{IDLE, enter, enter_with, processes};

fn memory(mib: u64) -> v1::CreateRunRequest {
    let limits = v1::Limits { memory_bytes: mib << 20, ..Default::default() };
    v1::CreateRunRequest { limits: Some(limits), ..Default::default() }
}

/// How the run is when it has ended.
async fn ended(inside: &mut Inside) -> State {
    tokio::time::timeout(std::time::Duration::from_secs(60), inside.run.ended())
        .await
        .expect("it goes on")
        .state()
}

#[tokio::test]
async fn v4_the_limits_are_the_sandboxs() {
    let (_daemon, inside) = enter_with(memory(200)).await;
    let report = inspect(&inside.run.run.container_id);
    assert_eq!(report["HostConfig"]["Runtime"], "runsc");
    assert_eq!(report["Config"]["User"], "1002:1002", "PID 1 has a user of its own");
    let sandbox = report["State"]["Pid"].as_u64().unwrap();
    let id = inside.run.run.container_id.as_str();
    let membership = std::fs::read_to_string(format!("/proc/{sandbox}/cgroup")).unwrap();
    let memory = membership
        .lines()
        .find(|line| line.contains(":memory:") || line.starts_with("0::/") && line.contains(id));
    assert!(memory.is_some_and(|line| line.contains(id)), "{membership}");
}

#[tokio::test]
async fn v4_a_memory_hog_harms_only_its_run() {
    let (daemon, mut inside) = enter_with(memory(128)).await;
    let mut bystander = Inside::enter(&daemon, "bystander").await;
    let response = inside.run.call(v1::operation::Kind::Exec(exec(&["memory"]))).await.unwrap();
    // The kernel of the host ends the sandbox, or the sandbox ends the command.
    match response.error {
        Some(_) => assert_eq!(ended(&mut inside).await, State::Failed),
        None => assert_eq!(processes(&mut inside).await, IDLE),
    }
    assert_eq!(processes(&mut bystander).await, IDLE);
}

#[tokio::test]
async fn v4_a_fork_bomb_harms_only_its_run() {
    let (daemon, mut inside) = enter().await;
    let mut bystander = Inside::enter(&daemon, "bystander").await;
    let request = v1::ExecRequest { timeout_ms: Some(20_000), ..exec(&["bomb"]) };
    let response = inside.run.call(v1::operation::Kind::Exec(request)).await.unwrap();
    if response.error.is_some() {
        assert_eq!(ended(&mut inside).await, State::Failed);
    }
    assert_eq!(processes(&mut bystander).await, IDLE);
}

#[tokio::test]
async fn v4_files_and_tmp_have_their_limits() {
    let limits = v1::Limits { file_size_bytes: 1 << 20, ..Default::default() };
    let request = v1::CreateRunRequest { limits: Some(limits), ..Default::default() };
    let (_daemon, mut inside) = enter_with(request).await;
    let result = inside.run.ran(calls::shell("head -c 5000000 /dev/zero > large; wc -c < large")).await;
    assert!(result.stdout.trim().parse::<u64>().unwrap() <= 1 << 20, "{result:?}");
    let script = "i=0; while head -c 1000000 /dev/zero > /tmp/$i 2>/dev/null; do i=$((i+1)); [ $i -gt 400 ] && break; done; echo $i; : > /tmp/0";
    let filled: u64 = inside.run.ran(calls::shell(script)).await.stdout.trim().parse().unwrap();
    assert!(filled < 100, "{filled} MB fit into /tmp");
    assert_eq!(processes(&mut inside).await, IDLE);
}
