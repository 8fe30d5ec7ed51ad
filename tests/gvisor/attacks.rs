//! Commands against what serves them. In gVisor a process may open what another of its user has open, dumpable or not, and
//! may end PID 1 if that has its user. So both have another one, and the guest has nothing open but sockets.

use harness::calls;
use harness::v1::operation::Kind as Operation;

use crate::inside::{PROBE, exec, outcomes};
use crate::{IDLE, enter, processes};

#[tokio::test]
async fn v3_the_guest_can_be_neither_read_nor_forged() {
    let (_daemon, mut inside) = enter().await;
    let found = outcomes(&inside.probe(&["peers"]).await);
    let closed = |attempt: &str| {
        [
            "mem",
            "ptrace",
            "process_vm",
            "pidfd_getfd",
            "kcmp",
            "stack",
            "syscall",
            "pagemap",
            "clear_refs",
            "prlimit",
        ]
        .iter()
        .any(|closed| attempt.starts_with(closed))
    };
    let attacked = found.iter().filter(|(name, _)| name.ends_with("ptrace attach")).count();
    assert_eq!(attacked, IDLE.len(), "{found:?}");
    let open: Vec<_> =
        found.iter().filter(|(name, errno)| *errno == 0 && closed(name.split_once(' ').unwrap().1)).collect();
    assert!(open.is_empty(), "{open:?}");
}

/// Opens every descriptor of every other process: which opened, and to where they lead.
const DESCRIPTORS: &str = r#"
for process in /proc/[0-9]*; do
    [ "$process" = "/proc/$$" ] && continue
    line=$(tr '\0' ' ' < "$process/cmdline")
    for fd in "$process"/fd/*; do
        to=$(readlink "$fd") || continue
        if (: < "$fd") 2>/dev/null; then echo "read|$line|${fd##*/}|$to"; fi
        if (: > "$fd") 2>/dev/null; then echo "write|$line|${fd##*/}|$to"; fi
    done
done"#;

#[tokio::test]
async fn v3_no_stream_of_the_guest_can_be_taken() {
    let (_daemon, mut inside) = enter().await;
    let result = inside.run.ran(calls::shell(DESCRIPTORS)).await;
    let mut guests = 0;
    for line in result.stdout.lines() {
        let fields: Vec<&str> = line.split('|').collect();
        let [_, process, number, to] = fields[..] else { panic!("{line}") };
        if !process.starts_with("/.cofferdam/guest") {
            continue;
        }
        guests += 1;
        if process.trim() == "/.cofferdam/guest hold" && number == "0" {
            continue; // `/dev/null`, by the engine
        }
        assert_eq!(process.trim(), "/.cofferdam/guest serve --relayed", "{line}: a process of another user");
        // Its standard streams lead nowhere, but for the last words that go to the daemon's log. Others are pipes of this
        // command, which it has itself, and the directory that it was started in.
        let harmless = to == "/dev/null" || number == "2" || to.starts_with("pipe:") || to == "/workspace";
        assert!(harmless, "{line}");
        assert!(!(to.starts_with("host:") && number != "2"), "{line}: a stream of the engine's");
    }
    assert!(guests > 0, "its standard streams were tried:\n{}", result.stdout);
}

#[tokio::test]
async fn v3_no_command_ends_the_first_process_or_the_relay() {
    let (_daemon, mut inside) = enter().await;
    let script = "kill -9 1; for p in /proc/[0-9]*; do grep -q ^/.cofferdam/guest.relay $p/cmdline && kill -9 ${p#/proc/}; done; exit 0";
    assert_eq!(inside.run.ran(calls::shell(script)).await.exit_code, Some(0));
    assert_eq!(processes(&mut inside).await, IDLE);
    let id = inside.run.id().to_owned();
    assert!(inside.run.clients.events(&id, "worker_event").await.is_empty());
}

/// SIGKILL and SIGSTOP of the same user cannot be forbidden. They cost only the run's own calls, and what was left goes.
async fn the_run_survives(attack: &str) {
    let (_daemon, mut inside) = enter().await;
    let script = format!("{PROBE} tree setsid 6 leave; {attack}");
    let response = inside.run.call(calls::exec(&["sh", "-c", &script])).await.unwrap();
    assert_eq!(response.error.expect("the guest was lost under the call").reason, "CANCELLED");
    let call = Operation::Exec(exec(&["environment"]));
    inside.run.ok(call).await;
    assert_eq!(processes(&mut inside).await, IDLE);
}

#[tokio::test]
async fn v3_killing_the_guest_fails_only_the_calls_of_its_run() {
    the_run_survives(&format!("exec {PROBE} signal-all 9")).await;
}

#[tokio::test]
async fn v3_stopping_the_guest_is_noticed() {
    the_run_survives(&format!("exec {PROBE} signal-all 19")).await;
}

#[tokio::test]
async fn v3_no_set_id_bit_and_no_other_user_can_be_obtained() {
    let (_daemon, mut inside) = enter().await;
    let script = "cp probe s && chmod 6755 s; chmod 4755 s; stat -c %a s";
    let result = inside.run.ran(calls::shell(script)).await;
    assert_eq!(result.stdout.trim(), "755", "{result:?}");
    let created = libc::O_CREAT | libc::O_WRONLY;
    let attempts: Vec<String> = [0o4755, 0o2755]
        .into_iter()
        .flat_map(|mode: libc::mode_t| {
            [
                format!("openat {mode:o}:{},-100,@made,{created},{mode}", libc::SYS_openat),
                format!("mkdirat {mode:o}:{},-100,@made,{mode}", libc::SYS_mkdirat),
                format!("mknodat {mode:o}:{},-100,@made,{},0", libc::SYS_mknodat, libc::S_IFREG | mode),
            ]
        })
        .collect();
    let found = outcomes(&inside.probe_with(&["calls"], attempts.join("\n").into_bytes()).await);
    assert_eq!(found.len(), attempts.len());
    assert!(found.iter().all(|(_, errno)| *errno == libc::EPERM), "{found:?}");
    let status = inside
        .run
        .ran(calls::exec(&["grep", "-E", "^(Uid|CapEff|CapPrm|Seccomp)", "/proc/self/status"]))
        .await;
    let zeros = "0000000000000000";
    let wanted = format!("Uid:\t1001\t1001\t1001\t1001\nCapPrm:\t{zeros}\nCapEff:\t{zeros}\nSeccomp:\t2\n");
    assert_eq!(status.stdout, wanted);
}

#[tokio::test]
async fn v3_no_namespace_and_no_socket_of_another_family_can_be_had() {
    let (_daemon, mut inside) = enter().await;
    let attempts = [
        format!("user:{},{}", libc::SYS_unshare, libc::CLONE_NEWUSER),
        format!("net:{},{}", libc::SYS_unshare, libc::CLONE_NEWNET),
        format!("clone:{},{}", libc::SYS_clone, libc::CLONE_NEWUSER | libc::SIGCHLD),
        // Its flags are in memory, so that it does not exist at all.
        format!("clone3:{},#{:x}:0:0:0:{:x}:0:0:0,64", libc::SYS_clone3, libc::CLONE_NEWUSER, libc::SIGCHLD),
        format!("chroot:{},0", libc::SYS_chroot),
        format!("mount:{},0,0,0,0,0", libc::SYS_mount),
        format!("netlink:{},{},{},16", libc::SYS_socket, libc::AF_NETLINK, libc::SOCK_RAW),
        format!("packet:{},{},{},0", libc::SYS_socket, libc::AF_PACKET, libc::SOCK_RAW),
        format!("keyctl:{},0,0", libc::SYS_keyctl),
    ];
    let found = outcomes(&inside.probe_with(&["calls"], attempts.join("\n").into_bytes()).await);
    assert_eq!(found.len(), attempts.len());
    let refused = |name: &str| if name == "clone3" { libc::ENOSYS } else { libc::EPERM };
    let open: Vec<_> = found.iter().filter(|(name, errno)| *errno != refused(name)).collect();
    assert!(open.is_empty(), "{open:?}");
}
