//! What a run says about its container, against what the engine says.

use std::collections::HashMap;

use harness::{Daemon, v1};
use serde_json::json;

use crate::inside::Inside;

/// A run with limits that no profile has.
fn limited() -> v1::CreateRunRequest {
    v1::CreateRunRequest {
        limits: Some(v1::Limits {
            memory_bytes: 256 << 20,
            pids: 100,
            cpu_millis: 500,
            ..Default::default()
        }),
        ..Default::default()
    }
}

#[tokio::test]
async fn c2_a_ready_run_lists_what_is_in_force() {
    let daemon = Daemon::start().await;
    let inside = Inside::enter_with(&daemon, "w", limited()).await;
    let facts: HashMap<&str, &str> =
        inside.run.run.hardening.iter().map(|fact| (fact.name.as_str(), fact.value.as_str())).collect();
    for (name, value) in [
        ("network", "none"),
        ("ipc", "none"),
        ("cgroup_namespace", "private"),
        ("read_only_root", "true"),
        ("no_new_privileges", "true"),
        ("capabilities_dropped", "ALL"),
        ("user", "1001:1001"),
        ("memory_bytes", "268435456"),
        ("memory_and_swap_bytes", "268435456"),
        ("cpu_millis", "500"),
        ("pids", "100"),
        ("log_driver", "none"),
        ("restart", "no"),
        ("hostname", "cofferdam"),
        ("surplus", "none"),
    ] {
        let found = facts.get(name).copied();
        assert_eq!(found, if name == "surplus" { None } else { Some(value) }, "{name}");
    }
    assert!(facts["seccomp"].starts_with("profile sha256:"));
    assert!(facts["tmpfs"].contains("noexec,nosuid,nodev"), "{}", facts["tmpfs"]);
    assert!(facts["masked_paths"].contains("/proc/acpi"));
    let all = format!("{facts:?}");
    assert!(!all.contains(&daemon.outside().display().to_string()), "a host path in {all}");
}

#[tokio::test]
async fn c2_the_engine_confirms_it() {
    let daemon = Daemon::start().await;
    let inside = Inside::enter_with(&daemon, "w", limited()).await;
    let found = harness::inspect(&inside.run.run.container_id);
    let (host, config) = (&found["HostConfig"], &found["Config"]);
    assert_eq!(config["User"], "1001:1001");
    assert_eq!(config["Hostname"], "cofferdam");
    assert_eq!(config["Tty"], false);
    for (name, value) in [
        ("NetworkMode", json!("none")),
        ("ReadonlyRootfs", json!(true)),
        ("Privileged", json!(false)),
        ("CapDrop", json!(["ALL"])),
        ("CapAdd", json!(null)),
        ("Devices", json!([])),
        ("IpcMode", json!("none")),
        ("PidMode", json!("")),
        ("UTSMode", json!("")),
        ("CgroupnsMode", json!("private")),
        ("Memory", json!(268_435_456)),
        ("MemorySwap", json!(268_435_456)),
        ("NanoCpus", json!(500_000_000)),
        ("PidsLimit", json!(100)),
        ("LogConfig", json!({ "Type": "none", "Config": {} })),
        ("RestartPolicy", json!({ "Name": "no", "MaximumRetryCount": 0 })),
        ("PublishAllPorts", json!(false)),
        ("VolumesFrom", json!(null)),
    ] {
        let value_found = &host[name];
        let empty = value_found.is_null() || *value_found == json!([]);
        let agrees = *value_found == value || (empty && (value.is_null() || value == json!([])));
        assert!(agrees, "{name}: {value_found}");
    }
    let options: Vec<&str> =
        host["SecurityOpt"].as_array().unwrap().iter().map(|option| option.as_str().unwrap()).collect();
    assert_eq!(
        options.iter().filter(|option| option.starts_with("no-new-privileges")).count(),
        1,
        "{options:?}"
    );
    assert_eq!(
        options.iter().filter(|option| option.starts_with("seccomp={")).count(),
        1,
        "a profile of our own"
    );
    let mut targets: Vec<(&str, bool)> = found["Mounts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|mount| (mount["Destination"].as_str().unwrap(), mount["RW"].as_bool().unwrap()))
        .collect();
    targets.sort_unstable();
    assert_eq!(targets, [("/.cofferdam/agent", false), ("/state", true), ("/workspace", true)]);
    let networks = found["NetworkSettings"]["Networks"].as_object().unwrap();
    assert!(networks.keys().all(|name| name == "none"), "{networks:?}");
}
