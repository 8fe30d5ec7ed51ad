//! A run on a commit of a repository that another run began on before: on the base of it, against `git clone --local`.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use harness::v1::base_source::Source;
use harness::v1::run::StartKind;
use harness::v1::{BaseSource, CloneWorkspace, CreateBaseRequest, Run};
use harness::{Clients, own, requests};
use tokio::process::Command;

use super::place::{OWNER, Place};
use super::{PROFILE, Size, WARM_UP, end, succeeds};
use crate::sample::Sample;
use crate::table::{Most, Row};

/// Largest part of the time of the clone.
const MOST: f64 = 0.05;

pub(super) async fn measure(place: &Place, size: Size) -> Vec<Row> {
    // The command runs as the owner of the repository.
    place.daemon.expose();
    let clones = place.daemon.outside().join("clones");
    fs::create_dir(&clones).unwrap();
    own(&clones, OWNER);
    let mut clients = place.daemon.connect().await;
    let (mut plain, mut ours) = (Sample::default(), Sample::default());
    let mut full = 1;
    for round in 0..WARM_UP + size.rounds {
        place.daemon.pool_is_full(full).await;
        let theirs = clone(&place.repository, &clones.join("clone")).await;
        let (took, run, reused) = ready(place, &mut clients).await;
        full += usize::from(run.start_kind() == StartKind::Warm);
        end(&mut clients, &run).await;
        if round >= WARM_UP {
            assert!(reused, "no base was used again");
            plain.add(theirs);
            ours.add(took);
        }
    }
    eprintln!("clones: done");
    Row::of_times("run on a known commit, against git clone", Some(&plain), &ours, Most::Times(MOST)).into()
}

/// Asks for the base of the repository and for a run on it. Returns the time of both, and whether the base was there.
async fn ready(place: &Place, clients: &mut Clients) -> (Duration, Run, bool) {
    let repository = place.repository.display().to_string();
    let source = Source::Clone(CloneWorkspace { repository, ..CloneWorkspace::default() });
    let source = Some(BaseSource { source: Some(source) });
    let began = Instant::now();
    let request = CreateBaseRequest { source, reuse: true, ..Default::default() };
    let made = clients.bases.create_base(request).await.unwrap().into_inner();
    let request = place.with_image(requests::base(PROFILE, &made.base.unwrap().base_id));
    let run = clients.runs.create_run(request).await.unwrap().into_inner().run.unwrap();
    (began.elapsed(), run, made.reused)
}

/// Clones by the git command, as the owner.
async fn clone(repository: &Path, to: &Path) -> Duration {
    let mut git = Command::new("git");
    git.args(["clone", "--quiet", "--local"]).arg(repository).arg(to);
    git.env("HOME", "/nonexistent").uid(OWNER).gid(OWNER);
    let began = Instant::now();
    succeeds(&mut git).await;
    let took = began.elapsed();
    fs::remove_dir_all(to).unwrap();
    took
}
