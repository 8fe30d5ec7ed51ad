//! The rules for connections of runs, and the parts of the daemon that all runs with a way out use.

use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock, Weak};

use containers::Boundary;
use egress::{Answer, Egress, Outside, Program, Question};
use egress_rules::{Narrowed, Pool, Rules};
use executor::PushPreview;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use ipnet::Ipv4Net;
use mirrors::RepositoryUrl;
use operations::Reason;
use policy::{InForce, Policy, Profile};
use refusal::Refusal;
use tokio_util::sync::CancellationToken;

use crate::record::{LaunchFingerprint, Record};
use crate::run::Run;

/// The parts of the daemon that every run with egress uses.
pub struct WayOut {
    pub program: Arc<Program>,
    /// Block of addresses for names.
    pub block: Ipv4Net,
    pub outside: Arc<Outside>,
    pub policy: InForce,
    /// Asks about connections. It is set once the approvals of an earlier daemon are known.
    pub reviewers: OnceLock<Arc<dyn Reviewers>>,
}

/// Asks reviewers about the connections of runs, and about pushes over them.
pub trait Reviewers: Send + Sync {
    fn ask(&self, asked: Asked) -> BoxFuture<'_, Answer>;
}

/// A connection that waits for a reviewer, or a push over one.
pub struct Asked {
    pub run: Arc<Run>,
    pub question: Question,
    /// Ids of the calls whose commands are running.
    pub calls: Vec<String>,
    /// Beginnings of these commands, as the agent wrote them.
    pub commands: Vec<String>,
    /// Companion whose program waits; `None` for one of the run itself.
    pub companion: Option<String>,
    /// Effects of the push, if the question is about one and they are known.
    pub preview: Option<PushPreview>,
    /// Cancelled when no program waits any longer.
    pub given_up: CancellationToken,
}

/// The parts of a container that the rules for its connections need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outward {
    /// Name server. `None` if nothing is ever open to the run.
    pub(crate) resolver: Option<Ipv4Addr>,
    /// True for a bundle of certificates, because some of the connections are opened.
    pub(crate) has_bundle: bool,
}

impl Outward {
    /// Returns the parts of a container with these rules, which may have companions. Their names have addresses of the block.
    pub(crate) fn under(block: Ipv4Net, rules: &Narrowed, has_companions: bool) -> Result<Self, Refusal> {
        let is_open = !rules.is_nothing();
        let pool = (is_open || has_companions).then(|| Pool::new(block)).transpose();
        let pool = pool.map_err(|why| {
            let message = format!("an operator has to change `egress.pool` of the configuration: {why}");
            Refusal::new(Reason::PreconditionFailed, message)
        })?;
        let resolver = pool.map(|pool| pool.resolver());
        Ok(Self { resolver, has_bundle: resolver.is_some() && is_open && rules.opens_tls() })
    }

    /// Returns the parts that a container was made with.
    pub(crate) fn of(fingerprint: &LaunchFingerprint) -> Self {
        Self { resolver: fingerprint.resolver, has_bundle: fingerprint.bundles.is_some() }
    }
}

impl WayOut {
    /// Refuses rules that something is open to, with a secret that the daemon's configuration lacks.
    pub(crate) fn check_secrets(&self, rules: &Narrowed) -> Result<(), Refusal> {
        if rules.is_nothing() {
            return Ok(());
        }
        let known = &self.outside.shared().secrets;
        match rules.secrets().into_iter().find(|name| !known.has(name)) {
            None => Ok(()),
            Some(name) => Err(Refusal::new(
                Reason::PreconditionFailed,
                format!(
                    "profile: its `egress` names the secret {name}, and the daemon's configuration has none of this name: an \
                     operator adds it to `secrets` of the configuration and reloads the daemon"
                ),
            )),
        }
    }
}

/// Refuses a run with a name server whose connections cannot be steered. See decision 58.
pub(crate) fn can_be_had(resolver: Option<Ipv4Addr>, boundary: Boundary) -> Result<(), Refusal> {
    if resolver.is_none() || boundary == Boundary::HostKernel {
        return Ok(());
    }
    Err(Refusal::new(
        Reason::PreconditionFailed,
        "profile: its `egress`, or `companions`, cannot be had with `runtime: runsc` (gVisor), whose network stack the host cannot steer: \
         leave `runtime` out, or create the run without connections (`--egress '{}'`)",
    ))
}

/// Returns the rules of a profile under further ones.
pub(crate) fn narrowed(profile: &Profile, by: &[Rules]) -> Narrowed {
    by.iter().cloned().fold(Narrowed::new(profile.egress.clone()), Narrowed::under)
}

/// Streams to servers for the processes that ask for them.
pub(crate) struct Streams(pub(crate) Weak<Egress>);

impl executor::WayOut for Streams {
    fn open<'a>(&'a self, call: &'a str, host: &'a str, port: u16) -> BoxFuture<'a, Result<OwnedFd, String>> {
        async move {
            let egress = self.0.upgrade().ok_or("the run has ended")?;
            egress.open_stream(host, port, call).await.map_err(|error| error.to_string())
        }
        .boxed()
    }
}

/// Returns the rules for a run's connections under a policy.
///
/// A profile that is gone allows nothing.
pub(crate) fn rules_of(policy: &Policy, record: &Record) -> Narrowed {
    let Some(profile) = policy.profile(&record.spec.profile) else { return Narrowed::new(Rules::none()) };
    narrowed(profile, &record.narrowed).and_widened(record.widened.iter().cloned())
}

/// Returns the rules for a companion's connections under a policy.
///
/// A run that was left without connections has none by its companions, either.
pub(crate) fn rules_beside(policy: &Policy, record: &Record, name: &str) -> Narrowed {
    let companion = record.companions.iter().find(|companion| companion.name == name);
    let profile = policy.profile(&record.spec.profile);
    match companion.zip(profile).filter(|_| !record.narrowed.iter().any(Rules::is_nothing)) {
        None => Narrowed::new(Rules::none()),
        Some((companion, profile)) => {
            let of_image = profile.companions.narrowed(&companion.image);
            companion.narrowed.iter().cloned().fold(of_image, Narrowed::under)
        }
    }
}

/// Parses the address of a repository on a server.
pub(crate) fn repository_url(text: &str) -> Result<RepositoryUrl, Refusal> {
    RepositoryUrl::parse(text).map_err(|bad| Refusal::invalid("workspace.clone.url", bad))
}

/// Reads rules that a client sent, in the field `egress_json`. `None` if there are none.
pub(crate) fn parse(text: &str) -> Result<Option<Rules>, Refusal> {
    let rules = (!text.is_empty()).then(|| Rules::from_json(text)).transpose();
    rules.map_err(|why| Refusal::invalid("egress_json", why))
}

/// Reads a list that narrows the rules of a new run: rules, or the hosts that stay open. `None` if there is none.
pub(crate) fn narrowing(text: &str, rules: &Narrowed) -> Result<Option<Rules>, Refusal> {
    if text.is_empty() {
        return Ok(None);
    }
    let by = rules.requested(text).map_err(|why| Refusal::invalid("egress_json", why))?;
    rules.narrow(&by).map_err(|widening| Refusal::invalid("egress_json", widening))?;
    Ok(Some(by))
}

/// Returns the refusal of a run without rules for connections.
pub fn no_way_out() -> Refusal {
    let message = "the run has no way out: its profile had no `egress` when it was created";
    Refusal::new(Reason::PreconditionFailed, message)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use egress_rules::{Decision, Destination};

    use super::*;
    use crate::record::{Companion, CompanionState};

    #[test]
    fn a_companion_has_the_rules_of_its_image_and_none_in_a_run_without_connections() {
        let rules = "rules: [{ host: \"*.example.org\", ports: [443], decision: allow }]";
        let text = format!(
            "profiles: {{ review: {{ operations: {{}}, companions: {{ images: [\"db:*\"], egress: {{ \"db:1\": {{ {rules} }} }} }} }} }}\n\
             roles: {{ r: {{ allow: \"*\" }} }}\n"
        );
        let policy = Policy::from_files([("p.yaml", text)]).unwrap();
        let companion = |name: &str, image: &str, narrowed: Option<&str>| Companion {
            name: name.to_owned(),
            image: image.to_owned(),
            ports: BTreeSet::new(),
            memory_mib: 64,
            state: CompanionState::Ready,
            narrowed: narrowed.map(|text| Rules::from_json(text).unwrap()),
            launched: None,
        };
        let own = r#"{"rules": [{"host": "files.example.org", "ports": [443], "decision": "allow"}]}"#;
        let companions = [
            companion("db", "db:1", None),
            companion("dc", "db:1", Some(own)),
            companion("dd", "db:2", None),
        ];
        let mut record = Record { companions: companions.into(), ..crate::testing::record() };
        let open = |record: &Record, name: &str, host: &str| {
            let verdict = rules_beside(&policy, record, name).decide(&Destination::parse(host).unwrap(), 443);
            verdict.decision == Decision::Allow
        };
        let found = ["db", "dc", "dd", "run"]
            .map(|name| ["files.example.org", "git.example.org"].map(|host| open(&record, name, host)));
        assert_eq!(found, [[true, true], [true, false], [false, false], [false, false]]);
        assert!(rules_of(&policy, &record).is_nothing(), "none of this is open to the run itself");
        record.narrowed = vec![Rules::from_json(own).unwrap()];
        assert!(open(&record, "db", "git.example.org"), "a list for the run is none of the companion's");
        record.narrowed = vec![Rules::none()];
        assert!(!open(&record, "db", "git.example.org") && !open(&record, "dc", "files.example.org"));
    }

    #[test]
    fn a_block_without_addresses_refuses_companions_and_nothing_else() {
        let (bad, rules) =
            (Ipv4Net::new_assert(Ipv4Addr::new(11, 200, 0, 0), 30), Narrowed::new(Rules::none()));
        let none = Outward { resolver: None, has_bundle: false };
        assert_eq!(Outward::under(bad, &rules, false).unwrap(), none);
        let refusal = Outward::under(bad, &rules, true).unwrap_err();
        assert_eq!(refusal.reason, Reason::PreconditionFailed);
        assert!(refusal.message.contains("egress.pool"), "{}", refusal.message);
        let named = Outward::under(Pool::DEFAULT_BLOCK, &rules, true).unwrap();
        assert!(named.resolver.is_some() && !named.has_bundle);
    }
}
