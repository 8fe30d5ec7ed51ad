//! Common parts of this crate's tests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use jail::SandboxPath;
use operations::{Delete, Exec, FrontMatter, Operation, Patch, PatchChange, Shell, Write};
use timestamp::{Clock, UnixMillis};

use crate::admission::Ticket;
use crate::approvals::{Approval, Review};
use crate::decision::Refusal;
use crate::gateway::Gateway;
use policy::{Caller, Policy, RunScope};

/// The built-in policy, for tests that make more calls than it lets anybody make.
pub(crate) fn builtin() -> Policy {
    static POLICY: LazyLock<Policy> = LazyLock::new(|| builtin_and(""));
    POLICY.clone()
}

/// The same and more.
pub(crate) fn builtin_and(yaml: &str) -> Policy {
    without_rate_limits(&limited(yaml))
}

fn without_rate_limits(policy: &Policy) -> Policy {
    let unlimited = r#"{"minute": "unlimited", "hour": "unlimited", "day": "unlimited"}"#;
    let none = format!(
        r#"{{"operations": {{"default": {unlimited}}}, "run": {unlimited}, "principal": {unlimited}}}"#
    );
    let mut shown: serde_json::Value = serde_json::from_str(&policy.canonical().unwrap()).unwrap();
    for profile in shown["profiles"].as_object_mut().unwrap().values_mut() {
        profile["rate_limits"] = serde_json::from_str(&none).unwrap();
    }
    // JSON is YAML.
    Policy::from_files([("policy.yaml", shown.to_string())]).unwrap()
}

impl Gateway {
    /// An approval that is on record at once.
    pub(crate) fn request_approval(
        &self,
        ticket: &Ticket,
        review: Review,
        timeout: Option<Duration>,
    ) -> Result<Approval, Refusal> {
        let approval = self.prepare_approval(ticket, review, timeout)?;
        self.open_approval(&approval.approval_id);
        Ok(approval)
    }
}

/// The built-in policy as it is, and more.
pub(crate) fn limited(yaml: &str) -> Policy {
    let mut files: Vec<(&str, &str)> = Policy::builtin_files().collect();
    files.extend((!yaml.is_empty()).then_some(("more.yaml", yaml)));
    Policy::from_files(files).unwrap_or_else(|problems| panic!("{problems}"))
}

pub(crate) fn caller(role: &str) -> Caller {
    Caller {
        principal: "uid:1000".into(),
        agent_id: "alice".into(),
        role: role.into(),
        run_id: "run-1".into(),
    }
}

pub(crate) fn run(profile: &str) -> RunScope {
    RunScope { profile: profile.into(), image_id: "sha256:1".into() }
}

pub(crate) fn path(text: &str) -> SandboxPath {
    SandboxPath::parse(text).unwrap()
}

pub(crate) fn exec(argv: &[&str]) -> Exec {
    Exec::new(argv[0], argv[1..].iter().copied())
}

pub(crate) fn shell(script: &str) -> Shell {
    Shell::new(script)
}

pub(crate) fn write(to: &str) -> Write {
    Write::new(path(to), "hi\n")
}

pub(crate) fn delete(at: &str) -> Delete {
    Delete { path: path(at), if_match_sha256: None }
}

/// A patch of front matter that changes what `with` says.
pub(crate) fn front_matter(with: impl FnOnce(&mut FrontMatter)) -> Operation {
    let mut update = FrontMatter::new(path("@state/workflow.md"));
    with(&mut update);
    Operation::Patch(Patch::new(PatchChange::FrontMatter(update)).unwrap())
}

/// A clock that moves only when a test sets it.
#[derive(Debug, Default)]
pub(crate) struct TestClock {
    wall: AtomicU64,
    uptime: AtomicU64,
}

impl TestClock {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { wall: AtomicU64::new(1_000_000), uptime: AtomicU64::new(0) })
    }

    pub(crate) fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_millis()).unwrap();
        self.wall.fetch_add(by, Ordering::SeqCst);
        self.uptime.fetch_add(by, Ordering::SeqCst);
    }

    /// Somebody sets the wall clock.
    pub(crate) fn set(&self, to: UnixMillis) {
        self.wall.store(to.0, Ordering::SeqCst);
    }

    /// Somebody sets it back.
    pub(crate) fn go_back(&self, by: Duration) {
        let by = u64::try_from(by.as_millis()).unwrap();
        self.set(UnixMillis(self.now().0.saturating_sub(by)));
    }
}

impl Clock for TestClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.wall.load(Ordering::SeqCst))
    }

    fn uptime(&self) -> Duration {
        Duration::from_millis(self.uptime.load(Ordering::SeqCst))
    }
}
