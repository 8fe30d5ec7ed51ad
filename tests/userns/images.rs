//! An image that is copied from the engine of the other tests to this one.

use std::process::{Command, Output, Stdio};

use harness::{Daemon, binary, docker};

fn coffer(daemon: &Daemon, line: &[&str]) -> Output {
    let mut coffer = Command::new(binary("coffer"));
    coffer.env("COFFERDAM_ENDPOINT", format!("unix:{}", daemon.socket().display()));
    coffer.args(line).stdin(Stdio::null()).output().unwrap()
}

fn out(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Removes the image from both engines.
struct OnBoth(String);

impl Drop for OnBoth {
    fn drop(&mut self) {
        for mut docker in [Command::new("docker"), docker()] {
            let _ = docker.args(["rmi", "-f", &self.0]).output();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_pushed_to_another_engine_and_a_second_push_finds_it() {
    // Of the first engine, as long as this process has not chosen the other one.
    let source = Daemon::start().await;
    let image = OnBoth(format!("cofferdam-test/pushed:{}", std::process::id()));
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("Dockerfile"), "FROM scratch\nCOPY file /d/file\n").unwrap();
    std::fs::write(place.path().join("file"), "content\n").unwrap();
    let directory = place.path().display().to_string();
    let id = out(&coffer(&source, &["image", "build", &directory, &image.0]));
    let target = crate::daemon().await;
    let there = format!("unix:{}", target.socket().display());
    let has = || docker().args(["image", "inspect", &image.0]).output().unwrap().status.success();
    assert!(!has(), "the engines share their images");
    let pushed = out(&coffer(&source, &["image", "push", &image.0, &there]));
    assert_eq!(pushed, format!("{there} pushed {id}"));
    assert!(has());
    let listed = out(&coffer(&target, &["image", "list"]));
    assert!(listed.contains(&image.0), "{listed}");
    let again = out(&coffer(&source, &["image", "push", &image.0, &there]));
    assert_eq!(again, format!("{there} present {id}"));
}
