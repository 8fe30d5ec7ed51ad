//! Implements `git fetch`.

use git2::{Oid, Repository};
use operations::{Binder, Bound, Bounds, GitFetch, GitRefName, GitResult};

use super::super::error::{GitError, shown};
use super::super::output::Output;
use super::address::Address;
use super::history::Commits;
use super::server::{Listed, Server};
use super::tracking;
use crate::way_out::WayOut;

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
    binder.bytes(address.url.to_string().as_bytes());
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
    (bounds, way): (&Bounds, &WayOut),
    output: &mut Output,
) -> Result<GitResult, GitError> {
    let address = Address::of(repository, &fetch.remote)?;
    bound(&address, fetch).demand(bounds.held_to.as_ref()).map_err(GitError::Consent)?;
    let server = Server::new(&address, bounds, way);
    let wanted = wanted(&server.list()?, fetch)?;
    let known = known(repository)?;
    let pairs = wanted.iter().map(|wanted| tracking::pair(&address, &wanted.name));
    let fetched = server.download(repository, pairs, fetch.depth)?;
    let new: Vec<Oid> = wanted.iter().map(|wanted| wanted.id).collect();
    let commits = Commits::between(repository, &new, known)?;
    output.push_str(&format!("From {}\n", address.place()));
    let updates = tracking::write_fetched(&fetched, output);
    if updates.is_empty() {
        output.push_str("Already up to date.\n");
    } else {
        output.push_str(&format!("{}, {} bytes received\n", commits.counted(), fetched.bytes));
    }
    Ok(GitResult {
        remote: address.place(),
        updates,
        received_bytes: fetched.bytes,
        commits: commits.count(),
        ..GitResult::default()
    })
}

/// Returns the references to fetch, as the server has them.
fn wanted(listed: &[Listed], fetch: &GitFetch) -> Result<Vec<Listed>, GitError> {
    let is_wanted = |name: &GitRefName| match name.branch() {
        Some(_) if fetch.refs.is_empty() => true,
        None if fetch.tags => true,
        _ => fetch.refs.contains(name),
    };
    for name in &fetch.refs {
        if !listed.iter().any(|listed| listed.name == *name) {
            return Err(GitError::NotAtRemote(shown(name.as_str())));
        }
    }
    let wanted: Vec<_> = listed.iter().filter(|listed| is_wanted(&listed.name)).cloned().collect();
    if wanted.len() > MOST {
        return Err(GitError::TooManyRefs { count: wanted.len(), most: MOST });
    }
    Ok(wanted)
}

/// Returns the ids of all references of the repository.
fn known(repository: &Repository) -> Result<Vec<Oid>, GitError> {
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
        let listed = ["main", "topic", "refs/tags/v1"].map(|text| Listed { name: name(text), id: id("1") });
        let of = |refs: &[&str], tags: bool| {
            let refs = refs.iter().map(|text| name(text)).collect();
            let fetch = GitFetch { remote: GitRemote::Name("origin".into()), refs, tags, depth: None };
            let wanted = wanted(&listed, &fetch).ok()?;
            Some(wanted.iter().map(|wanted| wanted.name.to_string()).collect::<Vec<_>>())
        };
        assert_eq!(of(&[], false), Some(vec!["refs/heads/main".into(), "refs/heads/topic".into()]));
        assert_eq!(of(&[], true).map(|all| all.len()), Some(3));
        assert_eq!(of(&["topic"], false), Some(vec!["refs/heads/topic".into()]));
        assert_eq!(of(&["topic", "refs/tags/v1"], false).map(|all| all.len()), Some(2));
        assert_eq!(of(&["none"], false), None);
    }
}
