//! The rules for connections of runs, and the parts of the daemon that all runs with a way out use.

use std::net::Ipv4Addr;
use std::sync::{Arc, OnceLock};

use containers::Boundary;
use egress::{Answer, Outside, Program, Question};
use egress_rules::{Narrowed, Pool, Rules};
use futures_util::future::BoxFuture;
use ipnet::Ipv4Net;
use operations::Reason;
use policy::{InForce, Profile};
use refusal::Refusal;
use tokio_util::sync::CancellationToken;

use crate::record::LaunchFingerprint;
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

/// Asks reviewers about the connections of runs.
pub trait Reviewers: Send + Sync {
    fn ask(&self, asked: Asked) -> BoxFuture<'_, Answer>;
}

/// A connection that waits for a reviewer.
pub struct Asked {
    pub run: Arc<Run>,
    pub question: Question,
    /// Ids of the calls whose commands are running.
    pub calls: Vec<String>,
    /// Beginnings of these commands, as the agent wrote them.
    pub commands: Vec<String>,
    /// Cancelled when no connection waits any longer.
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
    /// Returns the parts that a container was made with.
    pub(crate) fn of(fingerprint: &LaunchFingerprint) -> Self {
        Self { resolver: fingerprint.resolver, has_bundle: fingerprint.bundles.is_some() }
    }
}

impl WayOut {
    /// Returns the parts of a container with these rules, which may have companions.
    pub(crate) fn outward(&self, rules: &Narrowed, has_companions: bool) -> Outward {
        let is_open = !rules.is_nothing();
        let pool = Pool::new(self.block).ok().filter(|_| is_open || has_companions);
        let resolver = pool.map(|pool| pool.resolver());
        Outward { resolver, has_bundle: resolver.is_some() && is_open && rules.opens_tls() }
    }

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
                     operator adds it to `secrets` of the configuration and starts the daemon again"
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
    Refusal::new(
        Reason::PreconditionFailed,
        "the run has no way out: its profile had no `egress` when it was created",
    )
}
