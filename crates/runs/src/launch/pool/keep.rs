//! The task that owns the warm containers. It makes, removes and replaces them until the daemon stops.
//!
//! It makes one container at a time and rests after each, longer while calls are under way. While the engine fails, the rests grow. It
//! finds every change of the policy, and of the image that a name refers to, within seconds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use containers::{ImageReference, idmap_supported};
use futures_util::StreamExt as _;
use operations::{Environment, Reason};
use policy::{InForce, Policy, has_own_kernel};
use refusal::{Refusal, chain};
use tokio::task::block_in_place;
use tokio_util::sync::CancellationToken;
use warm_pool::{Bounds, Configured, Fill, PAUSE};

use super::warm::{Warm, never_warm};
use super::{Make, Pool, PoolEntry, memory, named};
use crate::launch::root::NewRoot;
use crate::launch::{Launcher, wanted};
use crate::request;
use crate::way_out::{Outward, narrowed};
use run_directories::workspace;

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
            self.pool.is_unsupported.store(true, Ordering::Release);
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
        let left = self.pool.table.lock().clear();
        discard(&self, left).await;
    }

    /// Takes the next step, and returns how long to wait after it.
    async fn keep_once(
        &self,
        in_force: &InForce,
        is_busy: &(impl Fn() -> bool + Sync),
        known: &mut Known,
    ) -> Duration {
        if self.pool.is_closed.load(Ordering::Acquire) {
            // The kinds are read again when it opens.
            known.policy = None;
            let left = self.pool.table.lock().clear();
            discard(self, left).await;
            return TICK;
        }
        let policy = in_force.policy();
        let is_new = known.policy.as_ref().is_none_or(|before| !Arc::ptr_eq(before, &policy));
        if is_new || known.looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
            let Some(kinds) = self.kinds(&policy, known).await else { return known.failed() };
            let needless = self.pool.table.lock().replace(kinds, is_new);
            discard(self, needless).await;
            (known.policy, known.looked) = (Some(policy), Some(Instant::now()));
        }
        let has_memory = block_in_place(memory::is_free);
        let needless = self.pool.table.lock().needless(Instant::now(), has_memory, Warm::is_connected);
        discard(self, needless).await;
        if self.pool.has_failed.swap(false, Ordering::AcqRel) {
            return known.failed();
        }
        let missing = || self.pool.table.lock().missing(Instant::now(), has_memory);
        if missing().is_none() {
            return TICK;
        }
        nobody_waits(is_busy).await;
        let Some((key, make)) = missing() else { return TICK };
        let began = Instant::now();
        match self.warm_up(&make).await {
            Ok(warm) => {
                known.failures = known.failures.saturating_sub(1);
                discard(self, self.pool.put(&key, warm)).await;
                began.elapsed() * if is_busy() { REST_IF_BUSY } else { REST }
            }
            Err(refusal) => {
                // Another kind may be possible, unless the engine fails.
                let is_engine = refusal.reason == Reason::EngineUnavailable;
                let (wait, again) = if is_engine { (known.failed(), Duration::ZERO) } else { (TICK, PAUSE) };
                self.pool.table.lock().postpone(&key, Instant::now() + again);
                tracing::warn!(why = refusal.message, wait = ?wait.max(again), "no warm container was made; tried again later");
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

    /// Returns the kinds of the configuration under this policy, or `None` if the engine does not answer.
    async fn kinds(&self, policy: &Policy, known: &mut Known) -> Option<Vec<Configured<Make>>> {
        let mut kinds = Vec::new();
        for entry in &self.pool.entries {
            let profiles: Vec<&str> = match &entry.profile {
                Some(profile) => vec![profile],
                None => policy.profile_names().filter(|name| can_wait(policy, name)).collect(),
            };
            for profile in profiles {
                let name = named(profile, entry.image.as_ref());
                match self.kind(policy, entry, profile).await {
                    Ok(kind) => {
                        known.told.remove(&name);
                        kinds.push(kind);
                    }
                    Err(refusal) if refusal.reason == Reason::EngineUnavailable => return None,
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

    async fn kind(
        &self,
        policy: &Policy,
        entry: &PoolEntry,
        name: &str,
    ) -> Result<Configured<Make>, Refusal> {
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
        let has_companions = !profile.companions.defaults.is_empty();
        let outward = Outward::under(self.way_out.block, &narrowed(profile, &[]), has_companions)?;
        let wanted = wanted(profile, image, &limits, Environment::default(), outward)?;
        let wanted = wanted.under(self.projects.quota());
        if never_warm(&wanted).is_some() {
            return Err(refused(format!("profile {name} has a kernel of its own, or a root that is mapped")));
        }
        let (image, _) = self.image(wanted.image.as_ref()).await?;
        // The owner of runs that root asks for. Those of other principals follow the demand.
        let root = NewRoot::of(&wanted.hardening, workspace::default_owner(), &[]);
        let make = Make { wanted, image, root };
        Ok(Configured {
            key: self.key(&make)?,
            name: name.to_owned(),
            make,
            bounds: Bounds { min: entry.min, max: entry.max },
            entry: (name.to_owned(), asked.map(str::to_owned)),
        })
    }
}

fn can_wait(policy: &Policy, name: &str) -> bool {
    policy.profile(name).is_some_and(|profile| {
        !profile.root_in_user_namespace && !profile.runtime.as_deref().is_some_and(has_own_kernel)
    })
}

impl Pool {
    /// Adds a container to the pool. Returns it if its kind is no longer wanted.
    fn put(&self, key: &str, warm: Warm) -> Option<Warm> {
        match self.table.lock().put(key, warm, Instant::now()) {
            Ok(Fill { name: pool, ready, target }) => {
                if ready >= target {
                    tracing::info!(pool, ready, target, "warm containers wait");
                } else {
                    tracing::debug!(pool, ready, target, "a warm container waits");
                }
                None
            }
            Err(warm) => Some(warm),
        }
    }
}

async fn discard(launcher: &Launcher, warm: impl IntoIterator<Item = Warm>) {
    futures_util::stream::iter(warm).for_each_concurrent(AT_ONCE, |warm| warm.discard(launcher)).await;
}
