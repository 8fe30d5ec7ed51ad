//! Checks the host's identity of a run's processes, on an engine that gives its containers a user namespace.
//!
//! A profile asks for root of such a namespace with `root_in_user_namespace`. All other runs of the engine are in a namespace, too.

use containers::{Boundary, EngineFacts, Hardening, RunAs};
use operations::Reason;
use refusal::{Refusal, chain};
use tokio::task::block_in_place;

use super::Launcher;

/// Advice to an operator.
const MEND: &str = "start the engine with `userns-remap` (see the book, \"Root in a user namespace\"), or take `root_in_user_namespace` out of the profile";

/// Refuses settings that this engine does not support, before anything is made for the run.
pub(super) fn can_be_had(hardening: &Hardening, engine: &EngineFacts) -> Result<(), Refusal> {
    let refused = |why: String| Err(Refusal::new(Reason::PreconditionFailed, why));
    match (engine.user_map, hardening.run_as) {
        (None, RunAs::MappedRoot) if !engine.maps_users() => refused(format!(
            "the profile's `root_in_user_namespace` is not available on this host: root in this engine's \
             containers is root of the host. {MEND}"
        )),
        (None, _) if engine.maps_users() => refused(
            "the engine maps users (userns-remap) to ids that it does not report or that are below 65536: \
             give its user \
             65536 ids from 65536 on in /etc/subuid and /etc/subgid"
                .to_owned(),
        ),
        (Some(_), _) if hardening.boundary == Boundary::OwnKernel => refused(
            "the engine maps users (userns-remap), with which gVisor is not supported: use the engine's default runtime, or an \
             engine that maps none"
                .to_owned(),
        ),
        _ => Ok(()),
    }
}

impl Launcher {
    /// Checks in the kernel that a process of the container has the expected users. An engine that maps no users needs no check.
    pub(crate) fn has_users(&self, host_pid: Option<u32>, hardening: &Hardening) -> Result<(), Refusal> {
        let Some(map) = self.host.user_map else { return can_be_had(hardening, &self.host) };
        let refused = |why: &str| {
            let why = format!("{why}; no run is started like this");
            Refusal::new(Reason::EngineUnavailable, why)
        };
        let pid = host_pid.ok_or_else(|| {
            refused("the engine maps users, but its processes are not visible on this host")
        })?;
        block_in_place(|| map.check(pid, hardening.run_as)).map_err(|error| {
            tracing::error!(pid, error = %chain(&error), "a container's process does not run as the intended user");
            refused(&error.to_string())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine(options: &[&str]) -> EngineFacts {
        EngineFacts {
            engine_version: "20.10.24".to_owned(),
            api_version: "1.41".to_owned(),
            runc_version: None,
            containerd_version: None,
            cgroup_version: 2,
            storage_driver: "overlay2".to_owned(),
            runtimes: Vec::new(),
            default_runtime: "runc".to_owned(),
            security_options: options.iter().map(ToString::to_string).collect(),
            cpus: 2,
            kernel: String::new(),
            architecture: String::new(),
            warnings: Vec::new(),
            user_map: None,
        }
    }

    #[test]
    fn users_that_the_engine_cannot_map_are_refused() {
        let root = Hardening { run_as: RunAs::MappedRoot, ..Hardening::default() };
        let (plain, silent) = (engine(&["name=seccomp,profile=default"]), engine(&["name=userns"]));
        assert!(can_be_had(&Hardening::default(), &plain).is_ok());
        for (hardening, engine, word) in [
            (&root, &plain, "root of the host"),
            (&root, &engine(&["name=rootless"]), "root of the host"),
            (&root, &silent, "65536"),
            (&Hardening::default(), &silent, "65536"),
        ] {
            let refused = can_be_had(hardening, engine).unwrap_err();
            assert_eq!(refused.reason, Reason::PreconditionFailed);
            assert!(refused.message.contains(word), "{}", refused.message);
        }
    }
}
