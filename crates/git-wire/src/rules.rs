//! Rules for the repositories of a host.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::commands::{Change, Command, CommandList};
use crate::decision::Decision;
use crate::judgement::{Judgement, Reason, Verdict};
use crate::ref_name::RefPattern;
use crate::repository::{Repository, RepositoryPattern};
use crate::request::Service;

/// Most patterns for repositories.
const MOST_REPOSITORIES: usize = 256;
/// Most repositories, and most refs, that a text shows.
const MOST_SHOWN: usize = 8;

/// Refs that a rule lets clients push to.
///
/// A policy writes a mapping with `refs`, or a decision alone, which is for all branches. Without it, no push is possible.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Push {
    /// Answer to a push that creates refs or updates branches to later commits.
    pub decision: Decision,
    /// Refs that this is for. A push to any other ref is refused.
    pub refs: BTreeSet<RefPattern>,
    /// Answer to an update to an object that the old one is not an ancestor of. It is never laxer than `decision`.
    pub force: Decision,
    /// Answer to a deletion. It is never laxer than `decision`.
    pub delete: Decision,
    /// Answer to options for the hooks of the server, which may merge a request, or skip checks.
    pub options: Decision,
}

impl Push {
    /// Most patterns for refs.
    pub const MOST_REFS: usize = 64;

    /// Returns the answer to pushes to all branches.
    pub fn for_branches(decision: Decision) -> Self {
        let refs = if decision == Decision::Deny { Ok(BTreeSet::new()) } else { all_branches() };
        // `refs/heads/*` is a pattern; if it were none, nothing could be pushed.
        Self { decision, refs: refs.unwrap_or_default(), ..Self::default() }
    }

    fn judge(&self, command: &Command) -> Verdict {
        let change = command.change();
        if !self.refs.iter().any(|pattern| pattern.matches(command.name())) {
            return Verdict::denied(change, Reason::refs(&self.refs));
        }
        let forced = self.decision.max(self.force);
        let is_update = change == Change::Update && command.old() != command.new_id();
        // Anything but a branch is replaced by an update, whatever the objects are.
        let is_forced = is_update && !command.name().is_branch();
        let (decision, reason) = match change {
            Change::Delete => (self.decision.max(self.delete), Reason::Delete),
            _ if is_forced => (forced, Reason::Force),
            _ => (self.decision, Reason::Push),
        };
        let needs_ancestry = is_update && !is_forced && (forced > decision || decision == Decision::Ask);
        let reason = (decision == Decision::Deny).then_some(reason);
        Verdict { change, decision, if_forced: forced.max(decision), is_forced, needs_ancestry, reason }
    }
}

fn all_branches() -> Result<BTreeSet<RefPattern>, crate::ref_name::BadRefPattern> {
    RefPattern::parse("refs/heads/*").map(|pattern| [pattern].into())
}

/// The mapping that a policy writes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PushFields {
    #[serde(default = "allow")]
    decision: Decision,
    #[serde(default)]
    refs: BTreeSet<RefPattern>,
    #[serde(default)]
    force: Decision,
    #[serde(default)]
    delete: Decision,
    #[serde(default)]
    options: Decision,
}

fn allow() -> Decision {
    Decision::Allow
}

impl<'de> Deserialize<'de> for Push {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PushVisitor)
    }
}

struct PushVisitor;

impl<'de> Visitor<'de> for PushVisitor {
    type Value = Push;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`allow`, `ask`, `deny`, or a mapping with `refs`")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Push, E> {
        Decision::deserialize(text.into_deserializer()).map(Push::for_branches)
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<Push, M::Error> {
        let fields = PushFields::deserialize(MapAccessDeserializer::new(map))?;
        let PushFields { decision, refs, force, delete, options } = fields;
        if refs.is_empty() && decision != Decision::Deny {
            return Err(M::Error::custom("`refs` is missing: name the refs, such as `refs/heads/agent/*`"));
        }
        if refs.len() > Push::MOST_REFS {
            return Err(M::Error::custom("there are more than 64 patterns in `refs`"));
        }
        Ok(Push { decision, refs, force, delete, options })
    }
}

/// Repositories of a host, and the operations that are possible with them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    repositories: BTreeSet<RepositoryPattern>,
    fetch: Decision,
    push: Push,
}

impl Rules {
    /// Makes rules, and refuses those that let nothing through.
    pub fn new(
        repositories: BTreeSet<RepositoryPattern>,
        fetch: Decision,
        push: Push,
    ) -> Result<Self, BadRules> {
        if repositories.is_empty() {
            return Err(BadRules::NoRepository);
        }
        if repositories.len() > MOST_REPOSITORIES {
            return Err(BadRules::TooMany);
        }
        if fetch == Decision::Deny && push.decision == Decision::Deny {
            return Err(BadRules::Nothing);
        }
        Ok(Self { repositories, fetch, push })
    }

    /// Returns true if the rules are for a repository. A request is judged by the rules of its host that cover it.
    pub fn covers(&self, repository: &Repository) -> bool {
        self.repositories.iter().any(|pattern| pattern.matches(repository))
    }

    /// Returns true if a server could take the repository for one that the rules cover, because it ignores the case of letters.
    ///
    /// Such rules judge the repository, too. They refuse it unless they cover it, so a path in another case does not avoid them.
    pub fn may_mean(&self, repository: &Repository) -> bool {
        self.repositories.iter().any(|pattern| pattern.matches_in_any_case(repository))
    }

    /// Judges a request for the refs of a repository, with which each fetch and each push begins.
    ///
    /// A push that a reviewer has to consent to may begin. The reviewer decides when its commands are known.
    pub fn judge_discovery(&self, service: Service, repository: &Repository) -> (Decision, Option<Reason>) {
        match service {
            Service::UploadPack => self.judge_fetch(repository),
            Service::ReceivePack => match self.whole(repository) {
                None => (Decision::Allow, None),
                Some(reason) => (Decision::Deny, Some(reason)),
            },
        }
    }

    /// Judges a fetch.
    pub fn judge_fetch(&self, repository: &Repository) -> (Decision, Option<Reason>) {
        if !self.covers(repository) {
            return (Decision::Deny, Some(Reason::Repository));
        }
        (self.fetch, (self.fetch == Decision::Deny).then_some(Reason::Fetch))
    }

    /// Judges each command of a push.
    pub fn judge(&self, repository: &Repository, list: &CommandList) -> Judgement {
        let whole = self.whole(repository).or_else(|| {
            let is_denied = !list.options.is_empty() && self.push.options == Decision::Deny;
            is_denied.then_some(Reason::Options)
        });
        if let Some(reason) = whole {
            let denied = |command: &Command| Verdict::denied(command.change(), reason.clone());
            return Judgement::new(Decision::Deny, list.commands.iter().map(denied).collect());
        }
        let least = match (list.is_probe(), list.options.is_empty()) {
            (true, _) => Decision::Allow,
            (false, true) => self.push.decision,
            (false, false) => self.push.decision.max(self.push.options),
        };
        Judgement::new(least, list.commands.iter().map(|command| self.push.judge(command)).collect())
    }

    /// Returns the reason for which no push to a repository is possible.
    fn whole(&self, repository: &Repository) -> Option<Reason> {
        if !self.covers(repository) {
            return Some(Reason::Repository);
        }
        (self.push.decision == Decision::Deny).then_some(Reason::Push)
    }
}

/// Shows the first repositories and refs, for a prompt: `org/app: fetch, push to refs/heads/agent/*`.
impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let and_more = |count: usize| {
            if count > MOST_SHOWN { format!(" and {} more", count - MOST_SHOWN) } else { String::new() }
        };
        let repositories: Vec<&str> =
            self.repositories.iter().take(MOST_SHOWN).map(RepositoryPattern::as_str).collect();
        write!(f, "{}{}: ", repositories.join(" "), and_more(self.repositories.len()))?;
        let is_fetched = self.fetch != Decision::Deny;
        f.write_str(if is_fetched { "fetch" } else { "no fetch" })?;
        if self.push.decision == Decision::Deny {
            return f.write_str(" alone");
        }
        let refs: Vec<&str> = self.push.refs.iter().take(MOST_SHOWN).map(RefPattern::as_str).collect();
        let consent = |decision| if decision == Decision::Ask { " with a reviewer's consent" } else { "" };
        let more = and_more(self.push.refs.len());
        write!(f, ", push to {}{more}{}", refs.join(" "), consent(self.push.decision))?;
        let further = [
            ("forced", self.push.force),
            ("deletions", self.push.delete),
            ("push options", self.push.options),
        ];
        for (word, decision) in further.into_iter().filter(|(_, decision)| *decision != Decision::Deny) {
            write!(f, ", {word}{}", consent(decision.max(self.push.decision)))?;
        }
        Ok(())
    }
}

/// Rules that are not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadRules {
    #[error("`repos` names no repository")]
    NoRepository,
    #[error("there are more than 256 patterns in `repos`")]
    TooMany,
    #[error("neither `fetch` nor `push` is possible by this rule; allow one, or remove the rule")]
    Nothing,
}

#[cfg(test)]
mod tests;
