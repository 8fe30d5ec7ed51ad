//! Other images than the default one: any works, because the agent is mounted in.

use std::io::Write as _;
use std::process::{Command, Stdio};

use harness::v1::{CreateRunRequest, call_response::Result as Answer};
use harness::{Daemon, calls, reason, requests};

/// An image of the engine's; removed with the value.
struct Image(String);

impl Image {
    /// Imports an image that holds one text file and nothing else.
    fn import(name: &str, changes: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("motd"), "an image with nothing in it\n").unwrap();
        let tar = Command::new("tar").arg("-C").arg(directory.path()).args(["-c", "motd"]).output().unwrap();
        assert!(tar.status.success());
        let reference = format!("cofferdam-test/{name}:{}", std::process::id());
        let mut import = Command::new("docker")
            .arg("import")
            .args(changes.iter().flat_map(|change| ["--change", change]))
            .args(["-", &reference])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        import.stdin.take().unwrap().write_all(&tar.stdout).unwrap();
        assert!(import.wait().unwrap().success());
        Self(reference)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = Command::new("docker").args(["rmi", "-f", &self.0]).output();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_works_in_an_image_that_holds_no_program_at_all() {
    let image = Image::import("empty", &[]);
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\ntwo\n")]);
    let request = CreateRunRequest { image: image.0.clone(), ..requests::bind("open", &workspace) };
    let mut run = daemon.run_with(request).await.unwrap();
    assert_eq!(run.run.image, image.0);

    let Answer::Read(read) = run.ok(calls::read("a.txt")).await else { panic!("not a read") };
    assert_eq!(read.content, "one\ntwo\n");
    let Answer::Grep(grep) = run.ok(calls::grep("@project", "two")).await else { panic!("not a grep") };
    assert_eq!(grep.matches.len(), 1);
    run.ok(calls::write("b.txt", "three\n")).await;
    let failure = run.fails(calls::exec(&["true"])).await;
    assert_eq!(failure.reason, "NOT_FOUND", "{}", failure.message);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_declares_volumes_is_refused() {
    let image = Image::import("volumes", &["VOLUME /data"]);
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let request = CreateRunRequest { image: image.0.clone(), ..requests::bind("open", &workspace) };
    let status = daemon.run_with(request).await.err().unwrap();
    assert_eq!(reason(&status), "INVALID_ARGUMENT");
    assert!(status.message().contains("/data"), "{}", status.message());
    assert_eq!(daemon.leftovers(), Vec::<String>::new());
}
