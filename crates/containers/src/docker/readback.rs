//! Converts the engine's answers to types of this crate.
//!
//! An inspection is converted to the same form as a specification. Any setting that has no field there and is not empty is listed as
//! surplus.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bollard::models::{
    ContainerConfig, ContainerInspectResponse, ContainerState as EngineState, ContainerStateStatusEnum,
    ContainerSummary, DriverData, HostConfig, ImageInspect, ImageSummary, MountPoint, SystemInfo,
    SystemInfoCgroupVersionEnum, SystemVersion,
};

use super::faults::malformed;
use crate::engine::{
    ContainerListing, ContainerState, EngineError, EngineFacts, FileKind, ImageFacts, ImageListing,
    Inspection,
};
use crate::ids::{ContainerId, ImageId, ImageReference};
use crate::spec::{ContainerSpec, MountSpec, Propagation};
use crate::user_map::UserMap;

pub(super) fn engine_facts(version: SystemVersion, info: SystemInfo) -> Result<EngineFacts, EngineError> {
    let attempt = "ask the engine's version";
    let missing = |what: &str| EngineError::Malformed { attempt, what: format!("no {what}") };
    let component = |name: &str| {
        let mut components = version.components.iter().flatten();
        components.find(|component| component.name == name).map(|component| component.version.clone())
    };
    let mut runtimes: Vec<String> = info.runtimes.into_iter().flatten().map(|(name, _)| name).collect();
    runtimes.sort();
    let mut facts = EngineFacts {
        runc_version: component("runc"),
        containerd_version: component("containerd"),
        engine_version: version.version.ok_or_else(|| missing("version"))?,
        api_version: version.api_version.ok_or_else(|| missing("API version"))?,
        cgroup_version: if info.cgroup_version == Some(SystemInfoCgroupVersionEnum::_2) { 2 } else { 1 },
        storage_driver: info.driver.unwrap_or_default(),
        runtimes,
        default_runtime: info.default_runtime.unwrap_or_default(),
        security_options: info.security_options.unwrap_or_default(),
        cpus: info.ncpu.and_then(|n| u32::try_from(n).ok()).unwrap_or(1),
        kernel: info.kernel_version.unwrap_or_default(),
        architecture: info.architecture.unwrap_or_default(),
        warnings: info.warnings.unwrap_or_default(),
        user_map: None,
    };
    if facts.maps_users() {
        facts.user_map = info.docker_root_dir.as_deref().and_then(UserMap::of_engine);
    }
    Ok(facts)
}

/// Converts the mode of a path as the engine writes it: Go's `fs.FileMode`.
pub(super) fn file_kind(mode: u32) -> FileKind {
    const DIRECTORY: u32 = 1 << 31;
    const LINK: u32 = 1 << 27;
    const ANY_TYPE: u32 = DIRECTORY | LINK | 1 << 26 | 1 << 25 | 1 << 24 | 1 << 21 | 1 << 19;
    match mode & ANY_TYPE {
        0 => FileKind::File,
        DIRECTORY => FileKind::Directory,
        LINK => FileKind::Link,
        _ => FileKind::Special,
    }
}

pub(super) fn image_facts(image: ImageInspect) -> Result<ImageFacts, EngineError> {
    let id = ImageId::parse(&image.id.unwrap_or_default())
        .map_err(|error| malformed("look up the image", &error))?;
    let config = image.config.unwrap_or_default();
    Ok(ImageFacts {
        id,
        layers: image.root_fs.and_then(|fs| fs.layers).unwrap_or_default(),
        labels: config.labels.unwrap_or_default().into_iter().collect(),
        volumes: config.volumes.unwrap_or_default(),
        directories: image.graph_driver.map_or_else(Vec::new, layer_directories),
    })
}

/// Lists an image once for each of its names, skipping names that this crate would not request.
pub(super) fn named(row: &ImageSummary) -> Vec<ImageListing> {
    let Ok(id) = ImageId::parse(&row.id) else { return Vec::new() };
    let references = row.repo_tags.iter().filter_map(|name| ImageReference::parse(name).ok());
    let size = u64::try_from(row.size).unwrap_or(0);
    references
        .map(|reference| ImageListing { reference, id: id.clone(), size, created: row.created })
        .collect()
}

/// Returns the layers' directories that overlay2 reports. The data of other storage drivers cannot be mounted.
fn layer_directories(driver: DriverData) -> Vec<PathBuf> {
    let DriverData { name, mut data, .. } = driver;
    if name != "overlay2" {
        return Vec::new();
    }
    let below = data.remove("LowerDir").unwrap_or_default();
    let below = below.split(':').filter(|path| !path.is_empty());
    data.remove("UpperDir").as_deref().into_iter().chain(below).map(PathBuf::from).collect()
}

pub(super) fn listing(row: ContainerSummary) -> Result<ContainerListing, EngineError> {
    let id = ContainerId::parse(&row.id.unwrap_or_default())
        .map_err(|error| malformed("list the containers", &error))?;
    let name = row.names.unwrap_or_default().into_iter().next().unwrap_or_default();
    let name = name.trim_start_matches('/').to_owned();
    Ok(ContainerListing { id, name, labels: row.labels.unwrap_or_default().into_iter().collect() })
}

pub(super) fn inspection(answer: ContainerInspectResponse) -> Result<Inspection, EngineError> {
    let id = ContainerId::parse(answer.id.as_deref().unwrap_or_default())
        .map_err(|error| malformed("inspect the container", &error))?;
    let state = answer.state.clone().unwrap_or_default();
    Ok(Inspection {
        id,
        state: container_state(&state),
        host_pid: state.pid.and_then(|pid| u32::try_from(pid).ok()).filter(|&pid| pid > 1),
        started_at: state.started_at.unwrap_or_default(),
        oom_killed: state.oom_killed.unwrap_or(false),
        in_force: in_force(answer),
    })
}

fn container_state(state: &EngineState) -> ContainerState {
    match state.status {
        Some(ContainerStateStatusEnum::CREATED) => ContainerState::Created,
        Some(ContainerStateStatusEnum::RUNNING) => ContainerState::Running,
        Some(ContainerStateStatusEnum::PAUSED) => ContainerState::Paused,
        Some(ContainerStateStatusEnum::EXITED) => ContainerState::Exited(state.exit_code.unwrap_or(-1)),
        _ => ContainerState::Other,
    }
}

fn in_force(answer: ContainerInspectResponse) -> ContainerSpec {
    let host = answer.host_config.unwrap_or_default();
    let config = answer.config.unwrap_or_default();
    let mut surplus = surplus(&host, &config);
    // The network mode does not change when a network is connected later, so the networks are checked, too.
    let networks = answer.network_settings.and_then(|settings| settings.networks).unwrap_or_default();
    surplus.extend(networks.into_keys().filter(|name| name != "none").map(|name| format!("network {name}")));
    let mounts = mounts(answer.mounts.unwrap_or_default(), &mut surplus);
    let log = host.log_config.unwrap_or_default();
    let security = Security::read(host.security_opt.unwrap_or_default(), &mut surplus);
    ContainerSpec {
        image: answer.image.unwrap_or_default(),
        command: answer.path.into_iter().chain(answer.args.into_iter().flatten()).collect(),
        user: config.user.unwrap_or_default(),
        working_dir: config.working_dir.unwrap_or_default(),
        env: config.env.into_iter().flatten().map(variable).collect(),
        hostname: config.hostname.unwrap_or_default(),
        labels: config.labels.unwrap_or_default().into_iter().collect(),
        mounts,
        tmpfs: host.tmpfs.unwrap_or_default().into_iter().collect(),
        network: host.network_mode.unwrap_or_default(),
        ipc: host.ipc_mode.unwrap_or_default(),
        cgroup_namespace: host.cgroupns_mode.map(|mode| mode.to_string()).unwrap_or_default(),
        pid_namespace: host.pid_mode.unwrap_or_default(),
        uts_namespace: host.uts_mode.unwrap_or_default(),
        user_namespace: host.userns_mode.unwrap_or_default(),
        read_only_root: host.readonly_rootfs.unwrap_or(false),
        no_new_privileges: security.no_new_privileges,
        seccomp: security.seccomp,
        capabilities_dropped: host.cap_drop.unwrap_or_default(),
        capabilities_added: capabilities(host.cap_add.unwrap_or_default()),
        memory_bytes: unsigned(host.memory),
        memory_and_swap_bytes: unsigned(host.memory_swap),
        cpu_millis: u32::try_from(unsigned(host.nano_cpus) / 1_000_000).unwrap_or(u32::MAX),
        pids: u32::try_from(host.pids_limit.unwrap_or(0)).unwrap_or(0),
        oom_score_adj: host.oom_score_adj.and_then(|adj| i32::try_from(adj).ok()).unwrap_or(0),
        limits: limits(host.ulimits.unwrap_or_default(), &mut surplus),
        masked_paths: host.masked_paths.unwrap_or_default(),
        read_only_paths: host.readonly_paths.unwrap_or_default(),
        log_driver: log.typ.unwrap_or_default(),
        log_options: log.config.unwrap_or_default().into_iter().collect(),
        open_input: config.open_stdin.unwrap_or(false),
        restart: host
            .restart_policy
            .and_then(|policy| policy.name)
            .map(|name| name.to_string())
            .unwrap_or_default(),
        engine_init: host.init.unwrap_or(false),
        stop_signal: config.stop_signal.unwrap_or_default(),
        stop_timeout_seconds: config.stop_timeout.unwrap_or(0),
        health_check: config.healthcheck.and_then(|check| check.test).unwrap_or_default().join(" "),
        runtime: host.runtime,
        surplus,
    }
}

/// Returns the names as the kernel has them. Engine versions differ in whether they write the prefix `CAP_`.
fn capabilities(names: Vec<String>) -> Vec<String> {
    let kernels = |name: String| {
        let name = name.to_uppercase();
        if name.starts_with("CAP_") { name } else { format!("CAP_{name}") }
    };
    let mut names: Vec<String> = names.into_iter().map(kernels).collect();
    names.sort_unstable();
    names
}

/// Returns the names of settings that no specification ever requests.
fn surplus(host: &HostConfig, config: &ContainerConfig) -> Vec<String> {
    fn any<T>(list: Option<&Vec<T>>) -> bool {
        list.is_some_and(|list| !list.is_empty())
    }
    let found = [
        ("privileged", host.privileged == Some(true)),
        ("the out-of-memory killer is off", host.oom_kill_disable == Some(true)),
        ("a cgroup of another parent", host.cgroup_parent.as_ref().is_some_and(|parent| !parent.is_empty())),
        ("devices", any(host.devices.as_ref())),
        ("device rules", any(host.device_cgroup_rules.as_ref())),
        ("device requests", any(host.device_requests.as_ref())),
        ("binds", any(host.binds.as_ref())),
        ("volumes of other containers", any(host.volumes_from.as_ref())),
        ("volumes", any(config.volumes.as_ref())),
        ("groups", any(host.group_add.as_ref())),
        ("links", any(host.links.as_ref())),
        ("hosts", any(host.extra_hosts.as_ref())),
        ("kernel settings", host.sysctls.as_ref().is_some_and(|settings| !settings.is_empty())),
        ("published ports", host.port_bindings.as_ref().is_some_and(|ports| !ports.is_empty())),
        ("all ports published", host.publish_all_ports == Some(true)),
        ("a terminal", config.tty == Some(true)),
    ];
    found.into_iter().filter(|(_, present)| *present).map(|(name, _)| name.to_owned()).collect()
}

/// Returns the mounts that the engine made, as opposed to those that were requested.
fn mounts(points: Vec<MountPoint>, surplus: &mut Vec<String>) -> Vec<MountSpec> {
    let mut mounts = Vec::new();
    for point in points {
        let target = point.destination.unwrap_or_default();
        let kind = point.typ.unwrap_or_default();
        let propagation = match point.propagation.as_deref() {
            Some("rprivate" | "private") => Propagation::Private,
            Some("rslave" | "slave") => Propagation::Slave,
            other => {
                surplus.push(format!("propagation {} at {target}", other.unwrap_or("unknown")));
                Propagation::Private
            }
        };
        if kind == "bind" {
            let (source, read_only) = (point.source.unwrap_or_default(), point.rw == Some(false));
            mounts.push(MountSpec { source, target, read_only, propagation });
        } else {
            surplus.push(format!("{kind} at {target}"));
        }
    }
    mounts.sort_by(|a, b| a.target.cmp(&b.target));
    mounts
}

#[derive(Default)]
struct Security {
    no_new_privileges: bool,
    seccomp: String,
}

impl Security {
    /// Parses security options. Engine versions have written `name=value`, `name:value` and a bare name.
    fn read(options: Vec<String>, surplus: &mut Vec<String>) -> Self {
        let mut security = Self::default();
        for option in options {
            let (name, value) = option.split_once(['=', ':']).unwrap_or((option.as_str(), "true"));
            match name {
                "no-new-privileges" => security.no_new_privileges = value == "true",
                "seccomp" => value.clone_into(&mut security.seccomp),
                other => surplus.push(format!("security option {other}")),
            }
        }
        security
    }
}

fn limits(
    ulimits: Vec<bollard::models::ResourcesUlimits>,
    surplus: &mut Vec<String>,
) -> BTreeMap<String, u64> {
    let mut limits = BTreeMap::new();
    for ulimit in ulimits {
        let name = ulimit.name.unwrap_or_default();
        if ulimit.soft != ulimit.hard {
            surplus.push(format!("a soft limit of {name} below the hard one"));
        }
        // Unlimited is −1.
        limits.insert(name, ulimit.hard.map_or(0, |hard| u64::try_from(hard).unwrap_or(u64::MAX)));
    }
    limits
}

fn variable(entry: String) -> (String, String) {
    match entry.split_once('=') {
        Some((name, value)) => (name.to_owned(), value.to_owned()),
        None => (entry, String::new()),
    }
}

/// Converts a number, in which the engine means "unlimited" by a negative value. No specification requests that.
fn unsigned(value: Option<i64>) -> u64 {
    u64::try_from(value.unwrap_or(0)).unwrap_or(u64::MAX)
}
