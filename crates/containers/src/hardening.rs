//! Hardening: a pure function from a profile and the facts of a run to a container's specification.
//!
//! Invariants of every container: no network, no new privileges, no root of the host, our seccomp profile, and a read-only root file system
//! from the engine. There is no capability either, except those that [`RunAs::MappedRoot`] has in its user namespace. The only writable
//! places are the run's own mounts and small file systems in memory at `/tmp` and `/dev/shm`. A writable root consists of directories of
//! the run's layer, mounted over those of the image. Weakening this requires a change of this file and of the snapshot beside it.

mod paths;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use jail::{RootMode, TmpMode};
use leftovers::LABEL_INSTANCE;

use crate::boundary::Boundary;
use crate::bundle::bundle_mounts;
use crate::engine::UsableImage;
use crate::etc::{EtcFiles, HOSTNAME};
use crate::ids::RunUser;
use crate::quota::Quota;
use crate::run_as::RunAs;
use crate::seccomp::{SeccompError, seccomp_profile};
use crate::spec::{ContainerSpec, MountSpec, MountSpecError};

pub const LABEL_RUN: &str = "io.cofferdam.run";
pub const LABEL_SPEC: &str = "io.cofferdam.spec";
/// Path of the guest in every container.
pub const GUEST_PATH: &str = "/.cofferdam/guest";

/// The settings that an operator can choose. All others are fixed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hardening {
    /// Memory, in bytes; `/tmp` and `/dev/shm` count towards it. There is no swap beyond it.
    pub memory_bytes: u64,
    /// Processor time, in thousandths of a processor.
    pub cpu_millis: u32,
    /// Limit on processes and threads together.
    pub pids: u32,
    /// Open files of each process.
    pub open_files: u64,
    /// Size of any one file that is written, in bytes.
    pub file_size_bytes: u64,
    /// Size of `/tmp`, in bytes; half of the memory at most.
    pub tmp_bytes: u64,
    /// Size of `/dev/shm`, in bytes; a quarter of the memory at most.
    pub shm_bytes: u64,
    pub tmp: TmpMode,
    /// Kind of root. The mounts of a writable root are among the run's own mounts.
    pub root: RootMode,
    pub run_as: RunAs,
    /// Mechanism that bounds the run's files on the daemon's disk.
    pub quota: Quota,
    /// The engine's runtime to use, such as `runsc`; `None` for its default.
    pub runtime: Option<String>,
    /// Kernel boundary that this runtime gives a container.
    pub boundary: Boundary,
    /// Name server in `/etc/resolv.conf`, for a run whose queries are steered to it; `None` for a run without names.
    pub resolver: Option<Ipv4Addr>,
    /// True for a run with a bundle of certificates of its own.
    pub has_bundle: bool,
}

impl Default for Hardening {
    fn default() -> Self {
        Self {
            memory_bytes: 1 << 30,
            cpu_millis: 2000,
            pids: 256,
            open_files: 1024,
            file_size_bytes: 1 << 30,
            tmp_bytes: 64 << 20,
            shm_bytes: 64 << 20,
            tmp: TmpMode::NoExec,
            root: RootMode::ReadOnly,
            run_as: RunAs::Agent,
            quota: Quota::Measured,
            runtime: None,
            boundary: Boundary::HostKernel,
            resolver: None,
            has_bundle: false,
        }
    }
}

impl Hardening {
    /// Returns the home of the run's user.
    pub fn home(&self) -> &'static str {
        match self.run_as {
            RunAs::Agent => self.root.home(),
            RunAs::MappedRoot => "/root",
        }
    }

    /// Returns true if the user and host files in `/etc` are the daemon's, mounted read-only.
    ///
    /// A mapped root has those of its image and its layer, and can change them: packages add user names. A command that becomes one of
    /// these users has no rights on the host.
    pub fn has_own_etc(&self) -> bool {
        self.run_as == RunAs::Agent
    }
}

/// Returns the processor limit, reduced to what the host has: the engine refuses a higher one.
pub fn cpu_limit(cpu_millis: u32, host_cpus: u32) -> u32 {
    cpu_millis.min(host_cpus.max(1).saturating_mul(1000))
}

/// The facts that differ from run to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFacts {
    pub run_id: String,
    /// Id of the daemon's installation, for [`LABEL_INSTANCE`].
    pub instance_id: String,
    pub image: UsableImage,
    pub user: RunUser,
    /// Mounts of the run. The guest and the files in `/etc` are added to them.
    pub mounts: Vec<MountSpec>,
    /// Path of the guest's binary on the host. It belongs to root and has mode 0711.
    pub guest: PathBuf,
    /// The daemon's files for `/etc`, made for the same user.
    pub etc: EtcFiles,
    /// The daemon's bundle of certificates for this container, if the profile has one.
    pub bundle: Option<PathBuf>,
    /// Further labels. They cannot replace the daemon's labels.
    pub labels: BTreeMap<String, String>,
}

/// Reason why no container can be described.
#[derive(Debug, thiserror::Error)]
pub enum HardeningError {
    /// The path of one of the daemon's files does not fit into a request.
    #[error("the daemon's file for {target} cannot be mounted")]
    Own {
        target: &'static str,
        #[source]
        source: MountSpecError,
    },
    #[error(transparent)]
    Seccomp(#[from] SeccompError),
}

pub fn container_spec(profile: &Hardening, facts: &RunFacts) -> Result<ContainerSpec, HardeningError> {
    let mut mounts = facts.mounts.clone();
    let etc = facts.etc.iter().filter(|_| profile.has_own_etc()).map(|(target, source)| (source, *target));
    let own = [(&facts.guest, GUEST_PATH)].into_iter().chain(etc);
    let own = own.map(|(source, target)| (source.clone(), target));
    let bundle = facts.bundle.as_deref().filter(|_| profile.has_bundle);
    let bundle = bundle.into_iter().flat_map(|source| bundle_mounts(source, facts.image.bundles()));
    for (source, target) in own.chain(bundle) {
        mounts
            .push(MountSpec::own(&source, target).map_err(|source| HardeningError::Own { target, source })?);
    }
    mounts.sort_by(|a, b| a.target.cmp(&b.target));

    let mut spec = ContainerSpec {
        image: facts.image.id().to_string(),
        command: vec![GUEST_PATH.into(), "hold".into()],
        user: profile.boundary.own_user(facts.user).to_string(),
        working_dir: "/".into(),
        env: strings([
            ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
            ("HOME", profile.home()),
            ("LANG", "C.UTF-8"),
        ]),
        hostname: HOSTNAME.into(),
        labels: facts.labels.clone(),
        mounts,
        tmpfs: strings([
            ("/tmp", tmp_options(profile).as_str()),
            ("/dev/shm", shm_options(profile).as_str()),
        ]),
        network: "none".into(),
        // A separate IPC namespace without mounts. With `private`, the engine would mount a /dev/shm without a bound on the number
        // of files, and a /dev/mqueue.
        ipc: "none".into(),
        cgroup_namespace: "private".into(),
        pid_namespace: String::new(),
        uts_namespace: String::new(),
        user_namespace: String::new(),
        read_only_root: true,
        no_new_privileges: true,
        seccomp: seccomp_profile(profile.run_as, profile.quota)?,
        capabilities_dropped: vec!["ALL".into()],
        capabilities_added: profile.run_as.capabilities().iter().map(|&(name, _)| name.to_owned()).collect(),
        memory_bytes: profile.memory_bytes,
        memory_and_swap_bytes: profile.memory_bytes,
        cpu_millis: profile.cpu_millis,
        pids: profile.boundary.host_pids(profile.pids),
        // If the host itself runs out of memory, runs are killed first.
        oom_score_adj: 500,
        // `nproc` is not set: the kernel counts it per uid across all containers, so runs would starve each other.
        limits: [("core", 0), ("fsize", profile.file_size_bytes), ("nofile", profile.open_files)]
            .map(|(name, limit)| (name.to_owned(), limit))
            .into(),
        masked_paths: owned(paths::MASKED),
        read_only_paths: match profile.run_as {
            RunAs::Agent => owned(paths::READ_ONLY),
            RunAs::MappedRoot => owned(&[paths::READ_ONLY, paths::READ_ONLY_OF_ROOT].concat()),
        },
        log_driver: "none".into(),
        log_options: BTreeMap::new(),
        open_input: false,
        restart: "no".into(),
        engine_init: false,
        stop_signal: "SIGKILL".into(),
        stop_timeout_seconds: 1,
        health_check: "NONE".into(),
        runtime: profile.runtime.clone(),
        surplus: Vec::new(),
    };
    spec.labels.extend([
        (LABEL_INSTANCE.to_owned(), facts.instance_id.clone()),
        (LABEL_RUN.to_owned(), facts.run_id.clone()),
        (LABEL_SPEC.to_owned(), spec.digest()),
    ]);
    Ok(spec)
}

/// Returns the mount options of `/tmp`.
///
/// Its files occupy memory that killing a process does not free. So `/tmp` may have half of the memory, and its inodes, about 1 KiB each,
/// an eighth. A full `/tmp` leaves space for the next command.
fn tmp_options(profile: &Hardening) -> String {
    let size = profile.tmp_bytes.min(profile.memory_bytes / 2);
    let files = (profile.memory_bytes / 8 / 1024).min(65_536);
    let exec = profile.tmp;
    format!("rw,{exec},nosuid,nodev,mode=1777,size={size},nr_inodes={files}")
}

/// Returns the mount options of `/dev/shm`, which `shm_open` uses. It is bounded like `/tmp`, so that both together leave space for the next
/// command.
fn shm_options(profile: &Hardening) -> String {
    let size = profile.shm_bytes.min(profile.memory_bytes / 4);
    let files = (profile.memory_bytes / 32 / 1024).min(16_384);
    format!("rw,noexec,nosuid,nodev,mode=1777,size={size},nr_inodes={files}")
}

fn strings<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

fn owned(paths: &[&str]) -> Vec<String> {
    paths.iter().map(|&path| path.to_owned()).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::engine::ImageFacts;
    use crate::etc::etc_files;
    use crate::ids::ImageId;
    use crate::spec::Propagation;
    use std::path::Path;

    pub(crate) fn facts() -> RunFacts {
        let image = ImageFacts {
            id: ImageId::parse(&format!("sha256:{}", "0123456789abcdef".repeat(4))).unwrap(),
            layers: Vec::new(),
            labels: BTreeMap::new(),
            volumes: Vec::new(),
            directories: Vec::new(),
        };
        RunFacts {
            run_id: "run-1".into(),
            instance_id: "instance-1".into(),
            image: image.usable().unwrap(),
            user: RunUser::DEFAULT,
            mounts: vec![
                MountSpec::new(Path::new("/srv/w"), "/workspace", false, Propagation::Private).unwrap(),
                MountSpec::new(Path::new("/srv/p"), "/pkg", true, Propagation::Slave).unwrap(),
            ],
            guest: "/usr/lib/cofferdam/coffer-guest".into(),
            etc: etc_files(RunUser::DEFAULT, "/tmp", None)
                .into_iter()
                .map(|(path, _)| (path, Path::new("/var/lib").join(path.trim_start_matches("/etc/"))))
                .collect(),
            bundle: None,
            labels: strings([("team", "red"), (LABEL_RUN, "forged")]),
        }
    }

    #[test]
    fn labels_cannot_be_forged_and_the_digest_knows_only_hardening() {
        let one = container_spec(&Hardening::default(), &facts()).unwrap();
        assert_eq!(one.labels[LABEL_RUN], "run-1");
        assert_eq!(one.labels["team"], "red");
        assert_eq!(one.labels[LABEL_SPEC], one.digest());

        let mut other = facts();
        other.run_id = "run-2".into();
        other.mounts[0].source = "/srv/elsewhere".into();
        assert_eq!(container_spec(&Hardening::default(), &other).unwrap().digest(), one.digest());
        let weaker = Hardening { pids: 257, ..Hardening::default() };
        assert_ne!(container_spec(&weaker, &facts()).unwrap().digest(), one.digest());
        // Another name server.
        let mut named = facts();
        named.etc.last_mut().unwrap().1.set_file_name("resolv.conf-0123");
        assert_ne!(container_spec(&Hardening::default(), &named).unwrap().digest(), one.digest());
    }

    #[test]
    fn a_separate_kernel_changes_the_user_of_pid_1_and_the_host_process_count() {
        let profile = Hardening { boundary: Boundary::OwnKernel, ..Hardening::default() };
        let one = container_spec(&Hardening::default(), &facts()).unwrap();
        let mut own = container_spec(&profile, &facts()).unwrap();
        assert_eq!((own.user.as_str(), own.pids), ("1002:1002", 256 * 12 + 128));
        own.user.clone_from(&one.user);
        own.pids = one.pids;
        assert_eq!(own.digest(), one.digest());
    }

    #[test]
    fn a_bundle_is_mounted_read_only_at_its_path_and_over_the_bundles_of_the_image() {
        let plain = container_spec(&Hardening::default(), &facts()).unwrap();
        let image = facts().image.with_bundles(vec!["/etc/ssl/certs/ca-certificates.crt"]);
        let with = |run: &str| {
            let bundle = Some(Path::new("/var/lib/mounts").join(run).join("ca-bundle.pem"));
            RunFacts { image: image.clone(), bundle, ..facts() }
        };
        let profile = Hardening { has_bundle: true, ..Hardening::default() };
        let mut spec = container_spec(&profile, &with("run-1")).unwrap();
        // The containers of two runs are interchangeable.
        assert_eq!(spec.digest(), container_spec(&profile, &with("run-2")).unwrap().digest());
        let (bundles, others): (Vec<_>, Vec<_>) =
            spec.mounts.drain(..).partition(|mount| mount.source.contains("/run-1/ca"));
        let targets: Vec<_> = bundles.iter().map(|mount| (mount.target.as_str(), mount.read_only)).collect();
        assert_eq!(
            targets,
            [
                ("/.cofferdam/ca-bundle.pem", true),
                ("/.cofferdam/cacerts.p12", true),
                ("/etc/ssl/certs/ca-certificates.crt", true)
            ]
        );
        spec.mounts = others;
        spec.labels.clone_from(&plain.labels);
        assert_eq!(spec, plain, "nothing else differs");
        // A profile without connections that are opened has none.
        let closed = container_spec(&Hardening::default(), &with("run-1")).unwrap();
        assert_eq!(closed, plain);
    }

    #[test]
    fn an_image_with_volumes_is_refused() {
        let image = ImageFacts {
            id: ImageId::parse(&format!("sha256:{}", "ab".repeat(32))).unwrap(),
            layers: Vec::new(),
            labels: BTreeMap::new(),
            volumes: vec!["/data".into()],
            directories: Vec::new(),
        };
        assert!(image.usable().unwrap_err().to_string().contains("/data"));
    }

    #[test]
    fn tmp_and_shared_memory_leave_memory_for_commands() {
        let of = |memory_bytes, bytes| {
            let profile =
                Hardening { memory_bytes, tmp_bytes: bytes, shm_bytes: bytes, ..Hardening::default() };
            let tmpfs = container_spec(&profile, &facts()).unwrap().tmpfs;
            ["/tmp", "/dev/shm"].map(|path| tmpfs[path].split_once("mode=1777,").unwrap().1.to_owned())
        };
        assert_eq!(of(1 << 30, 64 << 20), ["size=67108864,nr_inodes=65536", "size=67108864,nr_inodes=16384"]);
        assert_eq!(of(64 << 20, 1 << 30), ["size=33554432,nr_inodes=8192", "size=16777216,nr_inodes=2048"]);
        let exec = Hardening { tmp: TmpMode::Exec, ..Hardening::default() };
        let shm = container_spec(&exec, &facts()).unwrap().tmpfs["/dev/shm"].clone();
        assert!(shm.starts_with("rw,noexec,nosuid,nodev,"), "{shm}");
    }

    #[test]
    fn a_writable_root_changes_the_home_and_nothing_else_of_the_hardening() {
        let fixed = container_spec(&Hardening::default(), &facts()).unwrap();
        let open = Hardening { tmp: TmpMode::Exec, root: RootMode::WritableLayer, ..Hardening::default() };
        let mut spec = container_spec(&open, &facts()).unwrap();
        assert_eq!((fixed.env["HOME"].as_str(), spec.env["HOME"].as_str()), ("/tmp", "/home/agent"));
        assert!(spec.tmpfs["/tmp"].starts_with("rw,exec,nosuid,nodev,mode=1777,size="), "{:?}", spec.tmpfs);
        spec.env.insert("HOME".into(), "/tmp".into());
        spec.tmpfs = fixed.tmpfs.clone();
        spec.labels.insert(LABEL_SPEC.into(), fixed.digest());
        assert_eq!(spec, fixed);
    }

    #[test]
    fn a_mapped_root_has_its_capabilities_its_home_and_the_image_s_users() {
        let open = Hardening { root: RootMode::WritableLayer, ..Hardening::default() };
        let usual = container_spec(&open, &RunFacts { user: RunUser::ROOT, ..facts() }).unwrap();
        let root = Hardening { run_as: RunAs::MappedRoot, ..open };
        let mut spec = container_spec(&root, &RunFacts { user: root.run_as.user(), ..facts() }).unwrap();
        assert_eq!((spec.user.as_str(), spec.env["HOME"].as_str()), ("0:0", "/root"));
        let added = ["CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_KILL", "CAP_SETGID", "CAP_SETUID"];
        assert_eq!(spec.capabilities_added, added);
        assert_eq!(RunAs::MappedRoot.capability_set(), 0xeb);
        assert_eq!(spec.capabilities_dropped, ["ALL"]);
        assert!(!spec.mounts.iter().any(|mount| mount.target.starts_with("/etc/")), "{:?}", spec.mounts);
        // And nothing else differs.
        spec.mounts.clone_from(&usual.mounts);
        assert!(
            ["/dev", "/sys/fs/cgroup"].iter().all(|path| spec.read_only_paths.contains(&(*path).to_owned()))
        );
        spec.read_only_paths.clone_from(&usual.read_only_paths);
        spec.env.clone_from(&usual.env);
        spec.seccomp.clone_from(&usual.seccomp);
        spec.capabilities_added.clear();
        spec.labels.clone_from(&usual.labels);
        assert_eq!(spec, usual);
    }

    #[test]
    fn the_processor_limit_fits_the_host() {
        assert_eq!([0, 1, 2, 64].map(|cpus| cpu_limit(2000, cpus)), [1000, 1000, 2000, 2000]);
    }
}
