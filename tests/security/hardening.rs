//! Compares the hardening that a run reports with the engine's report.

use std::collections::HashMap;
use std::process::Stdio;
use std::time::Duration;

use harness::{Daemon, Setup, binary, requests, v1};
use serde_json::json;

use crate::inside::both;

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
async fn c2_a_ready_run_lists_the_hardening_in_force() {
    let (daemon, runs) = both(limited()).await;
    for inside in runs {
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
        assert!(facts["tmpfs"].contains(inside.profile().tmp), "{}", facts["tmpfs"]);
        assert!(facts["masked_paths"].contains("/proc/acpi"));
        let all = format!("{facts:?}");
        assert!(!all.contains(&daemon.outside().display().to_string()), "a host path in {all}");
    }
}

#[tokio::test]
async fn c2_the_processor_limit_that_is_shown_is_the_one_in_force() {
    let profile = "profiles: { p: { operations: { read: allow }, limits: { cpu_millis: 1024000 } } }\n\
                   roles: { director: { allow: '*' } }\n";
    let setup = Setup { policy: vec![("p.yaml", profile.to_owned())], ..Default::default() };
    let daemon = Daemon::start_with(setup).await;
    let run = daemon.run_on(requests::managed("p")).await;
    let in_force =
        harness::inspect(&run.run.container_id)["HostConfig"]["NanoCpus"].as_u64().unwrap() / 1_000_000;
    let shown = run.run.limits.as_ref().unwrap().cpu_millis;
    assert!(shown < 1_024_000, "no host that this is tried on has so many processors: {shown}");
    assert_eq!(u64::from(shown), in_force);
    let coffer = tokio::process::Command::new(binary("coffer"))
        .args(["run", "show", run.id()])
        .env("COFFERDAM_ENDPOINT", format!("unix:{}", daemon.socket().display()))
        .output()
        .await
        .unwrap();
    let told = String::from_utf8(coffer.stdout).unwrap();
    assert!(told.contains(&format!("cpus {}.{:03}", shown / 1000, shown % 1000)), "{told}");
}

#[tokio::test]
async fn c2_the_engine_confirms_it() {
    let (_daemon, runs) = both(limited()).await;
    for inside in runs {
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
        let layer: Vec<_> = inside.profile().layer.iter().map(|top| format!("/{top}")).collect();
        let mut expected = vec![
            ("/.cofferdam/guest", false),
            ("/etc/group", false),
            ("/etc/hostname", false),
            ("/etc/hosts", false),
            ("/etc/passwd", false),
            ("/etc/resolv.conf", false),
            ("/state", true),
            ("/state/logs", false),
            ("/workspace", true),
        ];
        expected.extend(layer.iter().map(|top| (top.as_str(), true)));
        expected.sort_unstable();
        assert_eq!(targets, expected);
        let networks = found["NetworkSettings"]["Networks"].as_object().unwrap();
        assert!(networks.keys().all(|name| name == "none"), "{networks:?}");
    }
}

#[tokio::test]
async fn c2_a_strict_daemon_starts_on_no_engine_with_known_escapes() {
    let daemon = Daemon::start().await;
    // What is known of the engine here; of another one it may be nothing.
    let escapes = daemon.log().lines().filter(|line| line.contains(" has CVE-")).count();
    let lenient = std::fs::read_to_string(daemon.config_path()).unwrap();
    let strict = lenient.replace("/state", "/strict-state").replace("/cofferd.sock", "/strict.sock");
    let config = daemon.outside().join("strict.yaml");
    std::fs::write(&config, strict + "docker: { strict_engine: true }\n").unwrap();
    let mut child = tokio::process::Command::new(binary("cofferd"))
        .arg("--config")
        .arg(&config)
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let socket = daemon.outside().join("strict.sock");
    let starts = async {
        // There is no other sign of it.
        while !socket.exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let ends = tokio::time::timeout(Duration::from_secs(60), async {
        tokio::select! {
            status = child.wait() => Some(status.unwrap()),
            () = starts => None,
        }
    });
    let ended = ends.await.expect("it neither starts nor ends");
    assert_eq!(ended.is_some(), escapes > 0, "{escapes} advisories, and it ended with {ended:?}");
    if let Some(status) = ended {
        let said = child.wait_with_output().await.unwrap();
        let said = String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned();
        assert!(
            !status.success() && said.contains("the engine has known escapes: update the engine"),
            "{said}"
        );
    }
}
