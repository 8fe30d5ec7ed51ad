//! Implements `git push`.
//!
//! The ids that the server has now are read first. The push names them, so the server refuses an update of a reference that has
//! moved since. Consent is bound to the same ids.

use std::collections::HashSet;
use std::fs;

use git2::{Oid, Repository};
use operations::{Binder, Bound, Bounds, GitFormat, GitPush, GitPushed, GitRefName, GitResult};

use super::super::ancestry::{are_known_ancestors, is_known_ancestor};
use super::super::error::{GitError, shown};
use super::super::formats::Formats;
use super::super::output::Output;
use super::super::repository::plain;
use super::super::{compare, diff, formats, history};
use super::address::Address;
use super::history::{Commits, digits};
use super::lfs::demand_no_pointers;
use super::pull::current;
use super::server::{Listed, Server, Update};
use super::tracking;
use crate::way_out::WayOut;

/// A push that can be made, derived from one reading of the server's references and the repository.
struct Planned {
    updates: Vec<Change>,
    /// Names of references that have the wanted id.
    same: Vec<GitRefName>,
}

struct Change {
    update: Update,
    commits: Commits,
    /// Number of commits that the reference loses at the server; `None` if it loses some and the number is not known.
    lost: Option<u64>,
    /// Commit or tree that the changes are compared with.
    base: Option<Oid>,
}

pub(super) fn preview(
    repository: &Repository,
    push: &GitPush,
    (bounds, way): (&Bounds, &WayOut),
    output: &mut Output,
) -> Result<Bound, GitError> {
    demand_no_grafts(repository)?;
    let address = Address::of(repository, &push.remote)?;
    let listed = Server::new(&address, bounds, way).list()?;
    let planned = Planned::of(repository, push, &listed)?;
    output.push_str(&format!("push to {}\n", address.place()));
    for name in &planned.same {
        output.push_str(&format!("  {} has this id\n", shown(name.as_str())));
    }
    let mut remarks = Vec::new();
    let plain = plain(repository)?;
    for change in &planned.updates {
        change.describe(&plain, output)?;
        let id = |id: Option<Oid>| id.map_or_else(|| "nothing".to_owned(), |id| id.to_string());
        let Update { name, old, new } = &change.update;
        remarks.push(format!("{}: {} to {}", shown(name.as_str()), id(*old), id(*new)));
    }
    for change in &planned.updates {
        change.patches(&plain, output)?;
    }
    Ok(Bound { remarks, ..planned.bound(&address, push) })
}

pub(super) fn push(
    repository: &Repository,
    push: &GitPush,
    (bounds, way): (&Bounds, &WayOut),
    output: &mut Output,
) -> Result<GitResult, GitError> {
    let held_to = bounds.held_to.as_ref();
    demand_no_grafts(repository).map_err(|error| error.before_effect(held_to))?;
    let address = Address::of(repository, &push.remote)?;
    let server = Server::new(&address, bounds, way);
    let planned =
        Planned::of(repository, push, &server.list()?).map_err(|error| error.before_effect(held_to))?;
    planned.bound(&address, push).demand(held_to).map_err(GitError::Consent)?;
    output.push_str(&format!("To {}\n", address.place()));
    let mut result = GitResult { remote: address.place(), ..GitResult::default() };
    if planned.updates.is_empty() {
        output.push_str("Everything up to date.\n");
        return Ok(result);
    }
    let updates: Vec<Update> = planned.updates.iter().map(|change| change.update.clone()).collect();
    let refused = server.push(repository, &updates)?;
    for change in &planned.updates {
        let Update { name, old, new } = &change.update;
        if refused.iter().any(|(refused, _)| refused == name) {
            continue;
        }
        tracking::write(name.as_str(), *old, *new, output);
        result.updates.push(tracking::update(name.as_str(), *old, *new));
        result.commits += change.commits.count();
        // The push has taken effect, so a failure here is only a remark.
        if !tracking::follow(repository, &address, name, *new) {
            let local = shown(&tracking::local_name(&address, name));
            output.push_str(&format!(" ! {local} was not updated here; fetch does that\n"));
        }
    }
    if refused.is_empty() {
        return Ok(result);
    }
    let lines = refused.iter().map(|(name, why)| format!("{}: {why}", shown(name.as_str())));
    let refused: Vec<String> = lines.collect();
    let done: Vec<String> = result.updates.iter().map(|update| shown(&update.name)).collect();
    Err(GitError::PushRefused {
        refused: refused.join("\n"),
        done: if done.is_empty() {
            "Nothing was updated.".to_owned()
        } else {
            format!("Updated: {}.", done.join(", "))
        },
    })
}

impl Planned {
    fn of(repository: &Repository, push: &GitPush, listed: &[Listed]) -> Result<Self, GitError> {
        let mut planned = Self { updates: Vec::new(), same: Vec::new() };
        let known: Vec<Oid> = listed.iter().map(|listed| listed.id).collect();
        for pushed in &push.refs {
            let update = update(repository, pushed, listed)?;
            let is_twice = planned.updates.iter().any(|change| change.update.name == update.name);
            if is_twice || planned.same.contains(&update.name) {
                return Err(GitError::PushedTwice(shown(update.name.as_str())));
            }
            if update.old == update.new {
                planned.same.push(update.name);
                continue;
            }
            let change = Change::of(repository, update, &known)?;
            change.check(repository, push.force)?;
            planned.updates.push(change);
        }
        Ok(planned)
    }

    fn bound(&self, address: &Address, push: &GitPush) -> Bound {
        let mut binder = Binder::new("git.push");
        binder.bytes(address.url.to_string().as_bytes());
        binder.number(push.force.into());
        for Change { update: Update { name, old, new }, .. } in &self.updates {
            binder.bytes(name.as_str().as_bytes());
            binder.bytes(old.unwrap_or(Oid::ZERO_SHA1).as_bytes());
            binder.bytes(new.unwrap_or(Oid::ZERO_SHA1).as_bytes());
        }
        binder.finish()
    }
}

/// Refuses a repository with grafts, which give commits other parents than those of their texts.
fn demand_no_grafts(repository: &Repository) -> Result<(), GitError> {
    match fs::symlink_metadata(repository.commondir().join("info/grafts")) {
        Ok(grafts) if grafts.len() > 0 => Err(GitError::ChangedHistory("`info/grafts`")),
        _ => Ok(()),
    }
}

/// Returns the update of a reference, with the id that the server has now.
fn update(repository: &Repository, pushed: &GitPushed, listed: &[Listed]) -> Result<Update, GitError> {
    let name = match (&pushed.reference, &pushed.local) {
        (Some(name), _) => name.clone(),
        (None, Some(local)) if local.as_str() == "HEAD" => current(repository)?,
        (None, local) => {
            let local = local.as_ref().map(ToString::to_string).unwrap_or_default();
            let name = GitRefName::parse(&local).ok_or_else(|| GitError::NoBranchOf(shown(&local)))?;
            repository.find_reference(name.as_str()).map_err(|_| GitError::NoBranchOf(shown(&local)))?;
            name
        }
    };
    let old = listed.iter().find(|listed| listed.name == name).map(|listed| listed.id);
    let expected = pushed.expected.as_ref().map(|id| Oid::from_str(id)).transpose()?;
    if expected.is_some_and(|expected| expected != old.unwrap_or(Oid::ZERO_SHA1)) {
        let has = old.map_or_else(|| "does not exist".to_owned(), |id| format!("has {id}"));
        return Err(GitError::Stale { name: shown(name.as_str()), has });
    }
    let new = match &pushed.local {
        None if old.is_none() => return Err(GitError::NotAtRemote(shown(name.as_str()))),
        None => None,
        // A branch is a commit; a tag may be a separate object.
        Some(local) if name.branch().is_some() => Some(history::commit(repository, local)?.id()),
        Some(local) => {
            // A file or a tree without a commit would be shown to no reviewer.
            history::commit(repository, local)?;
            Some(history::find(repository, local)?.id())
        }
    };
    Ok(Update { name, old, new })
}

impl Change {
    fn of(repository: &Repository, update: Update, known: &[Oid]) -> Result<Self, GitError> {
        let is_here = |id: &Oid| repository.find_object(*id, None).is_ok();
        let new: Vec<Oid> = update.new.into_iter().collect();
        let commits = Commits::between(repository, &new, known.iter().copied())?;
        let tip = update.new.and_then(|id| commit_of(repository, id));
        commits.demand_whole(repository, tip, known.iter().filter_map(|id| commit_of(repository, *id)))?;
        let base = if let Some(old) = update.old.filter(is_here) {
            Some(old)
        } else {
            let base = commits.base(repository)?.or(tip);
            // A base that the server does not have would hide changes from a reviewer.
            base.filter(|base| is_at_server(repository, *base, known))
        };
        let lost = match (update.old, update.new) {
            (None, _) | (_, None) => Some(0),
            // Grafts and the commit graph of the repository are the agent's, and say nothing about this.
            (Some(old), Some(new)) if is_known_ancestor(&repository.odb()?, old, new) => Some(0),
            (Some(old), Some(new)) if is_here(&old) => {
                Some(Commits::between(repository, &[old], [new])?.count()).filter(|count| *count > 0)
            }
            _ => None,
        };
        Ok(Self { update, commits, lost, base })
    }

    /// Refuses an update that loses commits unless that is wanted, and files whose content would not be sent.
    fn check(&self, repository: &Repository, force: bool) -> Result<(), GitError> {
        let Update { name, old, new } = &self.update;
        if let (Some(_), Some(_), false) = (old, new, force) {
            if name.branch().is_none() {
                return Err(GitError::TagExists(shown(name.as_str())));
            }
            if self.lost != Some(0) {
                return Err(GitError::NotFastForward(shown(name.as_str())));
            }
        }
        match self.diff(repository)? {
            Some(diff) => demand_no_pointers(repository, &diff),
            None => Ok(()),
        }
    }

    /// Returns the changes that the server gets with this reference.
    fn diff<'r>(&self, repository: &'r Repository) -> Result<Option<git2::Diff<'r>>, GitError> {
        let tree = |id: Oid| repository.find_object(id, None).ok()?.peel_to_tree().ok();
        let Some(new) = self.update.new.and_then(tree) else { return Ok(None) };
        let base = self.base.and_then(tree);
        let options = Some(&mut compare::contents());
        let diff = repository.diff_tree_to_tree(base.as_ref(), Some(&new), options)?;
        Ok(Some(diff::with_renames(diff)?))
    }

    /// Writes the reference, its ids, its commits and the size of the change.
    fn describe(&self, repository: &Repository, output: &mut Output) -> Result<(), GitError> {
        let Update { name, old, new } = &self.update;
        let name = shown(name.as_str());
        output.push_str(&match (old, new) {
            (None, Some(new)) => format!("create {name}\n  with {new}\n"),
            (Some(old), Some(new)) => format!("update {name}\n  from {old}\n  to   {new}\n"),
            (Some(old), None) => format!("delete {name}\n  with {old}\n"),
            (None, None) => return Ok(()),
        });
        if new.is_none() {
            return Ok(());
        }
        match self.lost {
            Some(0) => {}
            Some(lost) => output.push_str(&format!("  forced: {lost} commits of it are lost\n")),
            None => output.push_str("  forced: commits of it, which are not known here, are lost\n"),
        }
        self.describe_tags(repository, output)?;
        output.push_str(&format!("  {}\n", self.commits.counted()));
        self.commits.write(repository, output)?;
        if let Some(diff) = self.diff(repository)? {
            Formats::of([GitFormat::Stat].into_iter())?.write(&[diff], |_| true, output)?;
        }
        Ok(())
    }

    /// Writes the tags that lead to the commit, with their messages.
    fn describe_tags(&self, repository: &Repository, output: &mut Output) -> Result<(), GitError> {
        let mut next = self.update.new;
        while let Some(object) = next.take().map(|id| repository.find_object(id, None)).transpose()? {
            if let Some(tag) = object.as_tag() {
                let name = String::from_utf8_lossy(tag.name_bytes());
                output.push_str(&format!("  tag {}\n", shown(&name)));
                history::said(tag.message_bytes().unwrap_or_default(), "    ", output);
                next = Some(tag.target_id());
            }
        }
        Ok(())
    }

    fn patches(&self, repository: &Repository, output: &mut Output) -> Result<(), GitError> {
        let Some(diff) = self.diff(repository)? else { return Ok(()) };
        let from = self.base.map_or_else(|| "nothing".to_owned(), digits);
        output.push_str(&format!("\nchanges of {} since {from}\n", shown(self.update.name.as_str())));
        formats::patches(&[diff], |_| true, output)
    }
}

/// Returns true if the server is known to have the commit, by the ids that it lists.
fn is_at_server(repository: &Repository, id: Oid, known: &[Oid]) -> bool {
    let Ok(objects) = repository.odb() else { return false };
    let known = known.iter().filter_map(|id| commit_of(repository, *id));
    are_known_ancestors(&objects, HashSet::from([id]), known)
}

/// Returns the commit that an id names, directly or by tags.
fn commit_of(repository: &Repository, id: Oid) -> Option<Oid> {
    Some(repository.find_object(id, None).ok()?.peel_to_commit().ok()?.id())
}

#[cfg(test)]
mod tests;
