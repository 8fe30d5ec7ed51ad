//! The task that owns the warm containers. It makes, removes and replaces them until the daemon stops.
//!
//! It makes one container at a time and rests after each, longer while calls are under way. While the engine fails, the rests grow. It
//! finds every change of the policy, and of the image that a name refers to, within seconds.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use containers::{ImageReference, UsableImage, idmap_supported};
use futures_util::StreamExt as _;
use operations::Environment;
use policy::{InForce, Policy};
use refusal::{Refusal, chain};
use tokio::task::block_in_place;
use tokio_util::sync::CancellationToken;

use super::demand::Demand;
use super::warm::{Warm, can_be_warm};
use super::{Kind, Pool, PoolEntry, Table};
use crate::launch::{Launcher, Wanted, wanted};
use crate::way_out::narrowed;
use crate::{request, workspace};

/// Time between two checks of the pool.
const TICK: Duration = Duration::from_secs(1);
/// Time between two checks of the images that names refer to.
const LOOK: Duration = Duration::from_secs(15);
/// Delay before a container is made, so that it does not slow down the run that took one.
const MOMENT: Duration = Duration::from_millis(50);
/// Most delays of [`MOMENT`], while clients wait for a run or a call.
const PATIENCE: u32 = 10;
/// Rest after a container was made, as a multiple of the time that it took.
const REST: u32 = 1;
/// The same multiple while calls are under way.
const REST_IF_BUSY: u32 = 4;
/// First and longest wait after the engine failed.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Containers that are removed at the same time.
const AT_ONCE: usize = 8;

/// State of the task.
#[derive(Default)]
struct Known {
    policy: Option<Arc<Policy>>,
    looked: Option<Instant>,
    /// Reasons that entries have no containers, as last logged.
    told: BTreeMap<String, String>,
    failures: u32,
}

impl Launcher {
    /// Keeps the pool until the daemon stops, and then removes it. Does nothing on a host without warm containers.
    ///
    /// `is_busy` returns true while a client waits for a run or a call.
    pub(crate) async fn keep_pool(
        self: Arc<Self>,
        in_force: InForce,
        is_busy: impl Fn() -> bool + Send + Sync,
        stop: CancellationToken,
    ) {
        if self.pool.entries.is_empty() {
            return;
        }
        if let Some(why) = block_in_place(|| self.cannot_wait()) {
            tracing::warn!(why, "no warm containers: every run starts cold");
            return;
        }
        let mut known = Known::default();
        while !stop.is_cancelled() {
            let wait = self.keep_once(&in_force, &is_busy, &mut known).await;
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(wait) => {}
                () = self.pool.changed.notified(), if wait == TICK => {}
            }
        }
        let left = std::mem::take(&mut *self.pool.table.lock());
        discard(&self, left.into_values().flat_map(|kind| kind.ready)).await;
    }

    /// Takes the next step, and returns how long to wait after it.
    async fn keep_once(
        &self,
        in_force: &InForce,
        is_busy: &(impl Fn() -> bool + Sync),
        known: &mut Known,
    ) -> Duration {
        let policy = in_force.policy();
        let is_new = known.policy.as_ref().is_none_or(|before| !Arc::ptr_eq(before, &policy));
        if is_new || known.looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
            let Some(kinds) = self.kinds(&policy, known).await else { return known.failed() };
            discard(self, self.pool.replace(kinds)).await;
            (known.policy, known.looked) = (Some(policy), Some(Instant::now()));
        }
        discard(self, self.pool.needless()).await;
        if self.pool.has_failed.swap(false, Ordering::AcqRel) {
            return known.failed();
        }
        if self.pool.missing().is_none() {
            return TICK;
        }
        nobody_waits(is_busy).await;
        let Some((digest, wanted, image)) = self.pool.missing() else { return TICK };
        let began = Instant::now();
        match self.warm_up(&wanted, &image).await {
            Ok(warm) => {
                known.failures = known.failures.saturating_sub(1);
                discard(self, self.pool.put(&digest, warm)).await;
                began.elapsed() * if is_busy() { REST_IF_BUSY } else { REST }
            }
            Err(refusal) => {
                let wait = known.failed();
                tracing::warn!(why = refusal.message, ?wait, "no warm container was made; tried again later");
                wait
            }
        }
    }
}

/// Waits for a moment, and for a limited time while clients wait for a run or a call. A container that is made now would delay them.
async fn nobody_waits(is_busy: &(impl Fn() -> bool + Sync)) {
    for _ in 0..PATIENCE {
        tokio::time::sleep(MOMENT).await;
        if !is_busy() {
            return;
        }
    }
}

impl Known {
    fn failed(&mut self) -> Duration {
        let wait = BACK_OFF.0 * 2_u32.saturating_pow(self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        wait.min(BACK_OFF.1)
    }
}

impl Launcher {
    /// Returns the reason that this host has no warm containers.
    ///
    /// A mount would not reach the container, or its owner would not appear as the run's user.
    fn cannot_wait(&self) -> Option<String> {
        if self.host.is_rootless() {
            return Some("the engine is rootless".to_owned());
        }
        let state = workspace::open_own(&self.directories.state).map_err(|error| chain(&error));
        let mapped = state.and_then(|state| {
            let fd = std::os::fd::AsFd::as_fd(&state.handle);
            idmap_supported(fd).map_err(|error| chain(&error))
        });
        match mapped {
            Ok(true) => None,
            Ok(false) => Some("the file system of state_dir has no idmapped mounts".to_owned()),
            Err(error) => Some(error),
        }
    }

    /// Returns the kinds of warm containers under this policy, or `None` if the engine does not answer.
    async fn kinds(&self, policy: &Policy, known: &mut Known) -> Option<Table> {
        let mut kinds = Table::new();
        for entry in &self.pool.entries {
            let profiles: Vec<&str> = match &entry.profile {
                Some(profile) => vec![profile],
                None => policy.profile_names().filter(|name| has_read_only_root(policy, name)).collect(),
            };
            for profile in profiles {
                let name = format!("{profile}/{}", entry.image.as_ref().map_or("", ImageReference::as_str));
                match self.kind(policy, entry, profile).await {
                    Ok((digest, kind)) => {
                        known.told.remove(&name);
                        let same = kinds.entry(digest).or_insert_with(|| Kind { min: 0, max: 0, ..kind });
                        same.min += entry.min;
                        same.max += entry.max;
                    }
                    Err(refusal) if refusal.reason == operations::Reason::EngineUnavailable => return None,
                    Err(refusal) => {
                        if known.told.insert(name.clone(), refusal.message.clone()).as_ref()
                            != Some(&refusal.message)
                        {
                            tracing::warn!(
                                pool = name,
                                why = refusal.message,
                                "no warm containers of this kind"
                            );
                        }
                    }
                }
            }
        }
        Some(kinds)
    }

    async fn kind(&self, policy: &Policy, entry: &PoolEntry, name: &str) -> Result<(String, Kind), Refusal> {
        let refused = |why: String| Refusal::invalid("pool", why);
        let profile =
            policy.profile(name).ok_or_else(|| refused(format!("the policy has no profile {name}")))?;
        let asked = entry.image.as_ref().map(ImageReference::as_str);
        if !profile.permits_image(asked) {
            return Err(refused(format!("profile {name} does not allow this image")));
        }
        let image = asked.or(profile.image.as_deref()).unwrap_or_default();
        let mut limits = request::limits(&wire::v1::Limits::default(), profile)?;
        limits.cpu_millis = containers::cpu_limit(limits.cpu_millis, self.host.cpus);
        let resolver = self.way_out.resolver(&narrowed(profile, &[]));
        let wanted = wanted(profile, image, &limits, Environment::default(), resolver)?;
        let wanted = wanted.under(self.projects.quota());
        if !can_be_warm(&wanted) {
            return Err(refused(format!("profile {name} has a writable root, or a kernel of its own")));
        }
        let (image, _) = self.image(wanted.image.as_ref()).await?;
        let digest = self.warm_spec("", &wanted, &image)?.digest();
        let kind = Kind {
            name: name.to_owned(),
            wanted,
            image,
            min: entry.min,
            max: entry.max,
            demand: Demand::default(),
            ready: VecDeque::new(),
        };
        Ok((digest, kind))
    }
}

fn has_read_only_root(policy: &Policy, name: &str) -> bool {
    policy.profile(name).is_some_and(|profile| profile.root == jail::RootMode::ReadOnly)
}

impl Pool {
    /// Replaces the kinds, and returns the containers of kinds that are gone, for the caller to remove.
    fn replace(&self, mut kinds: Table) -> Vec<Warm> {
        let mut table = self.table.lock();
        let mut needless = Vec::new();
        for (digest, before) in std::mem::take(&mut *table) {
            if let Some(kind) = kinds.get_mut(&digest) {
                (kind.demand, kind.ready) = (before.demand, before.ready);
            } else {
                tracing::info!(
                    pool = before.name,
                    digest,
                    "warm containers of this kind are no longer wanted"
                );
                needless.extend(before.ready);
            }
        }
        *table = kinds;
        needless
    }

    /// Takes out the containers that are lost, and one of each kind that has too many.
    fn needless(&self) -> Vec<Warm> {
        let mut needless = Vec::new();
        for kind in self.table.lock().values_mut() {
            let (good, lost) = std::mem::take(&mut kind.ready).into_iter().partition(Warm::is_connected);
            kind.ready = good;
            needless.extend(lost);
            if kind.ready.len() > kind.demand.target(Instant::now(), kind.min, kind.max) {
                needless.extend(kind.ready.pop_front());
            }
        }
        needless
    }

    /// Returns the kind that lacks the most containers.
    fn missing(&self) -> Option<(String, Wanted, UsableImage)> {
        let now = Instant::now();
        let mut table = self.table.lock();
        let missing = table.iter_mut().map(|(digest, kind)| {
            (kind.demand.target(now, kind.min, kind.max).saturating_sub(kind.ready.len()), digest, &*kind)
        });
        let (_, digest, kind) =
            missing.filter(|(count, _, _)| *count > 0).max_by_key(|(count, _, _)| *count)?;
        Some((digest.clone(), kind.wanted.clone(), kind.image.clone()))
    }

    /// Adds a container to the pool. Returns it if its kind is no longer wanted.
    fn put(&self, digest: &str, warm: Warm) -> Option<Warm> {
        let mut table = self.table.lock();
        let Some(kind) = table.get_mut(digest) else { return Some(warm) };
        kind.ready.push_back(warm);
        let (pool, ready) = (&kind.name, kind.ready.len());
        let target = kind.demand.target(Instant::now(), kind.min, kind.max);
        if ready >= target {
            tracing::info!(pool, ready, target, "warm containers wait");
        } else {
            tracing::debug!(pool, ready, target, "a warm container waits");
        }
        None
    }
}

async fn discard(launcher: &Launcher, warm: impl IntoIterator<Item = Warm>) {
    futures_util::stream::iter(warm).for_each_concurrent(AT_ONCE, |warm| warm.discard(launcher)).await;
}
