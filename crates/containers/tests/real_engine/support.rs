//! A container for a test, made as the daemon makes it, and gone with the test.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use cofferdam_containers::{
    Busybox, ContainerId, ContainerName, ContainerSpec, Endpoint, Engine, EtcFiles, ExecStream, GUEST_PATH,
    Hardening, ImageId, ImageReference, MountSpec, RunFacts, RunUser, container_spec, cpu_limit,
    ensure_default, etc_files,
};
use jail::RootMode;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const NEEDS_ENGINE: &str = "these tests need Docker Engine on unix:///var/run/docker.sock and root: deploy/engine.sh installs and starts it";

pub(crate) fn engine() -> Arc<Engine> {
    let endpoint = Endpoint::parse("unix:///var/run/docker.sock").unwrap();
    Arc::new(Engine::connect(&endpoint).expect(NEEDS_ENGINE))
}

/// The probe, compiled once for each version of its source.
fn probe() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(build_probe).clone()
}

fn build_probe() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real_engine/probe.rs");
    let digest = hex::encode(Sha256::digest(std::fs::read(&source).unwrap()));
    let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("probe-{}", &digest[..16]));
    if !built.exists() {
        // Several tests may be here at the same time, in processes of their own, and rustc's temporary files are named
        // after what it makes.
        let workshop = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let own = workshop.path().join("probe");
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let status = Command::new(rustc)
            .args(["--edition=2024", "-O", "-C", "target-feature=+crt-static", "-C", "strip=symbols", "-o"])
            .arg(&own)
            .arg(&source)
            .status()
            .unwrap();
        assert!(status.success(), "the probe does not compile");
        std::fs::rename(own, &built).unwrap();
    }
    built
}

/// A file of root's that can be run by anybody and read by nobody, as the guest's is.
fn guest(dir: &Path) -> PathBuf {
    let guest = dir.join("guest");
    std::fs::copy(probe(), &guest).unwrap();
    std::fs::set_permissions(&guest, std::fs::Permissions::from_mode(0o711)).unwrap();
    guest
}

/// The files in `/etc`, as the daemon places them.
fn etc(dir: &Path) -> EtcFiles {
    let place = |(target, content): (&'static str, String)| {
        let path = dir.join(target.trim_start_matches("/etc/"));
        std::fs::write(&path, content).unwrap();
        (target, path)
    };
    etc_files(RunUser::DEFAULT, RootMode::ReadOnly.home(), None).into_iter().map(place).collect()
}

/// The host's busybox with a few bytes more, other ones each time.
pub(crate) fn busybox() -> Busybox {
    let mut program =
        std::fs::read("/bin/busybox").expect("the package busybox-static is part of the set-up");
    let nonce = tempfile::NamedTempFile::new().unwrap();
    program.extend(nonce.path().as_os_str().as_encoded_bytes());
    program.extend(std::process::id().to_ne_bytes());
    Busybox::parse(program).unwrap()
}

/// A default image. Each is unique, so that tests do not remove each other's.
pub(crate) struct TestImage {
    pub(crate) engine: Arc<Engine>,
    pub(crate) reference: ImageReference,
    pub(crate) image: cofferdam_containers::UsableImage,
    pub(crate) busybox: Busybox,
}

impl TestImage {
    pub(crate) async fn new() -> Self {
        let engine = engine();
        let busybox = busybox();
        let made = ensure_default(engine.as_ref(), &busybox).await.expect(NEEDS_ENGINE);
        Self { engine, reference: made.reference, image: made.image, busybox }
    }
}

impl Drop for TestImage {
    fn drop(&mut self) {
        let (engine, id): (_, ImageId) = (Arc::clone(&self.engine), self.image.id().clone());
        finish(async move { engine.remove_image(&id).await });
    }
}

pub(crate) struct TestContainer {
    // Dropped first to last: the container, its directory, then its image.
    pub(crate) container: Removed,
    pub(crate) spec: ContainerSpec,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) image: TestImage,
}

pub(crate) struct Removed {
    engine: Arc<Engine>,
    pub(crate) id: ContainerId,
}

impl Drop for Removed {
    fn drop(&mut self) {
        let (engine, id) = (Arc::clone(&self.engine), self.id.clone());
        finish(async move { engine.remove(&id).await });
    }
}

/// Runs clean-up from `drop`, where no runtime may be entered, on a thread with one of its own.
fn finish<E: std::fmt::Display + Send + 'static>(work: impl Future<Output = Result<(), E>> + Send + 'static) {
    let done = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(work).map_err(|error| error.to_string())
    });
    if let Ok(Err(error)) = done.join() {
        eprintln!("clean-up failed: {error}");
    }
}

impl TestContainer {
    /// Starts one with the mounts that `mounts` makes in the test's own directory.
    pub(crate) async fn start(mounts: impl FnOnce(&Path) -> Vec<MountSpec>) -> Self {
        let image = TestImage::new().await;
        let dir = tempfile::tempdir().unwrap();
        let host_cpus = image.engine.version().await.expect(NEEDS_ENGINE).cpus;
        let nonce = dir.path().file_name().unwrap().to_str().unwrap().trim_start_matches('.').to_owned();
        let facts = RunFacts {
            run_id: nonce.clone(),
            instance_id: format!("test-{nonce}"),
            image: image.image.clone(),
            user: RunUser::DEFAULT,
            mounts: mounts(dir.path()),
            guest: guest(dir.path()),
            etc: etc(dir.path()),
            bundle: None,
            labels: BTreeMap::new(),
        };
        let hardening = Hardening::default();
        let cpu_millis = cpu_limit(hardening.cpu_millis, host_cpus);
        let spec = container_spec(&Hardening { cpu_millis, ..hardening }, &facts).unwrap();
        let name = ContainerName::parse(&format!("cofferdam-test-{nonce}")).unwrap();
        let id = image.engine.create(&spec, &name).await.expect("the container is created");
        let container = Removed { engine: Arc::clone(&image.engine), id };
        image.engine.start(&container.id).await.expect("the container starts");
        Self { container, spec, dir, image }
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.image.engine
    }

    pub(crate) fn id(&self) -> &ContainerId {
        &self.container.id
    }

    pub(crate) async fn exec(&self, command: &[&str]) -> ExecStream {
        let argv: Vec<String> =
            std::iter::once(GUEST_PATH).chain(command.iter().copied()).map(Into::into).collect();
        self.engine().attach_exec(self.id(), &argv, RunUser::DEFAULT).await.expect("the exec is attached")
    }

    /// Runs the probe to its end and returns the lines of its stdout.
    pub(crate) async fn probe(&self, command: &[&str]) -> Vec<String> {
        let mut stream = self.exec(command).await;
        stream.input.shutdown().await.unwrap();
        let mut text = String::new();
        stream.output.read_to_string(&mut text).await.unwrap();
        assert_eq!(stream.errors.text(), "", "the probe said");
        text.lines().map(Into::into).collect()
    }
}
