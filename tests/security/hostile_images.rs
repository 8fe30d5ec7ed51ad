//! C7: images that are made to hang the engine, to hide a mount or to be taken for something else. Each is a run, or a refusal that
//! says why, soon, and no other client waits for it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use harness::v1::CreateRunRequest;
use harness::{Clients, Daemon, Image, calls, reason, requests, v1};

/// For an image to be a run or refused. The engine's own answer would take for ever.
const SOON: Duration = Duration::from_secs(30);

/// A file of the image at one path.
#[derive(Debug, Clone, Copy)]
enum Has {
    Fifo,
    Device,
    File,
    Directory,
    Link(&'static str),
    LinkToFifo,
}
use Has::{Device, Directory, Fifo, File, Link, LinkToFifo};

/// The outcome of CreateRun.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Becomes {
    Ready,
    Unusable,
    /// It depends on the engine.
    Either,
}
use Becomes::{Either, Ready, Unusable};

const PATHS: &[(&str, Has, Becomes)] = &[
    ("etc/passwd", Fifo, Unusable),
    ("etc/passwd", Device, Unusable),
    ("etc/passwd", Directory, Unusable),
    ("etc/passwd", LinkToFifo, Unusable),
    ("etc/passwd", Link("passwd"), Unusable),
    ("etc/passwd", Link("/proc/self/environ"), Unusable),
    ("etc/passwd", Link("/workspace/passwd"), Unusable),
    ("etc/passwd", Link("../accounts/passwd"), Ready),
    ("etc/group", Fifo, Unusable),
    ("etc/group", Device, Unusable),
    ("etc/group", Directory, Unusable),
    ("etc/group", LinkToFifo, Unusable),
    ("etc/hosts", Fifo, Either),
    ("etc/hosts", Directory, Either),
    ("etc/hosts", Link("/proc/1/environ"), Either),
    ("etc/hostname", Device, Either),
    ("etc/resolv.conf", Fifo, Either),
    ("etc/resolv.conf", Link("../run/resolv.conf"), Ready),
    ("etc", File, Either),
    ("etc", Link("/workspace"), Either),
    ("proc", File, Either),
    ("proc", Link("/workspace"), Either),
    ("sys", Fifo, Either),
    ("dev", Link("/state"), Either),
    ("tmp", File, Unusable),
    ("tmp", Link("/workspace"), Unusable),
    ("workspace", File, Unusable),
    ("workspace", Fifo, Unusable),
    ("workspace", Link("/etc"), Unusable),
    ("workspace", Link("/proc"), Unusable),
    ("state", File, Unusable),
    ("state", Link("/workspace"), Unusable),
    ("pkg", Device, Unusable),
    (".cofferdam", File, Unusable),
    (".cofferdam", Link("/workspace"), Unusable),
    (".cofferdam", Fifo, Unusable),
    (".cofferdam/guest", Directory, Unusable),
    (".cofferdam/guest", Fifo, Unusable),
    (".cofferdam/ca-bundle.pem", Directory, Unusable),
    (".cofferdam/ca-bundle.pem", LinkToFifo, Unusable),
    ("etc/ssl/cert.pem", Fifo, Ready),
    ("etc/pki", Link("/workspace"), Ready),
    ("home", LinkToFifo, Either),
    ("home", File, Either),
    ("root", Link("/workspace"), Either),
    ("run", Link("/proc"), Ready),
];

/// Settings of an image that reach the engine's hand, none of which a run has.
const SETTINGS: &[&str] = &[
    "USER root:root",
    "USER no-such-user",
    "WORKDIR /etc/passwd",
    "WORKDIR /../../..",
    "ENTRYPOINT [\"/bin/sh\", \"-c\", \"sleep 1000\"]",
    "CMD [\"/no/such\"]",
    "ENV LD_PRELOAD=/workspace/x.so",
    "ENV PATH=/workspace",
    "HEALTHCHECK --interval=1s CMD /bin/sh",
    "EXPOSE 1-1024",
    "LABEL io.cofferdam.instance=x io.cofferdam.run=y io.cofferdam.spec=z",
    "ONBUILD RUN x",
];

fn make(root: &Path, path: &str, has: Has) {
    let at = root.join(path);
    fs::create_dir_all(at.parent().unwrap()).unwrap();
    fs::write(root.join("motd"), "x").unwrap();
    let node = |at: &Path, kind: &[&str]| {
        assert!(Command::new("mknod").arg(at).args(kind).status().unwrap().success());
    };
    match has {
        Fifo => node(&at, &["p"]),
        // `/dev/full`: it never ends and never waits.
        Device => node(&at, &["c", "1", "7"]),
        File => fs::write(&at, "x").unwrap(),
        Directory => fs::create_dir(&at).unwrap(),
        Link(target) => symlink(target, &at).unwrap(),
        LinkToFifo => {
            symlink("/fifo", &at).unwrap();
            node(&root.join("fifo"), &["p"]);
        }
    }
}

/// A run of the image, and what is said of it.
async fn becomes(daemon: &Daemon, profile: &str, image: &Image, case: &str) -> Becomes {
    let began = Instant::now();
    let request = CreateRunRequest { image: image.0.clone(), ..requests::managed(profile) };
    let made = daemon.run_with(request).await;
    assert!(began.elapsed() < SOON, "{case}: {:?}", began.elapsed());
    match made {
        Ok(mut run) => {
            run.ok(calls::write("a.txt", "x")).await;
            run.stop().await;
            run.delete().await;
            Ready
        }
        Err(status) => {
            assert_eq!(reason(&status), "IMAGE_UNUSABLE", "{case}: {status}");
            assert!(!status.message().contains("/var/lib"), "{case}: {status}");
            Unusable
        }
    }
}

/// Times the starts of another client's runs, five at least.
async fn cold_starts(mut clients: Clients, is_over: impl AsyncFn() -> bool) -> Vec<Duration> {
    let mut took = Vec::new();
    while took.len() < 5 || !is_over().await {
        let began = Instant::now();
        let run = clients.runs.create_run(requests::managed("open")).await.unwrap().into_inner().run.unwrap();
        took.push(began.elapsed());
        let run_id = run.run_id;
        clients.runs.stop_run(v1::StopRunRequest { run_id: run_id.clone() }).await.unwrap();
        clients.runs.delete_run(v1::DeleteRunRequest { run_id, delete_workspace: true }).await.unwrap();
    }
    took
}

fn median(mut took: Vec<Duration>) -> Duration {
    took.sort_unstable();
    took[took.len() / 2]
}

#[tokio::test(flavor = "multi_thread")]
async fn c7_unexpected_file_types_of_an_image_delay_nothing() {
    let daemon = Daemon::start().await;
    let before = median(cold_starts(daemon.connect().await, async || true).await);
    let hostile_is_over = Arc::new(AtomicBool::new(false));
    let (clients, is_over) = (daemon.connect().await, hostile_is_over.clone());
    let meanwhile = tokio::spawn(cold_starts(clients, async move || is_over.load(Ordering::SeqCst)));
    for (number, &(path, has, expected)) in PATHS.iter().enumerate() {
        let case = format!("{path}: {has:?}");
        let image = Image::of_tree(&format!("hostile-{number}"), |root| make(root, path, has), &[]);
        for profile in ["open", "harness"] {
            let found = becomes(&daemon, profile, &image, &format!("{profile}, {case}")).await;
            assert!(expected == Either || found == expected, "{profile}, {case}: {found:?}");
        }
    }
    hostile_is_over.store(true, Ordering::SeqCst);
    let meanwhile = median(meanwhile.await.unwrap());
    // 1.3 times on an idle host. The images are made meanwhile, too.
    assert!(meanwhile < 5 * before, "another client's start took {before:?}, and {meanwhile:?} meanwhile");
    assert_eq!(daemon.leftovers(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn c7_settings_of_an_image_do_not_apply_to_its_run() {
    let daemon = Daemon::start().await;
    for (number, setting) in SETTINGS.iter().enumerate() {
        let image =
            Image::of_tree(&format!("settings-{number}"), |root| make(root, "etc/passwd", File), &[setting]);
        assert_eq!(becomes(&daemon, "open", &image, setting).await, Ready, "{setting}");
    }
    assert_eq!(daemon.leftovers(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn c7_an_image_of_a_hundred_thousand_files_is_a_run_as_any_other() {
    let daemon = Daemon::start().await;
    let many = |root: &Path| {
        for directory in 0..100 {
            let directory = root.join(format!("many/{directory}"));
            fs::create_dir_all(&directory).unwrap();
            for file in 0..1_000 {
                fs::write(directory.join(file.to_string()), "").unwrap();
            }
        }
    };
    let image = Image::of_tree("hostile-many-files", many, &[]);
    for profile in ["open", "harness"] {
        assert_eq!(becomes(&daemon, profile, &image, "100,000 files").await, Ready, "{profile}");
    }
    assert_eq!(daemon.leftovers(), Vec::<String>::new());
}
