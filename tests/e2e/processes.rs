//! Processes that stay: after their call, their client and their daemon, and not after their run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use harness::process::{command, long, script};
use harness::v1::exec_result::EndedBy;
use harness::v1::process::State;
use harness::v1::signal_process_request::Signal;
use harness::v1::{self, ProcessRequest};
use harness::{Daemon, RunHandle, Setup, calls, dev_image, outlives, processes, reason, record, requests};

/// What is in a container without processes of its own.
const IDLE: [&str; 2] = ["/.cofferdam/guest hold", "/.cofferdam/guest serve"];

async fn harness_run(daemon: &Daemon) -> RunHandle {
    daemon.run_on(requests::managed("harness")).await
}

async fn ended_record(run: &mut RunHandle, id: &str) -> serde_json::Value {
    let run_id = run.id().to_owned();
    let events = run.clients.events(&run_id, "process_ended").await;
    let mut records = events.iter().map(record).filter(|record| record["details"]["process_id"] == id);
    let one = records.next().expect("its end is on record");
    assert!(records.next().is_none(), "one end");
    one
}

/// What `curl` in another call is answered, once the server listens.
async fn curl(run: &mut RunHandle, at: &str) -> String {
    let url = format!("http://127.0.0.1:{at}");
    let asks = ["curl", "-sS", "--fail", "--retry", "30", "--retry-connrefused", "--retry-delay", "1", &url];
    let asked = run.exec(&asks).await;
    assert_eq!(asked.exit_code, Some(0), "{url}: {}", asked.stderr);
    asked.stdout
}

/// A server of Node.js that counts what it is asked: another one would begin again.
const COUNTING: &str = "let asked = 0;\n\
    require('http').createServer((_, answer) => answer.end(`asked ${++asked}`)).listen(3000, '127.0.0.1');\n";

#[tokio::test(flavor = "multi_thread")]
async fn development_servers_are_asked_by_curl_and_survive_a_killed_daemon() {
    let mut daemon = Daemon::start().await;
    let request = v1::CreateRunRequest { image: dev_image(), ..requests::managed("harness") };
    let mut run = daemon.run_on(request).await;
    run.ok(calls::write("a.txt", "served")).await;
    run.ok(calls::write("counting.js", COUNTING)).await;
    let python = ["python3", "-m", "http.server", "--bind", "127.0.0.1", "8080"];
    let started = run.start(ProcessRequest { tag: "web".to_owned(), ..command(&python) }).await;
    let id = started.process_id.clone();
    assert_eq!((started.state(), started.run_id.as_str()), (State::Running, run.id()));
    let node = run.start(command(&["node", "counting.js"])).await.process_id;
    assert_eq!(curl(&mut run, "8080/a.txt").await, "served");
    assert_eq!(curl(&mut run, "3000/").await, "asked 1");

    let mut run = outlives(&mut daemon, run).await;
    assert_eq!(curl(&mut run, "3000/").await, "asked 2", "the same server");
    // What is changed is served at once, as in development.
    run.ok(calls::write("a.txt", "changed")).await;
    assert_eq!(curl(&mut run, "8080/a.txt").await, "changed");
    assert!(String::from_utf8_lossy(&run.logs(&id).await.stderr).contains("\"GET /a.txt HTTP/1.1\" 200"));
    let listed = run.listed().await;
    assert!(listed.iter().all(|process| process.state() == State::Running), "{listed:?}");
    let tags: Vec<_> = listed.iter().map(|process| process.request.as_ref().unwrap().tag.as_str()).collect();
    assert_eq!((tags.len(), tags.contains(&"web")), (2, true), "{tags:?}");

    run.send(&node, Signal::Kill).await.unwrap();
    assert_eq!(run.waited(&node).await.signal, Some(9));
    run.send(&id, Signal::Term).await.unwrap();
    let ended = run.waited(&id).await;
    assert_eq!(
        (ended.state(), ended.signal, ended.exit_code),
        (State::Ended, Some(15), Some(143)),
        "{ended:?}"
    );
    assert_eq!(ended.kill.unwrap().left, 0);
    assert_eq!(processes(&run.run.container_id), IDLE, "nothing of it is left");
    let told = ended_record(&mut run, &id).await;
    assert_eq!(
        (&told["call_id"], &told["outcome"]["facts"]["signal"]),
        (&id.as_str().into(), &15.into()),
        "{told}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn no_byte_of_its_output_is_lost_or_doubled_when_the_daemon_is_killed() {
    let mut daemon = Daemon::start().await;
    let mut run = harness_run(&daemon).await;
    // More than its keeper holds while nobody is there.
    let lines = 150_000;
    let count = format!("i=0; while [ $i -lt {lines} ]; do echo line $i; i=$((i+1)); done; echo error >&2");
    let id = run.start(script(&count)).await.process_id;
    run.until(&id, "line 20\n").await;
    let mut run = outlives(&mut daemon, run).await;
    let mut run = outlives(&mut daemon, {
        run.until(&id, "line 30000\n").await;
        run
    })
    .await;
    let read = run.all_of(&id).await;
    let expected = (0..lines).map(|line| format!("line {line}\n")).collect::<Vec<_>>().concat();
    assert!(read.text() == expected, "{} bytes in place of {}", read.stdout.len(), expected.len());
    assert_eq!((read.stderr.as_slice(), read.missing), (&b"error\n"[..], 0));
    let process = read.process.unwrap();
    assert_eq!(
        (process.state(), process.exit_code, process.stdout_bytes),
        (State::Ended, Some(0), expected.len() as u64)
    );
    // It can be read again, from anywhere, also by the next daemon.
    let mut run = outlives(&mut daemon, run).await;
    assert_eq!(run.all_of(&id).await.text(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn process_input_arrives_once_in_order_and_is_recorded() {
    let mut daemon = Daemon::start().await;
    let mut run = harness_run(&daemon).await;
    let id = run.start(ProcessRequest { stdin: true, ..command(&["cat"]) }).await.process_id;
    for _ in 0..3 {
        let answer = run.feed(&id, 0, b"hello\n", false).await.unwrap();
        assert_eq!((answer.offset, answer.open), (6, true), "a retry never doubles");
    }
    assert_eq!(run.feed(&id, 3, b"lo\nwo", false).await.unwrap().offset, 8);
    let gap = run.feed(&id, 9, b"x", false).await.unwrap_err();
    assert_eq!(reason(&gap), "PRECONDITION_FAILED");

    let mut run = outlives(&mut daemon, run).await;
    assert_eq!(run.feed(&id, 6, b"wo", false).await.unwrap().offset, 8, "the keeper remembers");
    assert_eq!(
        run.feed(&id, 8, b"rld\n", true).await.unwrap(),
        v1::WriteStdinResponse { offset: 12, open: false }
    );
    let read = run.all_of(&id).await;
    assert_eq!((read.text().as_str(), read.process.unwrap().exit_code), ("hello\nworld\n", Some(0)));
    let late = run.feed(&id, 12, b"late", false).await.unwrap_err();
    assert_eq!(reason(&late), "PRECONDITION_FAILED", "it has ended");
    // What it had is no news, though it has ended: a client that lost the answer gets it.
    for (offset, data, close) in [(0, &b"hello\n"[..], false), (8, b"rld\n", true), (12, b"", true)] {
        let again = run.feed(&id, offset, data, close).await.unwrap();
        assert_eq!((again.offset, again.open), (12, false));
    }

    let recordings = daemon.state_dir().join("sessions").join(run.id());
    let mut recorded: Vec<_> =
        std::fs::read_dir(recordings).unwrap().map(|entry| entry.unwrap().path()).collect();
    recorded.sort();
    let recorded: String = recorded.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    assert!(recorded.contains(r#""i", "hello\n""#) && recorded.contains(r#""i", "rld\n""#), "{recorded}");
    let told = ended_record(&mut run, &id).await;
    assert_eq!(told["outcome"]["facts"]["recording"]["sha256"].as_str().unwrap().len(), 64);
    assert_eq!(told["usage"]["bytes_in"], 12, "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_longest_arguments_are_listed_by_their_beginning_and_survive_a_killed_daemon() {
    let mut daemon = Daemon::start().await;
    let mut run = harness_run(&daemon).await;
    let asked = ProcessRequest { stdin: true, ..long("echo up $#; read line; echo got $line; exit 4") };
    let mut ids = Vec::new();
    for _ in 0..3 {
        let started = run.start(asked.clone()).await;
        assert!(started.request.as_ref() == Some(&asked) && !started.request_cut, "its start has all of it");
        run.until(&started.process_id, "up 18\n").await;
        ids.push(started.process_id);
    }
    let check = |listed: &[v1::Process], state: State| {
        assert_eq!(listed.len(), 3);
        for process in listed {
            let request = process.request.as_ref().unwrap();
            assert_eq!((process.state(), process.request_cut, request.command.as_str()), (state, true, "sh"));
            assert_eq!(request.args[..2], asked.args[..2]);
            let kept = request.args.concat().len();
            assert!((3_900..=4_096).contains(&kept), "{kept}");
        }
    };
    check(&run.listed().await, State::Running);

    let mut run = outlives(&mut daemon, run).await;
    check(&run.listed().await, State::Running);
    for id in &ids {
        assert_eq!(run.feed(id, 0, b"it\n", false).await.unwrap().offset, 3);
        let read = run.all_of(id).await;
        assert_eq!(read.text(), "up 18\ngot it\n");
        let process = read.process.unwrap();
        assert_eq!((process.exit_code, process.request_cut), (Some(4), true));
    }
    let mut run = outlives(&mut daemon, run).await;
    check(&run.listed().await, State::Ended);
}

/// Nothing that is to be recorded happens without, but for what ends a process, and each client is told.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_recording_refuses_signals_and_sizes_but_not_an_end() {
    let config = "sessions: { max_recording: 64KiB }\n".to_owned();
    let daemon = Daemon::start_with(Setup { config, ..Default::default() }).await;
    let mut run = harness_run(&daemon).await;
    let program = "trap 'echo hup' HUP; trap 'echo term; exit 3' TERM; stty raw -echo; echo up
        while :; do dd bs=4096 count=1 of=/dev/null 2>/dev/null || sleep 0.1; done";
    let terminal = Some(v1::TerminalSize { rows: 33, columns: 111 });
    let id = run.start(ProcessRequest { terminal, ..script(program) }).await.process_id;
    run.until(&id, "up").await;
    let (run_id, process_id) = (run.id().to_owned(), id.clone());
    let resize = v1::ResizeTerminalRequest { run_id, process_id, size: terminal };
    run.clients.processes.resize_terminal(resize.clone()).await.unwrap();
    run.send(&id, Signal::Cont).await.unwrap();
    let mut offset = 0;
    for size in [8_192, 512, 64, 1] {
        let refused = loop {
            match run.feed(&id, offset, &vec![b'x'; size], false).await {
                Ok(answer) => offset = answer.offset,
                Err(refused) => break refused,
            }
        };
        assert_eq!(reason(&refused), "WRITE_LIMIT", "{refused:?}");
    }
    assert!(offset > 50_000, "{offset}");
    let refused = run.clients.processes.resize_terminal(resize).await.unwrap_err();
    assert_eq!(reason(&refused), "WRITE_LIMIT", "{refused:?}");
    for signal in [Signal::Cont, Signal::Quit, Signal::Tstp] {
        assert_eq!(reason(&run.send(&id, signal).await.unwrap_err()), "WRITE_LIMIT", "{signal:?}");
    }
    run.send(&id, Signal::Hup).await.unwrap();
    run.until(&id, "hup").await;
    run.send(&id, Signal::Term).await.unwrap();
    let ended = run.waited(&id).await;
    assert_eq!((ended.exit_code, ended.ended_by()), (Some(3), EndedBy::Unspecified), "{ended:?}");
    let told = ended_record(&mut run, &id).await;
    let facts = &told["outcome"]["facts"];
    assert_eq!(facts["signals_not_recorded"], 2, "{told}");
    assert!(facts["recording"]["bytes"].as_u64().unwrap() <= 64 << 10, "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_see_the_same_bytes_at_their_own_pace() {
    let daemon = Daemon::start().await;
    let mut run = harness_run(&daemon).await;
    let id = run.start(script("head -c 3000000 /dev/zero | tr '\\0' x; echo end")).await.process_id;
    // One that does not read at all.
    let stalled = run.attach(&id, 0, true).await.unwrap();
    let all = run.all_of(&id).await;
    assert_eq!(all.stdout.len(), 3_000_004);
    let mut later = run.attach(&id, 3_000_000, false).await.unwrap();
    let first = later.message().await.unwrap().unwrap();
    let Some(v1::attach_process_response::Event::Output(output)) = first.event else { panic!("{first:?}") };
    assert_eq!((output.offset, output.data.as_slice()), (3_000_000, &b"end\n"[..]));
    drop(stalled);
    // There is a limit of them.
    let sleeper = run.start(command(&["sleep", "100"])).await.process_id;
    let mut readers = Vec::new();
    for _ in 0..16 {
        readers.push(run.attach(&sleeper, 0, true).await.unwrap());
    }
    assert_eq!(reason(&run.attach(&sleeper, 0, true).await.unwrap_err()), "OVERLOADED");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_output_delays_neither_input_nor_signals() {
    let daemon = Daemon::start().await;
    let mut run = harness_run(&daemon).await;
    let flood = "trap 'echo heard >&2' USR1; yes & read line; kill $!; wait; exit 3";
    let id = run.start(ProcessRequest { stdin: true, ..script(flood) }).await.process_id;
    run.until(&id, "y\ny\n").await;
    run.send(&id, Signal::Usr1).await.unwrap();
    // A shell that is interrupted by a signal reads no further.
    let _ = run.feed(&id, 0, b"enough\n", false).await;
    let ended = run.waited(&id).await;
    assert_eq!(ended.kill.unwrap().left, 0);
    assert!(ended.stdout_bytes > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_has_a_size_and_hears_keys() {
    let daemon = Daemon::start().await;
    let mut run = harness_run(&daemon).await;
    let terminal = Some(v1::TerminalSize { rows: 33, columns: 111 });
    let id = run.start(ProcessRequest { terminal, ..command(&["sh"]) }).await.process_id;
    run.feed(&id, 0, b"stty size\n", false).await.unwrap();
    run.until(&id, "33 111").await;
    let size = Some(v1::TerminalSize { rows: 44, columns: 99 });
    let (run_id, process_id) = (run.id().to_owned(), id.clone());
    let resize = v1::ResizeTerminalRequest { run_id, process_id, size };
    run.clients.processes.resize_terminal(resize).await.unwrap();
    run.feed(&id, 10, b"stty size; sleep 100\n", false).await.unwrap();
    run.until(&id, "44 99").await;
    // An interrupt ends the sleep and not the shell, as soon as there is a sleep.
    run.feed(&id, 31, b"echo $((6*7)); exit 7\n", false).await.unwrap();
    while run.listed().await[0].state() == State::Running {
        let _ = run.send(&id, Signal::Int).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let read = run.all_of(&id).await;
    assert!(read.text().contains("\n42"), "{}", read.text());
    assert_eq!(read.process.unwrap().exit_code, Some(7));
}

#[tokio::test(flavor = "multi_thread")]
async fn timeout_kill_and_run_end_stop_the_whole_process_tree() {
    let daemon = Daemon::start().await;
    let mut run = harness_run(&daemon).await;
    // What ignores SIGTERM, leaves its session and forks twice.
    let stubborn = "trap '' TERM; for i in 1 2 3; do setsid sh -c 'trap \"\" TERM; sleep 1000 & sleep 1000' & done; echo up; sleep 1000; sleep 1000";
    let timed = run.start(ProcessRequest { timeout_ms: Some(5_000), ..script(stubborn) }).await.process_id;
    let ended = run.waited(&timed).await;
    assert_eq!((ended.state(), ended.ended_by()), (State::Ended, EndedBy::Timeout), "{ended:?}");
    let kill = ended.kill.unwrap();
    assert!(kill.ended >= 4 && kill.left == 0, "{kill:?}");
    assert_eq!(processes(&run.run.container_id), IDLE);

    let killed = run.start(script(stubborn)).await.process_id;
    run.until(&killed, "up").await;
    run.send(&killed, Signal::Kill).await.unwrap();
    let ended = run.waited(&killed).await;
    assert_eq!((ended.ended_by(), ended.kill.unwrap().left), (EndedBy::Killed, 0));
    assert_eq!(processes(&run.run.container_id), IDLE);

    let left = run.start(script(stubborn)).await.process_id;
    run.until(&left, "up").await;
    run.stop().await;
    let ended = run.waited(&left).await;
    assert_eq!((ended.state(), ended.ended_by()), (State::Ended, EndedBy::RunEnded), "{ended:?}");
    let told = ended_record(&mut run, &left).await;
    assert_eq!(told["outcome"]["facts"]["ended_by"], "run-ended");
    assert!(run.logs(&left).await.text().contains("up"), "what it wrote stays until the run is deleted");
    run.delete().await;
    assert_eq!(daemon.leftovers(), Vec::<String>::new());
    assert!(!daemon.state_dir().join("processes").join(run.id()).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_is_a_call_with_policy_consent_and_record() {
    let profile = "profiles:
  p:
    workspace: read-write
    operations: { process: ask, exec: allow }
    exec: { default: allow }
    approvals: { freeze: false }
  q:
    workspace: read-write
    operations: { process: allow }
    approvals: { freeze: false }
    exec: { default: ask, rules: [{ prefix: [sleep], decision: allow, justification: harmless }] }
roles: { director: { allow: \"*\" } }
";
    let policy = vec![("p.yaml", profile.to_owned())];
    let daemon = Daemon::start_with(Setup { policy, ..Default::default() }).await;
    let mut run = daemon.run_on(requests::managed("p")).await;
    assert_eq!(reason(&run.try_start(command(&["rm", "x"])).await.unwrap_err()), "COMMAND_NOT_ALLOWED");
    run.exec(&["sh", "-c", "echo 'echo seen; sleep 100' > seen.sh"]).await;
    let pending = run.try_start(script("sh seen.sh")).await.unwrap();
    assert!(pending.process.is_none() && !pending.approval_id.is_empty());
    let approval = run.clients.approval(&pending.approval_id).await;
    assert_eq!(approval.operation, "process", "{approval:?}");
    // No file can be held for as long as it runs, and the reviewer is not told that one is.
    assert!(approval.preview.contains("cwd: @project\n"), "{}", approval.preview);
    assert!(approval.preview.contains("only these words"), "{}", approval.preview);
    assert!(!approval.preview.contains("file: "), "{}", approval.preview);
    assert_eq!(run.exec(&["true"]).await.exit_code, Some(0), "the run is not frozen");
    run.clients.approve(&pending.approval_id).await.unwrap();
    run.outcome(&pending.call_id).await;
    run.until(&pending.call_id, "seen").await;

    // Input that nobody has seen asks where commands ask, whatever rule is for the program.
    let mut run = daemon.run_on(requests::managed("q")).await;
    let id = run.start(command(&["sleep", "100"])).await.process_id;
    let asks = run.try_start(ProcessRequest { stdin: true, ..command(&["sleep", "100"]) }).await.unwrap();
    assert!(asks.process.is_none());
    let intents = run.clients.of_call(&id).await;
    let kinds: Vec<_> =
        intents.iter().map(|event| record(event)["kind"].as_str().unwrap().to_owned()).collect();
    assert_eq!(kinds, ["call_intent", "call_receipt"]);

    // None of the profiles that there were has it.
    let daemon = Daemon::start().await;
    for profile in ["review", "build", "open", "strict"] {
        let mut run = daemon.run_on(requests::managed(profile)).await;
        let refused = run.try_start(command(&["sleep", "1"])).await.unwrap_err();
        assert_eq!(reason(&refused), "PERMISSION_DENIED", "{profile}");
        run.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_are_refused_and_leave_nothing() {
    let daemon = Daemon::start().await;
    let mut run = harness_run(&daemon).await;
    for (request, expected) in [
        (ProcessRequest::default(), "INVALID_ARGUMENT"),
        (ProcessRequest { script: "x".into(), ..command(&["x"]) }, "INVALID_ARGUMENT"),
        (ProcessRequest { tag: "a b".into(), ..command(&["x"]) }, "INVALID_ARGUMENT"),
        (ProcessRequest { timeout_ms: Some(0), ..command(&["x"]) }, "INVALID_ARGUMENT"),
        (
            ProcessRequest { terminal: Some(v1::TerminalSize { rows: 0, columns: 1 }), ..command(&["x"]) },
            "INVALID_ARGUMENT",
        ),
        (ProcessRequest { cwd: "/etc".into(), ..command(&["x"]) }, "SANDBOX_VIOLATION"),
        (command(&["no-such-program"]), "NOT_FOUND"),
    ] {
        let status = run.try_start(request.clone()).await.unwrap_err();
        assert_eq!(reason(&status), expected, "{request:?}: {}", status.message());
    }
    assert_eq!(run.listed().await, vec![]);
    assert_eq!(processes(&run.run.container_id), IDLE);
    let id = run.start(command(&["true"])).await.process_id;
    assert_eq!(run.waited(&id).await.exit_code, Some(0));
    assert_eq!(reason(&run.send(&id, Signal::Term).await.unwrap_err()), "PRECONDITION_FAILED");
    let other = harness_run(&daemon).await.attach(&id, 0, false).await.map(drop).unwrap_err();
    assert_eq!(reason(&other), "NOT_FOUND", "another run's process");
    tokio::time::timeout(Duration::from_secs(30), run.stop()).await.unwrap();
}

/// Ends with the value.
struct Busy(std::process::Child);

impl Busy {
    fn new() -> Self {
        Self(std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two hundred with `COFFERDAM_LONG`, fifty in each of four runs. They take turns, and none fails for want of time.
#[tokio::test(flavor = "multi_thread")]
async fn fifty_starts_at_once_beside_busy_loops_all_succeed() {
    let daemon = Daemon::start().await;
    let _busy = [Busy::new(), Busy::new()];
    let mut starts = Vec::new();
    for _ in 0..effort::cases(1, 4) {
        let run = harness_run(&daemon).await;
        starts.extend((0..50).map(|number| {
            let mut run = run.clone();
            tokio::spawn(async move {
                let id = run.start(script(&format!("echo {number}; exit 3"))).await.process_id;
                let read = run.all_of(&id).await;
                assert_eq!((read.text(), read.process.unwrap().exit_code), (format!("{number}\n"), Some(3)));
            })
        }));
    }
    for start in starts {
        start.await.unwrap();
    }
}

/// Kills the first keeper that it sees until `is_over`, and returns true if there was one.
fn kill_a_keeper(namespace: &harness::PidNamespace, is_over: &AtomicBool) -> bool {
    while !is_over.load(Ordering::SeqCst) {
        if let Some(keeper) = harness::pid_in(namespace, "/.cofferdam/guest keep") {
            let keeper = rustix::process::Pid::from_raw(i32::try_from(keeper).unwrap()).unwrap();
            let _ = rustix::process::kill_process(keeper, rustix::process::Signal::KILL);
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

/// Keepers are killed as they come up, by a thread that looks for them. One that is not seen in time is tried again.
#[tokio::test(flavor = "multi_thread")]
async fn a_keeper_that_is_lost_at_its_start_is_started_again() {
    let daemon = Daemon::start().await;
    let mut run = harness_run(&daemon).await;
    let container = run.run.container_id.clone();
    let mut was_killed = false;
    for _ in 0..20 {
        let (namespace, is_over) = (harness::pid_namespace(&container), Arc::new(AtomicBool::new(false)));
        let over = is_over.clone();
        let killed = tokio::task::spawn_blocking(move || kill_a_keeper(&namespace, &over));
        let started = run.try_start(script("echo up")).await;
        is_over.store(true, Ordering::SeqCst);
        was_killed = killed.await.unwrap();
        let id = match started {
            Ok(started) => started.process.unwrap().process_id,
            // Killed between the word that lets its process run and the word that it runs, it is not started again: it may have run.
            Err(lost) => {
                assert!(was_killed, "{lost}");
                // Nor is it if it was killed just before it was in its cgroup: then no program has run.
                let said = ["the process has ended; start it again", "could not be confined and was not run"];
                assert!(said.iter().any(|said| lost.message().contains(said)), "{lost}");
                assert_eq!(processes(&run.run.container_id), IDLE);
                run.start(script("echo up")).await.process_id
            }
        };
        let read = run.all_of(&id).await;
        // Killed after its process ran, it is lost; before that, another one comes up.
        let process = read.process.as_ref().unwrap();
        let is_lost = was_killed && process.state() == State::Interrupted;
        assert!(read.text() == "up\n" || is_lost, "{process:?}");
        if was_killed {
            break;
        }
        // The next keeper that is seen is that of the next start.
        harness::until("a keeper stays", async || processes(&container) == IDLE).await;
    }
    assert!(was_killed, "no keeper was seen in twenty starts");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_is_killed_from_outside_loses_its_processes_to_the_infrastructure() {
    let mut daemon = Daemon::start().await;
    let mut run = harness_run(&daemon).await;
    let started = run.start(command(&["sleep", "1000"])).await.process_id;
    let session = run.open().await;
    let left = run.call(calls::shell("sleep 1001 &")).await.unwrap().call_id;
    let killed = harness::docker().args(["kill", &run.run.container_id]).output().unwrap();
    assert!(killed.status.success(), "{killed:?}");
    for id in [&started, &session, &left] {
        let lost = run.waited(id).await;
        assert_eq!(lost.fault(), v1::Fault::Infrastructure, "{lost:?}");
        let is_kill = |fact: &v1::Evidence| fact.what == "engine.exit_code" && fact.value == "137";
        assert!(lost.evidence.iter().any(is_kill), "{lost:?}");
        assert!(lost.failure.starts_with("the run of the process failed: "), "{lost:?}");
        let end = ended_record(&mut run, id).await;
        assert_eq!(end["outcome"]["facts"]["fault"], "INFRASTRUCTURE", "{end}");
    }
    // The next daemon knows it.
    daemon.kill().await;
    daemon.launch().await;
    let mut run = RunHandle { clients: daemon.connect().await, ..run };
    let listed = run.listed().await;
    assert_eq!(listed.len(), 3, "{listed:?}");
    assert!(listed.iter().all(|lost| lost.fault() == v1::Fault::Infrastructure), "{listed:?}");
}
