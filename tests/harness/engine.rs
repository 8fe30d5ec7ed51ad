//! Selects the engine of a test: that of the `docker` command, or one that maps the users of its containers.

use std::fs::File;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use rustix::fs::{FlockOperation, flock};

/// A test that holds it uses the engine, which ends when none does.
const LOCK: &str = "/var/tmp/cofferdam-mapped-engine.lock";

static MAPPED: OnceLock<Mapped> = OnceLock::new();

struct Mapped {
    address: String,
    /// Until this process ends.
    _lock: File,
}

/// Makes sure of an engine with `userns-remap`, which this process uses from then on.
pub fn use_mapped_engine() {
    MAPPED.get_or_init(|| {
        let lock = File::options().create(true).append(true).open(LOCK).unwrap();
        // An engine that is just ending has it until it has ended.
        flock(&lock, FlockOperation::LockShared).unwrap();
        let mut script = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/mapped-engine.sh"));
        let output = script.arg(LOCK).stderr(Stdio::inherit()).output().unwrap();
        assert!(output.status.success(), "{script:?}: {}", output.status);
        let address = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        Mapped { address, _lock: lock }
    });
}

/// Its address, if it is not the default one.
pub(crate) fn address() -> Option<String> {
    MAPPED.get().map_or_else(|| std::env::var("DOCKER_HOST").ok(), |mapped| Some(mapped.address.clone()))
}

/// Returns the `docker` command.
pub fn docker() -> Command {
    let mut docker = Command::new("docker");
    on_engine(&mut docker);
    docker
}

/// Has a command use the same engine.
pub(crate) fn on_engine(command: &mut Command) {
    if let Some(mapped) = MAPPED.get() {
        command.env("DOCKER_HOST", &mapped.address);
    }
}
