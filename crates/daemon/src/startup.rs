//! Checks everything that has to hold before the first client connects. Each check says what is missing and how to fix
//! it.

#![expect(clippy::disallowed_methods, reason = "the state directory itself")]

use std::fs::{File, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::policy::Policy;
use anyhow::{Context as _, bail};
use containers::{DefaultImage, Engine, EngineFacts};
use processes::{Leftovers, Settings, StopRule};
use refusal::chain;
use runs::DefaultImageSource;
use rustix::fs::{FlockOperation, IFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use secrets::Secrets;
use store::spool::{Bounds, Spool};
use store::{StateDisk, Store};

use crate::config::{Config, check_pool, check_secrets};
use crate::programs::Programs;
use crate::{policy, programs};

/// Directories of the state directory that have one directory with many files for each run, base or checkpoint.
const APART: [&str; 5] = ["workspaces", "overlays", "roots", "checkpoints", "bases"];

/// Time between two attempts to lock the state directory.
const AGAIN: Duration = Duration::from_millis(20);

/// Loads the policy, and checks that the configuration has its secrets and a console for its passkeys, and that it permits the pool of the
/// configuration.
pub(crate) fn policy(config: &Config) -> anyhow::Result<Policy> {
    let policy = policy::load(config.policy_dir.as_ref()).context("the policy")?;
    let known = config.secrets.keys().cloned().collect();
    check_secrets(&known, &policy).map_err(anyhow::Error::msg).context("the policy")?;
    policy.check_passkeys(config.takes_passkeys()).map_err(anyhow::Error::msg).context("the policy")?;
    check_pool(&config.pool, &policy)?;
    Ok(policy)
}

/// Logs each secret that has no value now. Requests that need one are refused until it has.
pub(crate) async fn report_secrets(secrets: Arc<Secrets>) {
    for error in secrets.unreadable().await {
        tracing::warn!("{}. Requests that need it are refused until then", error.for_operator());
    }
}

/// Raises the limit of open files to its maximum: each run needs about a dozen, and the usual limit is 1,024.
pub(crate) fn open_files() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::warn!(%error, "the limit of open files cannot be raised");
    }
}

/// The state directory. Only this daemon can use it while this value lives.
pub(crate) struct StateDirectory {
    _lock: File,
    pub(crate) instance: String,
}

/// Parts of the daemon that a start prepares on its disk.
pub(crate) struct Prepared {
    pub(crate) state: StateDirectory,
    pub(crate) disk: StateDisk,
    pub(crate) programs: Programs,
}

/// Puts the programs into the state directory, if that is possible already.
///
/// The process executes itself again after this, so the memory that it takes to write the programs is freed. Errors are
/// ignored, because [`prepare`] meets them again and reports them.
pub(crate) fn place_ahead(path: &Path) {
    if let Ok(_held) = state_directory(path) {
        let _ = programs::place(path);
    }
}

/// Locks the state directory, makes space in it, and puts the programs there. Blocks until there is space.
///
/// `patience` is the time that an earlier daemon has to release the lock.
pub(crate) fn prepare(path: &Path, patience: Duration) -> anyhow::Result<Prepared> {
    let until = Instant::now() + patience;
    let state = loop {
        match state_directory(path) {
            Err(_) if Instant::now() < until => std::thread::sleep(AGAIN),
            locked => break locked?,
        }
    };
    let disk = StateDisk::of(path);
    disk.make_room();
    let programs = programs::place(path)?;
    Ok(Prepared { state, disk, programs })
}

/// Creates and locks the state directory.
fn state_directory(path: &Path) -> anyhow::Result<StateDirectory> {
    let shown = path.display();
    if !path.exists() {
        std::fs::DirBuilder::new().recursive(true).mode(0o711).create(path).with_context(|| {
            format!("cannot make state_dir {shown}: create it, or set another in the configuration")
        })?;
    }
    // The directory contains the guest's binary, which the uid of runs executes, and the workspaces of principals. So
    // they must be able to pass through it, but not to list it.
    std::fs::set_permissions(path, Permissions::from_mode(0o711)).with_context(|| {
        format!("cannot use state_dir {shown}: it must belong to the user that runs cofferd")
    })?;
    for (name, mode) in [
        ("bin", 0o711),
        ("workspaces", 0o711),
        ("runs", 0o711),
        ("logs", 0o700),
        ("mounts", 0o700),
        ("overlays", 0o700),
        ("roots", 0o700),
        ("checkpoints", 0o700),
        ("bases", 0o700),
        ("mirrors", 0o700),
        ("sessions", 0o700),
        ("spool", 0o700),
        ("processes", 0o700),
        ("host-worker", 0o700),
        ("usage", 0o700),
    ] {
        let directory = path.join(name);
        if !directory.exists() {
            std::fs::create_dir(&directory)
                .with_context(|| format!("cannot make {}", directory.display()))?;
        }
        std::fs::set_permissions(&directory, Permissions::from_mode(mode))
            .with_context(|| format!("cannot use {}", directory.display()))?;
        if APART.contains(&name)
            && let Err(errno) = keep_apart(&directory)
        {
            tracing::debug!(name, %errno, "the file system decides alone where it puts the files of runs");
        }
    }
    let lock =
        File::create(path.join("lock")).with_context(|| format!("cannot write in state_dir {shown}"))?;
    if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        bail!("another cofferd uses state_dir {shown}: stop it, or give this one a separate state_dir");
    }
    if backup_service::is_unfinished(path) {
        bail!(
            "a restore into state_dir {shown} was not finished: remove all files in it, and restore the backup again"
        );
    }
    let instance = instance(&path.join("instance")).context("cannot keep this daemon's identity")?;
    Ok(StateDirectory { _lock: lock, instance })
}

/// Asks the file system to keep the directories in this one apart from each other on the disk.
///
/// ext4 puts a new file near its parent directory. So all runs would share one group of inodes, in which each new file passes over the
/// inodes that were deleted within the last seconds. Other file systems refuse the flag.
fn keep_apart(directory: &Path) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::open(directory, flags, Mode::empty())?;
    let set = rustix::fs::ioctl_getflags(&directory)?;
    if set.contains(IFlags::TOPDIR) {
        return Ok(());
    }
    rustix::fs::ioctl_setflags(&directory, set | IFlags::TOPDIR)
}

/// Returns the identity of this state directory, with which the containers of this daemon are labelled.
fn instance(path: &Path) -> anyhow::Result<String> {
    if let Ok(text) = std::fs::read_to_string(path)
        && let Ok(id) = uuid::Uuid::parse_str(text.trim())
    {
        return Ok(id.to_string());
    }
    let id = uuid::Uuid::new_v4().to_string();
    atomic_file::replace(path, |file| std::io::Write::write_all(file, id.as_bytes()))?;
    Ok(id)
}

/// Connects to the engine, and checks that it can confine containers.
pub(crate) async fn engine(config: &Config) -> anyhow::Result<(Arc<Engine>, EngineFacts)> {
    let engine = Engine::connect(&config.engine).map_err(|error| anyhow::anyhow!(chain(&error)))?;
    let facts = engine.version().await.map_err(|error| anyhow::anyhow!(chain(&error)))?;
    if !facts.has_seccomp() {
        bail!(
            "the engine has no seccomp: no container on it can be confined; use a kernel and an engine that have it"
        );
    }
    if let Some(why) = doctor::unusable_engine(config.engine.path()).await {
        bail!("{why}");
    }
    tracing::info!(
        engine = facts.engine_version,
        api = facts.api_version,
        runc = facts.runc_version.as_deref().unwrap_or("unknown"),
        cgroup = facts.cgroup_version,
        storage = facts.storage_driver,
        "engine"
    );
    let advisories = containers::advisories(&facts);
    for advisory in &advisories {
        tracing::warn!(ids = advisory.ids, "{}", advisory.sentence);
    }
    if !advisories.is_empty() {
        tracing::warn!("{}", containers::ADVISORY_CAVEAT);
        if config.strict_engine {
            bail!(
                "docker.strict_engine is set and the engine has known escapes: update the engine, or judge \
                 the list above and unset docker.strict_engine"
            );
        }
    }
    Ok((Arc::new(engine), facts))
}

/// Checks that the kernel has the features that both lanes need.
pub(crate) async fn kernel(config: &Config, host_worker: OwnedFd) -> anyhow::Result<()> {
    jail::supported().map_err(|error| anyhow::anyhow!("{}", chain(&error)))?;
    executor::set_host_worker(host_worker, config.accepted_jail);
    let probe = tokio::task::spawn_blocking(|| executor::launcher().probe()).await?;
    let report = probe.map_err(|error| match config.accepted_jail {
        Some(_) => anyhow::anyhow!("the host lane's jail cannot be set up: {}", chain(&error)),
        None => anyhow::anyhow!(
            "the host lane's jail cannot be set up: {}; to accept the weaker form of the jail, set \
             `host_lane: {{ accept: landlock-only }}`",
            chain(&error)
        ),
    })?;
    if report.namespaces == host_launch::Namespaces::None {
        tracing::warn!(
            "there is neither root nor a user namespace for the host lane: it runs in the weaker form that the \
             configuration accepts, without git, clones and overlays"
        );
    }
    tracing::info!(%report, "host lane");
    Ok(())
}

/// Makes the default image if this host has a busybox for it. Without it the daemon serves only runs that name an
/// image.
pub(crate) async fn default_image(
    engine: &Arc<Engine>,
    config: &Config,
) -> (DefaultImageSource, Result<DefaultImage, String>) {
    let source = DefaultImageSource::new(engine.clone(), config.busybox.clone());
    let image = source.get().await.map_err(|error| {
        let why = chain(&error);
        tracing::warn!("{why}. Until then runs without an image of their own are refused");
        why
    });
    (source, image)
}

/// Returns the settings for processes, and the processes that a previous daemon has left.
pub(crate) fn processes(
    store: &Store,
    config: &Config,
    on_stop: StopRule,
) -> anyhow::Result<(Settings, Leftovers)> {
    let settings = Settings {
        root: config.state_dir.join("processes"),
        key: store.stream_key("processes").context("the key of processes")?,
        min_free: config.spool_min_free,
        max_recording: config.sessions.max_recording,
        on_stop,
    };
    let leftovers = Leftovers::read(&settings.root, &settings.key);
    Ok((settings, leftovers.context("the processes in state_dir cannot be read")?))
}

/// Opens the spool, and removes output that belongs to no run and no call.
pub(crate) async fn spool(store: &Store, config: &Config) -> anyhow::Result<Arc<Spool>> {
    let directory = config.state_dir.join("spool");
    let bounds = Bounds { max_total: config.spool_max_total, min_free: config.spool_min_free };
    let opened = store.with(move |store| {
        let runs = runs::stored::all(store)?.iter().map(|record| record.id).collect();
        let key = store.stream_key("spool")?;
        Ok(Spool::open(directory, bounds, key, &runs, &store.call_ids()?))
    });
    let opened = opened.await.map_err(|error| anyhow::anyhow!("the store: {}", chain(&error)))?;
    opened.context("the spool in state_dir cannot be read")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_kept_apart_where_the_file_system_can_and_no_link_is_followed() {
        let place = tempfile::tempdir().unwrap();
        let (path, link) = (place.path().join("overlays"), place.path().join("link"));
        std::fs::create_dir(&path).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(keep_apart(&link).is_err());
        let flags = || rustix::fs::ioctl_getflags(File::open(&path).unwrap());
        assert!(!flags().is_ok_and(|flags| flags.contains(IFlags::TOPDIR)));
        for _ in ["first start", "second start"] {
            match keep_apart(&path) {
                Ok(()) => assert!(flags().unwrap().contains(IFlags::TOPDIR)),
                Err(errno) => assert!([Errno::NOTTY, Errno::OPNOTSUPP, Errno::INVAL].contains(&errno)),
            }
        }
    }
}
