//! Tests the functions of a session, and its recording.

use harness::v1::open_terminal_request::Event as Said;
use harness::v1::terminal_closed::Reason;
use harness::v1::{self, terminal_signal::Kind};
use harness::{Daemon, Setup};
use serde_json::json;

use super::{Seat, assert_idle, digest, events, recorded, recording, run, runs, text};

#[tokio::test(flavor = "multi_thread")]
async fn an_operators_input_and_output_are_on_record() {
    let daemon = Daemon::start().await;
    let mut run = run(&daemon).await;
    let start = v1::TerminalStart {
        term: "screen".to_owned(),
        size: Some(v1::TerminalSize { rows: 30, columns: 100 }),
        ..Default::default()
    };
    let mut seat = Seat::with(&run, start).await.unwrap();
    // The beginning is there before anything else is.
    let opened = recorded(&run, &seat.session, "session_opened").await;
    assert_eq!((&opened["run_id"], &opened["principal"]), (&json!(run.id()), &json!("uid:0")));
    assert_eq!(
        opened["input"],
        json!({ "login_shell": true, "cwd": "@project", "term": "screen", "rows": 30, "columns": 100 })
    );
    assert_eq!(
        (&opened["decision"]["outcome"], &opened["decision"]["rule"]),
        (&json!("allow"), &json!("operator session"))
    );
    assert_eq!(opened["decision"]["policy_digest"].as_str().unwrap().len(), 64);

    seat.types("echo $((6*7)):$TERM:$(id -u)\r").await;
    seat.sees("42:screen:1001").await;
    seat.types("[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo a-ter''minal\r").await;
    seat.sees("a-terminal").await;
    seat.types("./probe window\r").await;
    seat.sees("window 30 100").await;
    seat.say(Said::Resize(v1::TerminalSize { rows: 7, columns: 123 })).await;
    seat.types("./probe window\r").await;
    seat.sees("window 7 123").await;
    // Text in pieces, and bytes that are none.
    let pump = "💧".as_bytes();
    seat.say(Said::Input(pump[..2].to_vec())).await;
    seat.say(Said::Input([&pump[2..], b"\xff\x15"].concat())).await;
    seat.types("exit 7\r").await;
    assert_eq!(seat.closed().await, (Reason::Exited, Some(7), None));

    let closed = recorded(&run, &seat.session, "session_closed").await;
    let outcome = &closed["outcome"];
    assert_eq!((&outcome["reason"], &outcome["exit_code"]), (&json!("EXITED"), &json!(7)));
    assert_eq!(outcome["facts"]["kill"]["left"], 0);
    assert!(closed["duration_us"].as_u64().unwrap() > 0);
    let path = recording(&daemon, &run, &seat.session);
    assert_eq!(outcome["facts"]["recording"]["sha256"], json!(digest(&path)));
    assert_eq!(outcome["facts"]["recording"]["bytes"], json!(std::fs::metadata(&path).unwrap().len()));
    assert_eq!(closed["usage"]["bytes_out"], json!(seat.screen.len()));

    let events = events(&path);
    let typed = text(&events, "i");
    assert!(typed.contains("echo $((6*7))") && typed.contains("💧\u{fffd}\u{15}exit 7\r"), "{typed:?}");
    assert_eq!(text(&events, "r"), "123x7");
    assert_eq!(text(&events, "o"), String::from_utf8_lossy(&seat.screen));
    assert!(run.clients.verify().await.intact);
    assert_idle(&run);
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_and_signals_reach_the_foreground_program() {
    let daemon = Daemon::start().await;
    let run = run(&daemon).await;
    let mut seat = Seat::at(&run).await;
    seat.types("sleep 1000; echo code $((100+$?))\r").await;
    runs(&run, "sleep 1000").await;
    seat.types("\x03").await;
    // The shell ends a line that was interrupted, so that the echo does not come: the prompt does.
    seat.types("echo alive $((6*7))\r").await;
    seat.sees("alive 42").await;

    seat.types("sh -c 'sleep 1001'; echo code $((1000+$?))\r").await;
    runs(&run, "sleep 1001").await;
    seat.signal(Kind::Int).await;
    seat.types("echo alive $((6*8))\r").await;
    seat.sees("alive 48").await;
    seat.types("exit\r").await;
    assert_eq!(seat.closed().await.0, Reason::Exited);

    // Without a shell before it: busybox's has what it starts ignore SIGQUIT.
    let kinds = [(Kind::Hup, 1), (Kind::Int, 2), (Kind::Quit, 3), (Kind::Term, 15), (Kind::Kill, 9)];
    for (kind, number) in kinds {
        let mut seat = Seat::running(&run, &["sleep", "1002"]).await.unwrap();
        runs(&run, "sleep 1002").await;
        seat.signal(kind).await;
        assert_eq!(seat.closed().await, (Reason::Exited, None, Some(number)));
        let recorded = text(&events(&recording(&daemon, &run, &seat.session)), "m");
        assert_eq!(recorded, format!("signal {number}"));
    }
    assert_idle(&run);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_run_where_and_as_asked_and_its_secrets_stay_out_of_the_log() {
    let daemon = Daemon::start().await;
    let run = run(&daemon).await;
    std::fs::create_dir(daemon.roots().join("w/sub")).unwrap();
    let start = v1::TerminalStart {
        command: [
            "sh",
            "-c",
            "read -r secret; pwd; test -n \"$secret\" && exit 3",
            "--password",
            "swordfish-of-the-operator",
        ]
        .map(str::to_owned)
        .into(),
        cwd: "@project/sub".to_owned(),
        ..Default::default()
    };
    let mut seat = Seat::with(&run, start).await.unwrap();
    seat.types("correct horse battery staple\r").await;
    seat.sees("/workspace/sub").await;
    assert_eq!(seat.closed().await, (Reason::Exited, Some(3), None));
    let opened = recorded(&run, &seat.session, "session_opened").await;
    assert_eq!(
        (&opened["input"]["cwd"], &opened["input"]["command"]),
        (&json!("@project/sub"), &json!("sh"))
    );
    recorded(&run, &seat.session, "session_closed").await;

    let path = recording(&daemon, &run, &seat.session);
    assert!(text(&events(&path), "i").contains("battery staple"), "the recording has all of it");
    let files =
        std::fs::read_dir(daemon.state_dir().join("audit")).unwrap().map(|entry| entry.unwrap().path());
    for file in files.filter(|path| path.is_file()) {
        let log = std::fs::read(file).unwrap();
        for secret in [&b"battery staple"[..], b"swordfish"] {
            let found = log.windows(secret.len()).any(|window| window == secret);
            assert!(!found, "the audit log has none of it");
        }
    }
    assert!(!daemon.log().contains("battery staple"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_keeps_its_run_from_being_idle() {
    let daemon = Daemon::start_with(Setup::default()).await;
    let idle = std::time::Duration::from_secs(5);
    let request = v1::CreateRunRequest { idle_timeout: Some(wire::duration(idle)), ..Default::default() };
    let mut run = super::run_with(&daemon, request).await;
    let mut seat = Seat::at(&run).await;
    // Longer than the run may be idle.
    seat.types("sleep 8; echo still $((6*7))\r").await;
    seat.sees("still 42").await;
    seat.types("exit\r").await;
    assert_eq!(seat.closed().await.0, Reason::Exited);
    assert_eq!(run.ended().await.state(), v1::run::State::Stopped, "and no longer");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_counts_with_all_that_it_started() {
    let daemon = Daemon::start().await;
    let run = run(&daemon).await;
    // Nobody's child at once; it goes on until it has used 200 ms itself, and is killed with the session.
    let burn = "n=0; while [ $n -lt 20 ]; do i=0; while [ $i -lt 1000 ]; do i=$((i+1)); done; \
        read stat < /proc/$$/stat; set -- $stat; n=$((${14} + ${15})); done; echo b''urnt; sleep 1000";
    let script = format!("(sh -c \"{}\" &); read end; exit 3", burn.replace('$', "\\$"));
    let mut seat = Seat::running(&run, &["sh", "-c", &script]).await.unwrap();
    seat.sees("burnt").await;
    seat.types("end\r").await;
    assert_eq!(seat.closed().await, (Reason::Exited, Some(3), None));
    let closed = recorded(&run, &seat.session, "session_closed").await;
    let usage = &closed["usage"];
    assert!(usage["cpu_us"].as_u64().is_some_and(|used| used >= 200_000), "{closed}");
    assert!(usage["peak_memory_bytes"].as_u64().is_some_and(|peak| peak > 100_000), "{closed}");
    assert_idle(&run);
}
