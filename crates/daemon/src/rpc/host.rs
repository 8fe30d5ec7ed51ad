//! `HostService`.

use std::path::PathBuf;
use std::sync::Arc;

use containers::{Advisory, EngineFacts};
use doctor::{Finding, Verdict};
use gateway::{Gateway, Policy};
use ops::Reason;
use refusal::Refusal;
use runs::Runs;
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status};
use wire::v1::host_finding;
use wire::v1::host_service_server::HostService;
use wire::v1::{self, HostFinding};

/// Looks at the same time: each asks the engine, which may be slow to answer.
static LOOKS: Semaphore = Semaphore::const_new(4);

/// `HostService`.
pub(crate) struct Service {
    pub(crate) runs: Arc<Runs>,
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) engine_socket: PathBuf,
}

#[tonic::async_trait]
impl HostService for Service {
    async fn examine_host(
        &self,
        _request: Request<v1::ExamineHostRequest>,
    ) -> Result<Response<v1::ExamineHostResponse>, Status> {
        let busy = |_| Refusal::new(Reason::Overloaded, "others are looking at the host: try again");
        let _look = LOOKS.try_acquire().map_err(busy)?;
        let mut findings = doctor::examine(Some(self.engine_socket.clone())).await;
        findings.extend(escapes(&self.runs.launcher.host));
        let policy = self.gateway.policy();
        findings.extend([deny_lists(&policy), container_paths(&policy)]);
        Ok(Response::new(v1::ExamineHostResponse { findings: findings.into_iter().map(to_wire).collect() }))
    }
}

/// What is known of the engine's versions, as the daemon found them when it started.
fn escapes(engine: &EngineFacts) -> Vec<Finding> {
    const TOPIC: &str = "known escapes";
    let known = containers::advisories(engine);
    if known.is_empty() {
        return vec![Finding::good(TOPIC, "none of the versions of engine, containerd and runc")];
    }
    let told = |known: Advisory| Finding::limited(TOPIC, known.sentence, containers::ADVISORY_CAVEAT);
    known.into_iter().map(told).collect()
}

/// Which profiles in force leave the judgement of commands to others.
fn deny_lists(policy: &Policy) -> Finding {
    const TOPIC: &str = "deny list";
    let off: Vec<&str> = policy.without_deny_list().collect();
    match off.as_slice() {
        [] => Finding::good(TOPIC, "holds in every profile"),
        names => Finding::good(
            TOPIC,
            format!(
                "off in {}: in runs of such a profile the container is the only boundary",
                names.join(", ")
            ),
        ),
    }
}

/// Which profiles in force let operations on files reach all that commands reach.
fn container_paths(policy: &Policy) -> Finding {
    const TOPIC: &str = "container paths";
    let open: Vec<&str> = policy.with_container_paths().collect();
    match open.as_slice() {
        [] => Finding::good(TOPIC, "refused in every profile"),
        names => Finding::good(
            TOPIC,
            format!(
                "allowed in {}: files outside of the mounts are read and written as by commands",
                names.join(", ")
            ),
        ),
    }
}

fn to_wire(finding: Finding) -> HostFinding {
    let verdict = match finding.verdict {
        Verdict::Good => host_finding::Verdict::Good,
        Verdict::Limited => host_finding::Verdict::Limited,
        Verdict::Missing => host_finding::Verdict::Missing,
    };
    HostFinding {
        topic: finding.topic.into_owned(),
        verdict: verdict.into(),
        found: finding.found,
        follows: finding.follows.unwrap_or_default(),
    }
}
