//! Both lanes on one workspace.

use std::os::unix::fs::{MetadataExt as _, symlink};

use harness::v1::{self, result::Kind};
use harness::{calls, until};

use crate::inside::{exec, outcomes};
use crate::{IDLE, enter, processes};

#[tokio::test]
async fn v1_a_run_reads_executes_and_writes_as_its_owner() {
    let (daemon, mut inside) = enter().await;
    std::fs::create_dir(inside.workspace.join("src")).unwrap();
    std::fs::write(inside.workspace.join("src/a.txt"), "from the host\n").unwrap();
    harness::own(&inside.workspace, 4321);
    let Kind::Read(read) = inside.run.ok(calls::read("/workspace/src/a.txt")).await else {
        panic!("no read")
    };
    assert_eq!(read.content, "from the host\n");
    let Kind::Grep(found) = inside.run.ok(calls::grep("/workspace", "the host")).await else {
        panic!("no grep")
    };
    assert_eq!(found.matches.len(), 1, "{found:?}");
    inside.run.ok(calls::list("/workspace/src")).await;

    inside.run.ok(calls::write("src/b.txt", "from the host lane\n")).await;
    let script =
        "cat src/a.txt src/b.txt && echo made > src/c.txt && mkdir src/d && echo x > /state/s && id -u";
    let result = inside.run.ran(calls::shell(script)).await;
    assert_eq!(
        (result.exit_code, result.stdout.as_str()),
        (Some(0), "from the host\nfrom the host lane\n1001\n")
    );
    for made in ["src/b.txt", "src/c.txt", "src/d"] {
        let metadata = std::fs::metadata(inside.workspace.join(made)).unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (4321, 4321), "{made}");
    }
    let Kind::Read(read) = inside.run.ok(calls::read("/workspace/src/c.txt")).await else {
        panic!("no read")
    };
    assert_eq!(read.content, "made\n");
    assert_eq!(processes(&mut inside).await, IDLE);
    drop(daemon);
}

/// Without `openat2` the guest walks by itself.
#[tokio::test]
async fn v1_no_link_leads_a_read_out_of_its_mount() {
    let (_daemon, mut inside) = enter().await;
    let links = [
        ("absolute", "/etc/passwd"),
        ("up", "../etc/passwd"),
        ("directory", "/etc"),
        ("other", "/state"),
        ("magic", "/proc/self/root/etc"),
        ("loop", "loop"),
    ];
    for (link, target) in links {
        symlink(target, inside.workspace.join(link)).unwrap();
    }
    symlink("probe", inside.workspace.join("inside")).unwrap();
    for path in ["absolute", "up", "directory/passwd", "directory", "other", "magic/passwd", "loop"] {
        let failure = inside.run.fails(calls::read(&format!("/workspace/{path}"))).await;
        assert_ne!(failure.reason, "INTERNAL", "{path}: {failure:?}");
        inside.run.fails(calls::list(&format!("/workspace/{path}"))).await;
    }
    inside.run.ok(calls::list("/workspace")).await;
    inside.run.ok(calls::list("/state/logs")).await;
    inside.run.ok(calls::read("/workspace/inside")).await;
}

/// A directory is exchanged with a link that leads out, as fast as the kernel can, while it is read beneath its name.
#[tokio::test]
async fn v1_no_exchange_of_a_directory_leads_a_read_out() {
    let (daemon, mut inside) = enter().await;
    std::fs::create_dir(inside.workspace.join("dir")).unwrap();
    std::fs::write(inside.workspace.join("dir/passwd"), "from inside").unwrap();
    symlink("/etc", inside.workspace.join("link")).unwrap();
    harness::own(&inside.workspace, 4321);
    let mut swapping = inside.again(&daemon).await;
    let script =
        "while [ ! -e stop ]; do mv dir real; mv link dir; echo > begun; mv dir link; mv real dir; done";
    // As long as the policy lets it.
    let script =
        v1::ShellRequest { script: script.to_owned(), timeout_ms: Some(120_000), ..Default::default() };
    let script = v1::operation::Kind::Shell(script);
    let swapper = tokio::spawn(async move { swapping.run.ran(script).await });
    until("it does not begin", async || inside.workspace.join("begun").exists()).await;
    let (mut read, mut refused) = (0_u32, 0_u32);
    let began = std::time::Instant::now();
    // Further until both states were seen, however slow the exchange is.
    while read + refused < effort::cases(300, 5_000)
        || read.min(refused) == 0 && began.elapsed() < std::time::Duration::from_secs(30)
    {
        let response = inside.run.call(calls::read("/workspace/dir/passwd")).await.unwrap();
        match response.kind() {
            Some(Kind::Read(found)) => {
                assert_eq!(found.content, "from inside");
                read += 1;
            }
            _ => refused += 1,
        }
    }
    std::fs::write(inside.workspace.join("stop"), "").unwrap();
    assert_eq!(swapper.await.unwrap().exit_code, Some(0));
    assert!(read > 0 && refused > 0, "{read} were read, {refused} refused: there was no race");
}

#[tokio::test]
async fn v1_shared_memory_names_of_hosts_and_interfaces_are_there() {
    let (_daemon, mut inside) = enter().await;
    let script = "grep -w localhost /etc/hosts; cat /etc/hostname; echo shared >/dev/shm/x && cat /dev/shm/x; ip -o link | grep -c lo:";
    let result = inside.run.ran(calls::shell(script)).await;
    let hosts = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n";
    assert_eq!(result.stdout, format!("{hosts}cofferdam\nshared\n1\n"), "{result:?}");
    let full = "head -c 200000000 /dev/zero >/dev/shm/full; wc -c </dev/shm/full; : >/dev/shm/full";
    let filled = inside.run.ran(calls::shell(full)).await;
    assert!(filled.stdout.trim().parse::<u64>().unwrap() <= 64 << 20, "{filled:?}");
}

#[tokio::test]
async fn v1_a_command_inherits_nothing_and_has_no_network() {
    let (_daemon, mut inside) = enter().await;
    let result = inside.run.ran(calls::shell("ls /proc/self/fd; cat /proc/net/dev | tail -n +3")).await;
    let seen: Vec<&str> = result.stdout.lines().map(str::trim).collect();
    // The fourth is the directory that `ls` reads.
    assert_eq!(&seen[..4], ["0", "1", "2", "3"], "{seen:?}");
    assert!(seen[4..].iter().all(|line| line.starts_with("lo:")), "{seen:?}");
    let found = outcomes(&inside.probe(&["connect", "tcp:192.0.2.1:80", "udp:192.0.2.1:53"]).await);
    assert!(!found.is_empty() && found.iter().all(|(_, errno)| *errno != 0), "{found:?}");
    let script = "echo x > /x; echo x > /usr/x; echo x > /etc/passwd; ls /x /usr/x";
    assert_ne!(
        inside
            .exec(v1::ExecRequest {
                command: "sh".to_owned(),
                args: vec!["-c".to_owned(), script.to_owned()],
                ..exec(&[])
            })
            .await
            .exit_code,
        Some(0)
    );
}
