//! C5: what can be written, reached and seen from inside of a run.

use std::io::ErrorKind;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::Command;

use harness::{Daemon, v1};
use libc::{EACCES, ECONNREFUSED, ENETUNREACH, ENOENT};

use crate::inside::{Inside, every, outcomes};

#[tokio::test]
async fn c5_nothing_can_be_written_but_the_run_s_own_places() {
    let daemon = Daemon::start().await;
    let package = daemon.workspace("package", &[("lib.rs", "")]);
    let request = v1::CreateRunRequest { pkg_path: package.display().to_string(), ..Default::default() };
    let mut inside = Inside::enter_with(&daemon, "w", request).await;
    let mut writable = inside.probe(&["writable"]).await;
    writable.sort();
    // The probe itself cannot be opened for writing while it runs.
    assert_eq!(writable, ["/state", "/tmp", "/workspace"]);
    assert_eq!(inside.probe(&["list", "/pkg"]).await, ["/pkg lib.rs"]);
}

#[tokio::test]
async fn c5_a_read_only_workspace_cannot_be_written_by_commands() {
    let open = include_str!("../../crates/gateway/policies/open.yaml");
    let policy = open.replace("workspace: read-write", "workspace: read-only");
    assert_ne!(policy, open);
    let roles = include_str!("../../crates/gateway/policies/roles.yaml").to_owned();
    let setup =
        harness::Setup { policy: vec![("open.yaml", policy), ("roles.yaml", roles)], ..Default::default() };
    let daemon = Daemon::start_with(setup).await;
    let mut inside = Inside::enter(&daemon, "w").await;
    let mut writable = inside.probe(&["writable"]).await;
    writable.sort();
    assert_eq!(writable, ["/state", "/tmp"]);
}

#[tokio::test]
async fn c5_there_are_no_devices_sockets_or_set_id_files() {
    let (_daemon, runs) = every().await;
    for mut inside in runs {
        let mut found = inside.probe(&["special-files"]).await;
        // What covers the kernel's files is the null device.
        found.retain(|line| !line.starts_with("character /proc/") && !line.starts_with("character /sys/"));
        found.sort();
        let harmless = ["full", "null", "pts/ptmx", "random", "tty", "urandom", "zero"];
        assert_eq!(found, harmless.map(|name| format!("character /dev/{name}")));
    }
}

/// Addresses of this host, so that a way to any of them would be found.
fn host_addresses() -> Vec<String> {
    let output = Command::new("hostname").arg("--all-ip-addresses").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let addresses: Vec<String> =
        text.split_whitespace().filter(|address| !address.contains(':')).map(Into::into).collect();
    assert!(!addresses.is_empty(), "the host has the engine's bridge at least");
    addresses
}

#[tokio::test]
async fn c5_no_network_is_reachable() {
    let (_daemon, runs) = every().await;
    for mut inside in runs {
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let receiver = UdpSocket::bind("0.0.0.0:0").unwrap();
        let (tcp, udp) = (listener.local_addr().unwrap().port(), receiver.local_addr().unwrap().port());

        let mut targets: Vec<String> = Vec::new();
        for address in host_addresses() {
            targets.extend([format!("tcp:{address}:{tcp}"), format!("udp:{address}:{udp}")]);
        }
        for outside in [
            "169.254.169.254:80",
            "172.17.0.1:2375",
            "1.1.1.1:53",
            "10.0.0.1:443",
            "192.168.0.1:22",
            "224.0.0.1:5353",
        ] {
            targets.extend([format!("tcp:{outside}"), format!("udp:{outside}")]);
        }
        for outside in ["[fd00:ec2::254]:80", "[2606:4700:4700::1111]:53"] {
            targets.push(format!("tcp:{outside}"));
        }
        let unreachable = targets.len();
        targets.push(format!("tcp:127.0.0.1:{tcp}"));

        let words: Vec<&str> = std::iter::once("connect").chain(targets.iter().map(String::as_str)).collect();
        let found = outcomes(&inside.probe(&words).await);
        assert_eq!(found.len(), targets.len());
        let reached: Vec<_> = found[..unreachable]
            .iter()
            .filter(|(_, errno)| ![ENETUNREACH, libc::EADDRNOTAVAIL].contains(errno))
            .collect();
        assert!(reached.is_empty(), "{reached:?}");
        // The loopback is the run's own.
        assert_eq!(found[unreachable].1, ECONNREFUSED);

        listener.set_nonblocking(true).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        receiver.set_nonblocking(true).unwrap();
        assert_eq!(receiver.recv(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);

        let devices = inside.probe(&["read", "/proc/net/dev"]).await.join("");
        let names: Vec<&str> =
            devices.split("\\n").filter_map(|line| Some(line.split_once(':')?.0.trim())).collect();
        assert_eq!(names, ["lo"]);
    }
}

#[tokio::test]
async fn c5_the_host_s_unix_sockets_are_out_of_reach() {
    let daemon = Daemon::start().await;
    let mut inside = Inside::enter(&daemon, "w").await;
    let name = format!("cofferdam-test-{}", std::process::id());
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let targets = [
        ("unix:/var/run/docker.sock".to_owned(), ENOENT),
        ("unix:/run/docker.sock".to_owned(), ENOENT),
        ("unix:/run/containerd/containerd.sock".to_owned(), ENOENT),
        ("unix:/run/cofferdam/cofferd.sock".to_owned(), ENOENT),
        (format!("unix:{}", daemon.socket().display()), ENOENT),
        (format!("abstract:{name}"), ECONNREFUSED),
        ("abstract:/containerd-shim".to_owned(), ECONNREFUSED),
    ];
    let words: Vec<&str> =
        std::iter::once("connect").chain(targets.iter().map(|(target, _)| target.as_str())).collect();
    assert_eq!(outcomes(&inside.probe(&words).await), targets);
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    // As everybody can on the host, so that the refusals above mean something.
    std::os::unix::net::UnixStream::connect_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
}

#[tokio::test]
async fn c5_the_host_s_processes_and_particulars_are_out_of_sight() {
    let (_daemon, runs) = every().await;
    for mut inside in runs {
        let lines = inside.probe(&["processes"]).await;
        let mut lines: Vec<&str> = lines.iter().map(|line| line.split_once(' ').unwrap().1).collect();
        lines.sort_unstable();
        // A copy of the agent may wait for the next command.
        lines.dedup();
        assert_eq!(
            lines,
            ["/.cofferdam/guest hold", "/.cofferdam/guest serve", "/workspace/probe processes"]
        );

        let hidden = [
            "/proc/kcore",
            "/proc/keys",
            "/proc/key-users",
            "/proc/kallsyms",
            "/proc/modules",
            "/proc/cmdline",
            "/proc/timer_list",
            "/proc/sched_debug",
            "/proc/interrupts",
            "/proc/sysrq-trigger",
            "/proc/kmsg",
            "/proc/partitions",
        ];
        let words: Vec<&str> = std::iter::once("read").chain(hidden).collect();
        for line in inside.probe(&words).await {
            // Covered by something empty, or not in this kernel.
            assert!(line.ends_with(" \"\"") || line.ends_with(&format!(" {ENOENT}")), "{line}");
        }
        let hostname = inside.probe(&["read", "/proc/sys/kernel/hostname"]).await;
        assert_eq!(hostname, ["/proc/sys/kernel/hostname \"cofferdam\\n\""]);
        let agent = inside.probe(&["read", "/.cofferdam/guest"]).await;
        assert_eq!(agent, [format!("/.cofferdam/guest {EACCES}")]);

        // The host's directories show in no mount table of the run's.
        let mounts = inside
            .probe(&["read", "/proc/self/mountinfo", "/proc/self/cgroup", "/proc/self/environ"])
            .await
            .join("");
        for word in ["docker.sock", "overlay2/diff"] {
            assert!(!mounts.contains(word), "{word} in {mounts}");
        }
    }
}

#[tokio::test]
async fn c5_the_environment_is_the_run_s_own() {
    let daemon = Daemon::start().await;
    let mut inside = Inside::enter(&daemon, "w").await;
    let environment = inside.probe(&["environment"]).await;
    let path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    assert_eq!(
        environment,
        [
            "GIT_AUTHOR_EMAIL=agent@cofferdam.invalid",
            "GIT_AUTHOR_NAME=Cofferdam agent",
            "GIT_COMMITTER_EMAIL=agent@cofferdam.invalid",
            "GIT_COMMITTER_NAME=Cofferdam agent",
            "HOME=/tmp",
            "LANG=C.UTF-8",
            path,
            "TERM=dumb"
        ]
    );
}
