//! Starts the companions of a run beside its container, and finds those that a previous daemon started.

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::record::{self, CompanionLaunch, CompanionState, Record};
use companions::{Companion, NotReady, Program, Requested};
use containers::{
    BUNDLE_PATH, BUNDLE_VARIABLES, ContainerCgroup, ContainerId, ContainerInput, ContainerName,
    ContainerState, Hardening, ImageId, ImageReference, MountSpec, UsableImage, known_bundles,
};
use executor::engine_refusal;
use executor::root_layer::RootLayer;
use futures_util::future::join_all;
use host_launch::Owner;
use identity::RunId;
use jail::RootMode;
use operations::Reason;
use refusal::{Refusal, chain};
use tokio::task::block_in_place;
use tokio_util::sync::CancellationToken;

use super::images::MISSING;
use super::root::NewRoot;
use super::turns::{in_turn, turn_of};
use super::{Launcher, Wanted, differs};
use crate::boundary;
use crate::way_out::Outward;
use run_directories::mounting::arrived;
use run_directories::resources::{Held, RunResources};
use run_directories::workspace;

/// A companion that is ready, and its record.
pub(crate) struct Beside {
    pub(crate) live: Arc<Companion>,
    pub(crate) record: record::Companion,
}

/// A container that waits for its program.
struct Waiting {
    container: ContainerId,
    /// Start time of its first process, as the engine writes it.
    started_at: String,
    /// Its first process.
    pid: u32,
    input: ContainerInput,
}

/// Returns the record of a companion that is about to start.
pub(crate) fn starting(requested: &Requested) -> record::Companion {
    let companion = &requested.companion;
    record::Companion {
        name: companion.name.clone(),
        image: companion.image.clone(),
        ports: companion.open_ports(),
        memory_mib: companion.memory_mib,
        state: CompanionState::Starting,
        narrowed: companion.egress.clone(),
        launched: None,
    }
}

/// Returns the hardening of a companion: that of the run, with a writable root and this way out.
fn hardening(of_run: &Hardening, memory_mib: u64, outward: Outward) -> Hardening {
    Hardening {
        memory_bytes: memory_mib << 20,
        root: RootMode::WritableLayer,
        resolver: outward.resolver,
        has_bundle: outward.has_bundle,
        ..of_run.clone()
    }
}

impl Launcher {
    /// Makes the run's container, and starts its companions at the same time. If one of the two fails, the other is given up.
    ///
    /// Also returns the time from the end of the first to that of the second, if there are companions.
    pub(super) async fn with_companions<T>(
        &self,
        record: &Record,
        wanted: &Wanted,
        owner: Owner,
        container: impl Future<Output = Result<T, Refusal>>,
    ) -> (Result<(T, Vec<Beside>, Option<Duration>), Refusal>, Vec<RunResources>) {
        let (given_up, mut held) = (wanted.stopping.child_token(), Vec::new());
        let tenant = self.tenant_of(record);
        let container = async {
            let made = container.await;
            if made.is_err() {
                given_up.cancel();
            }
            (made, Instant::now())
        };
        // Its state is large, and most runs have no companion.
        let beside =
            Box::pin(self.start_companions((record.id, &tenant), wanted, owner, &given_up, &mut held));
        let ((made, since), beside) = tokio::join!(container, beside);
        let later = (!wanted.companions.is_empty()).then(|| since.elapsed());
        (made.and_then(|made| beside.map(|beside| (made, beside, later))), held)
    }

    async fn start_companions(
        &self,
        run: (RunId, &str),
        wanted: &Wanted,
        owner: Owner,
        given_up: &CancellationToken,
        held: &mut Vec<RunResources>,
    ) -> Result<Vec<Beside>, Refusal> {
        let mut all = Vec::new();
        for group in &wanted.companions {
            let starts = group.iter().map(|requested| async move {
                let mut resources = RunResources::default();
                let started =
                    self.start_companion(run, wanted, requested, owner, given_up, &mut resources).await;
                if started.is_err() {
                    given_up.cancel();
                }
                (started, resources)
            });
            let (mut is_refused, mut refusal) = (false, None);
            for (started, resources) in join_all(starts).await {
                held.push(resources);
                match started {
                    Ok(beside) => all.push(beside),
                    // The others were only given up.
                    Err(why) => {
                        is_refused = true;
                        refusal = refusal.or(why);
                    }
                }
            }
            if is_refused {
                let (reason, why) = if wanted.stopping.is_cancelled() {
                    let why = "the run was stopped, or used up its space on the disk, before its companions were ready";
                    (Reason::Cancelled, why)
                } else {
                    (Reason::Internal, "the start of the companions was given up")
                };
                return Err(refusal.unwrap_or_else(|| Refusal::new(reason, why)));
            }
        }
        Ok(all)
    }

    /// Starts a companion and waits until it is ready. `None` if it was given up meanwhile.
    async fn start_companion(
        &self,
        run: (RunId, &str),
        wanted: &Wanted,
        requested: &Requested,
        owner: Owner,
        given_up: &CancellationToken,
        resources: &mut RunResources,
    ) -> Result<Beside, Option<Refusal>> {
        let asked = &requested.companion;
        let named = |refusal: Refusal| {
            let message = format!("companions: {}: {}", asked.name, refusal.message);
            Refusal { message, ..refusal }.with("companion", asked.name.as_str())
        };
        let outward = Outward::under(self.way_out.block, &requested.rules, false);
        let outward = outward.map_err(|refusal| Some(named(refusal)))?;
        let hardening = hardening(&wanted.hardening, asked.memory_mib, outward);
        let making = self.make_companion(run, wanted, &hardening, requested, owner, resources);
        let (live, program, launched) = making.await.map_err(|refusal| Some(named(refusal)))?;
        wanted.starting.lock().push((launched.made_as, Arc::clone(&live)));
        if let Some(readiness) = &asked.ready {
            let ready = live.is_ready(readiness, &program, hardening.run_as.user());
            match given_up.run_until_cancelled(ready).await {
                None => return Err(None),
                Some(Ok(())) => {}
                Some(Err(why)) => {
                    let secrets: Vec<&str> = requested.secrets.values().map(String::as_str).collect();
                    return Err(Some(named(not_ready(&why, &live.last_lines(&secrets).await))));
                }
            }
        }
        let state = live.exit().map_or(CompanionState::Ready, CompanionState::Exited);
        let record = record::Companion { state, launched: Some(launched), ..starting(requested) };
        Ok(Beside { live, record })
    }

    /// Makes the container of a companion, and has it become its program.
    async fn make_companion(
        &self,
        run: (RunId, &str),
        wanted: &Wanted,
        hardening: &Hardening,
        requested: &Requested,
        owner: Owner,
        resources: &mut RunResources,
    ) -> Result<(Arc<Companion>, Program, CompanionLaunch), Refusal> {
        let asked = &requested.companion;
        let reference =
            ImageReference::parse(&asked.image).map_err(|error| Refusal::invalid("image", error))?;
        let Some(facts) = self.find_image(&reference).await? else {
            let message =
                format!("image: the engine has no image {reference}, and nothing is pulled: {MISSING}");
            return Err(Refusal::new(Reason::ImageMissing, message).with("image", reference.as_str()));
        };
        let (image, volumes) = facts.usable_beside();
        let bundles = self.check_image(&image, &reference).await?;
        let image = image.with_bundles(bundles);
        let declared = self.engine.image_program(image.id()).await.map_err(engine_refusal)?;
        let of_bundle = BUNDLE_VARIABLES.iter().filter(|_| hardening.has_bundle);
        let of_bundle = of_bundle.map(|name| ((*name).to_owned(), BUNDLE_PATH.to_owned())).collect();
        let variables = [&of_bundle, &asked.env, &requested.secrets, &requested.placeholders];
        let program = Program::of(declared, &asked.command, variables, hardening.home());
        let no_program =
            |error: companions::NoProgram| Refusal::new(Reason::InvalidArgument, error.to_string());
        let program = program.map_err(no_program)?;
        let message = program.message().map_err(no_program)?;
        let first = self.starting.first(image.id()).await?;
        let turn = turn_of(&self.starting.turns, run.1).await?;
        let ids = (run.0, RunId::new());
        let starting = async {
            let layers = self.companion_layers(ids.1, hardening, &image, resources).await?;
            let mounts = block_in_place(|| {
                self.companion_root(ids, hardening, (&layers, &volumes), owner, resources)
            })?;
            self.companion_container(ids.1, hardening, &image, mounts, resources).await
        };
        let Waiting { container, started_at, pid, input } = in_turn(turn, starting).await?;
        first.started();
        let named = (asked.name.clone(), asked.open_ports());
        let live = Companion::running(self.engine.clone(), named, container.clone(), pid, false)
            .map_err(|error| Refusal::internal("watching a companion", &chain(&error)))?;
        // Before the program begins, which may fetch something.
        if hardening.resolver.is_some() {
            let open = wanted.open_beside.as_ref();
            let open = open.ok_or_else(|| Refusal::new(Reason::Internal, "a companion without its run"))?;
            open(live.clone(), (ids.1, hardening.has_bundle)).await?;
        }
        input.write(&message).await.map_err(engine_refusal)?;
        let root = resources.root.as_ref().map(super::root::place).transpose()?;
        let launched = CompanionLaunch {
            image_id: image.id().to_string(),
            made_as: ids.1,
            container_id: container.to_string(),
            container_started: started_at,
            root: root.ok_or_else(|| Refusal::new(Reason::Internal, "a companion without a root"))?,
            resolver: hardening.resolver,
            bundles: hardening
                .has_bundle
                .then(|| image.bundles().iter().map(|path| (*path).to_owned()).collect()),
        };
        Ok((live, program, launched))
    }

    async fn companion_layers(
        &self,
        made_as: RunId,
        hardening: &Hardening,
        image: &UsableImage,
        resources: &mut RunResources,
    ) -> Result<Vec<PathBuf>, Refusal> {
        let (id, guest) = (made_as.to_string(), self.guest.of(hardening.boundary).to_owned());
        let bare =
            self.describe(&id, hardening, image.clone(), hardening.run_as.user(), Vec::new(), guest)?;
        self.layers_of(&bare, image, &id, resources).await
    }

    /// Mounts the root of a companion in the quota of its run, with a directory for each volume of the image.
    fn companion_root(
        &self,
        (run, made_as): (RunId, RunId),
        hardening: &Hardening,
        (layers, volumes): (&[PathBuf], &[String]),
        owner: Owner,
        resources: &mut RunResources,
    ) -> Result<Vec<MountSpec>, Refusal> {
        let id = made_as.to_string();
        let failed = |error: std::io::Error| Refusal::internal("making the root of a companion", &error);
        resources.make_slots(&self.directories.slots(&id))?;
        self.make_bundle(&id, hardening)?;
        let user = hardening.run_as.user().on_host(self.host.user_map);
        let new = NewRoot { owner, paths: volumes.to_vec() };
        let mounts = self.root_layer(made_as, &new, hardening, layers, user, resources)?;
        let Some(root) = &resources.root else { return Ok(mounts) };
        let layer = workspace::open_own(&self.directories.root_layer(&id)).map_err(failed)?;
        self.projects.take_in(run, layer.handle.as_fd()).map_err(failed)?;
        root.link_mounts().map_err(|errno| failed(errno.into()))?;
        with_volumes(root, mounts, volumes)
    }

    /// Makes and starts the container, and compares it with its description. No program of the image runs in it yet.
    async fn companion_container(
        &self,
        made_as: RunId,
        hardening: &Hardening,
        image: &UsableImage,
        mounts: Vec<MountSpec>,
        resources: &mut RunResources,
    ) -> Result<Waiting, Refusal> {
        let (id, user) = (made_as.to_string(), hardening.run_as.user());
        let guest = self.guest.of(hardening.boundary).to_owned();
        let spec = self.describe(&id, hardening, image.clone(), user, mounts, guest)?.of_companion();
        let name = ContainerName::parse(&format!("cofferdam-{id}"))
            .map_err(|error| Refusal::internal("naming the container", &error))?;
        let container = self.engine.create(&spec, &name).await.map_err(engine_refusal)?;
        resources.container = Some(container.clone());
        let input = self.engine.attach_input(&container).await.map_err(engine_refusal)?;
        self.engine.start(&container).await.map_err(engine_refusal)?;
        let inspection = self.engine.inspect(&container).await.map_err(engine_refusal)?;
        let refused = |why: String| Refusal::new(Reason::EngineUnavailable, why);
        if let Some(fields) = differs(&id, &spec, &inspection) {
            return Err(refused(format!(
                "the engine did not apply the asked hardening ({fields}); no companion is started like this"
            )));
        }
        let pid = inspection.host_pid.ok_or_else(|| {
            refused(
                "the engine's processes are not visible to the daemon (a rootless or remote engine)"
                    .to_owned(),
            )
        })?;
        let own = self.own_files(&id, user, hardening, image.bundles())?;
        block_in_place(|| arrived(pid, &[], &own, resources.root.as_ref()))?;
        self.has_users(Some(pid), hardening)?;
        Ok(Waiting { container, started_at: inspection.started_at, pid, input })
    }

    /// Finds a companion that a previous daemon started, and checks that it is the same. `guest` is the binary that it was started with.
    pub(crate) async fn companion_again(
        &self,
        of_run: &Hardening,
        guest: &Path,
        record: &record::Companion,
    ) -> Result<(Arc<Companion>, Held), String> {
        let launched = record.launched.as_ref().ok_or("its launch was not complete")?;
        let outward = Outward { resolver: launched.resolver, has_bundle: launched.bundles.is_some() };
        let (id, hardening) = (launched.made_as.to_string(), hardening(of_run, record.memory_mib, outward));
        let slots = self.directories.slots(&id);
        let root = block_in_place(|| self.reattach_root(&slots, &id, launched.root))?;
        let mut held = Held::new(RunResources {
            slot_directory: Some(slots),
            root: Some(root),
            ..RunResources::default()
        });
        let root = held.root.as_ref().ok_or("its root is no longer mounted")?;
        let container = ContainerId::parse(&launched.container_id).map_err(|error| chain(&error))?;
        let inspection = self.inspected(&id, &container).await?;
        let image = ImageId::parse(&launched.image_id).map_err(|error| chain(&error))?;
        let facts = self.engine.image(&ImageReference::from(&image)).await.map_err(|error| chain(&error))?;
        let (image, volumes) = facts.ok_or("its image no longer exists")?.usable_beside();
        let bundles = known_bundles(launched.bundles.iter().flatten().map(String::as_str));
        let image = image.with_bundles(bundles);
        let message = |refusal: Refusal| refusal.message;
        let mounts = block_in_place(|| root.mounts()).map_err(message)?;
        let mounts = with_volumes(root, mounts, &volumes).map_err(message)?;
        let user = hardening.run_as.user();
        let spec = self.describe(&id, &hardening, image, user, mounts, guest.to_owned()).map_err(message)?;
        if let Some(fields) = differs(&id, &spec.of_companion(), &inspection) {
            return Err(format!(
                "its container differs from how it was launched, or from its profile now ({fields})"
            ));
        }
        let (engine, named) = (self.engine.clone(), (record.name.clone(), record.ports.clone()));
        let live = match (inspection.state, inspection.host_pid) {
            (ContainerState::Running | ContainerState::Paused, Some(pid)) => {
                if inspection.started_at != launched.container_started {
                    return Err("its container was started again".to_owned());
                }
                let is_paused = inspection.state == ContainerState::Paused;
                let live = Companion::running(engine, named, container.clone(), pid, is_paused)
                    .map_err(|error| chain(&error))?;
                // The process is held by now. The companion may have ended since the engine's answer, and its pid may be another process's,
                // whose network connections would enter.
                block_in_place(|| ContainerCgroup::of_pid(pid, &container)).map_err(|error| chain(&error))?;
                block_in_place(|| boundary::has_no_network(pid))?;
                live
            }
            (ContainerState::Exited(code), _) => {
                let is_reported = matches!(record.state, CompanionState::Exited(_));
                Companion::over(engine, named, container.clone(), code, is_reported)
            }
            _ => return Err("its container is in an odd state".to_owned()),
        };
        held.container = Some(container);
        Ok((live, held))
    }
}

/// Adds the volumes of the image to the mounts of a root. One that is a directory at the top of the root is mounted with it.
fn with_volumes(
    root: &RootLayer,
    mut mounts: Vec<MountSpec>,
    volumes: &[String],
) -> Result<Vec<MountSpec>, Refusal> {
    for volume in volumes {
        if mounts.iter().all(|mount| mount.target() != volume.as_str()) {
            mounts.push(root.within(volume)?);
        }
    }
    Ok(mounts)
}

fn not_ready(why: &NotReady, last: &str) -> Refusal {
    let said = if last.is_empty() {
        "It has written nothing.".to_owned()
    } else {
        format!("Its last output:\n{last}")
    };
    Refusal::new(Reason::PreconditionFailed, format!("{why}. {said}"))
}
