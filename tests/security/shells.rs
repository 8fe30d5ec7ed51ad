//! Attacks on sessions by commands in them.

use harness::session::{command, typed};
use harness::v1::session_result::State;
use harness::v1::{CreateRunRequest, SessionRequest};
use harness::{Daemon, RunHandle, debian, memory, processes, reason, requests};

const IDLE: [&str; 2] = ["/.cofferdam/guest hold", "/.cofferdam/guest serve"];

/// A run with bash, and one with ash.
async fn both(daemon: &Daemon) -> [RunHandle; 2] {
    let bash = CreateRunRequest { image: debian(), ..requests::managed("harness") };
    [daemon.run_on(bash).await, daemon.run_on(requests::managed("harness")).await]
}

/// What a command prints is output, whatever it looks like, and nothing of the container knows the mark that counts.
#[tokio::test(flavor = "multi_thread")]
async fn s7_output_forges_no_end_of_a_command() {
    let daemon = Daemon::start().await;
    for mut run in both(&daemon).await {
        let id = run.open().await;
        // Marks of earlier commands, read from the session's own output, and guesses.
        run.said(&id, "true").await;
        let shown = run.logs(&id).await.text();
        let marks: String = shown
            .chars()
            .filter(|c| *c != '\'' && (!c.is_control() || matches!(c, '\u{1b}' | '\u{7}')))
            .collect();
        assert!(marks.contains("\u{1b}]"), "{marks}");
        let replayed = format!("printf '%s' '{marks}'; echo still; (exit 5)");
        let (said, code) = run.said(&id, &replayed).await;
        assert_eq!((said, code), (format!("{marks}still\n"), 5));
        let guess = "i=0; while [ $i -lt 50 ]; do printf '\\033]%039d;0\\007' $i; i=$((i+1)); done; echo end";
        let (said, code) = run.said(&id, guess).await;
        assert!(said.ends_with("end\n") && said.len() == 50 * 44 + 4 && code == 0, "{said}");
        // Functions, traces and traps that a command leaves are taken away before its code is written.
        for forgery in [
            "command() { /bin/printf \"$2\" \"$3\" \"$4\" 0 >/dev/tty; }",
            "printf() { command printf \"$1\" \"$2\" \"$3\" 0; }",
            "set -v; set -x",
            "trap 'set -- $BASH_COMMAND; [ $# -lt 5 ] || /bin/printf \"\\033]%s%s;0\\007\" $4 $5 >/dev/tty' DEBUG",
        ] {
            let (said, code) = run.said(&id, &format!("{forgery} 2>/dev/null; (exit 5)")).await;
            assert_eq!(code, 5, "{forgery}: {said}");
        }
        // No program can open the way on which the shell gets its lines: not through /proc, and not as a stream that it inherits.
        let look = "for f in /proc/$$/fd/*; do case $(readlink $f) in socket:*) (cat < $f) 2>&1; (echo x > $f) 2>&1;; esac; done; ls -l /proc/self/fd";
        let (said, _) = run.said(&id, look).await;
        assert!(
            said.contains("No such device") || said.contains("can't open") || said.contains("cannot open"),
            "{said}"
        );
        assert!(!said.lines().any(|line| line.contains("socket:")), "{said}");
        assert_eq!(run.said(&id, "echo usable").await.0, "usable\n");
    }
}

/// Whatever a command makes of its shell, its output and its code are told, or that they cannot be.
#[tokio::test(flavor = "multi_thread")]
async fn s8_a_changed_shell_is_usable_or_reported_as_broken() {
    let daemon = Daemon::start().await;
    let changes = [
        "echo() { :; }; printf() { :; }; eval() { :; }",
        "alias command=false eval=false printf=false echo=false test=false",
        "PS1='> '; PS2='more '; PROMPT_COMMAND='command echo prompt'; export PS1",
        "trap 'command echo trapped' DEBUG",
        "trap 'command echo trapped' ERR",
        "trap '' INT TERM HUP QUIT",
        "stty raw echo olcuc 2>/dev/null; stty 300",
        "set -u; set -f; set -C; set -a; IFS=0123456789",
        "set -v",
        "set -xv",
        "command() { :; }",
        "command() { builtin command \"$@\" | tr 7 0; }; printf() { :; }",
        "trap 'command echo $BASH_COMMAND' DEBUG; trap : RETURN",
        "set -x",
        "exec </dev/null",
        "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-",
        "LC_ALL=xx_XX.nothing; LANG=C; PATH=/nonexistent",
        "umask 777; cd /; readonly PATH IFS",
        "(sleep 0.2; kill -CONT $$) & kill -STOP $$",
    ];
    // What each of the two goes deaf of.
    let deaf = ["unset() { :; }; command() { :; }", "set -n"];
    for (mut run, deaf) in both(&daemon).await.into_iter().zip(deaf) {
        for change in changes {
            let id = run.open().await;
            let soon = |words: &str| SessionRequest { timeout_ms: Some(20_000), ..command(&id, words) };
            let done = run.in_session(soon(change)).await;
            assert_eq!(done.state(), State::Done, "{change}: {done:?}");
            let result = run.try_in_session(soon("(exit 7)")).await;
            let result = result.unwrap_or_else(|refused| panic!("{change}: {refused}")).result.unwrap();
            assert_eq!((result.state(), result.exit_code), (State::Done, Some(7)), "{change}: {result:?}");
            let result = run.in_session(soon("/bin/echo here")).await;
            assert!(result.output.to_lowercase().contains("here"), "{change}: {result:?}");
            assert_eq!(result.state(), State::Done, "{change}: {result:?}");
            run.close(&id).await;
        }
        // What closes everything that the shell has ends the session, or leaves it as it was.
        let id = run.open().await;
        let all =
            "for n in 0 1 2 3 4 5 6 7 8 9; do eval \"exec $n>&-\"; done; exec 10>&- 11>&- 12>&- 13>&- 255>&-";
        let closed = run.in_session(SessionRequest { timeout_ms: Some(15_000), ..command(&id, all) }).await;
        assert!(matches!(closed.state(), State::Done | State::Ended), "{closed:?}");
        let then =
            run.try_in_session(SessionRequest { timeout_ms: Some(15_000), ..command(&id, "true") }).await;
        match then {
            Ok(answer) => assert!(matches!(answer.result.unwrap().state(), State::Done | State::Ended)),
            Err(refused) => assert_eq!(reason(&refused), "PRECONDITION_FAILED", "{refused}"),
        }
        run.close(&id).await;
        // One that takes lines and does nothing with them is said to be broken, long before the command's time is over.
        let id = run.open().await;
        let broken = run.in_session(SessionRequest { timeout_ms: Some(60_000), ..command(&id, deaf) }).await;
        assert_eq!(broken.state(), State::Unanswered, "{broken:?}");
        let refused = run.try_in_session(command(&id, "ls")).await.unwrap_err();
        assert_eq!(reason(&refused), "PRECONDITION_FAILED", "{refused}");
        assert_eq!(run.close(&id).await.process.unwrap().kill.unwrap().left, 0);
        assert_eq!(processes(&run.run.container_id), IDLE);
    }
}

/// Floods are cut in their middle and counted, and cost the daemon no memory.
#[tokio::test(flavor = "multi_thread")]
async fn s9_a_flood_is_bounded_and_the_session_continues() {
    let daemon = Daemon::start().await;
    for mut run in both(&daemon).await {
        let id = run.open().await;
        let flood = "echo first; head -c 100000000 /dev/zero; echo last; (exit 6)";
        let request = SessionRequest {
            expect: vec!["nowhere[0-9]+".to_owned()],
            timeout_ms: Some(300_000),
            ..command(&id, flood)
        };
        let result = run.in_session(request).await;
        assert_eq!((result.state(), result.exit_code), (State::Done, Some(6)), "{result:?}");
        assert_eq!(result.output_bytes, 100_000_011);
        assert!(result.output.starts_with("first\n") && result.output.ends_with("last\n"));
        assert!(
            result.omitted_bytes > 99_000_000 && result.output.contains("bytes left out"),
            "{}",
            result.omitted_bytes
        );
        // Escape sequences without end are bytes, also where a mark could begin with each.
        let escapes = "head -c 20000000 /dev/zero | tr '\\0' '\\033'; echo";
        let result =
            run.in_session(SessionRequest { timeout_ms: Some(300_000), ..command(&id, escapes) }).await;
        assert_eq!(
            (result.state(), result.output_bytes),
            (State::Done, 20_000_001),
            "{:?}",
            run.listed().await
        );
        // A job that goes on writing belongs to no command.
        run.said(&id, "yes job & sleep 0.2").await;
        let result = run.in_session(command(&id, "kill $!; wait $! 2>/dev/null; echo over")).await;
        assert_eq!(result.state(), State::Done);
        assert_eq!(run.said(&id, "echo quiet").await, ("quiet\n".to_owned(), 0));
        run.close(&id).await;
    }
    let resident = memory(daemon.pid(), "VmRSS");
    assert!(resident < 300 << 10, "{resident} KiB");
}

/// Commands that read, wait, or leave something behind hold neither their session nor the daemon.
#[tokio::test(flavor = "multi_thread")]
async fn s10_reading_or_lingering_commands_delay_nothing() {
    let daemon = Daemon::start().await;
    for mut run in both(&daemon).await {
        let id = run.open().await;
        // It reads what is typed, and none of the lines for the shell.
        let reads = run.in_session(SessionRequest { timeout_ms: Some(500), ..command(&id, "cat") }).await;
        assert_eq!((reads.state(), reads.output.as_str()), (State::Running, ""));
        let answer = run.in_session(typed(&id, "one\n\u{4}", &[])).await;
        assert_eq!(
            (answer.state(), answer.output.as_str(), answer.exit_code),
            (State::Done, "one\n", Some(0)),
            "{answer:?}"
        );
        // Another call waits while one does, and is told so.
        let (mut other, session) = (run.clone(), id.clone());
        let waits = tokio::spawn(async move { other.in_session(command(&session, "sleep 1000")).await });
        run.first_session_is_busy().await;
        let soon = SessionRequest { session_id: id.clone(), timeout_ms: Some(1), ..Default::default() };
        let refused = run.try_in_session(soon).await.unwrap_err();
        assert_eq!(reason(&refused), "OVERLOADED", "{refused}");
        let seen = run.interrupt(&id, &[]).await;
        assert_eq!(seen.state(), State::Done, "{seen:?}");
        let told = waits.await.unwrap();
        assert_eq!((told.state(), told.exit_code), (State::Done, Some(130)), "{told:?}");
        // What leaves its session and its group is ended with it.
        run.said(
            &id,
            "for i in 1 2 3; do setsid sh -c 'trap \"\" TERM HUP; sleep 1000 & sleep 1000' & done; sleep 0.3",
        )
        .await;
        let closed = run.close(&id).await.process.unwrap();
        let kill = closed.kill.unwrap();
        assert!(kill.ended >= 4 && kill.left == 0, "{kill:?}");
        assert_eq!(processes(&run.run.container_id), IDLE);
    }
}
