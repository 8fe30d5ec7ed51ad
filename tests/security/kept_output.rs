//! Tests that the data which the host stores of a run's processes, sessions and terminals is bounded in total.

use std::path::Path;

use harness::process::{command, script};
use harness::v1::attach_process_response::Event;
use harness::v1::process::State;
use harness::v1::signal_process_request::Signal;
use harness::v1::{
    self, ProcessRequest, TerminalStart, open_terminal_request, open_terminal_response, terminal_closed,
};
use harness::{Daemon, RunHandle, Setup, reason, record, requests};
use tokio_stream::StreamExt as _;
use wire::v1::terminal_service_client::TerminalServiceClient;

const MIB: u64 = 1 << 20;
/// What a run may keep, MiB.
const MOST: u64 = 16;
/// Directories, and what is known of processes beyond what is reckoned for it.
const SLACK: u64 = MIB / 2;
/// Bytes that each flood writes.
const FLOOD: u64 = 24 * MIB;

/// A daemon with a profile that lets a run keep this much, and each stream of a process 8 MiB.
async fn daemon(most_mib: u64) -> Daemon {
    let profile = format!(
        "profiles:
  p:
    workspace: read-write
    operations: {{ process: allow, session: allow, exec: allow }}
    exec: {{ default: allow }}
    limits: {{ output_mib: {most_mib} }}
    rate_limits:
      operations:
        default: {{ minute: unlimited, hour: unlimited, day: unlimited }}
      run: {{ minute: unlimited, hour: unlimited, day: unlimited }}
      principal: {{ minute: unlimited, hour: unlimited, day: unlimited }}
    bounds: {{ max_spool_bytes: {} }}
roles: {{ director: {{ allow: \"*\" }} }}
",
        16 * MIB
    );
    Daemon::start_with(Setup { policy: vec![("p.yaml", profile)], ..Default::default() }).await
}

/// Writes numbered lines of 16 bytes, so that each says where it belongs, and reads what it is given.
fn flood(bytes: u64) -> ProcessRequest {
    let lines = format!("awk 'BEGIN {{ for (i = 1; i <= {}; i++) printf \"%015d\\n\", i }}'", bytes / 16);
    ProcessRequest { stdin: true, ..script(&format!("{lines}; cat >/dev/null")) }
}

/// Bytes that a directory takes on the disk, as `du` counts them.
fn taken(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let of = |path: &Path| std::fs::symlink_metadata(path).map_or(0, |metadata| metadata.blocks() * 512);
    of(directory)
        + entries
            .map(|entry| if entry.path().is_dir() { taken(&entry.path()) } else { of(&entry.path()) })
            .sum::<u64>()
}

/// All that the daemon keeps of a run's processes, sessions and terminals.
fn kept(daemon: &Daemon, run: &RunHandle) -> u64 {
    ["processes", "sessions"].map(|kind| taken(&daemon.state_dir().join(kind).join(run.id()))).iter().sum()
}

/// Reads standard output from its beginning: the parts that are kept, with their places, and the bytes that are not.
async fn parts(run: &mut RunHandle, id: &str) -> (Vec<(u64, Vec<u8>)>, u64) {
    let mut stream = run.attach(id, 0, false).await.unwrap();
    let (mut parts, mut missing): (Vec<(u64, Vec<u8>)>, u64) = (Vec::new(), 0);
    while let Some(response) = stream.message().await.unwrap() {
        match response.event.unwrap() {
            Event::Output(output) => match parts.last_mut() {
                Some((start, part)) if *start + part.len() as u64 == output.offset => {
                    part.extend(output.data);
                }
                _ => parts.push((output.offset, output.data)),
            },
            Event::Gap(gap) => missing += gap.bytes,
            Event::Process(_) => {}
        }
    }
    (parts, missing)
}

/// The line at a place of a flood.
fn line_at(offset: u64) -> String {
    format!("{:015}\n", offset / 16 + 1)
}

/// Waits until a process has written so much.
async fn wrote(run: &mut RunHandle, id: &str, bytes: u64) {
    loop {
        let listed = run.listed().await;
        let process = listed.iter().find(|process| process.process_id == id).unwrap();
        assert_eq!(process.state(), State::Running, "{process:?}");
        if process.stdout_bytes >= bytes {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

/// The beginning and the end of a flood are there as it wrote them, and every byte between them is counted.
async fn is_whole_at_both_ends(run: &mut RunHandle, id: &str) {
    let (parts, missing) = parts(run, id).await;
    let all: u64 = parts.iter().map(|(_, part)| part.len() as u64).sum();
    assert_eq!(all + missing, FLOOD, "every byte is kept or counted");
    let ((start, first), (place, last)) = (parts.first().unwrap(), parts.last().unwrap());
    assert!(
        parts.len() > 1 && *start == 0 && first.len() > 100 << 10 && last.len() > 80 << 10,
        "{}",
        parts.len()
    );
    assert_eq!(place + last.len() as u64, FLOOD);
    for (start, part) in &parts {
        let skipped = (16 - start % 16) % 16;
        let lines = part[usize::try_from(skipped).unwrap()..].chunks_exact(16);
        for (line, at) in lines.zip((start + skipped..).step_by(16)) {
            assert_eq!(String::from_utf8_lossy(line), line_at(at), "at {at}");
        }
    }
}

/// Gives a process input until it is refused: how much it took.
async fn feed_until_refused(run: &mut RunHandle, id: &str) -> (u64, tonic::Status) {
    let mut offset = 0;
    for size in [256 << 10, 4 << 10, 64] {
        loop {
            match run.feed(id, offset, &vec![b'i'; size], false).await {
                Ok(answer) => offset = answer.offset,
                Err(refused) if size == 64 => return (offset, refused),
                Err(refused) => {
                    assert_eq!(reason(&refused), "WRITE_LIMIT", "{refused}");
                    break;
                }
            }
        }
    }
    unreachable!()
}

/// Runs a command on a terminal: why that ended.
async fn shows(run: &RunHandle, command: &[&str]) -> Result<terminal_closed::Reason, tonic::Status> {
    let command = command.iter().map(ToString::to_string).collect();
    let start = TerminalStart { run_id: run.id().to_owned(), command, ..Default::default() };
    let first = v1::OpenTerminalRequest { event: Some(open_terminal_request::Event::Start(start)) };
    // The stream of what is typed stays open.
    let typed = tokio_stream::iter([first]).chain(tokio_stream::pending());
    let mut terminals = TerminalServiceClient::new(run.clients.channel.clone());
    let mut shown = terminals.open_terminal(typed).await?.into_inner();
    loop {
        let response = shown.message().await?.expect("a terminal ends with its reason");
        if let Some(open_terminal_response::Event::Closed(closed)) = response.event {
            return Ok(closed.reason());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s12_floods_of_a_run_stay_within_its_allowance() {
    let mut daemon = daemon(MOST).await;
    let mut run = daemon.run_on(requests::managed("p")).await;
    let mut floods = Vec::new();
    for _ in 0..6 {
        floods.push(run.start(flood(FLOOD)).await.process_id);
    }
    for id in &floods {
        wrote(&mut run, id, FLOOD).await;
        let now = kept(&daemon, &run);
        assert!(now <= MOST * MIB + SLACK, "{now}");
    }
    for id in &floods {
        is_whole_at_both_ends(&mut run, id).await;
    }
    // Floods keep nobody from another process or a session, nor from giving those something.
    let session = run.open().await;
    assert_eq!(run.said(&session, "echo here").await, ("here\n".to_owned(), 0));
    let small = run.start(ProcessRequest { stdin: true, ..command(&["cat"]) }).await.process_id;
    assert_eq!(run.feed(&small, 0, b"hello\n", false).await.unwrap().offset, 6);
    run.until(&small, "hello\n").await;

    // Recordings grow with what processes are given, and end at the same limit.
    let (given, refused) = feed_until_refused(&mut run, &floods[0]).await;
    assert!(given > MIB && refused.code() == tonic::Code::ResourceExhausted, "{given} {refused}");
    let full = kept(&daemon, &run);
    assert!(full > (MOST - 5) * MIB && full <= MOST * MIB + SLACK, "{full}");
    let refused = run.feed(&small, 6, &vec![b'i'; 9_000], false).await.unwrap_err();
    assert_eq!(reason(&refused), "WRITE_LIMIT");

    // Nothing is lost with the daemon, and the next one counts the same.
    daemon.relaunch().await;
    let mut run = RunHandle { clients: daemon.connect().await, ..run };
    let refused = run.try_start(command(&["true"])).await.unwrap_err();
    assert_eq!(reason(&refused), "WRITE_LIMIT", "{refused}");
    let (given, _) = feed_until_refused(&mut run, &small).await;
    assert!(given < 4 * MIB, "{given}");
    let after = kept(&daemon, &run);
    assert!(after <= MOST * MIB + SLACK, "{after}");
    for id in &floods {
        is_whole_at_both_ends(&mut run, id).await;
        run.send(id, Signal::Kill).await.unwrap();
        run.waited(id).await;
    }
    // An ended process is evicted.
    run.start(command(&["true"])).await;
    let after = kept(&daemon, &run);
    assert!(after <= MOST * MIB + SLACK, "{after}");
}

/// What is not kept is not lost to a reader that is there: it gets every byte.
#[tokio::test(flavor = "multi_thread")]
async fn s12_a_reader_that_follows_gets_output_that_is_not_stored() {
    const PIECE: u64 = 20_000;
    const ROUNDS: u64 = 60;
    let daemon = daemon(MOST).await;
    let mut run = daemon.run_on(requests::managed("p")).await;
    for _ in 0..2 {
        let id = run.start(flood(FLOOD)).await.process_id;
        wrote(&mut run, &id, FLOOD).await;
    }
    let writes = format!("while read -r byte; do head -c {PIECE} /dev/zero | tr '\\0' \"$byte\"; done");
    let id = run.start(ProcessRequest { stdin: true, ..script(&writes) }).await.process_id;
    let mut stream = run.attach(&id, 0, true).await.unwrap();
    let mut got = 0;
    for round in 0..ROUNDS {
        let byte = b'a' + u8::try_from(round % 26).unwrap();
        run.feed(&id, round * 2, &[byte, b'\n'], false).await.unwrap();
        while got < (round + 1) * PIECE {
            let Event::Output(output) = stream.message().await.unwrap().unwrap().event.unwrap() else {
                panic!("a gap in round {round}")
            };
            assert!(output.offset == got && output.data.iter().all(|found| *found == byte), "round {round}");
            got += output.data.len() as u64;
        }
    }
    let (parts, missing) = parts(&mut run, &id).await;
    let all: u64 = parts.iter().map(|(_, part)| part.len() as u64).sum();
    assert!(all < 400 << 10 && missing > 600 << 10, "{all} {missing}");
    assert_eq!(all + missing, ROUNDS * PIECE);
}

#[tokio::test(flavor = "multi_thread")]
async fn s12_a_start_without_space_is_refused_and_ended_processes_are_evicted() {
    let daemon = daemon(8).await;
    let mut run = daemon.run_on(requests::managed("p")).await;
    let mut started = Vec::new();
    let refused = loop {
        match run.try_start(command(&["sleep", "1000"])).await {
            Ok(answer) => started.push(answer.process.unwrap().process_id),
            Err(status) => break status,
        }
        assert!(started.len() < 40, "no limit");
    };
    assert_eq!((refused.code(), reason(&refused).as_str()), (tonic::Code::ResourceExhausted, "WRITE_LIMIT"));
    assert!(
        refused.message().contains("limits.output_mib") && refused.message().contains("end a process"),
        "{refused}"
    );
    assert!(started.len() >= 8, "{}", started.len());
    assert_eq!(run.listed().await.len(), started.len(), "nothing is left of the one that was refused");
    run.exec(&["true"]).await;

    // An ended process is evicted for the next, and so is each of these.
    let last = started.pop().unwrap();
    run.send(&last, Signal::Kill).await.unwrap();
    run.waited(&last).await;
    for _ in 0..effort::cases(30, 1_000) {
        let id = run.start(script("head -c 300000 /dev/zero; echo end")).await.process_id;
        let ended = run.waited(&id).await;
        assert_eq!((ended.exit_code, ended.stdout_bytes), (Some(0), 300_004));
        let now = kept(&daemon, &run);
        assert!(now <= 8 * MIB + SLACK, "{now}");
    }
    let listed = run.listed().await;
    let living = listed.iter().filter(|process| process.state() == State::Running).count();
    assert_eq!(living, started.len(), "none that lives was evicted");
    // Starts that fail leave nothing, however many.
    let before = kept(&daemon, &run);
    for _ in 0..50 {
        let nothing = ProcessRequest { stdin: true, ..command(&["no-such-program"]) };
        run.try_start(nothing).await.unwrap_err();
    }
    let after = kept(&daemon, &run);
    assert!(after <= before + 16 * 1024, "directories at most: {after} {before}");
}

/// Each recording is small, and there is no end of them: they stay when their processes are forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn s12_recordings_of_processes_that_are_forgotten_count() {
    let daemon = daemon(8).await;
    let mut run = daemon.run_on(requests::managed("p")).await;
    let mut rounds = 0;
    let refused = loop {
        let started = run.try_start(ProcessRequest { stdin: true, ..command(&["cat"]) }).await;
        let id = match started {
            Ok(answer) => answer.process.unwrap().process_id,
            Err(refused) => break refused,
        };
        let mut offset = 0;
        for _ in 0..8 {
            let Ok(answer) = run.feed(&id, offset, &vec![b'i'; 200 << 10], false).await else { break };
            offset = answer.offset;
        }
        run.send(&id, Signal::Kill).await.unwrap();
        run.waited(&id).await;
        rounds += 1;
        assert!(rounds < 40 && kept(&daemon, &run) <= 8 * MIB + SLACK, "{rounds}");
    };
    assert_eq!(reason(&refused), "WRITE_LIMIT", "{refused}");
    assert!(rounds >= 4, "{rounds}");
    let run_id = run.id().to_owned();
    let events = run.clients.events(&run_id, "process_ended").await;
    assert_eq!(events.len(), rounds);
    let facts = |event: &v1::AuditEvent| record(event)["outcome"]["facts"].clone();
    let last = facts(events.last().unwrap());
    assert!(last["recording"]["bytes"].as_u64().unwrap() > 0, "{last}");
    assert_eq!(last["input_bytes_refused"], 200 << 10, "{last}");
    assert!(facts(&events[0])["input_bytes_refused"].is_null());
    // Terminals are recorded, too, and their recordings are of the same account.
    let mut terminals = 0;
    let refused = loop {
        match shows(&run, &["yes"]).await {
            Ok(why) => assert_eq!(why, terminal_closed::Reason::RecordingFull),
            Err(refused) => break refused,
        }
        terminals += 1;
        assert!(terminals < 100, "no limit");
    };
    assert_eq!(reason(&refused), "WRITE_LIMIT", "{refused}");
    assert_eq!(run.clients.events(&run_id, "session_opened").await.len(), terminals);
    let all = kept(&daemon, &run);
    assert!(all <= 8 * MIB + SLACK, "{all}");

    run.stop().await;
    assert!(kept(&daemon, &run) > 6 * MIB, "recordings are kept until the run is deleted");
    run.delete().await;
    assert_eq!(kept(&daemon, &run), 0);
}
