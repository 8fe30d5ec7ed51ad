//! Clones a repository of a server: refreshes its mirror, and has the clone made of it.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use egress_rules::Narrowed;
use host_launch::{Launcher, MirrorError, MirroredClone};
use operations::Reason;
use refusal::{Refusal, chain};
use tokio::task::spawn_blocking;

use crate::permission::key;
use crate::table::{Lease, Mirrors};
use crate::{Cloned, Wanted, WayOut};

/// Time limit of a refresh.
const REFRESH: Duration = Duration::from_secs(300);
/// Time limit of a clone of a mirror.
const CLONE: Duration = Duration::from_secs(120);

/// The reason why a step failed.
enum Failed {
    /// The mirror is as complete as before.
    Refused(Refusal),
    /// The mirror may be damaged.
    Broken(Refusal),
}

impl Failed {
    fn of(refusal: Refusal, is_broken: bool) -> Self {
        if is_broken { Self::Broken(refusal) } else { Self::Refused(refusal) }
    }
}

impl Mirrors {
    /// Clones a repository of a server, under the rules of the run.
    ///
    /// The server is asked each time, through `way_out`. Only what the mirror lacks is fetched.
    pub async fn clone_repository(
        &self,
        launcher: &Launcher,
        wanted: Wanted<'_>,
        rules: &Narrowed,
        way_out: &dyn WayOut,
    ) -> Result<Cloned, Refusal> {
        let key = key(wanted.url, rules)?;
        let stopping = &wanted.stopping;
        let place = stopping.run_until_cancelled(self.begin_refresh(wanted.principal)).await;
        let place = place.ok_or_else(stopped)??;
        let lease = stopping.run_until_cancelled(self.lease(&key)).await.ok_or_else(stopped)??;
        let refreshed = async {
            let _turn = self.refresh_turn(place).await?;
            self.refreshed(launcher, &lease, &wanted, way_out).await
        };
        let mirror = if let Some(mirror) = stopping.run_until_cancelled(refreshed).await {
            mirror
        } else {
            way_out.end().await;
            self.abandon(&lease).await;
            Err(stopped())
        };
        let mirror = mirror.inspect_err(|_| self.forget(&lease))?;
        let made = made(launcher, mirror, wanted).await;
        self.settled(&lease, made).await
    }

    /// Refreshes the mirror, and returns it. After an error it is as it was before, or gone.
    async fn refreshed(
        &self,
        launcher: &Launcher,
        lease: &Lease,
        wanted: &Wanted<'_>,
        way_out: &dyn WayOut,
    ) -> Result<OwnedFd, Refusal> {
        let most = self.most()?;
        let internal = |error: io::Error| Refusal::internal("preparing a mirror", &error);
        let (staged, existed) = self.stage(lease).await.map_err(internal)?;
        let fetched = self.fetched(launcher, staged, wanted, most, way_out).await;
        way_out.end().await;
        match fetched {
            Err(Failed::Refused(refusal)) if existed => {
                // Its references may be fewer than before, and it lacks nothing.
                if let Err(error) = self.place(lease).await {
                    tracing::warn!(error = %error, "a mirror was not put back");
                    self.discard(lease).await;
                }
                return Err(refusal);
            }
            Err(Failed::Refused(refusal) | Failed::Broken(refusal)) => {
                self.discard(lease).await;
                return Err(refusal);
            }
            Ok(()) => {}
        }
        let placed = self.place(lease).await;
        if placed.is_err() {
            self.discard(lease).await;
        } else {
            self.note(lease).await;
        }
        placed.map_err(internal)
    }

    async fn fetched(
        &self,
        launcher: &Launcher,
        mirror: OwnedFd,
        wanted: &Wanted<'_>,
        most: u64,
        way_out: &dyn WayOut,
    ) -> Result<(), Failed> {
        let socket = way_out.begin().await.map_err(Failed::Refused)?;
        let (launcher, url) = (launcher.clone(), wanted.url.to_string());
        let owner = (self.owner.uid, self.owner.gid);
        let fetch =
            move || launcher.refresh_mirror((mirror.as_fd(), socket.as_fd()), &url, owner, most, REFRESH);
        let settings = "mirrors.max_bytes of the daemon's configuration, and the space on its disk";
        let refused =
            |why: &str| Refusal::new(Reason::PreconditionFailed, format!("workspace.clone.url: {why}"));
        // A process that did not start has written nothing.
        let spoils = |error: &MirrorError| matches!(error, MirrorError::Broken(_) | MirrorError::TimedOut(_));
        let fetched =
            ended(spawn_blocking(fetch).await, "fetching from the server", ("mirrors", settings), refused);
        fetched.map_err(|failed| {
            let (refusal, error) = *failed;
            Failed::of(refusal, error.as_ref().is_none_or(spoils))
        })
    }

    /// Deletes a mirror that a clone found damaged.
    async fn settled<T>(&self, lease: &Lease, done: Result<T, Failed>) -> Result<T, Refusal> {
        match done {
            Ok(done) => Ok(done),
            Err(Failed::Refused(refusal)) => Err(refusal),
            Err(Failed::Broken(refusal)) => {
                self.discard(lease).await;
                Err(refusal)
            }
        }
    }
}

fn stopped() -> Refusal {
    Refusal::new(Reason::Cancelled, "the run was stopped before its repository was fetched")
}

/// Clones the mirror into the workspace.
async fn made(launcher: &Launcher, mirror: OwnedFd, wanted: Wanted<'_>) -> Result<Cloned, Failed> {
    let (launcher, url) = (launcher.clone(), wanted.url.to_string());
    let revision = wanted.revision.unwrap_or_default().to_owned();
    let Wanted { depth, most, workspace, owner, .. } = wanted;
    let clone = move || {
        let clone = MirroredClone {
            mirror: mirror.as_fd(),
            workspace: workspace.as_fd(),
            url: &url,
            revision: &revision,
            depth,
            most,
            owner: (owner.uid, owner.gid),
        };
        launcher.clone_mirror(clone, CLONE)
    };
    let limit = ("disk-quota", "limits.disk_mib, limits.disk_files");
    let refused = |why: &str| Refusal::invalid("workspace.clone", why);
    // The process cannot write the mirror. It fails if an object is missing.
    let spoils = |error: &MirrorError| matches!(error, MirrorError::Broken(_));
    match ended(spawn_blocking(clone).await, "cloning", limit, refused) {
        Ok(commit) => Ok(Cloned { commit }),
        Err(failed) => {
            let (refusal, error) = *failed;
            Err(Failed::of(refusal, error.as_ref().is_some_and(spoils)))
        }
    }
}

/// Makes a refusal of an error, and returns both. `limit` is the name of a limit, and the settings that are it.
fn ended<T>(
    done: Result<Result<T, MirrorError>, tokio::task::JoinError>,
    what: &str,
    (limit, settings): (&'static str, &str),
    refused: impl FnOnce(&str) -> Refusal,
) -> Result<T, Box<(Refusal, Option<MirrorError>)>> {
    let done = done.map_err(|error| Box::new((Refusal::internal(what, &error), None)))?;
    done.map_err(|error| {
        let refusal = match &error {
            MirrorError::Refused(why) => refused(why.trim()),
            MirrorError::Excess(why) => {
                let message = format!("workspace.clone.url: {} ({settings})", why.trim());
                Refusal::new(Reason::WriteLimit, message).with("limit", limit)
            }
            MirrorError::TimedOut(_) => {
                Refusal::new(Reason::TimedOut, format!("workspace.clone.url: {what}: {error}"))
            }
            MirrorError::Broken(_) | MirrorError::Start(_) => Refusal::internal(what, &chain(&error)),
        };
        Box::new((refusal, Some(error)))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::path::Path;

    use egress_rules::Rules;
    use futures_util::FutureExt as _;
    use futures_util::future::BoxFuture;
    use host_launch::{Owner, TreeBounds};
    use parking_lot::Mutex;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::limits::AT_ONCE;
    use crate::{MirrorBounds, RepositoryUrl};

    /// Counts how often it was begun and ended.
    #[derive(Default)]
    struct Counted(Mutex<(u32, u32)>);

    impl WayOut for Counted {
        fn begin(&self) -> BoxFuture<'_, Result<OwnedFd, Refusal>> {
            self.0.lock().0 += 1;
            async { Ok(OwnedFd::from(UnixStream::pair().unwrap().0)) }.boxed()
        }

        fn end(&self) -> BoxFuture<'_, ()> {
            self.0.lock().1 += 1;
            async {}.boxed()
        }
    }

    async fn mirrors(directory: &Path) -> Mirrors {
        let bounds = MirrorBounds { max_count: 4, max_bytes: 1 << 30, max_age: Duration::from_secs(86_400) };
        Mirrors::open(directory.to_owned(), bounds, 0).await.unwrap()
    }

    fn rules(decision: &str) -> Narrowed {
        let rule = format!("{{\"host\":\"git.example.org\",\"ports\":[443],\"decision\":\"{decision}\"}}");
        Narrowed::new(Rules::from_json(&format!("{{\"rules\":[{rule}]}}")).unwrap())
    }

    async fn clone(mirrors: &Mirrors, program: &str, rules: &Narrowed, way_out: &Counted) -> Refusal {
        clone_until(mirrors, (program, rules), way_out, CancellationToken::new()).await
    }

    async fn clone_until(
        mirrors: &Mirrors,
        (program, rules): (&str, &Narrowed),
        way_out: &Counted,
        stopping: CancellationToken,
    ) -> Refusal {
        let wanted = Wanted {
            url: &RepositoryUrl::parse("https://git.example.org/org/app").unwrap(),
            principal: "uid:1",
            revision: None,
            depth: 0,
            most: TreeBounds { bytes: 1 << 20, files: 100 },
            workspace: OwnedFd::from(UnixStream::pair().unwrap().0),
            owner: Owner { uid: 1, gid: 1 },
            stopping,
        };
        mirrors.clone_repository(&Launcher::of(program), wanted, rules, way_out).await.unwrap_err()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn rules_that_do_not_allow_it_begin_nothing() {
        let place = tempfile::tempdir().unwrap();
        let (mirrors, way_out) = (mirrors(place.path()).await, Counted::default());
        let refusal = clone(&mirrors, "/bin/true", &rules("ask"), &way_out).await;
        assert_eq!(refusal.reason, Reason::PermissionDenied);
        assert_eq!(*way_out.0.lock(), (0, 0));
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }

    /// A repository that a run may clone.
    struct Scene {
        _place: tempfile::TempDir,
        mirrors: Mirrors,
        way_out: Counted,
        rules: Narrowed,
        key: String,
    }

    impl Scene {
        async fn new() -> Self {
            let place = tempfile::tempdir().unwrap();
            let (mirrors, rules) = (mirrors(place.path()).await, rules("allow"));
            let url = RepositoryUrl::parse("https://git.example.org/org/app").unwrap();
            let key = key(&url, &rules).unwrap();
            Self { _place: place, mirrors, way_out: Counted::default(), rules, key }
        }

        /// Clones for a run that is stopped when `meanwhile` has ended.
        async fn clone_during<T>(&self, meanwhile: impl Future<Output = T>) -> (Refusal, T) {
            let stopping = CancellationToken::new();
            let cloned =
                clone_until(&self.mirrors, ("/bin/true", &self.rules), &self.way_out, stopping.clone());
            tokio::join!(cloned, async {
                let seen = meanwhile.await;
                stopping.cancel();
                seen
            })
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_run_that_is_stopped_waits_for_no_other() {
        let scene = Scene::new().await;
        let _other = scene.mirrors.lease(&scene.key).await.unwrap();
        let (refusal, ()) = scene.clone_during(async {}).await;
        assert_eq!(refusal.reason, Reason::Cancelled);
        assert_eq!(*scene.way_out.0.lock(), (0, 0));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_run_that_waits_for_the_turn_of_its_principal_keeps_no_mirror_from_others() {
        let scene = Scene::new().await;
        let _other = scene.mirrors.begin_refresh("uid:1").await.unwrap();
        let is_free = async { scene.mirrors.lease(&scene.key).now_or_never().is_some() };
        let (refusal, is_free) = scene.clone_during(is_free).await;
        assert_eq!((refusal.reason, is_free), (Reason::Cancelled, true));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_run_that_waits_for_a_mirror_keeps_no_turn_from_others() {
        let scene = Scene::new().await;
        let mirrors = &scene.mirrors;
        let _reader = mirrors.lease(&scene.key).await.unwrap();
        let mut turns = Vec::new();
        for number in 1..AT_ONCE {
            let own = mirrors.begin_refresh(&format!("uid:{}", 10 + number)).await.unwrap();
            turns.push(mirrors.refresh_turn(own).await.unwrap());
        }
        let is_free = async {
            let own = mirrors.begin_refresh("uid:2").await.unwrap();
            mirrors.refresh_turn(own).now_or_never().is_some()
        };
        let (refusal, is_free) = scene.clone_during(is_free).await;
        assert_eq!((refusal.reason, is_free), (Reason::Cancelled, true));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_worker_that_fails_leaves_no_mirror_and_ends_its_connections() {
        let place = tempfile::tempdir().unwrap();
        let (mirrors, way_out) = (mirrors(place.path()).await, Counted::default());
        for (program, reason) in [("/bin/false", Reason::Internal), ("/nonexistent", Reason::Internal)] {
            let refusal = clone(&mirrors, program, &rules("allow"), &way_out).await;
            assert_eq!(refusal.reason, reason, "{}", refusal.message);
            assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
        }
        assert_eq!(*way_out.0.lock(), (2, 2));
        // It ends well and makes no mirror that could be cloned.
        let refusal = clone(&mirrors, "/bin/true", &rules("allow"), &way_out).await;
        assert_eq!(refusal.reason, Reason::Internal);
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "a broken mirror is not used again");
    }
}
