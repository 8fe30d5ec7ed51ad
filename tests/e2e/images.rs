//! Other images than the default one: any works, because the agent is mounted in.

use harness::v1::{CreateRunRequest, call_response::Result as Answer};
use harness::{Daemon, Image, calls, reason, requests};

const FILE: (&str, &str) = ("motd", "an image with nothing in it\n");

#[tokio::test(flavor = "multi_thread")]
async fn a_run_works_in_an_image_that_holds_no_program_at_all() {
    let image = Image::of_files("empty", &[FILE], &[]);
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
    let image = Image::of_files("volumes", &[FILE], &["VOLUME /data"]);
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let request = CreateRunRequest { image: image.0.clone(), ..requests::bind("open", &workspace) };
    let status = daemon.run_with(request).await.err().unwrap();
    assert_eq!(reason(&status), "INVALID_ARGUMENT");
    assert!(status.message().contains("/data"), "{}", status.message());
    assert_eq!(daemon.leftovers(), Vec::<String>::new());
}
