//! All commands of a container, and how they are frozen.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::ending::{Ending, KillEvidence, Patience, freeze};
use super::hierarchy::Hierarchy;
use super::leaf::Leaf;
use super::meter::Meters;
use super::{CgroupError, Group, LEAF, collect, failed};

/// Cgroup above the leaves of a container. It contains no processes itself.
///
/// Freezing it freezes all processes in its leaves, and any that are moved into a leaf later. Both kernels' ways are supported:
/// `cgroup.freeze` of cgroup v2, and the freezer of v1, whose state children inherit.
#[derive(Debug, Clone)]
pub struct Commands {
    hierarchy: Hierarchy,
    dir: PathBuf,
}

impl Commands {
    pub(super) fn of(hierarchy: Hierarchy, container: &Path, group: Group) -> Self {
        Self::named(hierarchy, container, group.name())
    }

    pub(super) fn named(hierarchy: Hierarchy, container: &Path, name: &str) -> Self {
        Self { hierarchy, dir: container.join(name) }
    }

    /// Returns a leaf that exists already.
    pub(super) fn existing_leaf(&self, name: &str) -> Option<Leaf> {
        let dir = self.dir.join(format!("{LEAF}{name}"));
        dir.is_dir().then(|| Leaf::existing(self.hierarchy, dir))
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn leaf(&self, name: &str, meters: &Meters) -> Result<Leaf, CgroupError> {
        self.make()?;
        Leaf::make(self.hierarchy, self.dir.join(format!("{LEAF}{name}")), meters)
    }

    /// Freezes all commands and waits until they are frozen, for `within` at most. Returns true if they are.
    ///
    /// A process in an uninterruptible wait freezes when that wait is over, before it returns to user space. From this call on no command
    /// starts to run.
    pub fn freeze(&self, within: Duration) -> Result<bool, CgroupError> {
        self.make()?;
        freeze(self.hierarchy, &self.dir, Instant::now() + within)
    }

    /// Thaws the commands. It is no error if they are not frozen.
    pub fn thaw(&self) -> Result<(), CgroupError> {
        if self.dir.exists() { self.hierarchy.freeze(&self.dir, false) } else { Ok(()) }
    }

    /// Ends all commands, then thaws them, so that none runs in between.
    ///
    /// Used when a container or its worker ends, because on v1 frozen processes cannot be killed. Waits until they are gone, and gives up
    /// when no process has ended for `within`.
    pub fn end(&self, within: Duration) -> Result<KillEvidence, CgroupError> {
        let mut ending = Ending::begin(self.hierarchy, &self.dir, 1);
        if self.dir.exists() {
            ending.kill(&mut Patience::new(within))?;
        }
        ending.evidence()
    }

    /// Sends SIGKILL to all of them at once, without waiting for their end.
    ///
    /// The signal also ends a long system call, which a freeze does not. On v1, frozen processes die when they are thawed.
    /// [`Self::end`] ends what was forked meanwhile.
    pub fn strike(&self) -> Result<(), CgroupError> {
        if self.dir.exists() { Ending::begin(self.hierarchy, &self.dir, 1).strike() } else { Ok(()) }
    }

    /// Returns the host pids of the commands' processes.
    pub fn pids(&self) -> Result<Vec<u32>, CgroupError> {
        let mut pids = Vec::new();
        if self.dir.exists() {
            collect(&self.dir, 1, &mut pids)?;
        }
        Ok(pids.into_iter().map(|pid| pid.as_raw_nonzero().get().unsigned_abs()).collect())
    }

    /// Returns true if all commands are frozen.
    pub fn is_frozen(&self) -> Result<bool, CgroupError> {
        self.hierarchy.is_frozen(&self.dir)
    }

    fn make(&self) -> Result<(), CgroupError> {
        match fs::create_dir(&self.dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(failed("make a cgroup for the commands")(error))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::cgroups::leaf::tests::{NEEDS_ROOT, hierarchies};
    use crate::cgroups::process::HostProcess;

    /// A process in a leaf that answers each line with the next number.
    fn counter(leaf: &mut Leaf) -> (Child, std::sync::mpsc::Receiver<String>) {
        let mut shell = Command::new("sh")
            .args(["-c", "n=0; while read line; do n=$((n+1)); echo $n; done"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        leaf.add(&HostProcess::of_engine(shell.id()).unwrap()).unwrap();
        let (sender, lines) = std::sync::mpsc::channel();
        let output = BufReader::new(shell.stdout.take().unwrap());
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        (shell, lines)
    }

    fn ask(shell: &mut Child) {
        shell.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    #[test]
    fn frozen_commands_stand_still_can_be_ended_one_by_one_and_go_on() {
        for (hierarchy, root) in hierarchies() {
            let container = root.join(format!("cofferdam-test-container-{}", std::process::id()));
            fs::create_dir(&container).expect(NEEDS_ROOT);
            let commands = Commands::of(hierarchy, &container, Group::Ordinary);
            let alone = Commands::of(hierarchy, &container, Group::Alone);
            assert!(!commands.is_frozen().unwrap());
            let leaf = |name| commands.leaf(name, &Meters::Nowhere).unwrap();
            let (mut one, mut other) = (leaf("one"), leaf("other"));
            let (mut first, first_lines) = counter(&mut one);
            let (mut second, second_lines) = counter(&mut other);
            ask(&mut first);
            ask(&mut second);
            assert_eq!((first_lines.recv().unwrap(), second_lines.recv().unwrap()), ("1".into(), "1".into()));

            let within = Duration::from_secs(10);
            assert!(commands.freeze(within).unwrap() && commands.is_frozen().unwrap());
            ask(&mut first);
            ask(&mut second);
            // One that comes later stands still, too.
            let mut late = leaf("late");
            let (mut third, third_lines) = counter(&mut late);
            ask(&mut third);
            let quiet = Duration::from_millis(300);
            for lines in [&first_lines, &second_lines, &third_lines] {
                assert!(lines.recv_timeout(quiet).is_err(), "a frozen command went on");
            }
            // One of the other group goes on meanwhile, and stands still by itself.
            let mut apart = alone.leaf("apart", &Meters::Nowhere).unwrap();
            let (mut fourth, fourth_lines) = counter(&mut apart);
            ask(&mut fourth);
            assert_eq!(fourth_lines.recv(), Ok("1".into()), "{hierarchy:?}");
            assert!(alone.freeze(within).unwrap());
            ask(&mut fourth);
            assert!(fourth_lines.recv_timeout(quiet).is_err(), "a frozen command went on");
            alone.thaw().unwrap();
            assert_eq!(fourth_lines.recv(), Ok("2".into()));
            alone.end(within).unwrap();
            assert!(!fourth.wait().unwrap().success());
            drop(apart);
            // One is ended while the others stand still.
            let evidence = one.kill_all(within).unwrap();
            assert_eq!((evidence.ended, evidence.left), (1, 0), "{hierarchy:?}");
            assert!(!first.wait().unwrap().success());
            assert!(first_lines.recv().is_err(), "it ran on before it ended");
            assert!(commands.is_frozen().unwrap());
            assert!(second_lines.recv_timeout(quiet).is_err(), "another one went on");

            commands.thaw().unwrap();
            assert_eq!((second_lines.recv().unwrap(), third_lines.recv().unwrap()), ("2".into(), "1".into()));
            // At the end none runs on.
            assert!(commands.freeze(within).unwrap());
            ask(&mut second);
            let evidence = commands.end(within).unwrap();
            assert_eq!((evidence.ended, evidence.left), (2, 0), "{hierarchy:?}");
            assert!(!second.wait().unwrap().success() && !third.wait().unwrap().success());
            assert!(second_lines.recv().is_err());
            drop((one, other, late));
            for group in [Group::Ordinary, Group::Alone] {
                fs::remove_dir(container.join(group.name())).unwrap();
            }
            fs::remove_dir(container).unwrap();
            commands.thaw().unwrap();
        }
    }
}
