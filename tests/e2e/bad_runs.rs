//! Tests runs that cannot be created: each is a clear error with a stable reason, and leaves nothing.

use harness::v1::{self, CreateRunRequest};
use harness::{Daemon, Image, Setup, calls, reason, record, requests};
use tonic::Code;

async fn refused(daemon: &Daemon, request: CreateRunRequest) -> (String, String) {
    match daemon.run_with(request.clone()).await {
        Err(status) => (reason(&status), status.message().to_owned()),
        Ok(_) => panic!("{request:?} was not refused"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_cannot_be_made_leaves_nothing() {
    let daemon = Daemon::start().await;
    let good = daemon.workspace("w", &[("a.txt", "one\n")]);
    let outside = daemon.outside().join("secret");
    std::fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink(&outside, daemon.roots().join("out")).unwrap();
    let base = requests::bind("review", &good);
    let on = |path: std::path::PathBuf| requests::bind("review", &path);
    let clone_of = |path: std::path::PathBuf| requests::clone("review", &path);
    let with = |change: fn(&mut CreateRunRequest)| {
        let mut request = base.clone();
        change(&mut request);
        request
    };
    let limits = |limits: v1::Limits| CreateRunRequest { limits: Some(limits), ..base.clone() };
    let mut unknown_revision = clone_of(daemon.repository("repository", &[("a.txt", "one\n")]));
    if let Some(v1::workspace::Source::Clone(clone)) =
        unknown_revision.workspace.as_mut().unwrap().source.as_mut()
    {
        clone.revision = "no-such-branch".to_owned();
    }

    let (invalid, missing, violation) = ("INVALID_ARGUMENT", "NOT_FOUND", "SANDBOX_VIOLATION");
    let cases = vec![
        ("profile", with(|r| r.profile.clear()), invalid),
        ("profile", with(|r| r.profile = "nope".to_owned()), missing),
        ("role", with(|r| r.role = "king".to_owned()), missing),
        ("agent_id", with(|r| r.agent_id.clear()), invalid),
        ("agent_id", with(|r| r.agent_id = "a b".to_owned()), invalid),
        ("image", with(|r| r.image = "debian:12".to_owned()), "IMAGE_MISSING"),
        (
            "image",
            CreateRunRequest { image: "no/such:1".to_owned(), ..requests::bind("open", &good) },
            "IMAGE_MISSING",
        ),
        (
            "image",
            CreateRunRequest { image: "../version?a=".to_owned(), ..requests::bind("open", &good) },
            invalid,
        ),
        ("workspace", with(|r| r.workspace = None), invalid),
        ("workspace", on("relative".into()), invalid),
        ("workspace", on(outside), violation),
        ("workspace", on("/".into()), violation),
        ("workspace", on(daemon.state_dir()), violation),
        ("workspace", on(daemon.roots().join("out")), violation),
        ("workspace", on(daemon.roots().join("w/../../secret")), violation),
        ("workspace", on(daemon.roots().join("none")), missing),
        ("workspace", on(good.join("a.txt")), invalid),
        ("workspace", clone_of(good.clone()), invalid),
        ("workspace", clone_of(daemon.roots().join("none")), missing),
        ("workspace", unknown_revision, invalid),
        ("pkg_path", with(|r| r.pkg_path = "/etc".to_owned()), violation),
        ("limits.memory_bytes", limits(v1::Limits { memory_bytes: 1 << 40, ..Default::default() }), invalid),
        ("limits.pids", limits(v1::Limits { pids: 1_000_000, ..Default::default() }), invalid),
        ("limits.cpu_millis", limits(v1::Limits { cpu_millis: 1, ..Default::default() }), invalid),
        ("ttl", with(|r| r.ttl = Some(wire::duration(std::time::Duration::ZERO))), invalid),
        ("labels", with(|r| r.labels = [(String::new(), String::new())].into()), invalid),
        ("run_id", with(|r| r.run_id = "0198a1b2-0000-7000-8000-000000000000".to_owned()), invalid),
        ("request_id", with(|r| r.request_id = "x".repeat(129)), invalid),
    ];
    for (field, request, expected) in cases {
        let (reason, message) = refused(&daemon, request).await;
        assert_eq!(reason, expected, "{field}: {message}");
        assert!(message.contains(field.split('.').next().unwrap()), "{field} is not named: {message}");
        assert_eq!(daemon.leftovers(), Vec::<String>::new(), "{field}: {message}");
        let listed = daemon.connect().await.runs.list_runs(v1::ListRunsRequest::default()).await.unwrap();
        assert!(listed.into_inner().runs.is_empty(), "{field}: what is refused is no run");
    }
    let mut run = daemon.run("review", &good).await;
    run.ok(calls::read("a.txt")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_no_run_can_have_is_refused_with_its_own_reason() {
    let profile = "profiles: {p: {allowed_images: [\"no/such:*\", \"cofferdam-test/*\"], operations: {read: allow}}}\n\
                   roles: {director: {allow: \"*\"}}\n";
    let daemon =
        Daemon::start_with(Setup { policy: vec![("p.yaml", profile.to_owned())], ..Default::default() })
            .await;
    let volumes = Image::of_files("has-volumes", &[("motd", "x")], &["VOLUME /data"]);
    let cases = [
        ("no/such:1", "IMAGE_MISSING", Code::NotFound, "coffer image import"),
        ("other:1", "IMAGE_NOT_ALLOWED", Code::PermissionDenied, "coffer image list"),
        (volumes.0.as_str(), "IMAGE_UNUSABLE", Code::InvalidArgument, "build it again"),
    ];
    for (image, expected, code, hint) in cases {
        let request = CreateRunRequest { image: image.to_owned(), ..requests::managed("p") };
        let status = daemon.run_with(request).await.map(|run| run.run.run_id).unwrap_err();
        assert_eq!((reason(&status).as_str(), status.code()), (expected, code), "{status}");
        let details = tonic_types::StatusExt::get_error_details(&status);
        let told = &details.error_info().unwrap().metadata["hint"];
        assert!(told.contains(hint), "{told}");
        assert_eq!(daemon.leftovers(), Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_request_is_on_record_and_its_ids_are_free_for_a_better_one() {
    let mut daemon = Daemon::start().await;
    let id = &node_id::new_id().to_string();
    let request = |image: &str| CreateRunRequest {
        request_id: "r".to_owned(),
        run_id: id.clone(),
        image: image.to_owned(),
        ..requests::managed("open")
    };
    for _ in 0..2 {
        assert_eq!(refused(&daemon, request("no/such:1")).await.0, "IMAGE_MISSING");
    }
    let mut clients = daemon.connect().await;
    let states: Vec<_> =
        clients.events(id, "run_state").await.iter().map(|event| record(event)["details"].clone()).collect();
    assert_eq!(states.len(), 2, "{states:?}");
    for state in states {
        assert_eq!((&state["state"], &state["refused"]), (&"FAILED".into(), &true.into()), "{state}");
        assert!(state["failure"].as_str().unwrap().contains("no/such:1"), "{state}");
    }
    // Neither the store nor the next daemon knows of a run.
    drop(clients);
    daemon.stop().await;
    daemon.launch().await;
    let mut run = daemon.run_on(request("")).await;
    assert_eq!(run.id(), *id);
    run.ok(calls::list("@project")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn request_id_identifies_one_run() {
    let daemon = Daemon::start().await;
    let request = CreateRunRequest { request_id: "r1".to_owned(), ..requests::managed("review") };
    let first = daemon.run_with(request.clone()).await.unwrap();
    let again = daemon.run_with(request.clone()).await.unwrap();
    assert_eq!((again.id(), daemon.containers().len()), (first.id(), 1));
    let other = CreateRunRequest { agent_id: "other".to_owned(), ..request };
    let status = daemon.run_with(other).await.map(|_| ()).unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::AlreadyExists, "ALREADY_EXISTS"));

    // Both at once: one run, and both get it when it is READY.
    let request = CreateRunRequest { request_id: "r2".to_owned(), ..requests::managed("review") };
    let (one, other) = tokio::join!(daemon.run_with(request.clone()), daemon.run_with(request));
    assert_eq!(one.unwrap().id(), other.unwrap().id());
    assert_eq!(daemon.containers().len(), 2);

    // An id of the client's own.
    let chosen = node_id::new_id().to_string();
    let request = CreateRunRequest {
        request_id: "r3".to_owned(),
        run_id: chosen.clone(),
        ..requests::managed("review")
    };
    assert_eq!(daemon.run_with(request.clone()).await.unwrap().id(), chosen);
    let taken = CreateRunRequest { request_id: "r4".to_owned(), ..request.clone() };
    assert_eq!(reason(&daemon.run_with(taken).await.map(|_| ()).unwrap_err()), "ALREADY_EXISTS");
    // An id of long ago may have been that of a run that was deleted.
    let run_id = "0198a1b2-0000-7000-8000-00000000aaaa".to_owned();
    let old = CreateRunRequest { request_id: "r5".to_owned(), run_id, ..request };
    assert_eq!(reason(&daemon.run_with(old).await.map(|_| ()).unwrap_err()), "INVALID_ARGUMENT");
    assert_eq!(daemon.containers().len(), 3);
}

/// A handle on a deleted run leads to no other run.
#[tokio::test(flavor = "multi_thread")]
async fn the_id_of_a_deleted_run_is_not_used_again_and_that_of_its_request_is_free() {
    let mut daemon = Daemon::start().await;
    let chosen = |request_id: &str, run_id: &str| CreateRunRequest {
        request_id: request_id.to_owned(),
        run_id: run_id.to_owned(),
        ..requests::managed("review")
    };
    let own = node_id::new_id().to_string();
    let mut first = daemon.run_on(chosen("mine", &own)).await;
    // An id that the daemon has made, too.
    let mut second = daemon.run_on(chosen("other", "")).await;
    let made = second.id().to_owned();
    for run in [&mut first, &mut second] {
        run.stop().await;
        run.delete().await;
    }
    for restarts in [false, true] {
        if restarts {
            daemon.stop().await;
            daemon.launch().await;
        }
        for (request_id, run_id) in [("mine", &own), ("new", &own), ("new", &made)] {
            let refused = daemon.run_with(chosen(request_id, run_id)).await.map(|_| ()).unwrap_err();
            assert_eq!(reason(&refused), "ALREADY_EXISTS", "{request_id} {run_id}: {refused}");
            assert!(refused.message().contains("an earlier run had this id"), "{refused}");
        }
    }
    assert_eq!(daemon.containers(), [""; 0]);
    // A refusal leaves the ids of its request free.
    let again = daemon.run_on(chosen("new", "")).await;
    let other = daemon.run_on(chosen("other", "")).await;
    assert!(other.id() != made && again.id() != own);
}
