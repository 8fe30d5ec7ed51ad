//! C5: files, hosts and facts that commands in a run can write, reach and see.

use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

use harness::{Daemon, v1};
use libc::{ECONNREFUSED, ENOENT};

use crate::attempts;
use crate::inside::{Inside, both, both_on, every, lenient, outcomes};

#[tokio::test]
async fn c5_only_places_of_the_run_are_writable() {
    let daemon = lenient().await;
    let package = daemon.workspace("package", &[("lib.rs", "")]);
    let request = v1::CreateRunRequest { pkg_path: package.display().to_string(), ..Default::default() };
    let (_daemon, runs) = both_on(daemon, request).await;
    for mut inside in runs {
        let writable = inside.probe(&["writable"]).await;
        let top = |path: &str| path.split('/').nth(1).unwrap().to_owned();
        let layer = inside.profile().layer;
        // The probe itself cannot be opened for writing while it runs.
        let (mut changed, mut own): (Vec<_>, Vec<_>) =
            writable.into_iter().partition(|path| layer.contains(&&*top(path)));
        own.sort();
        assert_eq!(own, ["/dev/shm", "/state", "/tmp", "/workspace"]);
        // What the engine and the daemon put into the image's directories is not the run's.
        let theirs = ["/etc/passwd", "/etc/group", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf"];
        changed.retain(|path| theirs.contains(&&**path));
        assert_eq!(changed, [""; 0]);
        assert_eq!(inside.probe(&["list", "/pkg"]).await, ["/pkg lib.rs"]);
    }
}

#[tokio::test]
async fn c5_a_read_only_workspace_cannot_be_written_by_commands() {
    let open = include_str!("../../crates/policy/policies/open.yaml");
    let policy = open.replace("workspace: read-write", "workspace: read-only");
    assert_ne!(policy, open);
    let roles = include_str!("../../crates/policy/policies/roles.yaml").to_owned();
    let setup =
        harness::Setup { policy: vec![("open.yaml", policy), ("roles.yaml", roles)], ..Default::default() };
    let daemon = Daemon::start_with(setup).await;
    let mut inside = Inside::enter(&daemon, "w").await;
    let mut writable = inside.probe(&["writable"]).await;
    writable.sort();
    assert_eq!(writable, ["/dev/shm", "/state", "/tmp"]);
}

#[tokio::test]
async fn c5_container_has_no_devices_sockets_or_set_id_files() {
    let (_daemon, runs) = every().await;
    for mut inside in runs {
        attempts::no_special_file(&mut inside).await;
    }
}

#[tokio::test]
async fn c5_no_network_is_reachable() {
    let (_daemon, runs) = every().await;
    for mut inside in runs {
        attempts::no_network(&mut inside).await;
    }
}

#[tokio::test]
async fn c5_the_host_s_unix_sockets_are_out_of_reach() {
    let (daemon, runs) = both(v1::CreateRunRequest::default()).await;
    for mut inside in runs {
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
        std::os::unix::net::UnixStream::connect_addr(&SocketAddr::from_abstract_name(&name).unwrap())
            .unwrap();
    }
}

#[tokio::test]
async fn c5_the_host_s_processes_and_particulars_are_out_of_sight() {
    let (_daemon, runs) = every().await;
    for mut inside in runs {
        attempts::no_particulars(&mut inside).await;
    }
}

#[tokio::test]
async fn c5_the_environment_is_the_run_s_own() {
    let (_daemon, runs) = both(v1::CreateRunRequest::default()).await;
    for mut inside in runs {
        let environment = inside.probe(&["environment"]).await;
        let path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        assert_eq!(
            environment,
            [
                "GIT_AUTHOR_EMAIL=agent@cofferdam.invalid",
                "GIT_AUTHOR_NAME=Cofferdam agent",
                "GIT_COMMITTER_EMAIL=agent@cofferdam.invalid",
                "GIT_COMMITTER_NAME=Cofferdam agent",
                &*format!("HOME={}", inside.profile().home),
                "LANG=C.UTF-8",
                path,
                "TERM=dumb"
            ]
        );
    }
}
