//! Forks of one run, each of which leaves marks wherever a command can: no fork finds a mark of another one.

use std::collections::{BTreeMap, BTreeSet};

use harness::process::command;
use harness::{Daemon, RunHandle, calls, debian, forks, inspect, requests, v1};
use regex::Regex;

/// Marks of each kind in each run.
const EACH: u32 = 9;
/// Number of the origin: what it has before the forks are made.
const ORIGIN: u32 = 0;
/// Number of what the origin has after the forks were made.
const LATER: u32 = 999;
/// Smallest key of System V. Each run has 4,096 of them, and each kind 256 of these.
const KEYS: u32 = 0x6d00_0000;
const KEYS_OF_RUN: u32 = 4_096;
const KEYS_OF_KIND: u32 = 256;
/// Kinds of System V, in the order of their keys.
const SYSTEM_V: [&str; 3] = ["shm", "msg", "sem"];
/// Marks that a program leaves.
const PLANTED: [&str; 9] = ["workspace", "state", "tmp", "root", "socket", "process", "shm", "msg", "sem"];
/// Marks that a fork has of its origin.
const INHERITED: [&str; 5] = ["workspace", "state", "root", "log", "variable"];

/// Leaves marks and stays. Its arguments are the number of the run, the number of marks, and the first key.
const PLANT: &str = r#"
use Socket; $| = 1;
my ($run, $each, $key) = @ARGV;
my @held;
for my $n (0 .. $each - 1) {
    my $mark = sub { sprintf "mk%03dx%sx%02d", $run, $_[0], $n };
    for ([workspace => "/workspace"], [state => "/state"], [tmp => "/tmp"], [root => "/usr/share"]) {
        my $name = $mark->($$_[0]);
        open my $file, ">", "$$_[1]/$name" or die "$name: $!";
        print $file "$name in it\n"; close $file;
    }
    socket(my $socket, AF_UNIX, SOCK_STREAM, 0) or die $!;
    bind($socket, pack("S a*", AF_UNIX, "\0" . $mark->("socket"))) or die "socket: $!";
    listen($socket, 8) or die $!;
    push @held, $socket;
    defined shmget($key + $n, 64, 01666) or die "shm: $!";
    defined msgget($key + 256 + $n, 01666) or die "msg: $!";
    defined semget($key + 512 + $n, 1, 01666) or die "sem: $!";
    my $name = $mark->("process");
    unless (fork) { exec "sh", "-c", "sleep 1000; :", $name; }
}
print "planted\n";
sleep 1000;
"#;

/// Prints each mark that a command finds: names and contents of files, environments, command lines, sockets and keys.
const LOOK: &str = r#"
{ find / \( -path /proc -o -path /sys \) -prune -o -print
  env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\0' '\n'; cat /proc/net/unix
  find /workspace /state /tmp /usr/share /etc /var /run /home /dev/shm -type f -size -64k -exec grep -ahs mk {} +
} 2>/dev/null | grep -aoE 'mk[0-9]{3}x[a-z]+x[0-9]{2}' | sort -u
for kind in shm msg sem; do awk 'FNR > 1 { print "key", $1 }' /proc/sysvipc/$kind; done
"#;

/// Tries to reach the first socket and the first keys of each run, and prints those that it reached.
const REACH: &str = r#"
use Socket;
my ($keys, @runs) = @ARGV;
for my $run (@runs) {
    socket(my $socket, AF_UNIX, SOCK_STREAM, 0) or die $!;
    my $name = sprintf "\0mk%03dxsocketx00", $run;
    print "socket $run\n" if connect($socket, pack("S a*", AF_UNIX, $name));
    my $key = $keys + $run * 4096;
    print "shm $run\n" if defined shmget($key, 0, 0);
    print "msg $run\n" if defined msgget($key + 256, 0);
    print "sem $run\n" if defined semget($key + 512, 0, 0);
}
"#;

fn mark(run: u32, kind: &str, number: u32) -> String {
    format!("mk{run:03}x{kind}x{number:02}")
}

/// All marks of a run of these kinds.
fn marks(run: u32, kinds: &[&str]) -> BTreeSet<String> {
    kinds.iter().flat_map(|kind| (0..EACH).map(|number| mark(run, kind, number))).collect()
}

/// The mark that a key is.
fn of_key(key: u32) -> String {
    let (run, rest) = ((key - KEYS) / KEYS_OF_RUN, (key - KEYS) % KEYS_OF_RUN);
    mark(run, SYSTEM_V[(rest / KEYS_OF_KIND) as usize], rest % KEYS_OF_KIND)
}

/// All marks in a text.
fn marks_in(text: &str) -> BTreeSet<String> {
    let mark = Regex::new("mk[0-9]{3}x[a-z]+x[0-9]{2}").unwrap();
    mark.find_iter(text).map(|found| found.as_str().to_owned()).collect()
}

/// Variables of a run, whose values are marks of a kind.
fn variables(run: u32, kind: &str) -> BTreeMap<String, String> {
    (0..EACH).map(|number| (format!("V_{kind}_{run}_{number}"), mark(run, kind, number))).collect()
}

/// Leaves the marks of a run but those of variables.
async fn plant(handle: &mut RunHandle, run: u32) {
    let arguments = [run, EACH, KEYS + run * KEYS_OF_RUN].map(|number| number.to_string());
    let [run_number, each, key] = &arguments;
    let id = handle.start(command(&["perl", "-e", PLANT, run_number, each, key])).await.process_id;
    handle.until(&id, "planted").await;
    for number in 0..EACH {
        handle.ok(calls::write(&mark(run, "log", number), "on record\n")).await;
    }
}

/// All marks that a command of the run finds.
async fn found(handle: &mut RunHandle) -> BTreeSet<String> {
    let looked = handle.exec(&["sh", "-c", LOOK]).await;
    assert_eq!((looked.exit_code, looked.stdout_omitted_bytes), (Some(0), 0), "{}", looked.stderr);
    let lines = looked.stdout.lines();
    lines
        .map(|line| {
            line.strip_prefix("key ").map_or_else(|| line.to_owned(), |key| of_key(key.parse().unwrap()))
        })
        .collect()
}

/// A hundred forks with `COFFERDAM_LONG`, ten otherwise, with more than a hundred marks each.
#[tokio::test(flavor = "multi_thread")]
async fn no_fork_finds_a_mark_of_another_one() {
    let count = effort::cases(10, 100);
    let daemon = Daemon::start().await;
    let mut clients = daemon.connect().await;
    let request = v1::CreateRunRequest {
        image: debian(),
        env: variables(ORIGIN, "variable"),
        secret_env: variables(ORIGIN, "secret"),
        ..requests::managed("harness")
    };
    let mut origin = daemon.run_on(request).await;
    plant(&mut origin, ORIGIN).await;
    let of_origin: BTreeSet<String> =
        marks(ORIGIN, &PLANTED).into_iter().chain(marks(ORIGIN, &["log", "variable", "secret"])).collect();
    assert_eq!(found(&mut origin).await, of_origin, "a mark is not found where it was made");
    let checkpoint = forks::checkpoint(&mut clients, origin.id()).await.unwrap().checkpoint_id;

    let mut family = Vec::new();
    for run in 1..=count {
        let request = v1::ForkRunRequest {
            env: variables(run, "variable"),
            secret_env: variables(run, "secret"),
            ..forks::of_checkpoint(&checkpoint, 1)
        };
        family.push((run, forks::ready(&daemon, request).await.remove(0)));
    }
    plant(&mut origin, LATER).await;
    for (run, fork) in &mut family {
        plant(fork, *run).await;
    }

    let numbers: Vec<String> = (0..=count).map(|run| run.to_string()).collect();
    for (run, fork) in &mut family {
        let own: BTreeSet<String> =
            marks(*run, &PLANTED).into_iter().chain(marks(*run, &["log", "variable", "secret"])).collect();
        let expected: BTreeSet<String> = own.iter().cloned().chain(marks(ORIGIN, &INHERITED)).collect();
        assert_eq!(found(fork).await, expected, "fork {run}");
        let keys = KEYS.to_string();
        let argv: Vec<&str> = ["perl", "-e", REACH, keys.as_str()]
            .into_iter()
            .chain(numbers.iter().map(String::as_str))
            .collect();
        let reached = fork.exec(&argv).await.stdout;
        assert_eq!(reached, format!("socket {run}\nshm {run}\nmsg {run}\nsem {run}\n"), "fork {run}");
        assert_eq!(fork.listed().await.len(), 1, "fork {run}");
        let shown = fork.show().await;
        let values: BTreeSet<String> = shown.env.into_values().collect();
        let inherited = marks(ORIGIN, &["variable"]);
        let all: BTreeSet<String> = marks(*run, &["variable"]).into_iter().chain(inherited).collect();
        assert_eq!(values, all, "fork {run}");
        assert!(
            shown.secret_env.iter().all(|name| name.starts_with(&format!("V_secret_{run}_"))),
            "fork {run}"
        );
        let id = fork.id().to_owned();
        let told = marks_in(&text(&clients.events(&id, "").await));
        // The record also has the beginning of what the fork's own commands printed.
        assert!(told.is_superset(&marks(*run, &["log"])), "the record of fork {run}: {told:?}");
        assert!(told.is_subset(&expected), "the record of fork {run}: {told:?}");
        assert!(!inspect(&fork.run.container_id).to_string().contains("xsecretx"), "fork {run}");
    }
    let now: BTreeSet<String> =
        of_origin.into_iter().chain(marks(LATER, &PLANTED)).chain(marks(LATER, &["log"])).collect();
    assert_eq!(found(&mut origin).await, now, "the origin");

    // No value of a secret is on record or in the daemon's log.
    let told = format!("{}{}", text(&clients.events("", "").await), daemon.log());
    assert!(!told.contains("xsecretx"), "a secret value is told");
    for (_, mut fork) in family {
        fork.stop().await;
    }
    origin.stop().await;
    assert_eq!(daemon.left_by_runs(), (vec![], vec![]));
}

fn text(events: &[v1::AuditEvent]) -> String {
    events.iter().map(|event| event.record_json.as_str()).collect()
}
