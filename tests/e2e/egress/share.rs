//! The share of a run: `coffer-egress` uses the memory and the processor time of its own run.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use harness::egress::tree;
use harness::{calls, dev_image, requests, until, v1};

use super::server::Server;
use super::workers;
use super::world::{Setting, World};

/// Returns the processes of `coffer-egress` of a container, with their memberships in cgroups.
fn egress_of(world: &World, container: &str) -> Vec<(u32, String)> {
    let all = workers(&world.daemon).into_iter().flat_map(tree);
    let all = all.filter_map(|pid| Some((pid, std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?)));
    all.filter(|(_, membership)| membership.contains(container)).collect()
}

/// Returns true if a process is below the limits of a container, and its freezer does not stop it.
fn is_below(membership: &str, container: &str) -> bool {
    let path = |controller: &str| {
        membership.lines().find_map(|line| {
            let [_, controllers, path] = line.splitn(3, ':').collect::<Vec<_>>()[..] else { return None };
            controllers.split(',').any(|name| name == controller).then_some(path)
        })
    };
    let is_within = |controller| path(controller).is_some_and(|path| path.contains(container));
    is_within("") || (is_within("memory") && is_within("cpu") && !is_within("freezer"))
}

/// Returns the directories of a container in all hierarchies of the host.
fn directories(container: &str) -> Vec<PathBuf> {
    fn search(directory: &Path, container: &str, depth: u32, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if entry.file_name().to_string_lossy().contains(container) {
                found.push(entry.path());
            } else if depth > 0 {
                search(&entry.path(), container, depth - 1, found);
            }
        }
    }
    let mut found = Vec::new();
    search(Path::new("/sys/fs/cgroup"), container, 4, &mut found);
    found
}

/// Returns the processor time of processes so far (proc_pid_stat(5)).
fn processor_time(pids: &[u32]) -> Duration {
    let ticks = pids.iter().map(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        [11, 12]
            .map(|field| fields.get(field).and_then(|time| time.parse().ok()).unwrap_or(0))
            .iter()
            .sum::<u64>()
    });
    // A tick is a hundredth of a second for programs.
    Duration::from_millis(10 * ticks.sum::<u64>())
}

#[tokio::test(flavor = "multi_thread")]
async fn n90_the_process_is_below_the_limits_of_its_run_and_ends_with_the_container() {
    let world = World::start(Setting::default()).await;
    let container = world.run.run.container_id.clone();
    let shares = async || {
        let processes = egress_of(&world, &container);
        processes.len() == 2 && processes.iter().all(|(_, membership)| is_below(membership, &container))
    };
    until("the process is not below the limits", async || shares().await).await;
    let first = egress_of(&world, &container);
    // So is the next one.
    let pid = rustix::process::Pid::from_raw(i32::try_from(first[0].0).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let is_another =
        || egress_of(&world, &container).iter().all(|now| first.iter().all(|before| now.0 != before.0));
    until("the next process is not below the limits", async || is_another() && shares().await).await;
    // The engine can remove the container's cgroups when it ends by itself.
    assert!(!directories(&container).is_empty());
    let killed = std::process::Command::new("docker").args(["kill", &container]).output().unwrap();
    assert!(killed.status.success(), "{killed:?}");
    until("a cgroup of the container is left", async || directories(&container).is_empty()).await;
    assert_eq!(egress_of(&world, &container), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn n91_a_flood_uses_the_share_of_its_own_run_alone() {
    const CPU_MILLIS: u32 = 300;
    const FLOOD: Duration = Duration::from_secs(6);
    let echo = Server::echo().await;
    let limits = Some(v1::Limits { cpu_millis: CPU_MILLIS, ..Default::default() });
    let world = World::start(Setting { tcp: &[echo.port], limits, ..Setting::default() }).await;
    let workspace = world.daemon.workspace("neighbour", &[("asks.py", include_str!("scripts/asks.py"))]);
    let request = v1::CreateRunRequest { image: dev_image(), ..requests::bind("out", &workspace) };
    let mut neighbour = world.daemon.run_on(request).await;
    let asks = format!("python3 asks.py 20 git.example.org {}", echo.port);
    neighbour.ran(calls::shell(&asks)).await;

    let container = world.run.run.container_id.clone();
    let egress: Vec<u32> = egress_of(&world, &container).into_iter().map(|(pid, _)| pid).collect();
    assert_eq!(egress.len(), 2);
    let seconds = FLOOD.as_secs() / 2;
    for kind in ["names", "connections"] {
        let (before, began) = (processor_time(&egress), Instant::now());
        let flood = format!("python3 flood.py {kind} {seconds} git.example.org {}", echo.port);
        let flood = world.run.waits(calls::shell(&flood));
        tokio::time::sleep(Duration::from_millis(500)).await;
        let ran = neighbour.ran(calls::shell(&asks)).await;
        let median: f64 = ran.stdout.trim().parse().unwrap_or_else(|_| panic!("{ran:?}"));
        assert!(median < 200.0, "{kind}: a connection of a neighbour took {median} ms");
        let response = flood.await.unwrap().unwrap();
        let Some(v1::result::Kind::Shell(ran)) = response.clone().into_kind() else { panic!("{response:?}") };
        assert!(ran.stdout.trim().parse::<u64>().is_ok_and(|count| count > 20), "{ran:?}");
        let (used, took) = (processor_time(&egress).checked_sub(before).unwrap(), began.elapsed());
        let share = took * CPU_MILLIS / 1_000;
        assert!(used < share + share / 4 + Duration::from_millis(200), "{kind}: {used:?} of {share:?}");
    }
}
