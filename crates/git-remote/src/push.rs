//! Pushes refs.
//!
//! The old value of each ref is the one that the caller expects, not the one that the server lists: a server that has another one
//! refuses the update.

use std::collections::{BTreeSet, HashSet};

use git_wire::{RefName, Service};
use git2::{ObjectType, Oid, Repository, Revwalk};

use crate::advertisement::Advertised;
use crate::error::RemoteError;
use crate::packets::Packets;
use crate::report::Report;
use crate::server::{Sending, Server};
use crate::url::RemoteUrl;
use crate::{Bounds, Dial};

/// Most updates of one push.
const UPDATES: usize = 1_000;
/// Most tags that lead from one to the next.
const TAGS: usize = 16;

/// An update of a ref of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// Full name.
    pub ref_name: String,
    /// The value that the server has to have; `None`: it has to lack the ref.
    pub expected_old: Option<Oid>,
    /// The value that it gets; `None` deletes the ref.
    pub new: Option<Oid>,
}

/// The end of an update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Updated,
    /// The server had the new value already.
    UpToDate,
    /// The reason, fit for an agent.
    Rejected(String),
}

/// An update, and its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefOutcome {
    pub ref_name: String,
    pub outcome: Outcome,
}

/// Pushes updates. Returns the outcome of each, in their order.
///
/// After an error that comes once the request is sent, the server may have taken some.
pub fn push(
    repository: &Repository,
    url: &RemoteUrl,
    updates: &[Update],
    dial: &dyn Dial,
    bounds: Bounds,
) -> Result<Vec<RefOutcome>, RemoteError> {
    let mut server = Server::new(url, dial, bounds);
    let list = server.discover(Service::ReceivePack)?;
    let mut outcomes: Vec<Option<Outcome>> =
        updates.iter().enumerate().map(|(at, update)| known(repository, &list, update, at)).collect();
    let mut names = BTreeSet::new();
    for (update, outcome) in updates.iter().zip(&mut outcomes) {
        if !names.insert(&update.ref_name) {
            *outcome = Some(Outcome::Rejected("the push updates it twice".to_owned()));
        }
    }
    let sent: Vec<&Update> = updates
        .iter()
        .zip(&outcomes)
        .filter(|(_, known)| known.is_none())
        .map(|(update, _)| update)
        .collect();
    if !sent.is_empty() {
        let report = send(repository, &mut server, &list, &sent)?;
        for (update, outcome) in updates.iter().zip(&mut outcomes) {
            outcome.get_or_insert_with(|| reported(&report, &update.ref_name));
        }
    }
    let outcomes = updates.iter().zip(outcomes).map(|(update, outcome)| RefOutcome {
        ref_name: update.ref_name.clone(),
        // Each that was not known is in the report.
        outcome: outcome.unwrap_or(Outcome::UpToDate),
    });
    Ok(outcomes.collect())
}

/// Returns the outcome of an update that is known before it is sent.
fn known(repository: &Repository, list: &Advertised, update: &Update, at: usize) -> Option<Outcome> {
    let rejected = |why: &str| Some(Outcome::Rejected(why.to_owned()));
    if at >= UPDATES {
        return rejected("a push has 1000 updates at most");
    }
    if RefName::parse(update.ref_name.as_bytes()).is_err() {
        return rejected("it is no full name of a ref, such as `refs/heads/main`");
    }
    let there = list.id_of(&update.ref_name);
    if there == update.new {
        return Some(Outcome::UpToDate);
    }
    if there != update.expected_old {
        return Some(Outcome::Rejected(match there {
            Some(there) => format!("the server has another value now ({there}); fetch first"),
            None => "the server no longer has it; fetch first".to_owned(),
        }));
    }
    match update.new {
        None if !list.has("delete-refs") => rejected("the server takes no deletions"),
        Some(new) if repository.find_object(new, None).is_err() => {
            rejected("the repository lacks the new object")
        }
        _ => None,
    }
}

fn reported(report: &Report, name: &str) -> Outcome {
    let why = match (report.refs.get(name), &report.unpack) {
        (Some(Ok(())), Ok(())) => return Outcome::Updated,
        (Some(Err(why)), _) => why.clone(),
        (_, Err(why)) => format!("the server did not take the objects: {why}"),
        (None, Ok(())) => "the server reports nothing about it; it may have taken effect".to_owned(),
    };
    let said =
        if report.messages.is_empty() { String::new() } else { format!("; it says: {}", report.messages) };
    Outcome::Rejected(format!("{why}{said}"))
}

/// Sends updates, with the objects that they need.
fn send(
    repository: &Repository,
    server: &mut Server<'_>,
    list: &Advertised,
    updates: &[&Update],
) -> Result<Report, RemoteError> {
    list.needs("report-status")?;
    let has_bands = list.has("side-band-64k");
    let mut commands = Vec::new();
    for (number, update) in updates.iter().enumerate() {
        let [old, new] = [update.expected_old, update.new].map(|id| id.unwrap_or(Oid::ZERO_SHA1));
        let bands = if has_bands { " side-band-64k" } else { "" };
        let capabilities =
            if number == 0 { format!("\0 report-status{bands} agent=git/2.0") } else { String::new() };
        let line = format!("{old} {new} {}{capabilities}", update.ref_name);
        commands.extend_from_slice(format!("{:04x}{line}", line.len() + 4).as_bytes());
    }
    commands.extend_from_slice(b"0000");
    // Before the request: an object that is missing is found while nothing is sent.
    let new: Vec<Oid> = updates.iter().filter_map(|update| update.new).collect();
    let mut pack = if new.is_empty() { None } else { Some(pack(repository, list, &new)?) };
    let mut sending = server.post_in_pieces(Service::ReceivePack)?;
    sending.write(&commands)?;
    if let Some(pack) = &mut pack {
        write(pack, &mut sending)?;
    }
    Report::read(&mut Packets::new(sending.end()?), has_bands)
}

/// Writes a pack until the server takes nothing further.
fn write(pack: &mut git2::PackBuilder<'_>, sending: &mut Sending) -> Result<(), RemoteError> {
    let (mut failed, mut is_over) = (None, false);
    let written = pack.foreach(|bytes| match sending.write(bytes) {
        Ok(true) => true,
        Ok(false) => {
            is_over = true;
            false
        }
        Err(error) => {
            failed = Some(error);
            false
        }
    });
    match (failed, written) {
        (Some(error), _) => Err(error),
        // The response says why.
        (None, Err(_)) if is_over => Ok(()),
        (None, written) => Ok(written?),
    }
}

/// Returns a pack with all objects of the new values that the server does not have by its refs.
fn pack<'r>(
    repository: &'r Repository,
    list: &Advertised,
    new: &[Oid],
) -> Result<git2::PackBuilder<'r>, RemoteError> {
    let mut pack = repository.packbuilder()?;
    // A confined process has no threads.
    pack.set_threads(1);
    let mut tips = Vec::new();
    for id in new {
        tips.extend(add(repository, *id, &mut pack)?);
    }
    if tips.is_empty() {
        return Ok(pack);
    }
    // Objects that are not here hide nothing.
    let commit = |id| repository.find_object(id, None).and_then(|object| object.peel(ObjectType::Commit));
    let hidden: Vec<Oid> =
        list.refs.iter().filter_map(|known| commit(known.id).ok()).map(|commit| commit.id()).collect();
    let mut walk = repository.revwalk()?;
    begin(&mut walk, &tips, &hidden)?;
    let walked = walk.by_ref().collect::<Result<HashSet<_>, _>>()?;
    demand_named(repository, &tips, walked)?;
    // It keeps the parents that it has read, so that the pack gets the commits that were checked.
    walk.reset()?;
    begin(&mut walk, &tips, &hidden)?;
    pack.insert_walk(&mut walk)?;
    Ok(pack)
}

fn begin(walk: &mut Revwalk<'_>, tips: &[Oid], hidden: &[Oid]) -> Result<(), RemoteError> {
    tips.iter().try_for_each(|id| walk.push(*id))?;
    Ok(hidden.iter().try_for_each(|id| walk.hide(*id))?)
}

/// Refuses commits that no tip leads to by the parents in the texts of the commits, which the ids of the tips name.
///
/// libgit2 walks by `info/grafts`, `shallow` and the commit graph, too. All of these are the agent's.
fn demand_named(repository: &Repository, tips: &[Oid], mut walked: HashSet<Oid>) -> Result<(), RemoteError> {
    // Has the objects alone. A commit is compared with its hash when it is read.
    let plain = Repository::from_odb(repository.odb()?)?;
    let mut waiting: Vec<Oid> = tips.iter().copied().filter(|id| walked.remove(id)).collect();
    while let Some(id) = waiting.pop() {
        waiting.extend(plain.find_commit(id)?.parent_ids().filter(|parent| walked.remove(parent)));
    }
    if walked.is_empty() { Ok(()) } else { Err(RemoteError::Grafted) }
}

/// Adds the tags that lead to an object, and the object. A commit is returned instead.
fn add(
    repository: &Repository,
    id: Oid,
    pack: &mut git2::PackBuilder<'_>,
) -> Result<Option<Oid>, RemoteError> {
    let mut object = repository.find_object(id, None)?;
    for _ in 0..TAGS {
        let Some(tag) = object.as_tag() else { break };
        pack.insert_object(tag.id(), None)?;
        object = tag.target()?;
    }
    match object.kind() {
        Some(ObjectType::Commit) => Ok(Some(object.id())),
        Some(ObjectType::Tag) => Err(RemoteError::Repository("a tag leads to too many tags".to_owned())),
        _ => {
            pack.insert_recursive(object.id(), None)?;
            Ok(None)
        }
    }
}
