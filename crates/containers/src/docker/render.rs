//! Converts a specification to the engine's request. Every setting is written out, and none is left to a default.

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig, Mount,
    MountBindOptions, MountBindOptionsPropagationEnum, MountType, ResourcesUlimits, RestartPolicy,
    RestartPolicyNameEnum,
};

use crate::engine::ImportChanges;
use crate::spec::{ContainerSpec, MountSpec, Propagation};

pub(super) fn create_body(spec: &ContainerSpec) -> ContainerCreateBody {
    ContainerCreateBody {
        image: Some(spec.image.clone()),
        // The whole command is the entry point, so that nothing of the image's own command remains.
        entrypoint: Some(spec.command.clone()),
        cmd: Some(Vec::new()),
        user: Some(spec.user.clone()),
        working_dir: Some(spec.working_dir.clone()),
        env: Some(spec.env.iter().map(|(name, value)| format!("{name}={value}")).collect()),
        hostname: Some(spec.hostname.clone()),
        domainname: Some(String::new()),
        labels: Some(spec.labels.clone().into_iter().collect()),
        tty: Some(false),
        open_stdin: Some(spec.open_input),
        stdin_once: Some(spec.open_input).filter(|open| *open),
        attach_stdin: Some(false),
        attach_stdout: Some(false),
        attach_stderr: Some(false),
        network_disabled: Some(true),
        healthcheck: Some(HealthConfig {
            test: Some(vec![spec.health_check.clone()]),
            ..HealthConfig::default()
        }),
        stop_signal: Some(spec.stop_signal.clone()),
        stop_timeout: Some(spec.stop_timeout_seconds),
        host_config: Some(host_config(spec)),
        ..ContainerCreateBody::default()
    }
}

fn host_config(spec: &ContainerSpec) -> HostConfig {
    HostConfig {
        runtime: spec.runtime.clone(),
        network_mode: Some(spec.network.clone()),
        ipc_mode: Some(spec.ipc.clone()),
        pid_mode: Some(spec.pid_namespace.clone()),
        uts_mode: Some(spec.uts_namespace.clone()),
        userns_mode: Some(spec.user_namespace.clone()),
        cgroupns_mode: spec.cgroup_namespace.parse::<HostConfigCgroupnsModeEnum>().ok(),
        readonly_rootfs: Some(spec.read_only_root),
        privileged: Some(false),
        security_opt: Some(security_options(spec)),
        cap_drop: Some(spec.capabilities_dropped.clone()),
        cap_add: Some(spec.capabilities_added.clone()).filter(|added| !added.is_empty()),
        memory: Some(engine_number(spec.memory_bytes)),
        memory_swap: Some(engine_number(spec.memory_and_swap_bytes)),
        nano_cpus: Some(i64::from(spec.cpu_millis) * 1_000_000),
        pids_limit: Some(i64::from(spec.pids)),
        oom_score_adj: Some(i64::from(spec.oom_score_adj)),
        oom_kill_disable: Some(false),
        ulimits: Some(spec.limits.iter().map(|(name, &limit)| ulimit(name, limit)).collect()),
        mounts: Some(spec.mounts.iter().map(mount).collect()),
        tmpfs: Some(spec.tmpfs.clone().into_iter().collect()),
        masked_paths: Some(spec.masked_paths.clone()),
        readonly_paths: Some(spec.read_only_paths.clone()),
        log_config: Some(HostConfigLogConfig {
            typ: Some(spec.log_driver.clone()),
            config: Some(spec.log_options.clone().into_iter().collect()),
        }),
        restart_policy: Some(RestartPolicy {
            name: spec.restart.parse::<RestartPolicyNameEnum>().ok(),
            maximum_retry_count: Some(0),
        }),
        auto_remove: Some(false),
        init: Some(spec.engine_init),
        ..HostConfig::default()
    }
}

fn security_options(spec: &ContainerSpec) -> Vec<String> {
    let mut options = Vec::new();
    if spec.no_new_privileges {
        options.push("no-new-privileges".to_owned());
    }
    options.push(format!("seccomp={}", spec.seccomp));
    options
}

fn ulimit(name: &str, limit: u64) -> ResourcesUlimits {
    let limit = Some(engine_number(limit));
    ResourcesUlimits { name: Some(name.to_owned()), soft: limit, hard: limit }
}

fn mount(mount: &MountSpec) -> Mount {
    let propagation = match mount.propagation {
        Propagation::Private => MountBindOptionsPropagationEnum::RPRIVATE,
        Propagation::Slave => MountBindOptionsPropagationEnum::RSLAVE,
    };
    Mount {
        typ: Some(MountType::BIND),
        source: Some(mount.source.clone()),
        target: Some(mount.target.clone()),
        read_only: Some(mount.read_only),
        bind_options: Some(MountBindOptions {
            propagation: Some(propagation),
            // Mounts inside the source stay outside the container, unless they come by propagation.
            non_recursive: Some(mount.propagation == Propagation::Private),
            ..MountBindOptions::default()
        }),
        ..Mount::default()
    }
}

/// Converts to the engine's signed numbers. A value that does not fit is more than any host has.
fn engine_number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn import_changes(changes: &ImportChanges) -> Vec<String> {
    let plain = |text: &str| {
        text.chars()
            .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '-'))
            .collect::<String>()
    };
    let labels = changes.labels.iter();
    labels.map(|(key, value)| format!("LABEL {}={}", plain(key), plain(value))).collect()
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;
    use crate::hardening::tests::facts;
    use crate::hardening::{Hardening, container_spec};
    use crate::quota::Quota;
    use crate::run_as::RunAs;

    /// What the engine is asked for in the default profile. A change here is a change of the product's promise.
    #[test]
    fn the_engine_request_of_the_default_profile() {
        let spec = container_spec(&Hardening::default(), &facts()).unwrap();
        let mut body = serde_json::to_value(create_body(&spec)).unwrap();
        let option = &mut body["HostConfig"]["SecurityOpt"][1];
        let profile = option.as_str().unwrap().strip_prefix("seccomp=").unwrap().to_owned();
        assert_eq!(profile, crate::seccomp_profile(RunAs::Agent, Quota::Measured).unwrap());
        *option = "seccomp=[images/seccomp.json]".into();
        // The digest follows the seccomp profile, which has tests of its own.
        let label = &mut body["Labels"]["io.cofferdam.spec"];
        assert_eq!(label.as_str().unwrap().len(), hex::encode(Sha256::digest(b"")).len());
        *label = "[digest]".into();
        insta::with_settings!({sort_maps => true}, { insta::assert_json_snapshot!(body) });
    }
}
