//! Finds the processes of a command by their parents, where the command has no cgroup.
//!
//! A command can change its sessions and groups, but not its parents. If a parent ends, the process becomes a child of the guest, which is
//! a subreaper, and stays visible. Where the guest cannot be one, the process becomes a child of PID 1.

use std::collections::HashSet;

use super::look::Process;

/// Returns the live processes that have to end with `command`: its descendants, and orphans that belong to no other live command.
///
/// The session of an orphan shows its command, unless the orphan made a new session. Such an orphan belongs to no command, and no process
/// may run without one. `orphanage` is the parent of orphans.
pub(crate) fn doomed(
    processes: &[Process],
    orphanage: i32,
    command: i32,
    is_live: impl Fn(i32) -> bool,
) -> Vec<i32> {
    let is_orphan = |process: &Process| process.parent == orphanage && !is_live(process.pid);
    let roots = processes.iter().filter(|process| {
        (process.pid == command && is_live(command))
            || (is_orphan(process) && (process.session == command || !is_live(process.session)))
    });
    living(processes, roots.map(|process| process.pid).collect())
}

/// Returns the live processes below these parents.
pub(crate) fn below(processes: &[Process], parents: [i32; 2]) -> Vec<i32> {
    let children = processes.iter().filter(|process| parents.contains(&process.parent));
    living(processes, children.map(|process| process.pid).collect())
}

/// Returns `roots` and all their descendants, without dead processes.
fn living(processes: &[Process], mut found: HashSet<i32>) -> Vec<i32> {
    loop {
        let before = found.len();
        let next =
            processes.iter().filter(|process| found.contains(&process.parent)).map(|process| process.pid);
        let next: Vec<_> = next.collect();
        found.extend(next);
        if found.len() == before {
            break;
        }
    }
    let living = processes.iter().filter(|process| !process.dead && found.contains(&process.pid));
    living.map(|process| process.pid).collect()
}

#[cfg(test)]
mod tests {
    use super::super::look::tests::process;
    use super::*;

    const AGENT: i32 = 10;

    #[test]
    fn descendants_are_ended_and_others_stay() {
        // 20 and 30 are commands; 21 and 22 belong to 20 by parent, 23 by session, 24 made its own session.
        let all = [
            process(1, 0, 1),
            process(AGENT, 1, 1),
            process(20, AGENT, 20),
            process(21, 20, 20),
            process(22, 21, 22),
            process(23, AGENT, 20),
            process(24, AGENT, 24),
            process(25, 24, 24),
            process(30, AGENT, 30),
            process(31, 30, 31),
            process(32, AGENT, 30),
            process(40, 1, 40),
        ];
        let live = |pid| pid == 20 || pid == 30;
        assert_eq!(doomed(&all, AGENT, 20, live), [20, 21, 22, 23, 24, 25]);
        assert_eq!(doomed(&all, AGENT, 30, live), [24, 25, 30, 31, 32]);
        assert_eq!(below(&all, [AGENT; 2]), [20, 21, 22, 23, 24, 25, 30, 31, 32]);
    }

    #[test]
    fn orphans_may_be_the_first_processs() {
        // 21 belongs to 20 by session, 22 made its own, 31 belongs to the other command.
        let all = [
            process(1, 0, 1),
            process(AGENT, 0, AGENT),
            process(20, AGENT, 20),
            process(21, 1, 20),
            process(22, 1, 22),
            process(30, AGENT, 30),
            process(31, 1, 30),
        ];
        assert_eq!(doomed(&all, 1, 20, |pid| pid == 20 || pid == 30), [20, 21, 22]);
        assert_eq!(below(&all, [AGENT, 1]), [20, 21, 22, 30, 31]);
    }

    #[test]
    fn zombies_are_not_left_but_their_children_are() {
        let all = [Process { dead: true, ..process(20, AGENT, 20) }, process(21, 20, 20)];
        assert_eq!(doomed(&all, AGENT, 20, |pid| pid == 20), [21]);
    }
}
