//! Hostile and large trees on their way through a checkpoint, a fork and a restore.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use harness::process::script;
use harness::{Daemon, RunHandle, calls, debian, forks, reason, requests, until, v1};

/// Makes a tree of all that an agent can make, with so many files.
const MAKE: &str = r#"
use Socket; use Fcntl; use POSIX ();
my ($count) = @ARGV;
my $setxattr = (POSIX::uname())[4] eq "aarch64" ? 5 : 188;
sub made { my ($path, $text) = @_; open my $file, ">", $path or die "$path: $!"; print $file $text; close $file; }
mkdir "many";
for my $n (1 .. $count) { my $d = "many/" . int($n / 1000); mkdir $d; made("$d/$n", $n); }
mkdir "names";
for my $byte (1 .. 255) { made("names/a" . chr($byte) . "b", $byte) unless $byte == 47; }
made("names/$_", $_) for ("x" x 255, "-rf", " ", "...", ".wh.gone", ".wh..wh..opq", "\xff\xfe", "a\n+++ b\e[2J");
mkdir "deep"; my $deep = "deep";
for (1 .. 90) { $deep .= "/d"; mkdir $deep or die $!; }
made("$deep/bottom", "bottom");
mkdir "links"; made("links/one", "one"); link("links/one", "links/other") or die $!;
symlink($$_[0], "links/$$_[1]") or die $! for (["/etc/passwd", "absolute"], ["../../..", "up"], ["nowhere", "dangling"], ["loop", "loop"]);
mkdir "modes";
for (0400, 0444, 0600, 0755, 0777) { my $name = sprintf "modes/%04o", $_; made($name, "x"); chmod $_, $name; }
mkdir "sealed"; made("sealed/in", "in"); chmod 0555, "sealed";
system("mkfifo", "pipe") == 0 or die "mkfifo";
socket(my $socket, AF_UNIX, SOCK_STREAM, 0) or die $!;
bind($socket, pack_sockaddr_un("listens")) or die "bind: $!";
system("mknod white c 0 0 2>/dev/null; mknod null c 1 3 2>/dev/null; chmod 6755 modes/0755 2>/dev/null");
for my $mark ("user.overlay.opaque", "user.overlay.whiteout", "user.overlay.redirect", "user.overlay.metacopy", "trusted.overlay.opaque") {
    # Whether it is permitted does not matter.
    for my $path ("links", "links/one") { my ($at, $name, $value) = ($path, $mark, "y"); syscall($setxattr, $at, $name, $value, 1, 0); }
}
"#;

/// The digest of a run's files: names, kinds, modes, targets and contents. FIFOs and sockets are in no checkpoint.
const DIGEST: &str = r"
export LC_ALL=C; cd /workspace
{ find . /state -path /state/logs -prune -o ! -type p ! -type s -printf '%p|%y|%m|%l\n'
  find . /state -path /state/logs -prune -o -type f -exec sha256sum {} +
} | sort | sha256sum
";

/// Removes all files and makes others.
const WRECK: &str = r"
chmod -R u+rwX . && find . -mindepth 1 -delete && mkdir many many/0 names && echo wreck >many/0/1 && echo wreck >a.txt && ln -s a.txt deep
echo wreck >/state/s.txt; echo wreck >/state/new
";

async fn digest(run: &mut RunHandle) -> String {
    let listed = run.exec(&["sh", "-c", DIGEST]).await;
    assert_eq!((listed.exit_code, listed.stderr.as_str()), (Some(0), ""));
    listed.stdout
}

async fn run(run: &mut RunHandle, argv: &[&str]) {
    let ran = run.exec(argv).await;
    assert_eq!(ran.exit_code, Some(0), "{argv:?}: {}{}", ran.stdout, ran.stderr);
}

/// 200,000 files with `COFFERDAM_LONG`, 3,000 otherwise.
#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_tree_is_the_same_in_forks_and_after_restores() {
    let count = effort::cases(3_000, 200_000).to_string();
    let daemon = Daemon::start().await;
    let mut clients = daemon.connect().await;
    let files = [
        ("a.txt", "one\n"),
        ("gone.txt", "bye\n"),
        ("d/x.txt", "x\n"),
        ("links/below", "below\n"),
        ("deep", "a file\n"),
    ];
    let source = daemon.workspace("w", &files);
    let base = daemon.base(&source).await;
    for request in [
        requests::managed("harness"),
        requests::overlay("harness", &source),
        requests::base("harness", &base),
    ] {
        let request = v1::CreateRunRequest { image: debian(), ..request };
        let mut origin = daemon.run_on(request).await;
        let replaced = "rm -rf gone.txt d links deep && mkdir d && echo y >d/y.txt && echo s >/state/s.txt";
        run(&mut origin, &["sh", "-c", replaced]).await;
        run(&mut origin, &["perl", "-e", MAKE, &count]).await;
        let made = digest(&mut origin).await;
        let checkpoint = forks::checkpoint(&mut clients, origin.id()).await.unwrap();
        assert!(checkpoint.parts[0].left_out >= 2, "the FIFO and the socket: {:?}", checkpoint.parts);
        let id = checkpoint.checkpoint_id;
        let mut family = forks::ready(&daemon, forks::of_checkpoint(&id, 2)).await;
        for fork in &mut family {
            assert_eq!(digest(fork).await, made, "{:?}", fork.run.workspace);
            let seen =
                fork.exec(&["sh", "-c", "find . -type p -o -type s -o -type c -o -perm /6000; ls d"]).await;
            assert_eq!((seen.stdout.as_str(), seen.exit_code), ("y.txt\n", Some(0)), "{}", seen.stderr);
        }
        run(&mut family[0], &["sh", "-c", WRECK]).await;
        assert_eq!(digest(&mut family[1]).await, made, "another fork");
        assert_eq!(digest(&mut origin).await, made, "the origin");
        // A fork of a fork is like the first one.
        let request = forks::of_run(family[1].id(), 1);
        family.extend(forks::ready(&daemon, request).await);
        assert_eq!(digest(&mut family[2]).await, made, "a fork of a fork");

        run(&mut origin, &["sh", "-c", WRECK]).await;
        let wreck = digest(&mut origin).await;
        assert_ne!(wreck, made);
        let before = forks::restore(&mut clients, origin.id(), &id).await.unwrap().before.unwrap();
        assert_eq!(digest(&mut origin).await, made, "restored");
        forks::restore(&mut clients, origin.id(), &before.checkpoint_id).await.unwrap();
        assert_eq!(digest(&mut origin).await, wreck, "the restore was undone");
        for mut ended in family.into_iter().chain([origin]) {
            ended.stop().await;
            ended.delete().await;
        }
    }
    // The directory of the host is as it was.
    for (path, content) in files {
        assert_eq!(std::fs::read_to_string(source.join(path)).unwrap(), content);
    }
    assert_eq!(std::fs::read_dir(&source).unwrap().count(), files.len());
    assert_eq!(daemon.left_by_runs(), (vec![], vec![]));
}

/// Makes files and directories that their owner cannot open.
const SHUT: &str = r"
mkdir -p d && echo x >d/x.txt && mkdir /state/shut && chmod 0 /state/shut
mkdir -p shut/in sealed && echo one >shut/in/file && echo two >closed && echo three >sealed/file && rm -f d/gone.txt
chmod 0 shut/in/file closed; chmod 311 shut/in; chmod 0 shut; chmod 555 d; chmod 111 sealed
";

/// Shows their modes, opens them and shows their contents.
const OPENED: &str = r"
stat -c '%a %n' shut closed sealed d && chmod 700 shut && stat -c '%a %n' shut/in && chmod 700 shut/in d sealed
stat -c '%a %n' shut/in/file && chmod 600 closed shut/in/file && cat shut/in/file closed sealed/file && ls d
";

/// Makes other names unreadable, in other places.
const SHUT_OTHERWISE: &str = r"
chmod -R u+rwX . && rm -rf shut closed && mkdir -p closed/deep new/er && echo x >shut && chmod 0 closed/deep new/er closed shut new
chmod 700 /state/shut && echo y >/state/shut/y && chmod 0 /state/shut
";

const UNDONE: &str = "stat -c '%a %n' closed shut new; chmod 700 /state/shut; ls /state/shut";

const SHOWN: &str =
    "0 shut\n0 closed\n111 sealed\n555 d\n311 shut/in\n0 shut/in/file\none\ntwo\nthree\nx.txt\n";

#[tokio::test(flavor = "multi_thread")]
async fn names_that_an_agent_has_made_unreadable_prevent_neither_checkpoints_nor_forks_nor_restores() {
    let daemon = Daemon::start().await;
    let mut clients = daemon.connect().await;
    let source = daemon.workspace("w", &[("d/gone.txt", "bye\n"), ("d/x.txt", "x\n")]);
    for request in [requests::managed("harness"), requests::overlay("harness", &source)] {
        let mut origin = daemon.run_on(request).await;
        run(&mut origin, &["sh", "-c", SHUT]).await;
        let id = forks::checkpoint(&mut clients, origin.id()).await.unwrap().checkpoint_id;
        let mut family = forks::ready(&daemon, forks::of_checkpoint(&id, 1)).await;
        assert_eq!(family[0].exec(&["sh", "-c", OPENED]).await.stdout, SHOWN, "a fork");

        run(&mut origin, &["sh", "-c", SHUT_OTHERWISE]).await;
        let before = forks::restore(&mut clients, origin.id(), &id).await.unwrap().before.unwrap();
        assert_eq!(origin.exec(&["sh", "-c", OPENED]).await.stdout, SHOWN, "restored");
        assert_eq!(
            origin.exec(&["sh", "-c", "chmod 700 /state/shut; ls /state/shut; ls"]).await.stdout,
            "closed\nd\nsealed\nshut\n"
        );
        // The restore can be undone.
        forks::restore(&mut clients, origin.id(), &before.checkpoint_id).await.unwrap();
        let seen = origin.exec(&["sh", "-c", UNDONE]).await;
        assert_eq!(seen.stdout, "0 closed\n0 shut\n0 new\ny\n", "{}", seen.stderr);
        for mut ended in family.into_iter().chain([origin]) {
            ended.stop().await;
            ended.delete().await;
        }
    }
    assert_eq!(std::fs::read_to_string(source.join("d/gone.txt")).unwrap(), "bye\n");
    assert_eq!(daemon.left_by_runs(), (vec![], vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_that_cannot_be_copied_is_refused_by_name_and_leaves_no_part() {
    let daemon = Daemon::start().await;
    let mut clients = daemon.connect().await;
    let mut origin = daemon.run_on(requests::managed("harness")).await;
    run(&mut origin, &["sh", "-c", "echo one >a.txt"]).await;
    let good = forks::checkpoint(&mut clients, origin.id()).await.unwrap().checkpoint_id;
    let id = origin.id().to_owned();
    let shut = daemon.state_dir().join("workspaces").join(&id).join("shut");
    for shuts in ["a file of another user", "too many levels"] {
        if shuts == "too many levels" {
            run(&mut origin, &["sh", "-c", "mkdir -p shut/$(seq -s / 140)"]).await;
        } else {
            std::fs::write(&shut, "x").unwrap();
            std::os::unix::fs::chown(&shut, Some(4444), Some(4444)).unwrap();
            std::fs::set_permissions(&shut, Permissions::from_mode(0o600)).unwrap();
        }
        run(&mut origin, &["sh", "-c", "echo two >a.txt"]).await;
        for refused in [
            forks::fork(&mut clients, forks::of_run(&id, 3)).await.unwrap_err(),
            forks::restore(&mut clients, &id, &good).await.unwrap_err(),
        ] {
            assert_eq!(reason(&refused), "PRECONDITION_FAILED", "{shuts}: {refused}");
            assert!(refused.message().contains("shut"), "{shuts}: {refused}");
            assert!(!refused.message().contains("/var/tmp"), "a host path: {refused}");
        }
        assert_eq!(forks::trees(&daemon), [good.as_str()], "{shuts}");
        let listed = clients.runs.list_runs(v1::ListRunsRequest::default()).await.unwrap().into_inner().runs;
        assert_eq!(listed.len(), 1, "{shuts}: {listed:?}");
        let shown = origin.show().await;
        assert_eq!((shown.state(), shown.holds.len()), (v1::run::State::Ready, 0), "{shuts}");
        assert_eq!(origin.exec(&["cat", "a.txt"]).await.stdout, "two\n", "a refused restore changes nothing");
        std::fs::remove_file(&shut).or_else(|_| std::fs::remove_dir_all(&shut)).unwrap();
    }
    forks::restore(&mut clients, &id, &good).await.unwrap();
    assert_eq!(origin.exec(&["cat", "a.txt"]).await.stdout, "one\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn forks_and_restores_beside_20_writers_have_one_moment_of_the_run() {
    const WRITERS: u32 = 20;
    let daemon = Daemon::start().await;
    let mut clients = daemon.connect().await;
    let mut origin = daemon.run_on(requests::managed("harness")).await;
    // Each writer counts in its first file before its last one, and the many names between them take time to copy.
    run(&mut origin, &["sh", "-c", "for i in $(seq 1500); do echo x >m$i; done"]).await;
    let writer = |name: u32| {
        format!(
            "n=0; while :; do n=$((n+1)); echo $n >.t{name}; mv .t{name} a{name}; echo $n >.t{name}; mv .t{name} z{name}; done"
        )
    };
    let all: Vec<String> = (0..WRITERS).map(|name| format!("({}) &", writer(name))).collect();
    let counts = "for i in $(seq 0 19); do echo $(cat a$i) $(cat z$i); done";
    for _ in 0..3 {
        run(&mut origin, &["sh", "-c", "rm -f a* z*"]).await;
        origin.start(script(&format!("{} wait", all.join(" ")))).await;
        until("the writers have not begun", async || {
            origin.exec(&["sh", "-c", "ls | grep -c '^z'"]).await.stdout.trim() == WRITERS.to_string()
        })
        .await;
        let made = forks::fork(&mut clients, forks::of_run(origin.id(), 2)).await.unwrap();
        assert_eq!((made.forks.len(), made.failures.len()), (2, 0), "{:?}", made.failures);
        let mut seen = Vec::new();
        for fork in made.forks {
            let mut fork = RunHandle { run: Box::new(fork.run.unwrap()), clients: clients.clone() };
            assert!(fork.listed().await.is_empty(), "a fork has no processes");
            seen.push(fork.exec(&["sh", "-c", counts]).await.stdout);
            fork.stop().await;
            fork.delete().await;
        }
        assert_eq!(seen[0], seen[1], "both have the same moment");
        let pairs: Vec<(u64, u64)> = seen[0].lines().map(pair).collect();
        assert_eq!(pairs.len(), WRITERS as usize);
        assert!(pairs.iter().all(|(first, last)| first == last || *first == last + 1), "{pairs:?}");

        // The writers go on until the restore ends them, and are not in it.
        until("the writers do not go on", async || {
            origin.exec(&["sh", "-c", counts]).await.stdout != seen[0]
        })
        .await;
        let checkpoint = made.checkpoint.unwrap().checkpoint_id;
        let restored = forks::restore(&mut clients, origin.id(), &checkpoint).await.unwrap();
        assert_eq!(restored.ended_processes, 1);
        for _ in 0..2 {
            assert_eq!(origin.exec(&["sh", "-c", counts]).await.stdout, seen[0], "a writer goes on");
        }
        origin.ok(calls::write("a0", "after\n")).await;
        for id in [checkpoint, restored.before.unwrap().checkpoint_id] {
            forks::delete(&mut clients, &id).await.unwrap();
        }
    }
}

/// The numbers of a writer's first and last file.
fn pair(line: &str) -> (u64, u64) {
    let (first, last) = line.split_once(' ').unwrap_or_else(|| panic!("half of a file: {line:?}"));
    (first.parse().unwrap(), last.parse().unwrap())
}
