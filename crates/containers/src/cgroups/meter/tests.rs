//! Against the kernel, in every hierarchy of this host that a container can be in.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};

use leftovers::mountinfo;

use super::*;
use crate::cgroups::leaf::tests::{NEEDS_ROOT, hierarchies};
use crate::cgroups::{ContainerCgroup, Group};

const WITHIN: Duration = Duration::from_secs(10);
/// Ends when this shell has used 200 ms itself, by the kernel's own count of its process: 20 ticks of 10 ms.
const BURN: &str = "while :; do i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; \
    read stat < /proc/$$/stat; set -- $stat; [ $((${14} + ${15})) -lt 20 ] || break; done";
const BURNT: Duration = Duration::from_millis(200);

/// What looks like a container: cgroups with its name, and a first process in them.
struct Stage {
    first: Child,
    dirs: Vec<PathBuf>,
    cgroup: ContainerCgroup,
}

impl Stage {
    /// One in each hierarchy. `test` keeps those of several tests apart.
    fn each(test: u8) -> Vec<(Hierarchy, Self)> {
        let table = fs::read("/proc/self/mountinfo").unwrap();
        let beside = mountinfo::entries(&table)
            .find(|entry| {
                entry.file_system == "cgroup"
                    && entry.super_options.split(',').any(|option| option == "cpuacct")
            })
            .map(|entry| entry.mount_point);
        let stage = |(hierarchy, root): (Hierarchy, PathBuf)| {
            let name = format!("{test:02x}{:062x}", std::process::id());
            let mut dirs = vec![root.join(&name)];
            if hierarchy == Hierarchy::Freezer {
                dirs.extend(beside.as_ref().map(|beside| beside.join(&name)));
            }
            let first = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
            for dir in &dirs {
                // Two controllers may be in one hierarchy.
                if !dir.exists() {
                    fs::create_dir(dir).expect(NEEDS_ROOT);
                }
                fs::write(dir.join("cgroup.procs"), first.id().to_string()).unwrap();
            }
            let cgroup = ContainerCgroup::of_pid(first.id(), &ContainerId::parse(&name).unwrap()).unwrap();
            (hierarchy, Self { first, dirs, cgroup })
        };
        hierarchies().into_iter().map(stage).collect()
    }

    fn commands(&self) -> Vec<PathBuf> {
        self.dirs.iter().map(|dir| dir.join(COMMANDS)).collect()
    }

    /// Names of what is below there.
    fn leaves(&self) -> Vec<String> {
        let names = |dir: PathBuf| fs::read_dir(dir).into_iter().flatten().flatten();
        let dirs = self.commands().into_iter().flat_map(names);
        dirs.filter(|entry| entry.path().is_dir())
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.first.kill();
        let _ = self.first.wait();
        for dir in self.commands().iter().chain(&self.dirs) {
            let _ = fs::remove_dir(dir);
        }
    }
}

/// A shell that runs `script` once it is told to; and what it says.
fn shell(script: &str) -> (Child, Lines<BufReader<ChildStdout>>) {
    let script = format!("read go; {script}");
    let mut shell = Command::new("sh")
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(shell.stdout.take().unwrap()).lines();
    (shell, lines)
}

fn go(shell: &mut Child) {
    shell.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
}

#[test]
fn cpu_time_of_orphans_counts_even_when_killed() {
    for (hierarchy, stage) in Stage::each(1) {
        let mut leaf = stage.cgroup.leaf(Group::Ordinary, "call-1").unwrap();
        // Forked twice, in a session of its own, and the shell is gone long before.
        let (mut parent, mut lines) =
            shell(&format!("(setsid sh -c '{BURN}; echo burnt; exec sleep 1000' &)"));
        leaf.add(&HostProcess::of_engine(parent.id()).unwrap()).unwrap();
        let before = leaf.cpu_time().expect("every hierarchy of this host can count");
        go(&mut parent);
        assert!(parent.wait().unwrap().success());
        assert_eq!(lines.next().unwrap().unwrap(), "burnt");
        let while_it_runs = leaf.cpu_time().unwrap().saturating_sub(before);
        assert!(while_it_runs >= BURNT, "{hierarchy:?}: {while_it_runs:?}");
        let evidence = leaf.kill_all(WITHIN).unwrap();
        assert_eq!((evidence.ended, evidence.left), (1, 0));
        let after = leaf.cpu_time().unwrap().saturating_sub(before);
        assert!(after >= while_it_runs && after < WITHIN, "{hierarchy:?}: {after:?}");

        // Another leaf has none of it.
        let other = stage.cgroup.leaf(Group::Ordinary, "call-2").unwrap();
        assert_eq!(other.cpu_time(), Some(Duration::ZERO));
        assert_eq!(stage.leaves().len(), 2 * stage.dirs.len());
        drop((leaf, other));
        assert_eq!(stage.leaves(), Vec::<String>::new());
    }
}

#[test]
fn a_leaf_without_a_meter_is_a_leaf() {
    for (_, stage) in Stage::each(2) {
        let mut leaf = stage.cgroup.leaf(Group::Ordinary, "call-1").unwrap();
        // Its place is gone, as when somebody cleaned up: the command is not the worse for it.
        if let Some(beside) = stage.commands().get(1) {
            fs::remove_dir(beside.join("cofferdam-call-1")).unwrap();
        }
        let (mut child, _) = shell("exec sleep 1000");
        leaf.add(&HostProcess::of_engine(child.id()).unwrap()).unwrap();
        assert_eq!(leaf.cpu_time().is_none(), stage.dirs.len() == 2);
        assert_eq!(leaf.kill_all(WITHIN).unwrap().ended, 1);
        child.wait().unwrap();
        // And a meter that is there already is another leaf's.
        if let Some(beside) = stage.commands().get(1) {
            fs::create_dir(beside.join("cofferdam-call-2")).unwrap();
            assert_eq!(stage.cgroup.leaf(Group::Ordinary, "call-2").unwrap().cpu_time(), None);
            fs::remove_dir(beside.join("cofferdam-call-2")).unwrap();
        }
    }
}

#[test]
fn meters_from_before_a_restart_are_removed() {
    for (_, stage) in Stage::each(3) {
        let mut leaf = stage.cgroup.leaf(Group::Ordinary, "call-1").unwrap();
        let (mut child, _) = shell("exec sleep 1000");
        leaf.add(&HostProcess::of_engine(child.id()).unwrap()).unwrap();
        std::mem::forget(leaf);
        assert_eq!(stage.leaves().len(), stage.dirs.len());
        let first = HostProcess::of_engine(stage.first.id()).unwrap();
        let reaper = std::thread::spawn(move || child.wait());
        let ended = stage.cgroup.end_leftovers(&first, &std::collections::BTreeSet::new(), WITHIN).unwrap();
        assert_eq!((ended.leaves.len(), ended.leaves[0].evidence.ended, ended.left), (1, 1, 0));
        reaper.join().unwrap().unwrap();
        assert_eq!(stage.leaves(), Vec::<String>::new());
    }
}

#[test]
fn the_largest_that_is_still_there_counts() {
    for (hierarchy, stage) in Stage::each(4) {
        let mut leaf = stage.cgroup.leaf(Group::Ordinary, "call-1").unwrap();
        assert_eq!(leaf.peak_memory(), 0);
        // It stays the same program: another one begins small.
        let large =
            "x=$(head -c 40000000 /dev/zero | tr \"\\0\" x); echo ${#x}; x=; echo small; sleep 1000; :";
        let (mut parent, mut lines) = shell(&format!("(setsid sh -c '{large}' &)"));
        leaf.add(&HostProcess::of_engine(parent.id()).unwrap()).unwrap();
        go(&mut parent);
        parent.wait().unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "40000000");
        assert_eq!(lines.next().unwrap().unwrap(), "small");
        let peak = leaf.peak_memory();
        assert!((40_000_000..400_000_000).contains(&peak), "{hierarchy:?}: {peak}");
        leaf.kill_all(WITHIN).unwrap();
        assert_eq!(leaf.peak_memory(), 0);
    }
}

#[test]
fn both_forms_are_read_and_nothing_else() {
    for (text, expected) in [
        ("431003247\n", Some(Duration::from_nanos(431_003_247))),
        ("usage_usec 12\nuser_usec 10\nsystem_usec 2\n", Some(Duration::from_micros(12))),
        ("user_usec 10\nusage_usec 7\n", Some(Duration::from_micros(7))),
        ("user_usec 10\n", None),
        ("usage_usec -1\n", None),
        ("-1\n", None),
        ("", None),
    ] {
        assert_eq!(parse(text), expected, "{text:?}");
    }
}
