//! Makes the container of a run, and compares what the engine made with what was asked.

use std::path::PathBuf;

use crate::record::Record;
use containers::{
    Boundary, ContainerId, ContainerName, ContainerSpec, EtcFiles, Hardening, Inspection, MountSpec,
    RunFacts, RunUser, UsableImage,
};
use executor::{GuestLane, engine_refusal};
use identity::Principal;
use operations::Reason;
use refusal::Refusal;
use run_directories::mounting::{Shown, arrived, mount};
use run_directories::resources::RunResources;
use run_directories::workspace;
use tokio::task::block_in_place;

use super::root::NewRoot;
use super::{Contained, Launcher, Wanted};
use crate::boundary;

impl Launcher {
    pub(super) async fn cold_steps(
        &self,
        record: &Record,
        wanted: &Wanted,
        principal: &Principal,
        image: &UsableImage,
        shown: &[Shown<'_>],
        resources: &mut RunResources,
    ) -> Result<Contained, Refusal> {
        let run = record.id.to_string();
        let (hardening, users) = (&wanted.hardening, self.host.user_map);
        let boundary = hardening.boundary;
        let slots = self.directories.slots(&run);
        let (mut mounts, user, ownership) =
            block_in_place(|| mount(&slots, &run, shown, hardening, users, resources))?;
        self.make_bundle(&run, hardening)?;
        if let Some(new) = Self::new_root(record, wanted, principal) {
            let guest = self.guest.of(boundary).to_owned();
            let bare = self.describe(&run, hardening, image.clone(), user, Vec::new(), guest)?;
            let layers = self.layers_of(&bare, image, &run, resources).await?;
            let on_host = user.on_host(users);
            mounts.extend(block_in_place(|| {
                let mounts = self.root_layer(record.id, &new, hardening, &layers, on_host, resources)?;
                if let Some(root) = &resources.root {
                    root.link_mounts()
                        .map_err(|errno| Refusal::internal("making the files of a root in /etc", &errno))?;
                }
                Ok::<_, Refusal>(mounts)
            })?);
        }
        let guest = self.guest.of(boundary).to_owned();
        let spec = self.describe(&run, hardening, image.clone(), user, mounts, guest)?;
        let (container, inspection) = self.contain(&spec, &run, resources).await?;

        let file_server = match boundary {
            Boundary::HostKernel => None,
            Boundary::OwnKernel => Some(block_in_place(|| boundary::file_server(&inspection, &container))?),
        };
        let environment = wanted.environment.clone();
        let guest =
            GuestLane::connect(self.engine.clone(), container.clone(), user, Some(environment), boundary)
                .await?;
        if let Some(pid) = file_server.or_else(|| guest.host_pid()) {
            let own = self.own_files(&run, user, hardening, image.bundles())?;
            block_in_place(|| arrived(pid, shown, &own, resources.root.as_ref()))?;
        }
        for pid in [inspection.host_pid, guest.host_pid()] {
            self.has_users(pid, hardening)?;
        }
        let mut hardening = confirmed(&spec, &inspection);
        hardening.extend(users.map(|_| ("user_on_host".to_owned(), user.on_host(users).to_string())));
        let started_at = inspection.started_at;
        Ok(Contained { container, started_at, hardening, ownership, guest, warm: None })
    }

    /// Makes and starts the container, reads its settings back from the engine and compares them.
    pub(crate) async fn contain(
        &self,
        spec: &ContainerSpec,
        run: &str,
        resources: &mut RunResources,
    ) -> Result<(ContainerId, Inspection), Refusal> {
        let name = ContainerName::parse(&format!("cofferdam-{run}"))
            .map_err(|error| Refusal::internal("naming the container", &error))?;
        let container = self.engine.create(spec, &name).await.map_err(engine_refusal)?;
        resources.container = Some(container.clone());
        self.engine.start(&container).await.map_err(engine_refusal)?;
        let inspection = self.engine.inspect(&container).await.map_err(engine_refusal)?;
        if let Some(fields) = differs(run, spec, &inspection) {
            return Err(Refusal::new(
                Reason::EngineUnavailable,
                format!(
                    "the engine did not apply the asked hardening ({fields}); no run is started like this"
                ),
            ));
        }
        Ok((container, inspection))
    }

    /// Returns what the run's writable root is made with, if it has one.
    pub(super) fn new_root(record: &Record, wanted: &Wanted, principal: &Principal) -> Option<NewRoot> {
        NewRoot::of(&wanted.hardening, workspace::owner_for(principal), &record.spec.writable_paths)
    }

    /// Describes the container that was made as `run`. The result depends only on profile and facts, at the launch and at every later
    /// check.
    pub(crate) fn describe(
        &self,
        run: &str,
        hardening: &Hardening,
        image: UsableImage,
        user: RunUser,
        mounts: Vec<MountSpec>,
        guest: PathBuf,
    ) -> Result<ContainerSpec, Refusal> {
        let facts = RunFacts {
            run_id: run.to_owned(),
            instance_id: self.instance.clone(),
            image,
            user,
            mounts,
            guest,
            etc: self.etc(user, hardening)?,
            bundle: self.bundle_of(run, hardening),
            labels: std::collections::BTreeMap::new(),
        };
        containers::container_spec(hardening, &facts)
            .map_err(|error| Refusal::internal("describing the container", &error))
    }

    /// Returns the daemon's files for the `/etc` of a container that runs as `user`.
    pub(crate) fn etc(&self, user: RunUser, hardening: &Hardening) -> Result<EtcFiles, Refusal> {
        block_in_place(|| run_files::place_etc(&self.directories.bin(), user, hardening))
            .map_err(|error| Refusal::internal("writing the container's files in /etc", &error))
    }
}

/// Returns the settings that the engine confirmed, by name.
pub(crate) fn confirmed(spec: &ContainerSpec, inspection: &Inspection) -> Vec<(String, String)> {
    let report = containers::report(spec, inspection);
    report.lines.into_iter().map(|line| (line.name, line.value)).collect()
}

/// Returns the names of the fields in which the container differs from its description, or `None`. Their values go only to the operator's
/// log.
pub(crate) fn differs(run: &str, spec: &ContainerSpec, inspection: &Inspection) -> Option<String> {
    let mismatches = containers::verify(spec, inspection);
    if mismatches.is_empty() {
        return None;
    }
    let list: Vec<_> = mismatches.iter().map(ToString::to_string).collect();
    tracing::error!(run, mismatches = ?list, "the hardening in force differs from the requested one");
    let fields: Vec<_> = mismatches.into_iter().map(|mismatch| mismatch.field).collect();
    Some(fields.join(", "))
}
