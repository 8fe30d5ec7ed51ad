//! Examines the disk of the daemon's state directory, as the daemon reports it: its free space, and the runs that use it.

use doctor::Finding;
use presentation::ids;
use presentation::quantity::bytes;
use wire::v1::state_disk::State;
use wire::v1::{ListRunsResponse, Run, StateDisk};

/// Number of runs that a finding names.
const NAMED: usize = 3;

/// Examines a list of all runs. There is no finding for users who may not see the disk.
pub(super) fn examine(listed: &ListRunsResponse) -> Option<Finding> {
    listed.state_disk.as_ref().map(|disk| finding(disk, &listed.runs))
}

fn finding(disk: &StateDisk, runs: &[Run]) -> Finding {
    const TOPIC: &str = "state disk";
    let files = disk.free_files.map(|files| format!(", {files} more files")).unwrap_or_default();
    let how = if disk.kernel {
        "project quotas limit the runs"
    } else {
        "the daemon measures each run; a command may write 512 MiB more than its quota before it is ended"
    };
    let found = format!("{} of {} free{files}; {how}", bytes(disk.free_bytes), bytes(disk.total_bytes));
    let follows = match disk.state() {
        State::Low => "runs will soon be unable to write",
        State::Full => "runs can neither write nor run commands",
        State::Unspecified | State::Enough => return Finding::good(TOPIC, found),
    };
    Finding::limited(TOPIC, found, format!("{follows}: {}", holders(runs)))
}

/// Names the runs that use most of the disk, and the remedy.
fn holders(runs: &[Run]) -> String {
    let mut held: Vec<(u64, &Run)> =
        runs.iter().filter_map(|run| Some((run.disk.as_ref()?.used_bytes, run))).collect();
    held.sort_by_key(|(used, _)| std::cmp::Reverse(*used));
    let named: Vec<String> = held
        .iter()
        .take(NAMED)
        .filter(|(used, _)| *used > 0)
        .map(|(used, run)| format!("{} has {}", ids::short(&run.run_id), bytes(*used)))
        .collect();
    if named.is_empty() {
        return "runs use none of it; check the rest of the file system".to_owned();
    }
    format!(
        "run {}; `coffer run delete` frees the /state of an ended run, `coffer workspace list` \
         shows workspaces that are kept",
        named.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use wire::v1::DiskUse;

    use super::*;

    fn run(id: &str, used_bytes: u64) -> Run {
        let disk = Some(DiskUse { used_bytes, ..Default::default() });
        Run { run_id: id.to_owned(), disk, ..Default::default() }
    }

    #[test]
    fn the_largest_runs_of_a_nearly_full_disk_are_named() {
        let disk = |state: State| StateDisk {
            free_bytes: 300 << 20,
            total_bytes: 4 << 30,
            free_files: Some(7),
            state: state.into(),
            kernel: true,
        };
        let runs = [run("a", 5), run("b", 3 << 30), run("c", 0), run("d", 1 << 20), run("e", 6)];
        let good = finding(&disk(State::Enough), &runs);
        assert_eq!(
            good,
            Finding::good(
                "state disk",
                "300.0 MiB of 4.0 GiB free, 7 more files; project quotas limit the runs"
            )
        );
        let low = finding(&disk(State::Low), &runs).follows.unwrap();
        assert!(
            low.starts_with(
                "runs will soon be unable to write: run b has 3.0 GiB, d has 1.0 MiB, e has 6 B; "
            ),
            "{low}"
        );
        let full = finding(&disk(State::Full), &[]).follows.unwrap();
        assert!(full.contains("can neither write nor run commands: runs use none of it"), "{full}");
        assert_eq!(examine(&ListRunsResponse::default()), None);
    }
}
