//! The attacks of the other profiles, by a command that is root inside.

use std::collections::BTreeSet;

use harness::{Daemon, calls, v1};
use libc::{EINVAL, ENOENT, EOVERFLOW, EPERM};

use crate::attempts::{self, REFUSED, all_refused, attempt};
use crate::inside::{Inside, PROBE};
use crate::{daemon, rooted};

/// A run in Debian.
async fn enter(name: &str) -> (Daemon, Inside) {
    let daemon = daemon().await;
    let inside = Inside::enter_with(&daemon, name, rooted(v1::CreateRunRequest::default())).await;
    (daemon, inside)
}

/// A run in the daemon's own image, of which little is to be looked through.
async fn enter_small() -> (Daemon, Inside) {
    let daemon = daemon().await;
    let request = v1::CreateRunRequest { image: String::new(), ..rooted(v1::CreateRunRequest::default()) };
    let inside = Inside::enter_with(&daemon, "w", request).await;
    (daemon, inside)
}

#[tokio::test]
async fn u3_mapped_root_has_the_kernel_access_of_other_users() {
    let (_daemon, mut inside) = enter_small().await;
    attempts::no_special_file(&mut inside).await;
    attempts::no_other_socket(&mut inside).await;
    attempts::no_namespace(&mut inside).await;
    attempts::no_dangerous_part(&mut inside).await;
    attempts::no_device_and_no_set_id_bit(&mut inside, 1).await;
    attempts::no_network(&mut inside).await;
    attempts::no_particulars(&mut inside).await;
    attempts::no_way_to_the_agent(&mut inside).await;
    inside.assert_idle();
}

#[tokio::test]
async fn u3_no_capability_beyond_the_list_can_be_had_and_no_user_of_the_host() {
    const NO_USER: &[i32] = &[EINVAL, EPERM, EOVERFLOW];
    let (_daemon, mut inside) = enter_small().await;
    attempts::no_other_capability(&mut inside).await;
    let attempts = [
        attempt("setuid to one that is not mapped", libc::SYS_setuid, "100000", NO_USER),
        attempt("setgid to one that is not mapped", libc::SYS_setgid, "100000", NO_USER),
        // Workspaces have no other owner than their own.
        attempt("give the probe away", libc::SYS_fchownat, "-100,@/workspace/probe,1,1,0", NO_USER),
        attempt("priority", libc::SYS_setpriority, "0,0,-20", &[EPERM, libc::EACCES]),
        attempt("hard limit", libc::SYS_prlimit64, "0,7,#ffffffff:ffffffff,0", REFUSED),
        attempt("trusted mark", libc::SYS_setxattr, "@/etc,@trusted.overlay.opaque,@y,1,0", REFUSED),
        attempt(
            "file capability",
            libc::SYS_setxattr,
            "@/bin/busybox,@security.capability,#ffffffff02000001:ffffffff:0,20,0",
            REFUSED,
        ),
    ];
    all_refused(&mut inside, &attempts).await;
    let status = inside.probe(&["read", "/proc/self/status"]).await.join("");
    for fact in [
        "Uid:\\t0\\t0\\t0\\t0",
        "CapPrm:\\t00000000000000eb",
        "CapEff:\\t00000000000000eb",
        "CapBnd:\\t00000000000000eb",
        "CapAmb:\\t0000000000000000",
        "NoNewPrivs:\\t1",
        "Seccomp:\\t2",
    ] {
        assert!(status.contains(&format!("{fact}\\n")), "{fact} is not in {status}");
    }
    let writable = inside.probe(&["writable"]).await;
    let others = writable.iter().filter(|path| *path != "/dev/shm");
    let tops: BTreeSet<&str> = others.filter_map(|path| path.split('/').nth(1)).collect();
    for closed in ["", "dev", "proc", "sys", ".cofferdam", "pkg"] {
        assert!(!tops.contains(closed), "{writable:?}");
    }
    assert!(!writable.iter().any(|path| path.starts_with("/state/logs")), "{writable:?}");
    // Neither the kernel's settings nor cgroups nor the daemon's files nor what the engine keeps read-only.
    let closed = "for f in /proc/sys/kernel/core_pattern /proc/sys/kernel/hostname /proc/sysrq-trigger /proc/1/oom_score_adj \
         /dev/x /sys/fs/cgroup/x /sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/pids/cgroup.procs /sys/fs/cgroup/pids/pids.max /proc/1/mem /state/logs/x /.cofferdam/guest /x \
         /proc/1/uid_map /proc/self/uid_map /sys/kernel/uevent_helper; do \
         (echo 1000 >$f) 2>/dev/null && echo wrote $f; done; \
         cat /proc/1/environ /proc/1/fd/* 2>/dev/null; rm -rf /.cofferdam/guest 2>/dev/null && echo removed; true";
    let result = inside.run.ran(calls::shell(closed)).await;
    assert_eq!(result.stdout, "", "{}", result.stderr);
}

/// What a name of a user leads to, the image's files say, and root writes these. It stays among the container's own.
#[tokio::test]
async fn u3_forged_users_do_not_map_to_host_users() {
    let (daemon, mut inside) = enter("w").await;
    let mut bystander =
        Inside::enter_with(&daemon, "bystander", rooted(v1::CreateRunRequest::default())).await;
    let forged = format!(
        "printf '0:x:7:7::/:/bin/sh\\nroot:x:0:0::/root:/bin/sh\\n' >/etc/passwd; printf '0:x:8:0,root\\nroot:x:0:\\n' >/etc/group; \
         exec {PROBE} signal-agent 9"
    );
    let lost = inside.run.call(calls::exec(&["sh", "-c", &forged])).await.unwrap();
    assert_eq!(lost.error.map(|error| error.reason).as_deref(), Some("CANCELLED"));
    inside.run.ok(calls::exec(&["true"])).await;
    let pid = harness::pid_of(&inside.run.run.container_id, "/.cofferdam/guest serve").unwrap();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    for set in ["Uid:", "Gid:", "Groups:"] {
        let line = status.lines().find_map(|line| line.strip_prefix(set)).unwrap();
        assert!(line.split_whitespace().all(|id| id.parse::<u32>().unwrap() >= 65_536), "{set}{line}");
    }
    // A FIFO lets the engine wait: that costs the run, and nobody else.
    let waits = format!("rm /etc/passwd; mkfifo /etc/passwd; exec {PROBE} signal-agent 9");
    let lost = inside.run.call(calls::exec(&["sh", "-c", &waits])).await.unwrap();
    assert!(lost.error.is_some());
    assert_eq!(bystander.run.exec(&["id", "-u"]).await.stdout, "0\n");
    let ended = inside.run.stop().await;
    assert!([v1::run::State::Stopped, v1::run::State::Failed].contains(&ended.state()), "{ended:?}");
    bystander.run.stop().await;
    assert_eq!(daemon.left_by_runs(), (vec![], vec![]));
    assert!(daemon.roots_are_gone());
}

/// A link that root inside makes leads to nothing of the host, whichever lane follows it.
#[tokio::test]
async fn u3_links_do_not_lead_to_the_host() {
    let (daemon, mut inside) = enter("w").await;
    let canary = daemon.outside().join("canary");
    std::fs::write(&canary, "it sings").unwrap();
    let plant = format!(
        "ln -s {0} /etc/told; ln -s {0} /workspace/told; ln -s /proc/1/root{0} /workspace/round; \
         cat /etc/told /workspace/told /workspace/round; chown -h 0:0 /workspace/told; true",
        canary.display()
    );
    let result = inside.run.ran(calls::shell(&plant)).await;
    assert!(!result.stdout.contains("sings"), "{result:?}");
    assert_eq!(inside.probe(&["read", "/etc/told"]).await, [format!("/etc/told {ENOENT}")]);
    for path in ["told", "round"] {
        assert!(crate::inside::read(&mut inside.run, path).await.is_err(), "{path}");
    }
    assert_eq!(std::fs::read_to_string(canary).unwrap(), "it sings");
}
