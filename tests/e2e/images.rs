//! Other images than the default one: any works, because the agent is mounted in.

use harness::v1::{CreateRunRequest, result::Kind as Answer};
use harness::{Daemon, Image, calls, debian, reason, requests};

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
    assert_eq!(reason(&status), "IMAGE_UNUSABLE");
    assert!(status.message().contains("/data"), "{}", status.message());
    assert_eq!(daemon.leftovers(), Vec::<String>::new());
}

/// The run's user has a name in every image, with the home that `HOME` says; git has an identity.
#[tokio::test(flavor = "multi_thread")]
async fn the_run_s_user_has_a_name_and_git_an_identity_in_every_image() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    for image in [String::new(), debian()] {
        for profile in ["open", "review", "strict"] {
            let request = CreateRunRequest { image: image.clone(), ..requests::bind(profile, &workspace) };
            let mut run = daemon.run_on(request).await;
            if profile == "open" {
                let passwd = run.exec(&["cat", "/etc/passwd"]).await;
                let entry = "agent:x:1001:1001:agent:/tmp:/bin/sh\n";
                assert!(
                    passwd.stdout.starts_with("root:x:0:0:") && passwd.stdout.ends_with(entry),
                    "{passwd:?}"
                );
                let script = "whoami; id -gn; echo ~ $HOME; env | grep ^GIT_ | sort; echo x >> /etc/passwd";
                let said = run.exec(&["sh", "-c", script]).await;
                let expected = "agent\nagent\n/tmp /tmp\nGIT_AUTHOR_EMAIL=agent@cofferdam.invalid\n\
                                GIT_AUTHOR_NAME=Cofferdam agent\nGIT_COMMITTER_EMAIL=agent@cofferdam.invalid\n\
                                GIT_COMMITTER_NAME=Cofferdam agent\n";
                assert_eq!(said.stdout, expected, "{image}: {}", said.stderr);
                assert_ne!(said.exit_code, Some(0), "/etc/passwd can be written");
            }
            run.stop().await;
        }
    }
}

/// Where an image has a link there, the engine follows it within the container, and nothing of the host's or the workspace's is
/// touched.
#[tokio::test(flavor = "multi_thread")]
async fn links_of_an_image_do_not_redirect_the_account_files() {
    let image =
        Image::of_links("links", &[("etc/passwd", "../accounts/users"), ("etc/group", "/accounts/groups")]);
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let request = CreateRunRequest { image: image.0.clone(), ..requests::bind("open", &workspace) };
    let mut run = daemon.run_on(request).await;
    run.ok(calls::write("a.txt", "x")).await;
    run.stop().await;
    let hostile = Image::of_links("hostile", &[("etc", "/workspace"), ("accounts", "/state")]);
    let request = CreateRunRequest { image: hostile.0.clone(), ..requests::bind("open", &workspace) };
    if let Ok(mut run) = daemon.run_with(request).await {
        run.stop().await;
    }
    let mut names: Vec<_> =
        std::fs::read_dir(&workspace).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["a.txt"], "the engine made a file in the workspace");
}
