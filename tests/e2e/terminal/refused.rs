//! Tests refused sessions, and invalid messages of a client.

use std::fs::File;
use std::io::Write as _;
use std::process::Command;
use std::time::Duration;

use harness::v1::open_terminal_request::Event as Said;
use harness::v1::terminal_closed::Reason;
use harness::v1::{self, TerminalStart};
use harness::{Clients, Daemon, Image, Setup, as_user, reason, requests};

use super::{Seat, assert_idle, recorded, run};

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_is_for_operators_alone() {
    let config = "access: [{ uid: 12345, roles: [orchestrator, approver, auditor] }, { uid: 12346, roles: [operator] }]\n"
        .to_owned();
    let daemon = Daemon::start_with(Setup { config, ..Default::default() }).await;
    daemon.expose();
    let mut run = run(&daemon).await;
    let start = TerminalStart { run_id: run.id().to_owned(), ..Default::default() };
    let first = Said::Start(start.clone());
    let open = async move |clients: Clients| Seat::open(clients.channel, first).await.err();
    let refused = as_user(12_345, &daemon.socket(), open).await.expect("an orchestrator got a terminal");
    assert_eq!(reason(&refused), "PERMISSION_DENIED");
    assert!(run.clients.events("", "session_opened").await.is_empty());

    let first = Said::Start(start);
    let sit = async move |clients: Clients| {
        let mut seat = Seat::open(clients.channel, first).await.unwrap();
        seat.types("exit 4\r").await;
        assert_eq!(seat.closed().await, (Reason::Exited, Some(4), None));
        seat.session
    };
    let session = as_user(12_346, &daemon.socket(), sit).await;
    assert_eq!(recorded(&run, &session, "session_opened").await["principal"], "uid:12346");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_has_places_for_four() {
    let daemon = Daemon::start().await;
    let run = run(&daemon).await;
    let mut seats = Vec::new();
    for _ in 0..4 {
        seats.push(Seat::at(&run).await);
    }
    let refused = Seat::with(&run, TerminalStart::default()).await.err().expect("a fifth");
    assert_eq!(reason(&refused), "OVERLOADED");
    let mut first = seats.remove(0);
    first.types("exit\r").await;
    assert_eq!(first.closed().await.0, Reason::Exited);
    // The place comes back after the end was told.
    let again = async {
        loop {
            match Seat::with(&run, TerminalStart::default()).await {
                Ok(seat) => return seat,
                Err(refused) => assert_eq!(reason(&refused), "OVERLOADED"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let again = tokio::time::timeout(Duration::from_secs(30), again).await;
    let mut again = again.expect("the place does not come back");
    again.types("echo $((6*7))\r").await;
    again.sees("42").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_cannot_begin_reports_the_reason_and_leaves_nothing() {
    let daemon = Daemon::start().await;
    let mut run = run(&daemon).await;
    let run_id = run.id().to_owned();
    let start = || TerminalStart { run_id: run_id.clone(), ..Default::default() };
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    let size = |rows, columns| Some(v1::TerminalSize { rows, columns });
    let channel = run.clients.channel.clone();
    let cases = [
        (Said::Input(b"ls\r".to_vec()), "INVALID_ARGUMENT"),
        (Said::Start(TerminalStart { run_id: String::new(), ..start() }), "INVALID_ARGUMENT"),
        (Said::Start(TerminalStart { run_id: "../..".to_owned(), ..start() }), "NOT_FOUND"),
        (Said::Start(TerminalStart { size: size(0, 80), ..start() }), "INVALID_ARGUMENT"),
        (Said::Start(TerminalStart { size: size(24, 70_000), ..start() }), "INVALID_ARGUMENT"),
        (Said::Start(TerminalStart { term: "x=$(id)".to_owned(), ..start() }), "INVALID_ARGUMENT"),
        (Said::Start(TerminalStart { command: vec!["x".repeat(5_000)], ..start() }), "INVALID_ARGUMENT"),
        (Said::Start(TerminalStart { cwd: "/etc".to_owned(), ..start() }), "SANDBOX_VIOLATION"),
        (Said::Start(TerminalStart { cwd: "@project/../..".to_owned(), ..start() }), "SANDBOX_VIOLATION"),
    ];
    for (first, expected) in cases {
        let refused = Seat::open(channel.clone(), first.clone()).await.err();
        let refused = refused.unwrap_or_else(|| panic!("{first:?} was taken"));
        assert_eq!(reason(&refused), expected, "{first:?}: {}", refused.message());
    }
    assert!(run.clients.events("", "session_opened").await.is_empty());

    // These are found out in the container: a session began, and its end says why.
    for (start, expected) in [
        (TerminalStart { command: words(&["no-such-program"]), ..start() }, "NOT_FOUND"),
        (TerminalStart { command: words(&["./sh"]), ..start() }, "NOT_FOUND"),
        (TerminalStart { cwd: "@project/none".to_owned(), ..start() }, "NOT_FOUND"),
    ] {
        let mut seat = Seat::open(channel.clone(), Said::Start(start)).await.unwrap();
        let refused = seat.over().await.unwrap_err();
        assert_eq!(reason(&refused), expected, "{}", refused.message());
        let closed = recorded(&run, &seat.session, "session_closed").await;
        assert_eq!(
            (closed["outcome"]["reason"].as_str(), closed["outcome"]["status"].as_str()),
            (Some(expected), Some("failed"))
        );
    }
    run.stop().await;
    let refused = Seat::open(channel, Said::Start(start())).await.err().expect("the run has ended");
    assert_eq!(reason(&refused), "RUN_NOT_READY");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_without_a_shell_is_reported_to_the_operator() {
    let image = Image::of_files("no-shell", &[("motd", "nothing\n")], &[]);
    let daemon = Daemon::start().await;
    let request = v1::CreateRunRequest { image: image.0.clone(), ..requests::managed("open") };
    let run = daemon.run_on(request).await;
    let mut seat = Seat::at(&run).await;
    let refused = seat.over().await.unwrap_err();
    assert_eq!(reason(&refused), "NOT_FOUND");
    assert!(refused.message().contains("this image has no shell"), "{}", refused.message());
    let closed = recorded(&run, &seat.session, "session_closed").await;
    assert_eq!(closed["outcome"]["reason"], "NOT_FOUND");
    assert_idle(&run);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_message_of_the_client_ends_its_session() {
    let daemon = Daemon::start().await;
    let run = run(&daemon).await;
    let signal = |kind| Said::Signal(v1::TerminalSignal { kind });
    let size = v1::TerminalSize { rows: 10_001, columns: 80 };
    for event in [
        Some(Said::Start(TerminalStart { run_id: run.id().to_owned(), ..Default::default() })),
        Some(Said::Input(vec![b'x'; 16 * 1024 + 1])),
        Some(Said::Resize(size)),
        Some(signal(0)),
        Some(signal(19)),
        None,
    ] {
        let mut seat = Seat::at(&run).await;
        seat.say.send(v1::OpenTerminalRequest { event: event.clone() }).await.unwrap();
        let refused = seat.over().await.unwrap_err();
        assert_eq!(reason(&refused), "INVALID_ARGUMENT", "{event:?}");
        let closed = recorded(&run, &seat.session, "session_closed").await;
        assert_eq!(closed["outcome"]["reason"], "INVALID_ARGUMENT");
        assert_idle(&run);
    }
}

/// The disk of the audit log is full.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_record_no_session_begins() {
    let mut daemon = Daemon::start().await;
    daemon.stop().await;
    let log = daemon.state_dir().join("audit");
    // Another log has another key.
    std::fs::remove_dir_all(daemon.state_dir().join("keys")).unwrap();
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs"]).arg(&log).status();
    assert!(mounted.unwrap().success());
    daemon.launch().await;
    let mut run = run(&daemon).await;
    let filler = log.join("filler");
    let mut sessions = Vec::new();
    let refused = loop {
        // The daemon may have deleted a file, such as the index that another one has replaced.
        let mut filling = File::options().create(true).append(true).open(&filler).unwrap();
        let full = filling.write_all(&vec![0; 2 << 20]).unwrap_err();
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
        // The last page of the log has space for a few more.
        assert!(sessions.len() < 20, "sessions begin without a record");
        match Seat::running(&run, &["true"]).await {
            Ok(mut seat) => {
                let _ = seat.over().await;
                sessions.push(seat.session);
            }
            Err(refused) => break refused,
        }
    };
    assert_eq!(reason(&refused), "AUDIT_UNAVAILABLE");
    let kept = std::fs::read_dir(daemon.state_dir().join("sessions").join(run.id())).unwrap().count();
    assert_eq!(kept, sessions.len(), "a session that did not begin has no recording");

    // What was taken is written when that is possible again, and sessions begin.
    std::fs::remove_file(filler).unwrap();
    let again = async {
        loop {
            match Seat::running(&run, &["true"]).await {
                Ok(mut seat) => return seat.closed().await,
                Err(refused) => assert_eq!(reason(&refused), "AUDIT_UNAVAILABLE"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let again = tokio::time::timeout(super::PATIENCE, again).await.expect("the log does not come back");
    assert_eq!(again, (Reason::Exited, Some(0), None));
    let count = async |run: &mut harness::RunHandle, kind| run.clients.events("", kind).await.len();
    let (opened, closed) = (count(&mut run, "session_opened").await, count(&mut run, "session_closed").await);
    assert_eq!(opened, closed, "each has its end");
    assert!(run.clients.verify().await.intact);
}
