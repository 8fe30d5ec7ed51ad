//! Measures the disk space of runs, both live and ended.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use containers::{Amount, Commands, ContainerCgroup, Group, Measured};
use disk_quotas::Found;
use identity::RunId;
use runs::record::{Record, Workspace};
use runs::{Run, open_directory, shown_of_root};

use tokio::task::JoinSet;

use super::DiskWatch;
use super::turns::Turns;

/// Longest rest after a measure of an ended run.
const REST: Duration = Duration::from_millis(100);

/// Ended runs that are measured at the same time, each of another tenant.
const LEFT_AT_ONCE: usize = 3;

/// Measures runs that have ended, and kept workspaces whose runs are deleted, those of each tenant one after the other.
///
/// It runs beside the looks: an agent decides how many files it leaves, and so how long a measure takes.
pub(super) async fn left(watch: &DiskWatch) {
    let left = &watch.runs.launcher.projects.left;
    let (mut queue, mut measures) = (Queue::default(), JoinSet::new());
    loop {
        for id in left.unmeasured() {
            queue.add(id, || watch.runs.tenant_left(id));
        }
        loop {
            while measures.len() < LEFT_AT_ONCE
                && let Some(id) = queue.next()
            {
                let Some(as_of) = left.expected(id) else {
                    queue.end(id);
                    continue;
                };
                let (began, paths) = (Instant::now(), paths_left(watch, id));
                measures.spawn(async move {
                    let found = match paths {
                        Some(paths) => Some(all_of(paths).await),
                        None => None,
                    };
                    // Without the rests after other measures, during which this one waits for its turn to be noted.
                    (id, as_of, found, began.elapsed())
                });
            }
            tokio::select! {
                () = left.expects.notified() => break,
                Some(Ok((id, as_of, found, took))) = measures.join_next() => {
                    left.measured(id, as_of, found);
                    queue.end(id);
                    // Its files have changed meanwhile.
                    if left.expected(id).is_some() {
                        queue.add(id, || watch.runs.tenant_left(id));
                    }
                    // After a start there may be many.
                    tokio::time::sleep(took.min(REST)).await;
                }
            }
        }
    }
}

/// Runs that have ended and wait to be measured, and those that are measured.
#[derive(Debug, Default)]
struct Queue {
    waiting: BTreeMap<String, BTreeSet<RunId>>,
    /// The tenant of each run that waits or is measured.
    tenants: BTreeMap<RunId, String>,
    turns: Turns,
}

impl Queue {
    /// Adds a run that neither waits nor is measured. A run of which nothing is left has no tenant, and is over in no time.
    fn add(&mut self, id: RunId, tenant: impl FnOnce() -> Option<String>) {
        if self.tenants.contains_key(&id) {
            return;
        }
        let tenant = tenant().unwrap_or_default();
        self.waiting.entry(tenant.clone()).or_default().insert(id);
        self.tenants.insert(id, tenant);
    }

    /// Takes the next run, unless each tenant with a run that waits has one that is measured.
    fn next(&mut self) -> Option<RunId> {
        let position = self.turns.next(self.waiting.keys().map(String::as_str), 1)?;
        let (tenant, runs) = self.waiting.iter_mut().nth(position)?;
        let (tenant, id) = (tenant.clone(), runs.pop_first());
        if runs.is_empty() {
            self.waiting.remove(&tenant);
        }
        self.turns.begin(&tenant);
        id
    }

    /// Notes that a run is no longer measured.
    fn end(&mut self, id: RunId) {
        if let Some(tenant) = self.tenants.remove(&id) {
            self.turns.end(&tenant);
        }
    }
}

/// Directories of a run that has ended, or its kept workspace.
struct Paths {
    counted: Vec<PathBuf>,
    /// Directories that count against no quota of the run.
    beside: Vec<PathBuf>,
}

/// Returns the directories that a run which has ended has left. `None`: it lives, or nothing of it is left.
fn paths_left(watch: &DiskWatch, id: RunId) -> Option<Paths> {
    let (directories, run) = (&watch.runs.launcher.directories, id.to_string());
    if let Some(record) = watch.runs.ended_record(id) {
        let counted = directories.counted_of(&without_kept(record));
        return Some(Paths { counted, beside: directories.beside(&run) });
    }
    let is_kept = watch.runs.has_kept(id) && watch.runs.living_run(id).is_err();
    is_kept.then(|| Paths { counted: vec![directories.workspace(&run)], beside: Vec::new() })
}

/// Measures files to their end. Of those that cannot be counted, it is recorded that there may be any number, so that they are not measured
/// again. If any of the directories was counted in part, so was the run.
async fn all_of(Paths { counted, beside }: Paths) -> Found {
    let all = Amount { bytes: u64::MAX, files: u64::MAX };
    let unknown = Found { is_more: true, ..Found::default() };
    let found = measured(counted, None, all, Unnamed::default()).await.unwrap_or(unknown);
    match measured(beside, None, all, Unnamed::default()).await {
        Ok(more) => Found {
            beside: more.amount.bytes,
            is_more: found.is_more || more.is_more,
            is_too_deep: found.is_too_deep || more.is_too_deep,
            ..found
        },
        Err(_) => Found { is_more: true, ..found },
    }
}

/// Leaves out the workspace of another run, which is counted for that run.
fn without_kept(mut record: Record) -> Record {
    if let Workspace::Kept { .. } = record.spec.workspace {
        record.spec.workspace = Workspace::Bind { path: PathBuf::new() };
    }
    record
}

/// Places to search for files that only a run's commands or companions still have.
#[derive(Default)]
pub(super) struct Unnamed {
    pub(super) commands: Vec<Commands>,
    companions: Vec<ContainerCgroup>,
    places: &'static [&'static str],
    /// Directories in which a writable root may be mounted.
    slots: Vec<PathBuf>,
}

impl Unnamed {
    /// Returns the directories, as the processes see them, whose files count. Blocks.
    pub(super) fn places(&self) -> Vec<String> {
        let roots = self.slots.iter().flat_map(|slots| shown_of_root(slots));
        let roots = roots.map(|directory| directory + "/");
        let all: BTreeSet<String> = self.places.iter().map(|&place| place.to_owned()).chain(roots).collect();
        all.into_iter().collect()
    }

    /// Returns the processes of commands.
    pub(super) fn pids(&self) -> Vec<u32> {
        self.commands.iter().filter_map(|commands| commands.pids().ok()).flatten().collect()
    }

    /// Returns the processes of commands and companions.
    fn all_pids(&self) -> Vec<u32> {
        let companions = self.companions.iter().filter_map(|cgroup| cgroup.pids().ok()).flatten();
        self.pids().into_iter().chain(companions).collect()
    }
}

pub(super) fn unnamed(watch: &DiskWatch, id: RunId, run: &Run) -> Unnamed {
    let lanes = run.lanes_for_review().ok();
    let of_group = |group| lanes.as_ref().and_then(|lanes| lanes.commands(group));
    let places: &[_] = if run.disk.has_workspace() { &["/state/", "/workspace/"] } else { &["/state/"] };
    let (record, (starting, begun)) = (run.record(), run.starting());
    let made_as = record.companions_made_as().chain(starting).chain([record.made_as().unwrap_or(id)]);
    Unnamed {
        commands: Group::ALL.into_iter().filter_map(of_group).collect(),
        companions: run.companions().cgroups().into_iter().chain(begun.cgroups()).collect(),
        places,
        slots: made_as.map(|id| watch.runs.launcher.directories.slots(&id.to_string())).collect(),
    }
}

/// Measures the disk space of a live run.
pub(super) fn of_run(
    watch: &DiskWatch,
    id: RunId,
    run: &Run,
) -> impl Future<Output = std::io::Result<Found>> + Send + 'static {
    let directories = &watch.runs.launcher.directories;
    let mut paths = directories.counted_of(&run.record());
    paths.extend(run.starting().0.iter().map(|made_as| directories.root_layer(&made_as.to_string())));
    let uploads = directories.uploads(&id.to_string());
    measured(paths, Some(uploads), run.disk.worth_counting(), unnamed(watch, id, run))
}

/// Adds up the files in all of these directories, the files without a name that commands and companions have open, and the uploads.
///
/// A directory that does not exist counts as empty.
async fn measured(
    paths: Vec<PathBuf>,
    uploads: Option<PathBuf>,
    most: Amount,
    unnamed: Unnamed,
) -> std::io::Result<Found> {
    let measured = tokio::task::spawn_blocking(move || {
        let places = unnamed.places();
        let places: Vec<&str> = places.iter().map(String::as_str).collect();
        let amount = containers::unnamed(&unnamed.all_pids(), &places);
        let is_more = amount.bytes > most.bytes || amount.files > most.files;
        let mut found = Found { amount, is_more, ..Found::default() };
        let counted = |path: &Path, most: Amount| match open_directory(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Measured::default()),
            directory => containers::measure(directory?.handle.as_fd(), most),
        };
        if let Some(uploads) = uploads {
            let more = counted(&uploads, most)?;
            (found.uploads, found.is_too_deep) = (more.amount, more.is_too_deep);
            found.is_more |= more.is_more;
        }
        for path in paths {
            let most = Amount {
                bytes: most.bytes.saturating_sub(found.amount.bytes),
                files: most.files.saturating_sub(found.amount.files),
            };
            let more = counted(&path, most)?;
            found.amount.bytes += more.amount.bytes;
            found.amount.files += more.amount.files;
            found.is_more |= more.is_more;
            found.is_too_deep |= more.is_too_deep;
            if found.is_more {
                break;
            }
        }
        Ok(found)
    });
    measured.await.map_err(std::io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn directories_too_deep_to_be_counted_make_any_measure_a_part() {
        let [shallow, deep] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        std::fs::create_dir_all(shallow.path().join("d")).unwrap();
        std::fs::create_dir_all(deep.path().join("d/".repeat(300))).unwrap();
        let all = async |counted: &Path, beside: &Path| {
            let found = all_of(Paths { counted: vec![counted.into()], beside: vec![beside.into()] }).await;
            (found.amount.files, found.is_too_deep, found.is_more)
        };
        let (shallow, deep) = (shallow.path(), deep.path());
        assert_eq!(all(shallow, shallow).await, (2, false, false));
        assert_eq!(all(shallow, deep).await, (2, true, false));
        let (files, is_too_deep, is_more) = all(deep, shallow).await;
        assert!(files > 200 && is_too_deep && !is_more, "{files}");
    }

    #[test]
    fn a_tenant_has_one_ended_run_measured_at_a_time_and_others_do_not_wait_for_its_files() {
        let mut queue = Queue::default();
        let [large, next, modest, gone] = [(); 4].map(|()| RunId::new());
        for (id, tenant) in [(large, "greedy"), (next, "greedy")] {
            queue.add(id, || Some(tenant.to_owned()));
        }
        assert_eq!((queue.next(), queue.next()), (Some(large), None));
        queue.add(modest, || Some("modest".to_owned()));
        queue.add(gone, || None);
        // One that waits or is measured is not added again.
        for id in [large, next, modest] {
            queue.add(id, || unreachable!());
        }
        let both = BTreeSet::from([queue.next(), queue.next()]);
        assert_eq!((both, queue.next()), (BTreeSet::from([Some(modest), Some(gone)]), None));
        queue.end(modest);
        queue.end(gone);
        assert_eq!(queue.next(), None, "the large one is still measured");
        queue.end(large);
        assert_eq!(queue.next(), Some(next));
        queue.end(next);
        assert!(queue.tenants.is_empty() && queue.waiting.is_empty());
    }
}
