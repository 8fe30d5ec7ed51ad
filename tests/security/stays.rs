//! Attacks on processes that stay, and with them.

use std::time::Duration;

use harness::process::{command, script};
use harness::v1::exec_result::EndedBy;
use harness::v1::process::State;
use harness::v1::session_result::State as SessionState;
use harness::v1::signal_process_request::Signal;
use harness::v1::{CreateRunRequest, OpenSessionRequest, ProcessRequest, SessionRequest};
use harness::{
    Daemon, RunHandle, calls, debian, in_pid_namespace, memory, pid_namespace, pid_of, processes, reason,
    requests, session,
};
use tokio::time::Instant;

use crate::forked;

/// Processes of a container in which no command runs.
pub(crate) const IDLE: [&str; 2] = ["/.cofferdam/guest hold", "/.cofferdam/guest serve"];

/// Starts beyond the limit are refused, and what has ended is forgotten in time: neither processes nor files pile up.
#[tokio::test(flavor = "multi_thread")]
async fn s1_starts_without_end_are_bounded_and_leave_nothing() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    let mut started = Vec::new();
    let refused = loop {
        match run.try_start(command(&["sleep", "1000"])).await {
            Ok(answer) => started.push(answer.process.unwrap().process_id),
            Err(status) => break status,
        }
        assert!(started.len() <= 64, "no limit");
    };
    assert_eq!((started.len(), reason(&refused).as_str()), (64, "OVERLOADED"), "{refused}");
    for id in &started {
        run.send(id, Signal::Kill).await.unwrap();
    }
    for id in &started {
        assert_eq!(run.waited(id).await.kill.unwrap().left, 0);
    }
    assert_eq!(processes(&run.run.container_id), IDLE);
    for _ in 0..effort::cases(220, 10_000) {
        let id = run.start(command(&["true"])).await.process_id;
        run.waited(&id).await;
    }
    let kept = run.listed().await.len();
    assert!((250..=257).contains(&kept), "{kept} are kept");
    let files = std::fs::read_dir(daemon.state_dir().join("processes").join(run.id())).unwrap().count();
    assert!(files <= 257, "{files} directories");
    assert_eq!(processes(&run.run.container_id), IDLE);
    run.exec(&["true"]).await;
}

/// A flood is cut in its middle and counted; a reader that does not read costs nothing.
#[tokio::test(flavor = "multi_thread")]
async fn s2_floods_with_dead_readers_are_bounded_and_counted() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    // The profile keeps 128 MiB of each stream.
    let flood = "echo first; head -c 200000000 /dev/zero; echo last";
    let id = run.start(script(flood)).await.process_id;
    let _dead = run.attach(&id, 0, true).await.unwrap();
    let ended = run.waited(&id).await;
    assert_eq!(
        (ended.exit_code, ended.stdout_bytes),
        (Some(0), 200_000_011),
        "it was never held up for ever"
    );
    let kept: u64 = std::fs::read_dir(daemon.state_dir().join("processes").join(run.id()).join(&id))
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    assert!(kept <= 130 << 20, "{kept} bytes are kept");
    let tail = 200_000_011 - 5;
    let mut end = run.attach(&id, tail, false).await.unwrap();
    let Some(harness::v1::attach_process_response::Event::Output(output)) =
        end.message().await.unwrap().unwrap().event
    else {
        panic!("no output")
    };
    assert_eq!(output.data, b"last\n");
    // A stretch around the first byte of what is not there.
    let mut middle = run.attach(&id, 100_000_000, false).await.unwrap();
    let Some(harness::v1::attach_process_response::Event::Gap(gap)) =
        middle.message().await.unwrap().unwrap().event
    else {
        panic!("no gap")
    };
    assert!(gap.bytes > 0 && gap.offset == 100_000_000);
    let resident = memory(daemon.pid(), "VmRSS");
    assert!(resident < 400 << 10, "the daemon has {resident} KiB");
}

/// A terminal that floods with escape sequences is bytes like any others.
#[tokio::test(flavor = "multi_thread")]
async fn s3_escape_sequences_without_end_are_bytes() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    let terminal = Some(harness::v1::TerminalSize { rows: 24, columns: 80 });
    let bytes = u64::from(effort::cases(30, 1_024)) << 20;
    let flood = format!("yes \"$(printf '\\033[2J\\033]0;x\\007')\" | head -c {bytes}");
    let id = run.start(ProcessRequest { terminal, ..script(&flood) }).await.process_id;
    let ended = run.waited(&id).await;
    assert!(ended.stdout_bytes >= bytes, "{ended:?}");
    run.exec(&["true"]).await;
    let resident = memory(daemon.pid(), "VmRSS");
    assert!(resident < 400 << 10, "the daemon has {resident} KiB");
}

/// Commands share the keeper's uid: they can kill it, which ends its process and nothing else, and they cannot speak for it.
#[tokio::test(flavor = "multi_thread")]
async fn s4_a_killed_keeper_ends_only_its_own_process() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    let other = run.start(ProcessRequest { stdin: true, ..command(&["cat"]) }).await.process_id;
    let victim = run.start(script("setsid sleep 4321 & echo up; sleep 1234")).await.process_id;
    run.until(&victim, "up").await;
    // The first of the victim's ancestors that is a keeper.
    let kill = "for p in /proc/[0-9]*; do if tr '\\0' ' ' <$p/cmdline | grep -q '^sleep 12[3]4 *$'; then \
                a=${p#/proc/}; \
                until tr '\\0' ' ' </proc/$a/cmdline | grep -q ' keep'; do \
                a=$(awk '/^PPid/ {print $2}' /proc/$a/status); [ \"$a\" -gt 1 ] || exit 2; done; \
                kill -9 $a; exit; fi; done; exit 1";
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let killed = run.ran(calls::shell(kill)).await;
        if killed.exit_code == Some(0) {
            break;
        }
        // It says that it is up before it sleeps.
        assert!(killed.exit_code == Some(1) && Instant::now() < until, "{killed:?}");
    }
    let lost = run.waited(&victim).await;
    assert_eq!((lost.state(), lost.ended_by()), (State::Interrupted, EndedBy::Interrupted), "{lost:?}");
    assert_eq!((lost.fault(), lost.evidence.len()), (harness::v1::Fault::Program, 0), "{lost:?}");
    assert_eq!(lost.kill.unwrap().left, 0);
    assert_eq!(run.feed(&other, 0, b"alive\n", true).await.unwrap().offset, 6);
    assert_eq!(run.all_of(&other).await.text(), "alive\n");
    assert_eq!(processes(&run.run.container_id), IDLE);
    // Nothing of a keeper is open to them.
    let id = run.start(command(&["sleep", "1000"])).await.process_id;
    let look = "for p in /proc/[0-9]*; do if grep -q keep $p/cmdline; then ls $p/fd 2>&1; cat $p/environ 2>&1 | head -c 10; fi; done";
    let looked = run.ran(calls::shell(look)).await;
    assert!(!looked.stdout.contains("socket"), "{looked:?}");
    run.send(&id, Signal::Kill).await.unwrap();
    run.waited(&id).await;
}

/// What is said to a process that is over reaches no other, whoever has its number now.
#[tokio::test(flavor = "multi_thread")]
async fn s5_input_and_signals_do_not_reach_other_processes() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    let gone = run.start(ProcessRequest { stdin: true, ..command(&["true"]) }).await.process_id;
    run.waited(&gone).await;
    // Its number may be another's by now.
    let next =
        run.start(script("trap 'echo hit' TERM HUP INT; while :; do sleep 0.1; done")).await.process_id;
    for signal in [Signal::Term, Signal::Kill, Signal::Hup] {
        assert_eq!(reason(&run.send(&gone, signal).await.unwrap_err()), "PRECONDITION_FAILED");
    }
    assert_eq!(reason(&run.feed(&gone, 0, b"x", false).await.unwrap_err()), "PRECONDITION_FAILED");
    let mut other = daemon.run_on(requests::managed("harness")).await;
    for refused in [
        other.send(&next, Signal::Kill).await.unwrap_err(),
        other.feed(&next, 0, b"x", false).await.unwrap_err(),
        other.attach(&next, 0, false).await.map(drop).unwrap_err(),
    ] {
        assert_eq!(reason(&refused), "NOT_FOUND");
    }
    assert_eq!(run.logs(&next).await.text(), "");
    assert_eq!(run.listed().await.iter().filter(|process| process.state() == State::Running).count(), 1);
}

/// A number that was a process's is made another's, by force: what is said to the one that has ended reaches no other, nor does its
/// time, nor what a terminal remembers of a group that is gone. The next daemon is as careful.
#[tokio::test(flavor = "multi_thread")]
async fn s5_a_reused_number_gets_no_signal_of_its_earlier_owner() {
    let mut daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    let container = run.run.container_id.clone();
    // Far from those that are in use.
    let init = pid_of(&container, IDLE[0]).unwrap();
    last_number(init, 5_000);
    let (timeout, began) = (Duration::from_secs(5), Instant::now());
    let timeout_ms = Some(5_000);
    let gone = run.start(ProcessRequest { timeout_ms, ..script("echo $$; exit 5") }).await.process_id;
    assert_eq!(run.waited(&gone).await.exit_code, Some(5));
    let number: u32 = run.logs(&gone).await.text().trim().parse().unwrap();
    last_number(init, 9_000);
    // A group is gone that its terminal still has in front: the shell that put it there has ended before it.
    let forgetful = "sh -mc 'sleep 1000; :' & \
                     while set -- $(cat /proc/$$/stat); [ $8 = $$ ] || [ $8 = $! ]; do sleep 0.02; done; \
                     kill -9 $!; kill -9 -$8; while kill -0 -$8; do sleep 0.02; done 2>/dev/null; \
                     trap 'echo leader heard' USR1; set -- $(cat /proc/$$/stat); echo front ${8}.; \
                     while :; do sleep 0.1; done";
    let terminal = Some(harness::v1::TerminalSize { rows: 24, columns: 80 });
    let leader = run.start(ProcessRequest { terminal, ..script(forgetful) }).await.process_id;
    let shown = run.until(&leader, ".").await.text();
    let front: u32 = shown.split("front ").nth(1).unwrap().split('.').next().unwrap().parse().unwrap();
    assert!(!has_number(&container, number) && !has_number(&container, front), "both are gone: {shown}");

    let heir = started_as(&mut run, init, number).await;
    let heir_of_group = started_as(&mut run, init, front).await;
    for signal in [Signal::Term, Signal::Kill, Signal::Hup, Signal::Usr1] {
        assert_eq!(reason(&run.send(&gone, signal).await.unwrap_err()), "PRECONDITION_FAILED");
    }
    run.send(&leader, Signal::Usr1).await.unwrap();
    run.until(&leader, "leader heard").await;
    // The time of the one that has ended comes and goes.
    tokio::time::sleep_until(began + timeout + Duration::from_secs(1)).await;
    daemon.relaunch().await;
    let mut run = RunHandle { clients: daemon.connect().await, ..run };
    for signal in [Signal::Term, Signal::Kill] {
        assert_eq!(reason(&run.send(&gone, signal).await.unwrap_err()), "PRECONDITION_FAILED");
    }
    for (id, number) in [(&heir, number), (&heir_of_group, front)] {
        assert_eq!(run.logs(id).await.text(), format!("{number}\n"), "it has heard nothing");
        assert!(has_number(&container, number));
        let listed = run.listed().await;
        let found = listed.iter().find(|process| process.process_id == *id).unwrap();
        assert_eq!(found.state(), State::Running);
        run.send(id, Signal::Kill).await.unwrap();
        assert_eq!(run.waited(id).await.ended_by(), EndedBy::Killed);
    }
}

/// Starts a process that tells of every signal, as soon as the kernel gives it this number.
async fn started_as(run: &mut RunHandle, init: u32, number: u32) -> String {
    let tells = "trap 'echo hit' TERM HUP INT USR1; echo $$; while :; do sleep 0.1; done";
    // What starts a process takes a few numbers first: as many each time, if nothing else happens.
    let mut before = 12;
    for _ in 0..40 {
        last_number(init, number - before);
        let id = run.start(script(tells)).await.process_id;
        let got: u32 = run.until(&id, "\n").await.text().trim().parse().unwrap();
        if got == number {
            return id;
        }
        run.send(&id, Signal::Kill).await.unwrap();
        run.waited(&id).await;
        // What it was off by, in either direction. Numbers that are taken are left out.
        before =
            (before + got).checked_sub(number).filter(|before| (1..number).contains(before)).unwrap_or(12);
    }
    panic!("no process got the number {number}");
}

/// The number that was given last in a process's pid namespace, which the next is counted from.
fn last_number(member: u32, number: u32) {
    let write = format!("echo {number} > /proc/sys/kernel/ns_last_pid");
    let entered = std::process::Command::new("nsenter")
        .args(["--target", &member.to_string(), "--pid", "--", "sh", "-c", &write])
        .output()
        .unwrap();
    assert!(entered.status.success(), "as root: {}", String::from_utf8_lossy(&entered.stderr));
}

/// Whether a process of the container has this number there.
fn has_number(container: &str, number: u32) -> bool {
    let is_it = |process: &std::path::PathBuf| {
        let status = std::fs::read_to_string(process.join("status")).unwrap_or_default();
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        numbers.and_then(|numbers| numbers.split_whitespace().last()) == Some(&*number.to_string())
    };
    in_pid_namespace(&pid_namespace(container)).iter().any(is_it)
}

/// Commands can kill the worker as well. A process goes on without it, and answers the next one's calls.
#[tokio::test(flavor = "multi_thread")]
async fn s6_a_killed_worker_leaves_processes_alone() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    let id = run.start(ProcessRequest { stdin: true, ..command(&["cat"]) }).await.process_id;
    run.feed(&id, 0, b"before\n", false).await.unwrap();
    let lost = run.fails(calls::shell("kill -9 $PPID")).await;
    assert_eq!(lost.reason, "CANCELLED");
    run.ok(calls::exec(&["true"])).await;
    assert_eq!(run.feed(&id, 7, b"after\n", true).await.unwrap().offset, 13);
    assert_eq!(run.all_of(&id).await.text(), "before\nafter\n");
    assert_eq!(processes(&run.run.container_id), IDLE);
}

/// What processes fill the container with, and a kill may miss. Each says when it is there.
const TREES: [&str; 5] = [
    "echo up; exec sleep 1000",
    "setsid sleep 1000 & echo up; sleep 1000",
    "trap '' TERM HUP INT; (trap '' TERM; setsid sh -c 'sleep 1000 & sleep 1000' &) ; echo up; while :; do sleep 0.01; done",
    "sleep 1000 & kill -STOP $!; echo up; sleep 1000",
    "(while :; do sleep 0.005 & wait; done) & echo up; while :; do sh -c 'sleep 0.005 & sleep 1000' & sleep 0.05; kill $!; done",
];

/// What commands of a session leave to it: jobs, what has a session of its own, orphans, traps, what is stopped, and what is
/// never the same.
const JOBS: [&str; 5] = [
    "sleep 1000 & sleep 1000 | cat & echo up",
    "setsid sleep 1000 & (setsid sh -c 'sleep 1000 & sleep 1000' &) ; echo up",
    "trap '' TERM HUP INT; trap 'sleep 1000 & setsid sleep 1000 &' EXIT; (setsid sh -c 'trap \"\" TERM HUP; sleep 1000 & sleep 1000' &) ; echo up",
    "sleep 1000 & kill -STOP $!; nohup sleep 1000 >/dev/null 2>&1 & echo up",
    "(while :; do sleep 0.005 & wait; done) & while :; do sh -c 'setsid sleep 0.01 & sleep 0.005'; done & echo up",
];

/// Starts the round's tree as a process.
async fn busy_process(run: &mut RunHandle, round: u32) -> String {
    let timeout_ms = (round % 8 == 2).then_some(300);
    let tree = TREES[(round % 5) as usize];
    let id = run.start(ProcessRequest { timeout_ms, ..script(tree) }).await.process_id;
    if timeout_ms.is_none() {
        run.until(&id, "up").await;
    }
    id
}

/// Opens a session that has the round's jobs, and in some rounds a command that does not end.
async fn busy_session(run: &mut RunHandle, round: u32) -> String {
    let timeout = (round % 8 == 2).then(|| wire::duration(Duration::from_secs(5)));
    let request = OpenSessionRequest { timeout, ..Default::default() };
    let id = run.try_open(request).await.unwrap().session.unwrap().session_id;
    let jobs =
        SessionRequest { timeout_ms: Some(20_000), ..session::command(&id, JOBS[(round % 5) as usize]) };
    let answer = run.try_in_session(jobs).await;
    if timeout.is_none() {
        let result = answer.unwrap().result.unwrap();
        assert!(result.state() == SessionState::Done && result.output.contains("up"), "{result:?}");
    }
    if matches!(round % 8, 0 | 1 | 3) {
        let waits = SessionRequest { timeout_ms: Some(20), ..session::command(&id, "sleep 1000") };
        assert_eq!(run.in_session(waits).await.state(), SessionState::Running);
    }
    id
}

/// Ends it in one of many ways.
async fn end(daemon: &mut Daemon, run: &mut RunHandle, id: &str, is_session: bool, round: u32) {
    match round % 8 {
        // By its own timeout.
        2 => {}
        0 if is_session => drop(run.close(id).await),
        1 if (round / 16).is_multiple_of(2) => forked::restored(daemon, run).await,
        // While jobs are stopped a shell warns, and takes only the second of two.
        6 if is_session => drop(run.try_in_session(session::command(id, "exit 3; exit 3")).await),
        3 | 6 => run.send(id, Signal::Kill).await.unwrap(),
        // The keeper's whole container: its run ends.
        4 => drop(run.stop().await),
        // The next daemon adopts it, and ends it.
        5 => {
            daemon.relaunch().await;
            run.clients = daemon.connect().await;
            run.send(id, Signal::Kill).await.unwrap();
        }
        7 => {
            // Every process of the container that is not the worker's or the keeper's own, at once.
            let kill = "for i in 1 2 3 4 5; do pkill -9 sleep; pkill -9 -f echo; sleep 0.02; done; true";
            run.ran(calls::shell(kill)).await;
            let _ = run.send(id, Signal::Kill).await;
        }
        _ => {
            let _ = run.send(id, Signal::Term).await;
            tokio::time::sleep(Duration::from_millis(u64::from(round % 7) * 10)).await;
            let _ = run.send(id, Signal::Kill).await;
        }
    }
}

/// However a process or a session ends, and whatever it has left, nothing of it runs on, and no fork has any of it.
#[tokio::test(flavor = "multi_thread")]
async fn s1_no_process_remains_after_any_end() {
    let mut daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    let (rounds, mut killed) = (effort::cases(48, 1_000), 0);
    for round in 0..rounds {
        // Within 80 rounds every tree and all jobs meet every end. Half of all are sessions: of bash, and of ash.
        let is_session = round / 8 % 2 == 1;
        let id = if is_session {
            busy_session(&mut run, round).await
        } else {
            busy_process(&mut run, round).await
        };
        if round % 4 == 1 {
            forked::forked(&daemon, &run, &id).await;
        }
        end(&mut daemon, &mut run, &id, is_session, round).await;
        let ended = run.waited(&id).await;
        let kill = ended.kill.as_ref().unwrap_or_else(|| panic!("round {round}: {ended:?}"));
        assert_eq!(kill.left, 0, "round {round}: {ended:?}");
        killed += kill.ended;
        if round % 8 == 4 {
            assert_eq!(daemon.mounts(), [""; 0], "round {round}");
            let image = if round / 16 % 2 == 0 { debian() } else { String::new() };
            let request = CreateRunRequest { image, ..requests::managed("harness") };
            run = daemon.run_on(request).await;
        }
        assert_eq!(processes(&run.run.container_id), IDLE, "round {round}");
    }
    println!("{killed} processes were ended in {rounds} rounds");
    assert!(killed >= rounds, "{killed} processes were ended: there was nothing to miss");
}
