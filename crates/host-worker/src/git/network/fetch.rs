//! Implements `git fetch`.

use git2::{Oid, Repository};
use operations::{Binder, Bound, Bounds, GitFetch, GitRefName, GitResult};
use wire::v1::GitRefUpdate;

use super::super::error::{GitError, shown};
use super::super::output::Output;
use super::address::Address;
use super::history::Commits;
use super::server::{Advertised, Server, Way};
use super::tracking::{self, Tracked, local_name};

/// Most references that one call fetches.
const MOST: usize = 1_000;

/// Shows the remote and the references. It makes no connection: consent is for the connection.
pub(super) fn preview(
    repository: &Repository,
    fetch: &GitFetch,
    output: &mut Output,
) -> Result<Bound, GitError> {
    let address = Address::of(repository, &fetch.remote)?;
    output.push_str(&format!("fetch from {}\n", address.place()));
    for name in &fetch.refs {
        output.push_str(&format!("  {}\n", shown(name.as_str())));
    }
    if fetch.refs.is_empty() {
        output.push_str("  all branches\n");
    }
    if fetch.tags {
        output.push_str("  all tags\n");
    }
    if let Some(depth) = fetch.depth {
        output.push_str(&format!("  with a history of at most {depth} commits\n"));
    }
    Ok(bound(&address, fetch))
}

fn bound(address: &Address, fetch: &GitFetch) -> Bound {
    let mut binder = Binder::new("git.fetch");
    binder.bytes(address.url.as_bytes());
    binder.bytes(address.name.as_deref().unwrap_or_default().as_bytes());
    for name in &fetch.refs {
        binder.bytes(name.as_str().as_bytes());
    }
    binder.number(fetch.tags.into());
    binder.number(fetch.depth.unwrap_or_default().into());
    binder.finish()
}

pub(super) fn fetch(
    repository: &Repository,
    fetch: &GitFetch,
    (bounds, way): (&Bounds, &Way<'_>),
    output: &mut Output,
) -> Result<GitResult, GitError> {
    let address = Address::of(repository, &fetch.remote)?;
    bound(&address, fetch).demand(bounds.held_to.as_ref()).map_err(GitError::Consent)?;
    let server = Server::new(&address, bounds, way);
    let wanted = wanted(&server.list()?, fetch)?;
    let known = known(repository)?;
    let received_bytes = server.download(repository, &wanted, fetch.depth)?;
    let new: Vec<Oid> = wanted.iter().map(|wanted| wanted.id).collect();
    let commits = Commits::between(repository, &new, known)?;
    output.push_str(&format!("From {}\n", address.place()));
    let updates = updates(repository, &address, &wanted, output)?;
    if updates.is_empty() {
        output.push_str("Already up to date.\n");
    } else {
        output.push_str(&format!("{}, {received_bytes} bytes received\n", commits.counted()));
    }
    let remote = address.place().to_owned();
    Ok(GitResult { remote, updates, received_bytes, commits: commits.count(), ..GitResult::default() })
}

/// Moves the references of the remote. A remote without a name has none, and its ids are the result.
fn updates(
    repository: &Repository,
    address: &Address,
    wanted: &[Advertised],
    output: &mut Output,
) -> Result<Vec<GitRefUpdate>, GitError> {
    let mut updates = Vec::new();
    for Advertised { name, id } in wanted {
        let Some(remote) = &address.name else {
            tracking::write(name.as_str(), None, Some(*id), output);
            updates.push(tracking::update(name.as_str(), None, Some(*id)));
            continue;
        };
        let local = local_name(remote, name);
        let old = tracking::id_of(repository, &local);
        match tracking::track(repository, &local, *id)? {
            Tracked::Same => {}
            Tracked::Updated(update) => {
                tracking::write(&local, old, Some(*id), output);
                updates.push(update);
            }
            Tracked::Refused(why) => output.push_str(&format!(" ! {} (not updated: {why})\n", shown(&local))),
        }
    }
    Ok(updates)
}

/// Returns the references to fetch, as the server has them.
fn wanted(advertised: &[Advertised], fetch: &GitFetch) -> Result<Vec<Advertised>, GitError> {
    let is_wanted = |name: &GitRefName| match name.branch() {
        Some(_) if fetch.refs.is_empty() => true,
        None if fetch.tags => true,
        _ => fetch.refs.contains(name),
    };
    for name in &fetch.refs {
        if !advertised.iter().any(|advertised| advertised.name == *name) {
            return Err(GitError::NotAtRemote(shown(name.as_str())));
        }
    }
    let wanted: Vec<_> = advertised.iter().filter(|advertised| is_wanted(&advertised.name)).cloned().collect();
    if wanted.len() > MOST {
        return Err(GitError::TooManyRefs { count: wanted.len(), most: MOST });
    }
    Ok(wanted)
}

/// Returns the ids of all references of the repository.
pub(super) fn known(repository: &Repository) -> Result<Vec<Oid>, GitError> {
    let ids = repository.references()?.filter_map(|reference| reference.ok()?.resolve().ok()?.target());
    Ok(ids.collect())
}

#[cfg(test)]
mod tests {
    use operations::GitRemote;

    use super::*;

    #[test]
    fn only_the_named_references_are_fetched_and_a_missing_one_is_an_error() {
        let name = |name: &str| GitRefName::parse(name).unwrap();
        let id = |digit: &str| Oid::from_str(&digit.repeat(40)).unwrap();
        let advertised =
            ["main", "topic", "refs/tags/v1"].map(|text| Advertised { name: name(text), id: id("1") });
        let of = |refs: &[&str], tags: bool| {
            let refs = refs.iter().map(|text| name(text)).collect();
            let fetch = GitFetch { remote: GitRemote::Name("origin".into()), refs, tags, depth: None };
            let wanted = wanted(&advertised, &fetch).ok()?;
            Some(wanted.iter().map(|wanted| wanted.name.to_string()).collect::<Vec<_>>())
        };
        assert_eq!(of(&[], false), Some(vec!["refs/heads/main".into(), "refs/heads/topic".into()]));
        assert_eq!(of(&[], true).map(|all| all.len()), Some(3));
        assert_eq!(of(&["topic"], false), Some(vec!["refs/heads/topic".into()]));
        assert_eq!(of(&["topic", "refs/tags/v1"], false).map(|all| all.len()), Some(2));
        assert_eq!(of(&["none"], false), None);
    }
}
