//! One rule, and the verdict on one connection.

use std::collections::BTreeSet;
use std::fmt;

pub use git_wire::Decision;
use git_wire::{Push, RepositoryPattern};
use serde::{Deserialize, Serialize};

use crate::inject::{Injection, one_or_more};
use crate::opening::Opening;
use crate::path::PathPattern;
use crate::pattern::HostPattern;
use crate::upstream::Upstream;

/// The protocol that a connection has to have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// TLS whose server name is the name that was connected to.
    #[default]
    Https,
    /// HTTP/1 whose host is the name that was connected to.
    Http,
    /// Anything.
    Tcp,
    /// Git over HTTPS. Its TLS is always opened, and each request is compared with the repositories of the rule.
    Git,
}

impl Scheme {
    /// Returns the scheme that passes both, if there is one.
    pub(crate) fn meet(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Tcp, scheme) | (scheme, Self::Tcp) => Some(scheme),
            (one, two) => (one == two).then_some(one),
        }
    }

    /// Returns the scheme that a reviewer is asked for at a port, if no rule names one.
    pub fn usual(port: u16) -> Self {
        match port {
            443 => Self::Https,
            80 => Self::Http,
            _ => Self::Tcp,
        }
    }

    pub(crate) fn usual_port(self) -> Option<u16> {
        match self {
            Self::Https | Self::Git => Some(443),
            Self::Http => Some(80),
            Self::Tcp => None,
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Https => "HTTPS",
            Self::Http => "HTTP",
            Self::Tcp => "TCP",
            Self::Git => "git",
        })
    }
}

/// Numbers of a response that are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Meter {
    /// Tokens of a model, as its server reports them.
    Tokens,
}

/// One rule, as a policy says it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    pub host: HostPattern,
    /// `None` is every port. Only a rule that denies may have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<BTreeSet<u16>>,
    #[serde(default)]
    pub scheme: Scheme,
    /// Methods that a request may have; `None` is every method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub methods: Option<BTreeSet<String>>,
    /// Patterns of which the path of a request has to match one; `None` is every path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths: Option<BTreeSet<PathPattern>>,
    /// Headers that are set on each request.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_more")]
    pub inject: Vec<Injection>,
    /// The secrets of `inject` may go over a network in the clear.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inject_over_http: bool,
    /// Server that requests go to in place of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<Upstream>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meter: Option<Meter>,
    /// Repositories that a rule with `scheme: git` is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repos: Option<BTreeSet<RepositoryPattern>>,
    /// Answer to a fetch from one of the repositories; `None` is no fetch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetch: Option<Decision>,
    /// Refs of the repositories that clients may push to; `None` is no push.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push: Option<Push>,
    pub decision: Decision,
}

impl Rule {
    pub const MOST_PATHS: usize = 64;
    /// Most headers that a rule sets.
    pub const MOST_INJECTED: usize = 8;

    /// Makes a rule that allows connections, and says nothing about requests but their methods.
    pub fn allowing(
        host: HostPattern,
        ports: BTreeSet<u16>,
        scheme: Scheme,
        methods: Option<BTreeSet<String>>,
    ) -> Self {
        Self {
            host,
            ports: Some(ports),
            scheme,
            methods,
            paths: None,
            inject: Vec::new(),
            inject_over_http: false,
            upstream: None,
            meter: None,
            repos: None,
            fetch: None,
            push: None,
            decision: Decision::Allow,
        }
    }

    /// Returns true if the TLS of a connection is opened, to see its requests.
    pub(crate) fn opens_tls(&self) -> bool {
        let is_about_requests = match self.scheme {
            Scheme::Git => true,
            Scheme::Https => self.methods.is_some() || !self.opening().is_nothing(),
            Scheme::Http | Scheme::Tcp => false,
        };
        self.decision != Decision::Deny && is_about_requests
    }

    /// Returns the first key that only the rules of a profile may have.
    pub(crate) fn key_of_a_profile(&self) -> Option<&'static str> {
        let is_https = self.scheme == Scheme::Https;
        let keys = [
            ("inject", !self.inject.is_empty()),
            ("inject_over_http", self.inject_over_http),
            ("upstream", self.upstream.is_some()),
            ("meter", self.meter.is_some()),
            ("methods", is_https && self.methods.is_some()),
            ("paths", is_https && self.paths.is_some()),
        ];
        keys.into_iter().find(|(_, is_there)| *is_there).map(|(key, _)| key)
    }

    fn opening(&self) -> Opening {
        if self.decision == Decision::Deny {
            return Opening::default();
        }
        let mut inject = self.inject.clone();
        inject.sort_unstable_by(|one, two| one.header().cmp(two.header()));
        Opening {
            paths: self.paths.iter().cloned().collect(),
            inject,
            upstream: self.upstream.clone(),
            is_metered: self.meter == Some(Meter::Tokens),
            git: self.git().map(|rules| vec![rules]).into_iter().collect(),
        }
    }

    /// Returns the repositories and what is possible with them, if they passed every check.
    fn git(&self) -> Option<git_wire::Rules> {
        if self.scheme != Scheme::Git {
            return None;
        }
        let (repos, push) = (self.repos.clone()?, self.push.clone().unwrap_or_default());
        git_wire::Rules::new(repos, self.fetch.unwrap_or_default(), push).ok()
    }

    pub(crate) fn has_port(&self, port: u16) -> bool {
        self.ports.as_ref().is_none_or(|ports| ports.contains(&port))
    }

    /// Returns the rule's verdict. `name` is that of the rule in the record.
    pub(crate) fn verdict(&self, name: String) -> Verdict {
        Verdict {
            decision: self.decision,
            scheme: self.scheme,
            methods: self.methods.clone(),
            opening: self.opening(),
            rule: name,
            words: match self.decision {
                Decision::Allow => "A rule allows this connection.",
                Decision::Ask => "A rule lets a reviewer decide about this connection.",
                Decision::Deny => "A rule denies this connection. Another attempt has the same result.",
            }
            .to_owned(),
        }
    }
}

/// The decision about one connection, and how it has to look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub decision: Decision,
    /// Protocol of the connection. It has no meaning if the connection is denied.
    pub scheme: Scheme,
    /// Methods that a request may have, never empty; `None` is every method.
    pub methods: Option<BTreeSet<String>>,
    /// Everything else about requests.
    pub opening: Opening,
    /// The rule that decided, for the record: `egress rule 2: *.example.net`.
    pub rule: String,
    /// The reason in a sentence, for the agent.
    pub words: String,
}

impl Verdict {
    /// Returns true if the TLS of the connection is opened, to see its requests.
    pub fn opens_tls(&self) -> bool {
        let is_about_requests = match self.scheme {
            Scheme::Git => true,
            Scheme::Https => self.methods.is_some() || !self.opening.is_nothing(),
            Scheme::Http | Scheme::Tcp => false,
        };
        self.decision != Decision::Deny && is_about_requests
    }

    /// Returns true if the daemon has to be asked about each request: for the headers to set, for the budget, or for git.
    pub fn asks_each_request(&self) -> bool {
        let is_asked = self.is_git() || !self.opening.inject.is_empty() || self.opening.is_metered;
        self.decision != Decision::Deny && is_asked
    }

    /// Returns true if each request has to be one of git, to a repository of the rules.
    pub fn is_git(&self) -> bool {
        self.scheme == Scheme::Git
    }

    /// Returns the verdict that passes no connection that one of the two does not pass.
    pub(crate) fn meet(self, other: Self) -> Self {
        // The rule that is named is the strictest, and the first of several.
        let (mut stricter, other) =
            if other.decision > self.decision { (other, self) } else { (self, other) };
        if stricter.decision == Decision::Deny {
            return stricter;
        }
        let scheme = stricter.scheme.meet(other.scheme);
        let methods = match (stricter.methods.take(), other.methods) {
            (Some(one), Some(two)) => Some(one.intersection(&two).cloned().collect::<BTreeSet<_>>()),
            (one, two) => one.or(two),
        };
        let opening = std::mem::take(&mut stricter.opening).meet(other.opening);
        match (scheme, opening) {
            // Without a method in common no request could pass, and an empty list could be read as every method.
            (Some(scheme), Some(opening)) if methods.as_ref().is_none_or(|methods| !methods.is_empty()) => {
                Self { scheme, methods, opening, ..stricter }
            }
            _ => Self {
                decision: Decision::Deny,
                rule: format!("{}, which contradicts {}", stricter.rule, other.rule),
                words: "Two rules contradict each other, so no connection passes both. An operator has to change them."
                    .to_owned(),
                ..stricter
            },
        }
    }
}
