//! The default image is made of the host's busybox. Where there is no usable one, the daemon serves the runs that name
//! an image, and says to everybody else what to install or to name.

use std::path::{Path, PathBuf};
use std::process::Command;

use harness::v1::{CreateRunRequest, ListRunsRequest};
use harness::{Daemon, Image, Setup, binary, calls, reason, record, requests};
use serde_json::Value;

/// Of Debian's package busybox-static.
const BUSYBOX: &str = "/bin/busybox";

fn digest(file: &Path) -> String {
    let said = Command::new("sha256sum").arg(file).output().unwrap();
    format!("sha256:{}", String::from_utf8(said.stdout).unwrap().split(' ').next().unwrap())
}

/// A daemon whose default image is to be made of this.
async fn daemon_with(busybox: &Path) -> Daemon {
    let config = format!("default_image: {{ busybox: {} }}\n", busybox.display());
    Daemon::start_with(Setup { config, ..Default::default() }).await
}

/// Details of the newest start on record.
async fn started(daemon: &Daemon) -> Value {
    let starts = daemon.connect().await.events("", "daemon_started").await;
    record(starts.last().unwrap())["details"].clone()
}

/// Images that say that they are made of this file.
fn images_of(file: &Path) -> String {
    let filter = format!("label=io.cofferdam.busybox={}", digest(file));
    let listed = Command::new("docker")
        .args(["image", "ls", "--all", "--quiet", "--filter", &filter])
        .output()
        .unwrap();
    assert!(listed.status.success(), "{listed:?}");
    String::from_utf8(listed.stdout).unwrap()
}

fn label(image: &str, name: &str) -> String {
    let format = format!("{{{{index .Config.Labels {name:?}}}}}");
    let said =
        Command::new("docker").args(["image", "inspect", "--format", &format, image]).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    String::from_utf8(said.stdout).unwrap().trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn default_image_source_is_recorded() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("open")).await;
    let wanted = digest(Path::new(BUSYBOX));
    let start = started(&daemon).await;
    assert_eq!(
        (&start["busybox"], &start["default_image"]),
        (&wanted.as_str().into(), &run.run.image_id.as_str().into())
    );
    assert_eq!(label(&run.run.image_id, "io.cofferdam.busybox"), wanted);
    assert_ne!(images_of(Path::new(BUSYBOX)), "");
    assert!(run.run.hardening.iter().any(|fact| fact.name == "busybox" && fact.value == wanted));
    assert!(daemon.log().contains(&wanted), "{}", daemon.log());
    let doctor = Command::new(binary("coffer"))
        .arg("doctor")
        .env("COFFERDAM_ENDPOINT", format!("unix:{}", daemon.socket().display()))
        .output()
        .unwrap();
    assert!(
        String::from_utf8_lossy(&doctor.stdout).contains(&format!("made of busybox {wanted}")),
        "{doctor:?}"
    );

    // Everything that busybox lists is there by its name, and the run's user has one.
    let listed = Command::new(BUSYBOX).arg("--list").output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert_eq!(run.exec(&["busybox", "--list"]).await.stdout, listed);
    let mut names: Vec<_> = listed.lines().collect();
    names.sort_unstable();
    assert_eq!(run.exec(&["ls", "-A", "/bin"]).await.stdout.lines().collect::<Vec<_>>(), names);
    assert_eq!(run.exec(&["id", "-un"]).await.stdout, "agent\n");
    assert_eq!(run.exec(&["/usr/bin/env", "echo", "x"]).await.stdout, "x\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_busybox_makes_another_image() {
    let daemon = Daemon::start().await;
    let usual = started(&daemon).await;
    let other = daemon.outside().join("busybox");
    std::fs::copy(BUSYBOX, &other).unwrap();
    std::fs::write(&other, [std::fs::read(BUSYBOX).unwrap(), daemon.pid().to_ne_bytes().to_vec()].concat())
        .unwrap();
    let daemon = daemon_with(&other).await;
    let mut run = daemon.run_on(requests::managed("open")).await;
    let unusual = started(&daemon).await;
    assert_ne!(unusual["default_image"], usual["default_image"]);
    assert_eq!(unusual["busybox"], digest(&other));
    assert_eq!(run.exec(&["echo", "x"]).await.stdout, "x\n");
    run.stop().await;
    drop(daemon);
    let _ = Command::new("docker").args(["rmi", "-f", unusual["default_image"].as_str().unwrap()]).output();
}

/// What is at the path, and what has to be said of it.
fn unusable(directory: &Path) -> Vec<(PathBuf, &'static str)> {
    let path = |name: &str| directory.join(name);
    let mut other = std::fs::read(BUSYBOX).unwrap();
    // One name in the middle of its table is another one: the table is broken in two, and has no `busybox` in it.
    while let Some(at) = other.windows(9).position(|window| window == b"\0busybox\0") {
        other[at + 1] = b'0';
    }
    std::fs::write(path("other"), other).unwrap();
    std::fs::write(path("script"), "#!/bin/sh\nexec true\n").unwrap();
    std::fs::create_dir(path("directory")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, path("fifo"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
        .unwrap();
    std::fs::File::create(path("large")).unwrap().set_len(1 << 40).unwrap();
    std::os::unix::fs::symlink("loop", path("loop")).unwrap();
    vec![
        (path("none"), "there is no such file"),
        ("/bin/ls".into(), "it is dynamically linked"),
        (path("other"), "it is not busybox"),
        (path("script"), "program for Linux"),
        (path("directory"), "it is a directory, not a regular file"),
        (path("fifo"), "it is a FIFO, not a regular file"),
        (path("large"), "it is larger than 16 MiB"),
        (path("loop"), "it cannot be read"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_busybox_is_explained_and_leaves_nothing() {
    let image = Image::of_files("instead", &[("motd", "an image of one's own\n")], &[]);
    let directory = tempfile::tempdir().unwrap();
    for (busybox, why) in unusable(directory.path()) {
        let mut daemon = daemon_with(&busybox).await;
        let shown = busybox.display().to_string();

        // The operator: in the log, on record, by the doctor, and by the check of the configuration.
        let remedy = "install the package busybox-static, or set default_image.busybox";
        let coffer = ("COFFERDAM_ENDPOINT", format!("unix:{}", daemon.socket().display()));
        let doctor = Command::new(binary("coffer")).arg("doctor").env(coffer.0, coffer.1).output().unwrap();
        let check = Command::new(binary("cofferd"))
            .arg("--config")
            .arg(daemon.config_path())
            .arg("--check-config")
            .output()
            .unwrap();
        assert!(check.status.success(), "it is no error: {check:?}");
        let on_record = started(&daemon).await;
        for said in [
            daemon.log(),
            on_record["no_default_image"]
                .as_str()
                .unwrap_or_else(|| panic!("{shown}: {on_record}"))
                .to_owned(),
            String::from_utf8(doctor.stdout).unwrap(),
            String::from_utf8(check.stderr).unwrap(),
        ] {
            for part in ["No static busybox at ", &shown, why, remedy, "name an image in the profile"] {
                assert!(said.contains(part), "{part:?}: {said}");
            }
        }

        // Whoever asks for a run: without paths of the host.
        let status = daemon.run_with(requests::managed("open")).await.err().unwrap();
        let message = status.message();
        assert_eq!(reason(&status), "PRECONDITION_FAILED", "{message}");
        assert!(message.starts_with("image: "), "{message}");
        for part in [why, remedy, "or in the request"] {
            assert!(message.contains(part), "{part:?}: {message}");
        }
        assert!(!message.contains(&shown), "{message}");
        assert_eq!(daemon.leftovers(), Vec::<String>::new());
        if busybox.is_file() && std::fs::metadata(&busybox).unwrap().len() < 1 << 30 {
            assert_eq!(images_of(&busybox), "");
        }
        let listed = daemon.connect().await.runs.list_runs(ListRunsRequest::default()).await.unwrap();
        assert!(listed.into_inner().runs.is_empty(), "what is refused is no run");

        // Runs that name an image work.
        let request = CreateRunRequest { image: image.0.clone(), ..requests::managed("open") };
        let mut run = daemon.run_on(request).await;
        run.ok(calls::list("@project")).await;
        assert!(run.run.hardening.iter().all(|fact| fact.name != "busybox"));
        run.stop().await;
        daemon.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn once_the_busybox_is_there_runs_start_without_another_daemon() {
    let directory = tempfile::tempdir().unwrap();
    let busybox = directory.path().join("busybox");
    let daemon = daemon_with(&busybox).await;
    let status = daemon.run_with(requests::managed("open")).await.err().unwrap();
    assert_eq!(reason(&status), "PRECONDITION_FAILED");
    std::fs::copy(BUSYBOX, &busybox).unwrap();
    let mut run = daemon.run_on(requests::managed("open")).await;
    assert_eq!(run.exec(&["echo", "x"]).await.stdout, "x\n");
}

/// As `docker image prune --all` does when no run uses it.
#[tokio::test(flavor = "multi_thread")]
async fn a_default_image_that_the_engine_has_lost_is_imported_again() {
    let directory = tempfile::tempdir().unwrap();
    let busybox = directory.path().join("busybox");
    let own = [std::fs::read(BUSYBOX).unwrap(), std::process::id().to_ne_bytes().to_vec()].concat();
    std::fs::write(&busybox, own).unwrap();
    let daemon = daemon_with(&busybox).await;
    let made = started(&daemon).await["default_image"].as_str().unwrap().to_owned();
    let removed = Command::new("docker").args(["rmi", "-f", &made]).output().unwrap();
    assert!(removed.status.success(), "{removed:?}");
    let mut run = daemon.run_on(requests::managed("open")).await;
    assert_eq!(run.exec(&["echo", "x"]).await.stdout, "x\n");
    let again = run.run.image_id.clone();
    run.stop().await;
    drop(daemon);
    let _ = Command::new("docker").args(["rmi", "-f", &again]).output();
}

/// A profile that names one, which nobody has loaded: found out when a run is made.
#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_the_engine_does_not_have_is_named() {
    let policy = "profiles: { own: { image: \"example.org/none:1\", operations: { read: allow } } }\n\
                  roles: { director: { allow: [read] } }\n";
    let policy = vec![("own.yaml", policy.to_owned())];
    let daemon = Daemon::start_with(Setup { policy, ..Default::default() }).await;
    let status = daemon.run_with(requests::managed("own")).await.err().unwrap();
    assert_eq!(reason(&status), "IMAGE_MISSING");
    let message = status.message();
    assert!(
        message.contains(
            "the engine has no image example.org/none:1, and nothing is pulled: an operator imports it"
        ),
        "{message}"
    );
    assert_eq!(daemon.leftovers(), Vec::<String>::new());
}
