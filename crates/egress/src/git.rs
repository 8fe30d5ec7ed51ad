//! Decides about requests of git.
//!
//! ```text
//!  asked ─► parsed anew ─► repository, refs ─► forced? (walk of raw commits) ─► a reviewer? ─► a secret, the record, the grant
//!                                 │                    │
//!                                 └────────────────────┴► refused, in the form that git shows
//! ```
//!
//! Trust boundary: the process sends the bytes of a push's commands, not its view of them. They are parsed here again.

use std::collections::BTreeMap;
use std::sync::Arc;

use egress_rules::{Decision, GitRules};
use git_wire::{
    Ancestry, Command, CommandList, CommandReader, Judgement, Reason, Refusal, Repository, Ruling, Service,
    Step,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wire::worker::v1::GitAsked;
use wire::worker::v1::git_asked::Kind;

use crate::Control;
use crate::broken::Broken;

/// Pushes of a run whose answers are not on their way at the same time. Each may have a megabyte of commands.
const PUSHES: usize = 8;
/// Most updates of a push whose ancestry is looked for. That of all others is unknown.
const MOST_PAIRS: usize = 256;
/// Longest refusal with a line for each ref, bytes. Hundreds of messages may wait for a process.
const LONGEST: usize = 128 * 1024;
/// Most refs that the reason of a refusal names.
const NAMED: usize = 4;

/// A request of git.
#[derive(Debug)]
pub(crate) enum GitRequest {
    Discover(Service, Repository),
    Fetch(Repository),
    Push(Box<Push>),
}

/// The commands of a push.
#[derive(Debug)]
pub(crate) struct Push {
    pub(crate) repository: Repository,
    pub(crate) list: CommandList,
    /// Its place among the pushes of the run whose answers are not on their way; `None` if none was free.
    place: Option<OwnedSemaphorePermit>,
}

impl GitRequest {
    /// Parses a request. A push takes a place, until it is dropped.
    pub(crate) fn parse(asked: &GitAsked, pushes: &Pushes) -> Result<Self, Broken> {
        let broken = || Broken::sent("a request of git that cannot be");
        let repository = Repository::parse(&asked.repository).map_err(|_| broken())?;
        let is_normal = repository.as_str() == asked.repository;
        if !is_normal || asked.kind() != Kind::Push && !asked.commands.is_empty() {
            return Err(broken());
        }
        Ok(match asked.kind() {
            Kind::DiscoverFetch => Self::Discover(Service::UploadPack, repository),
            Kind::DiscoverPush => Self::Discover(Service::ReceivePack, repository),
            Kind::Fetch => Self::Fetch(repository),
            Kind::Push => {
                let mut reader = CommandReader::default();
                match reader.push(&asked.commands) {
                    Ok(Step::Complete(length)) if length == asked.commands.len() => {}
                    _ => return Err(broken()),
                }
                let (list, _) = reader.finish().map_err(|_| broken())?;
                Self::Push(Box::new(Push { repository, list, place: pushes.take() }))
            }
            Kind::Unspecified => return Err(broken()),
        })
    }

    /// Returns the place of a push, and drops its commands.
    pub(crate) fn into_place(self) -> Option<OwnedSemaphorePermit> {
        match self {
            Self::Discover(..) | Self::Fetch(_) => None,
            Self::Push(push) => push.place,
        }
    }
}

/// Places for the pushes of a run that are decided about.
#[derive(Debug, Clone)]
pub(crate) struct Pushes(Arc<Semaphore>);

impl Pushes {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(PUSHES)))
    }

    /// Takes a place. `None` if none is free.
    fn take(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).try_acquire_owned().ok()
    }
}

/// A request of git that is refused.
#[derive(Debug)]
pub(crate) struct Refused {
    /// The reason, for the record.
    pub(crate) why: String,
    /// The response.
    pub(crate) response: Refusal,
}

/// The rule that decides about a connection, and the place that it is to.
pub(crate) struct Place<'a> {
    pub(crate) host: &'a str,
    pub(crate) port: u16,
    /// Name of the rule.
    pub(crate) rule: &'a str,
    /// The rules for repositories, by list.
    pub(crate) lists: &'a [Vec<GitRules>],
}

impl Place<'_> {
    fn words(&self, what: &str) -> String {
        format!("Cofferdam refused {what} {}:{} ({})", self.host, self.port, self.rule)
    }
}

/// Decides about a request. Returns the ruling on a push, which allows it or asks about it.
pub(crate) async fn decide(
    request: &GitRequest,
    place: &Place<'_>,
    control: &dyn Control,
) -> Result<Option<Ruling>, Refused> {
    match request {
        GitRequest::Discover(service, repository) => {
            let reason = read(place.lists, repository, |rules| rules.judge_discovery(*service, repository));
            refuse_reading(place, repository, reason, |words| Refusal::of_discovery(*service, words))
        }
        GitRequest::Fetch(repository) => {
            let reason = read(place.lists, repository, |rules| rules.judge_fetch(repository));
            refuse_reading(place, repository, reason, Refusal::of_fetch)
        }
        GitRequest::Push(push) => {
            let words = place.words("this push to");
            if push.place.is_none() {
                let why = "the run has too many pushes under way; push again".to_owned();
                let fault = format!("{words}: {why}");
                return Err(Refused {
                    why,
                    response: Refusal::of_fault(Some(&push.list.capabilities), &fault),
                });
            }
            let ruling = rule_on(push, place.lists, control).await;
            match ruling {
                // A probe changes nothing, and has no record. A reviewer decides about a push that the rules ask about.
                Some(ruling) if ruling.decision != Decision::Deny => {
                    Ok(Some(ruling).filter(|_| !push.list.is_probe()))
                }
                ruling => Err(refuse_push(push, ruling, &words)),
            }
        }
    }
}

fn refuse_reading(
    place: &Place<'_>,
    repository: &Repository,
    reason: Option<Reason>,
    response: impl FnOnce(&str) -> Refusal,
) -> Result<Option<Ruling>, Refused> {
    let Some(reason) = reason else { return Ok(None) };
    let words = format!("{}: {reason}", place.words("this request to"));
    Err(Refused { why: format!("{repository}: {reason}"), response: response(&words) })
}

/// Returns the reason for which a request that only reads is refused.
fn read(
    lists: &[Vec<GitRules>],
    repository: &Repository,
    judge: impl Fn(&GitRules) -> (Decision, Option<Reason>),
) -> Option<Reason> {
    if lists.is_empty() {
        return Some(Reason::Repository);
    }
    lists.iter().find_map(|list| {
        let mut judged = list.iter().filter(|rules| rules.may_mean(repository)).map(&judge).peekable();
        if judged.peek().is_none() {
            return Some(Reason::Repository);
        }
        let refused = judged.find(|(decision, _)| *decision != Decision::Allow);
        refused.map(|(_, reason)| reason.unwrap_or(Reason::Repository))
    })
}

/// Rules on a push. `None` if there are no rules.
async fn rule_on(push: &Push, lists: &[Vec<GitRules>], control: &dyn Control) -> Option<Ruling> {
    let Push { repository, list, .. } = push;
    let mut judgements = Vec::new();
    for rules in lists {
        let before = judgements.len();
        judgements.extend(
            rules
                .iter()
                .filter(|rules| rules.may_mean(repository))
                .map(|rules| rules.judge(repository, list)),
        );
        if judgements.len() == before {
            // A rule that does not cover the repository refuses the push, and says so.
            judgements.push(rules.first()?.judge(repository, list));
        }
    }
    let is_refused = judgements.iter().any(Judgement::is_refused);
    // Commits are looked at only if the push depends on them.
    let known = if is_refused { None } else { Some(ancestries(list, &judgements, control).await) };
    let ancestry = |command: &Command| {
        let Some(known) = &known else { return Ancestry::FastForward };
        known.get(&pair(command)).copied().unwrap_or(Ancestry::Unknown)
    };
    judgements.into_iter().map(|judgement| judgement.settle(list, ancestry)).reduce(Ruling::meet)
}

/// The ids of an update, the old one first.
type Pair = (String, String);

fn pair(command: &Command) -> Pair {
    (command.old().to_string(), command.new_id().to_string())
}

/// Finds the relations of the commits that a push depends on.
async fn ancestries(
    list: &CommandList,
    judgements: &[Judgement],
    control: &dyn Control,
) -> BTreeMap<Pair, Ancestry> {
    let needs = |place: usize| {
        judgements
            .iter()
            .any(|judgement| judgement.verdicts().get(place).is_some_and(|verdict| verdict.needs_ancestry))
    };
    let asked = list.commands.iter().enumerate().filter(|(place, _)| needs(*place));
    let mut pairs: Vec<Pair> = asked.map(|(_, command)| pair(command)).collect();
    pairs.sort_unstable();
    pairs.dedup();
    // Only ids of SHA-1 can be looked for.
    pairs.retain(|(old, new)| old.len() == 40 && new.len() == 40);
    pairs.truncate(MOST_PAIRS);
    if pairs.is_empty() {
        return BTreeMap::new();
    }
    let answers = control.ancestry(pairs.clone()).await;
    let relation = |answer: Option<bool>| match answer {
        Some(true) => Ancestry::FastForward,
        Some(false) => Ancestry::Forced,
        None => Ancestry::Unknown,
    };
    pairs.into_iter().zip(answers.into_iter().map(relation)).collect()
}

fn refuse_push(push: &Push, ruling: Option<Ruling>, words: &str) -> Refused {
    let Push { repository, list, .. } = push;
    let whys = match ruling {
        Some(ruling) => ruling.whys(),
        None => vec![Reason::Repository.to_string(); list.commands.len()],
    };
    let other = Reason::Other.to_string();
    let refs = list.commands.iter().zip(&whys).filter(|(_, why)| **why != other);
    let named: Vec<String> =
        refs.take(NAMED).map(|(command, why)| format!("{}: {why}", command.name())).collect();
    let reason = if named.is_empty() { Reason::Push.to_string() } else { named.join("; ") };
    let mut response = Refusal::of_push(list, &whys, words);
    if response.body.len() > LONGEST {
        let fault = format!("{words}: {}", named.first().map_or("", String::as_str));
        response = Refusal::of_fault(Some(&list.capabilities), &fault);
    }
    Refused { why: format!("push to {repository}: {reason}"), response }
}

/// Refuses a push that its commands alone do not refuse, with the same reason for each ref.
pub(crate) fn refuse_whole(push: &Push, place: &Place<'_>, why: &str) -> Refused {
    let Push { repository, list, .. } = push;
    let words = format!("{}: {why}", place.words("this push to"));
    let mut response = Refusal::of_push(list, &vec![why.to_owned(); list.commands.len()], &words);
    if response.body.len() > LONGEST {
        response = Refusal::of_fault(Some(&list.capabilities), &words);
    }
    Refused { why: format!("push to {repository}: {why}"), response }
}

#[cfg(test)]
#[path = "git_tests.rs"]
mod tests;
