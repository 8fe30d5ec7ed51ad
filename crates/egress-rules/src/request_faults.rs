//! Problems in the keys of a rule that are about requests.

use std::collections::BTreeSet;

use crate::inject::Injection;
use crate::pattern::HostPattern;
use crate::rule::{Decision, Rule, Scheme};

/// Problem of a key in a rule that denies: it would look as if other requests were open.
pub(crate) const NOT_OF_A_DENIAL: &str = "is not possible in a rule that denies, which closes the whole connection; name what is open in the rule that allows";

impl Rule {
    /// Reports every problem of `paths`, `inject`, `inject_over_http`, `upstream` and `meter`.
    pub(crate) fn faults_of_requests(&self, fault: &mut impl FnMut(&'static str, String)) {
        let keys = [
            ("paths", self.paths.is_some()),
            ("inject", !self.inject.is_empty()),
            ("upstream", self.upstream.is_some()),
            ("meter", self.meter.is_some()),
        ];
        let problem = match (self.decision, self.scheme) {
            (Decision::Deny, _) => Some(NOT_OF_A_DENIAL),
            (_, Scheme::Tcp) => Some("is not possible with `scheme: tcp`, which shows no requests"),
            _ => None,
        };
        for (key, _) in keys.into_iter().filter(|(_, is_there)| *is_there) {
            if let Some(problem) = problem {
                fault(key, problem.to_owned());
            }
        }
        if let Some(paths) = &self.paths
            && !(1..=Self::MOST_PATHS).contains(&paths.len())
        {
            let most = Self::MOST_PATHS;
            fault("paths", format!("must have 1 to {most} paths; leave it out for every path"));
        }
        if self.upstream.is_some() {
            self.faults_of_upstream(fault);
        }
        self.faults_of_inject(fault);
    }

    fn faults_of_upstream(&self, fault: &mut impl FnMut(&'static str, String)) {
        if self.scheme != Scheme::Http {
            let message = "needs `scheme: http`: the program connects without TLS, and the connection to the server has it";
            fault("upstream", message.to_owned());
        }
        if !matches!(self.host, HostPattern::Name(_)) {
            fault("upstream", "needs one exact name as `host`, such as `model.internal`".to_owned());
        }
    }

    fn faults_of_inject(&self, fault: &mut impl FnMut(&'static str, String)) {
        if self.inject_over_http && (self.inject.is_empty() || self.scheme != Scheme::Http) {
            fault("inject_over_http", "has an effect only beside `inject` and `scheme: http`".to_owned());
        }
        if self.inject.is_empty() {
            return;
        }
        if self.inject.len() > Self::MOST_INJECTED {
            fault("inject", format!("must have 1 to {} entries", Self::MOST_INJECTED));
        }
        for problem in self.inject.iter().filter_map(|injection| injection.check().err()) {
            fault("inject", problem.to_string());
        }
        let headers: BTreeSet<&str> = self.inject.iter().map(Injection::header).collect();
        if headers.len() < self.inject.len() {
            fault("inject", "sets a header twice; keep one entry for each header".to_owned());
        }
        if self.host == HostPattern::EveryName {
            fault("inject", "would send the secret to every host; name the hosts".to_owned());
        }
        let is_in_the_clear =
            self.scheme == Scheme::Http && self.upstream.as_ref().is_none_or(|upstream| !upstream.tls);
        if is_in_the_clear && !self.inject_over_http {
            let message = "would send the secret without TLS; use `scheme: https` or an `upstream` with https, or accept it with \
                           `inject_over_http: true`";
            fault("inject", message.to_owned());
        }
    }

    /// Returns the key by which no connection could pass this rule and another one, and the reason.
    pub(crate) fn contradiction(&self, other: &Self) -> Option<(&'static str, &'static str)> {
        let share_a_port = match (&self.ports, &other.ports) {
            (Some(mine), Some(other)) => !mine.is_disjoint(other),
            _ => true,
        };
        let is_denied = self.decision.max(other.decision) == Decision::Deny;
        if is_denied || !share_a_port || !self.host.overlaps(&other.host) {
            return None;
        }
        let methods = match (&self.methods, &other.methods) {
            (Some(mine), Some(other)) => mine.is_disjoint(other),
            _ => false,
        };
        if methods || self.scheme.meet(other.scheme).is_none() {
            return Some(("scheme", "no connection passes both"));
        }
        if matches!((&self.upstream, &other.upstream), (Some(mine), Some(other)) if mine != other) {
            return Some(("upstream", "a request goes to one server"));
        }
        if self.scheme == Scheme::Git && other.scheme == Scheme::Git && self.inject != other.inject {
            return Some((
                "inject",
                "a request to either's repositories would get it; write the same in both",
            ));
        }
        let is_set_otherwise = self
            .inject
            .iter()
            .any(|mine| other.inject.iter().any(|other| mine.header() == other.header() && mine != other));
        is_set_otherwise.then_some(("inject", "both set the same header"))
    }
}

#[cfg(test)]
#[path = "request_faults_tests.rs"]
mod tests;
