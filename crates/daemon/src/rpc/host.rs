//! Serves `HostService`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use containers::{Advisory, EngineFacts};
use doctor::{Finding, Verdict};
use gateway::Gateway;
use listener::{CertificateEnd, Certificates, GuardLayer, Remaining};
use oidc::{Condition, Held};
use operations::Reason;
use policy::Policy;
use refusal::Refusal;
use runs::Runs;
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status};
use wire::Timestamp;
use wire::v1::host_finding;
use wire::v1::host_service_server::HostService;
use wire::v1::{self, HostFinding};

/// Limit for examinations at the same time. Each asks the engine, which may be slow to answer.
static LOOKS: Semaphore = Semaphore::const_new(4);

pub(crate) struct Service {
    pub(crate) runs: Arc<Runs>,
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) engine_socket: PathBuf,
    /// Has the issuers in force.
    pub(crate) guard: GuardLayer,
    /// Certificates of the TCP listener, if it has TLS.
    pub(crate) certificates: Option<Arc<Certificates>>,
}

#[tonic::async_trait]
impl HostService for Service {
    async fn examine_host(
        &self,
        _request: Request<v1::ExamineHostRequest>,
    ) -> Result<Response<v1::ExamineHostResponse>, Status> {
        let busy = |_| Refusal::new(Reason::Overloaded, "other clients are examining the host: try again");
        let _look = LOOKS.try_acquire().map_err(busy)?;
        let mut findings = doctor::examine(Some(self.engine_socket.clone())).await;
        findings.extend(escapes(&self.runs.launcher.host));
        let policy = self.gateway.policy();
        findings.extend([deny_lists(&policy), container_paths(&policy)]);
        let ends = self.certificates.as_ref().map(|certificates| certificates.ends());
        findings.extend(expiry(&ends.unwrap_or_default(), SystemTime::now()));
        findings.extend(
            self.guard
                .issuers()
                .examine()
                .await
                .into_iter()
                .map(|condition| keys(condition, SystemTime::now())),
        );
        Ok(Response::new(v1::ExamineHostResponse { findings: findings.into_iter().map(to_wire).collect() }))
    }

    async fn get_pool(
        &self,
        _request: Request<v1::GetPoolRequest>,
    ) -> Result<Response<v1::GetPoolResponse>, Status> {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let fills = self.runs.launcher.pool.levels().fills.into_iter();
        let mut kinds: Vec<_> = fills
            .map(|fill| v1::PoolKind {
                name: fill.name,
                waiting: number(fill.ready),
                wanted: number(fill.target),
            })
            .collect();
        kinds.sort_by(|one, other| one.name.cmp(&other.name));
        super::portion::answer(v1::GetPoolResponse { kinds })
    }
}

/// Returns the escapes that are known for the engine's versions, which the daemon read at its start.
fn escapes(engine: &EngineFacts) -> Vec<Finding> {
    const TOPIC: &str = "known escapes";
    let known = containers::advisories(engine);
    if known.is_empty() {
        return vec![Finding::good(TOPIC, "none of the versions of engine, containerd and runc")];
    }
    let told = |known: Advisory| Finding::limited(TOPIC, known.sentence, containers::ADVISORY_CAVEAT);
    known.into_iter().map(told).collect()
}

/// Reports the profiles in force whose commands no deny list judges.
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

/// Reports the profiles in force whose file operations can reach every path that commands can reach.
fn container_paths(policy: &Policy) -> Finding {
    const TOPIC: &str = "container paths";
    let open: Vec<&str> = policy.with_container_paths().collect();
    match open.as_slice() {
        [] => Finding::good(TOPIC, "refused in every profile"),
        names => Finding::good(
            TOPIC,
            format!(
                "allowed in {}: operations can read and write files outside of the mounts, as commands can",
                names.join(", ")
            ),
        ),
    }
}

/// Reports the certificates that expire soon or have expired, or else the first end of any.
fn expiry(ends: &[CertificateEnd], now: SystemTime) -> Vec<Finding> {
    const TOPIC: &str = "TLS certificates";
    let near: Vec<Finding> = ends
        .iter()
        .filter(|end| end.remaining(now) != Remaining::Enough)
        .map(|end| Finding::limited(TOPIC, end.told(now), end.remedy()))
        .collect();
    let first = ends.iter().min_by_key(|end| end.not_after).filter(|_| near.is_empty());
    near.into_iter().chain(first.map(|end| Finding::good(TOPIC, end.told(now)))).collect()
}

/// Reports whether the keys of an issuer are available, their number, and until when they are in force.
fn keys(condition: Condition, now: SystemTime) -> Finding {
    const TOPIC: &str = "issuer keys";
    let Condition { issuer, held, wrong } = condition;
    let held = held.map(|Held { keys, left }| {
        let plural = if keys == 1 { "" } else { "s" };
        let until = left.and_then(|left| now.checked_add(left)).map(|end| {
            // Without fractions of a second.
            let end = Timestamp { nanos: 0, ..Timestamp::from(end) };
            format!("until {end} unless fetched again")
        });
        format!(
            "{keys} key{plural} in force, {}",
            until.unwrap_or_else(|| "until the file changes".to_owned())
        )
    });
    let mend = format!("see `jwks` of {issuer} in the configuration");
    match (held, wrong) {
        (Some(held), None) => Finding::good(TOPIC, format!("{issuer}: {held}")),
        (Some(held), Some(why)) => Finding::limited(
            TOPIC,
            format!("{issuer}: {why}; {held}"),
            format!("tokens with newer keys are refused: {mend}"),
        ),
        (None, why) => Finding::limited(
            TOPIC,
            format!("{issuer}: no key in force: {}", why.unwrap_or_else(|| "they are too old".to_owned())),
            format!("its tokens are refused: {mend}"),
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn certificates_that_expire_are_limitations_and_others_show_the_first_end() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let end = |key, days: u64| CertificateEnd {
            key,
            place: 1,
            not_after: now + Duration::from_secs(days * 86_400),
        };
        let (own, authority) = (end("certificate", 90), end("client_ca", 3_000));
        let good = expiry(&[authority.clone(), own.clone()], now);
        assert_eq!(good, [Finding::good("TLS certificates", own.told(now))]);
        assert!(expiry(&[], now).is_empty(), "a daemon without TLS");
        let over = CertificateEnd { not_after: now - Duration::from_secs(1), ..own };
        let told = expiry(&[over, end("client_ca", 12), authority], now);
        assert!(told.iter().all(|finding| finding.verdict == Verdict::Limited), "{told:?}");
        let [over, soon] = &told[..] else { panic!("{told:?}") };
        assert!(over.found.starts_with("listen.tcp.tls.certificate: ") && over.found.contains("has expired"));
        assert!(soon.found.contains("client_ca") && soon.found.contains("expires in 12 days"), "{soon:?}");
    }

    #[test]
    fn j7_issuer_key_findings_show_count_and_expiry() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(1_500);
        let told = |held: Option<(usize, Option<u64>)>, wrong: Option<&str>| {
            let held = held.map(|(keys, left)| Held { keys, left: left.map(Duration::from_secs) });
            let finding =
                keys(Condition { issuer: "corp".into(), held, wrong: wrong.map(str::to_owned) }, now);
            (finding.verdict, finding.found)
        };
        let (good, limited) = (Verdict::Good, Verdict::Limited);
        for (held, wrong, verdict, found) in [
            (Some((1, None)), None, good, "corp: 1 key in force, until the file changes"),
            (
                Some((2, Some(3_600))),
                None,
                good,
                "corp: 2 keys in force, until 1970-01-01T01:00:01Z unless fetched again",
            ),
            (
                Some((2, Some(0))),
                Some("answered 503"),
                limited,
                "corp: answered 503; 2 keys in force, until 1970-01-01T00:00:01Z unless fetched again",
            ),
            (None, Some("no answer yet"), limited, "corp: no key in force: no answer yet"),
            (None, None, limited, "corp: no key in force: they are too old"),
        ] {
            assert_eq!(told(held, wrong), (verdict, found.to_owned()));
        }
    }
}
