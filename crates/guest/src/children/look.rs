//! Scans `/proc` for processes, and says whether the scan is complete.
//!
//! A scan takes time. A process may have forked and ended before its file is opened, and its child is not in the list. So a look repeats
//! the scan until a list has no new process. Every process that is alive when that last list is made has then been read while alive.

use std::collections::{BTreeMap, BTreeSet};
use std::{fs, io};

/// Most repetitions within one look. After a pause the caller may look again.
const ROUNDS: u32 = 4;

/// The facts about a process that the guest needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(super) parent: i32,
    pub(super) session: i32,
    /// True for a zombie, which cannot be ended, and for a process that outlives its call, which only the daemon ends.
    pub(super) dead: bool,
}

impl Process {
    pub(crate) fn is_alive(&self) -> bool {
        !self.dead
    }
}

#[derive(Debug, Default)]
pub(crate) struct Look {
    /// Processes that existed at some time during the look, by number. Most parents come before their children.
    pub(crate) processes: Vec<Process>,
    /// True if the look has every process that is alive at its end, with its parent.
    ///
    /// Linux lists by number. While numbers wrap around to the lowest ones, a list may lack a process all the same.
    pub(crate) is_whole: bool,
}

/// Looks for all processes that are visible now.
pub(crate) fn look() -> Look {
    look_by(list, |pid| {
        let process = parse(&fs::read(format!("/proc/{pid}/stat")).ok()?).filter(|read| read.pid == pid)?;
        Some(Process { dead: process.dead || stays(pid), ..process })
    })
}

/// Returns true if the daemon has moved the process to those that outlive their call. No process of the container can move itself there.
fn stays(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/cgroup")).is_ok_and(|text| text.contains("/cofferdam-processes/"))
}

fn look_by(
    mut list: impl FnMut() -> io::Result<Vec<i32>>,
    mut read: impl FnMut(i32) -> Option<Process>,
) -> Look {
    let mut known: BTreeMap<i32, Process> = BTreeMap::new();
    let mut is_whole = false;
    for _ in 0..=ROUNDS {
        // A process has a new parent if its parent ended before it was read.
        let parents: BTreeSet<i32> = known.keys().copied().chain([0]).collect();
        known.retain(|_, process| parents.contains(&process.parent));
        let Ok(listed) = list() else { break };
        let new: Vec<i32> = listed.into_iter().filter(|pid| !known.contains_key(pid)).collect();
        is_whole = new.is_empty();
        if is_whole {
            break;
        }
        known.extend(new.into_iter().filter_map(&mut read).map(|process| (process.pid, process)));
    }
    Look { processes: known.into_values().collect(), is_whole }
}

/// Lists the numbers of all processes. In gVisor a process that is ending has the number 0, which is also the parent of all processes that
/// the engine started.
fn list() -> io::Result<Vec<i32>> {
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok().filter(|pid| *pid > 0);
    fs::read_dir("/proc")?.filter_map(|entry| entry.map(number).transpose()).collect()
}

/// Parses one `/proc/PID/stat`: `pid (name) state parent group session …`. The name may contain any byte, even `)`.
fn parse(stat: &[u8]) -> Option<Process> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let text = |bytes| std::str::from_utf8(bytes).ok();
    let pid = text(stat.split(|byte| *byte == b' ').next()?)?.parse().ok().filter(|pid| *pid > 0)?;
    let mut fields = text(stat.get(name_end + 1..)?)?.split_ascii_whitespace();
    let dead = matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    Some(Process { pid, parent, session, dead })
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::Cell;

    use super::*;

    const COMMAND: i32 = 20;

    pub(in super::super) fn process(pid: i32, parent: i32, session: i32) -> Process {
        Process { pid, parent, session, dead: false }
    }

    #[test]
    fn a_name_cannot_lie() {
        let stat = b"42 (a) R 1 1 1) S 7 42 41 0 -1 4194304 1 0";
        assert_eq!(parse(stat), Some(process(42, 7, 41)));
        assert_eq!(parse(b"43 (\xff \n) Z 7 43 43 0"), Some(Process { dead: true, ..process(43, 7, 43) }));
        assert_eq!(parse(b"0 (gone) Z 1 0 0 0"), None);
        assert_eq!(parse(b"42 (a"), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn this_process_is_seen() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(look().processes.iter().any(|process| process.pid == own && process.is_alive()));
    }

    /// One process at a time, which is the next one's parent: it goes after so many lists and files.
    fn chased(steps_each: u32, until: u32) -> Look {
        let steps = Cell::new(0);
        let hop = || {
            steps.set(steps.get() + 1);
            COMMAND + i32::try_from(steps.get().min(until) / steps_each).unwrap()
        };
        let read = |pid| (pid == hop()).then(|| process(pid, 0, pid));
        look_by(|| Ok(vec![hop()]), read)
    }

    #[test]
    fn a_scan_repeats_until_a_list_has_nothing_new() {
        // It is listed and gone before its file is read, and then it stays.
        let look = chased(2, 5);
        assert!(look.is_whole && look.processes == [process(COMMAND + 2, 0, COMMAND + 2)], "{look:?}");
        let quiet = look_by(|| Ok(vec![COMMAND]), |pid| Some(process(pid, 0, pid)));
        assert!(quiet.is_whole && quiet.processes == [process(COMMAND, 0, COMMAND)], "{quiet:?}");
    }

    #[test]
    fn a_scan_of_a_changing_tree_is_not_complete() {
        let unread = chased(2, u32::MAX);
        assert!(!unread.is_whole && unread.processes.is_empty(), "{unread:?}");
        let mut numbers = COMMAND..;
        let look = look_by(|| Ok(numbers.by_ref().take(1).collect()), |pid| Some(process(pid, 0, pid)));
        assert!(!look.is_whole && look.processes.len() > 1, "{look:?}");
    }

    #[test]
    fn failed_listing_or_reading_is_not_whole() {
        assert!(!look_by(|| Err(io::ErrorKind::Other.into()), |_| None).is_whole);
        assert!(!look_by(|| Ok(vec![COMMAND]), |_| None).is_whole);
    }

    /// The parent goes before its own file is read: by then the child has another.
    #[test]
    fn a_process_without_its_parent_is_read_again() {
        let reads = Cell::new(0);
        let read = |pid| {
            reads.set(reads.get() + 1);
            match (pid, reads.get()) {
                (1, _) => Some(process(1, 0, 1)),
                (22, 1) => Some(process(22, 21, 22)),
                (22, _) => Some(process(22, 1, 22)),
                _ => None,
            }
        };
        let mut lists = [vec![22, 21, 1], vec![22, 1], vec![22, 1]].into_iter();
        let look = look_by(|| Ok(lists.next().unwrap()), read);
        assert!(look.is_whole && look.processes.contains(&process(22, 1, 22)), "{look:?}");
    }
}
