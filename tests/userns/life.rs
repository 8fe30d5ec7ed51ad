//! Tests the life and the end of such a run: its processes, its daemon.

use harness::process::command;
use harness::v1::run::State;
use harness::{RunHandle, calls, in_pid_namespace, pid_namespace, processes, requests, script, until, v1};

use crate::{daemon, rooted};

/// What is in a container that nobody uses.
const IDLE: [&str; 2] = ["/.cofferdam/guest hold", "/.cofferdam/guest serve"];

#[tokio::test(flavor = "multi_thread")]
async fn u5_processes_of_every_user_end_with_their_command_and_with_the_run() {
    let daemon = daemon().await;
    let mut run = daemon.run_on(rooted(requests::managed("rooted"))).await;
    let container = run.run.container_id.clone();
    // One stays as root, others as users whom root could not signal without a capability.
    let left = "for id in 0 1 42 65534; do setsid setpriv --reuid $id --regid $id --clear-groups sleep 600 >/dev/null 2>&1 & done; \
                sleep 0.3; setsid sh -c 'trap \"\" TERM HUP; sleep 600' >/dev/null 2>&1 & echo started";
    assert_eq!(script(&mut run, left).await, "started\n");
    assert_eq!(processes(&container), IDLE, "what a command has left is ended with it");
    let stays = run
        .start(command(&["setpriv", "--reuid", "42", "--regid", "42", "--clear-groups", "sleep", "600"]))
        .await;
    // It is started as `setpriv`, and becomes `sleep` by itself.
    let sleeps = async || processes(&container).iter().any(|line| line == "sleep 600");
    until(&format!("{stays:?}"), sleeps).await;
    let namespace = pid_namespace(&container);
    let ended = run.stop().await;
    assert_eq!(ended.state(), State::Stopped);
    assert_eq!(in_pid_namespace(&namespace), [""; 0].map(std::path::PathBuf::from), "0 processes are left");
    assert_eq!(daemon.left_by_runs(), (vec![], vec![]));
}

/// As in other containers, where root is root of all files.
#[tokio::test(flavor = "multi_thread")]
async fn u6_a_root_has_shared_memory_and_can_give_names_to_hosts() {
    let daemon = daemon().await;
    let mut run = daemon.run_on(rooted(requests::managed("rooted"))).await;
    let names = "hostname && getent hosts cofferdam && echo 127.0.0.1 api.example.org >>/etc/hosts && getent hosts api.example.org";
    let found = "cofferdam\n127.0.0.1       cofferdam\n127.0.0.1       api.example.org\n";
    assert_eq!(script(&mut run, names).await, found);
    assert_eq!(
        script(&mut run, "echo shared >/dev/shm/x && cat /dev/shm/x && ! touch /dev/x").await,
        "shared\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn u5_a_run_outlives_its_daemon_as_root_of_its_namespace() {
    let mut daemon = daemon().await;
    let beneath = daemon.workspace("beneath", &[("a.txt", "a\n")]);
    let mut run = daemon.run_on(rooted(requests::overlay("rooted", &beneath))).await;
    script(&mut run, "echo kept >/etc/kept; install -o 42 -g 42 /dev/null /srv/other; echo b >>a.txt").await;
    let before = (daemon.containers(), daemon.mounts());
    daemon.relaunch().await;
    let mut run = RunHandle { clients: daemon.connect().await, ..run };
    assert_eq!(run.show().await.state(), State::Ready, "{}", daemon.log());
    assert_eq!((daemon.containers(), daemon.mounts()), before);
    let found = "id -u; cat /etc/kept a.txt; stat -c %u /srv/other; echo c >>a.txt";
    assert_eq!(script(&mut run, found).await, "0\nkept\na\nb\n42\n");
    run.ok(calls::replace("a.txt", "c", "d")).await;
    assert_eq!(script(&mut run, "cat a.txt").await, "a\nb\nd\n");
    run.stop().await;
    assert_eq!((daemon.left_by_runs(), daemon.root_is_gone(run.id())), ((vec![], vec![]), true));
}

/// The runtime would open them for the next daemon's guest, which takes no call meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn u5_run_whose_passwd_or_group_is_not_a_file_is_not_reattached() {
    let mut daemon = daemon().await;
    let plant = |how: &str| format!("rm /etc/group && {how}");
    let mut waiting = Vec::new();
    for how in ["mkfifo /etc/group", "mkfifo /srv/fifo && ln -s /srv/fifo /etc/group"] {
        let mut run = daemon.run_on(rooted(requests::managed("rooted"))).await;
        script(&mut run, &plant(how)).await;
        waiting.push(run);
    }
    let mut without = daemon.run_on(rooted(requests::managed("rooted"))).await;
    script(&mut without, &plant("true")).await;
    daemon.relaunch().await;
    for run in waiting {
        let mut run = RunHandle { clients: daemon.connect().await, ..run };
        let shown = run.show().await;
        assert_eq!(shown.state(), State::Failed);
        assert!(shown.failure.contains("/etc/group is not a file"), "{}", shown.failure);
        assert_eq!(shown.fault(), v1::Fault::Program, "its programs have brought it about");
    }
    let mut without = RunHandle { clients: daemon.connect().await, ..without };
    assert_eq!(script(&mut without, "id -u").await, "0\n");
    without.stop().await;
    assert_eq!(daemon.left_by_runs(), (vec![], vec![]));
}
