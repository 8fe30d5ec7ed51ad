//! C5: what the table of mounts tells a run about the host.
//!
//! The kernel shows the path of each bind from the root of its file system. That cannot be avoided, and is all that there is to see.

use harness::v1::run::StartKind;
use harness::{Daemon, RunHandle, Setup, requests};

use crate::inside::{PROFILES, lenient};

/// A line of `/proc/self/mountinfo`.
#[derive(Debug)]
struct Line {
    /// What of the file system is mounted.
    root: String,
    at: String,
    /// Type, source and options.
    rest: String,
}

async fn table(run: &mut RunHandle) -> Vec<Line> {
    let shown = run.exec(&["cat", "/proc/self/mountinfo"]).await;
    assert_eq!((shown.exit_code, shown.stdout_omitted_bytes), (Some(0), 0));
    let line = |line: &str| {
        let (mount, rest) = line.split_once(" - ").unwrap();
        let fields: Vec<_> = mount.split(' ').collect();
        Line { root: fields[3].to_owned(), at: fields[4].to_owned(), rest: rest.to_owned() }
    };
    shown.stdout.lines().map(line).collect()
}

/// Where lines name something below the daemon's own directory, and which part of it.
async fn told(daemon: &Daemon, mut run: RunHandle) -> Vec<(String, String)> {
    let lines = table(&mut run).await;
    for at in ["/", "/workspace", "/state", "/.cofferdam/guest"] {
        assert!(lines.iter().any(|line| line.at == at), "{at}: {lines:?}");
    }
    let own = daemon.outside().file_name().unwrap().to_str().unwrap();
    let mut told = Vec::new();
    for line in lines {
        assert!(!line.rest.contains(own) && !line.at.contains(own), "only roots do: {line:?}");
        if let Some((_, below)) = line.root.split_once(own) {
            // Names of files that every run gets have their digest at the end.
            let below = match below.rsplit_once('-') {
                Some((name, _)) if below.starts_with("/state/bin/") => name.to_owned(),
                _ => below.replace(run.id(), "RUN"),
            };
            told.push((line.at, below));
        }
    }
    told.sort();
    told
}

/// What every run's table says, and of what its workspace is.
fn expected(workspace: Option<&str>) -> Vec<(String, String)> {
    let every = [
        ("/.cofferdam/guest", "/state/bin/coffer-guest"),
        ("/etc/group", "/state/bin/group"),
        ("/etc/hostname", "/state/bin/hostname"),
        ("/etc/hosts", "/state/bin/hosts"),
        ("/etc/passwd", "/state/bin/passwd"),
        ("/etc/resolv.conf", "/state/bin/resolv.conf"),
        ("/state", "/state/runs/RUN"),
        ("/state/logs", "/state/logs/RUN"),
    ];
    let all = every.into_iter().chain(workspace.map(|path| ("/workspace", path)));
    all.map(|(at, below)| (at.to_owned(), below.to_owned())).collect()
}

/// An overlay's layers are named by descriptors of the process that has mounted it.
fn hides_layers(line: &Line) -> bool {
    let options = line.rest.split([',', ' ']).filter_map(|option| option.split_once('='));
    let mut layers = options.filter(|(name, _)| ["lowerdir", "upperdir", "workdir"].contains(name));
    line.rest.starts_with("overlay cofferdam ") && layers.all(|(_, path)| path.starts_with("/proc/self/fd/"))
}

#[tokio::test(flavor = "multi_thread")]
async fn c5_the_mount_table_names_only_the_mounted_directories_of_the_host() {
    let daemon = lenient().await;
    for profile in PROFILES {
        let profile = profile.name;
        let bound = daemon.workspace("project", &[]);
        let run = daemon.run_on(requests::bind(profile, &bound)).await;
        assert_eq!(told(&daemon, run).await, expected(Some("/roots/project")));

        let managed = told(&daemon, daemon.run_on(requests::managed(profile)).await).await;
        assert_eq!(managed, expected(Some("/state/workspaces/RUN")));

        let repository = daemon.repository(&format!("of-{profile}"), &[("a.txt", "one\n")]);
        let cloned = told(&daemon, daemon.run_on(requests::clone(profile, &repository)).await).await;
        assert_eq!(cloned, managed);

        let beneath = daemon.workspace("beneath", &[]);
        let mut run = daemon.run_on(requests::overlay(profile, &beneath)).await;
        let lines = table(&mut run).await;
        let mount = lines.iter().find(|line| line.at == "/workspace").unwrap();
        assert!(mount.root == "/" && hides_layers(mount), "{mount:?}");
        assert_eq!(told(&daemon, run).await, expected(None));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c5_the_table_of_a_warm_run_names_its_slots_besides() {
    let config = "pool: [{ profile: open, min: 1, max: 1 }]\n".to_owned();
    let daemon = Daemon::start_with(Setup { config, ..Setup::default() }).await;
    daemon.pool_is_full(1).await;
    let run = daemon.run_on(requests::bind("open", &daemon.workspace("project", &[]))).await;
    assert_eq!(run.run.start_kind(), StartKind::Warm);
    let named = |(at, below): (String, String)| match below.strip_prefix("/state/mounts/") {
        Some(slot) => (at, format!("/state/mounts/WARM/{}", slot.split_once('/').unwrap().1)),
        None => (at, below),
    };
    let mut told: Vec<_> = told(&daemon, run).await.into_iter().map(named).collect();
    told.sort();
    let slots = ["state", "workspace"].map(|name| (format!("/{name}"), format!("/state/mounts/WARM/{name}")));
    let mut all: Vec<_> = expected(Some("/roots/project")).into_iter().chain(slots).collect();
    all.sort();
    assert_eq!(told, all);
}
