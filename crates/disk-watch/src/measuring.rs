//! Measures the disk space of runs, both live and ended.

use std::collections::BTreeSet;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use containers::{Amount, Commands, ContainerCgroup, Group, Measured};
use disk_quotas::Found;
use identity::RunId;
use runs::record::{Record, Workspace};
use runs::{Run, open_directory, shown_of_root};

use super::DiskWatch;

/// Longest rest after a measure of an ended run.
const REST: Duration = Duration::from_millis(100);

/// Measures runs that have ended, and kept workspaces whose runs are deleted, one after the other.
///
/// It runs beside the looks: an agent decides how many files it leaves, and so how long a measure takes.
pub(super) async fn left(watch: &DiskWatch) {
    let left = &watch.runs.launcher.projects.left;
    loop {
        while let Some((id, as_of)) = left.unmeasured() {
            let began = Instant::now();
            let found = match paths_left(watch, id) {
                Some(paths) => Some(all_of(paths).await),
                None => None,
            };
            left.measured(id, as_of, found);
            // After a start there may be many.
            tokio::time::sleep(began.elapsed().min(REST)).await;
        }
        left.expects.notified().await;
    }
}

/// Returns the directories of a run that has ended, or its kept workspace. `None`: it lives, or nothing of it is left.
fn paths_left(watch: &DiskWatch, id: RunId) -> Option<Vec<PathBuf>> {
    let directories = &watch.runs.launcher.directories;
    if let Some(record) = watch.runs.ended_record(id) {
        return Some(directories.counted_of(&without_kept(record)));
    }
    let is_kept = watch.runs.has_kept(id) && watch.runs.living_run(id).is_err();
    is_kept.then(|| vec![directories.workspace(&id.to_string())])
}

/// Measures files to their end. Of those that cannot be counted, it is recorded that there may be any number, so that they are not measured
/// again.
async fn all_of(paths: Vec<PathBuf>) -> Found {
    let all = Amount { bytes: u64::MAX, files: u64::MAX };
    let unknown = Found { is_more: true, ..Found::default() };
    measured(paths, None, all, Unnamed::default()).await.unwrap_or(unknown)
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
