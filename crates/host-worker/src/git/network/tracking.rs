//! The references that say where the branches and tags of a remote are.

use git2::{Oid, Repository};
use operations::GitRefName;
use wire::v1::GitRefUpdate;

use super::super::error::shown;
use super::super::output::Output;
use super::address::Address;
use super::history::digits;

/// Message of the reflog.
const MESSAGE: &str = "update by push";

/// Returns the name in the repository of a reference of the remote: `refs/remotes/NAME/BRANCH`, or that of the tag.
///
/// A remote without a name has `refs/fetched/`, which keeps its commits until the next such call.
pub(super) fn local_name(address: &Address, reference: &GitRefName) -> String {
    match (&address.name, reference.branch()) {
        (Some(name), Some(branch)) => format!("refs/remotes/{name}/{branch}"),
        (Some(_), None) => reference.to_string(),
        (None, _) => reference.as_str().replacen("refs/", "refs/fetched/", 1),
    }
}

/// Returns the pair of names with which a reference is downloaded. Only a tag of a named remote is never replaced.
pub(super) fn pair(address: &Address, reference: &GitRefName) -> String {
    let is_kept = address.name.is_some() && reference.branch().is_none();
    let forced = if is_kept { "" } else { "+" };
    format!("{forced}{reference}:{}", local_name(address, reference))
}

/// Moves the reference of a branch after a push, or deletes it. Returns false if that failed, which does no harm: a fetch does it.
pub(super) fn follow(
    repository: &Repository,
    address: &Address,
    reference: &GitRefName,
    new: Option<Oid>,
) -> bool {
    if address.name.is_none() || reference.branch().is_none() {
        return true;
    }
    let local = local_name(address, reference);
    match (new, repository.find_reference(&local)) {
        (Some(new), _) => repository.reference(&local, new, true, MESSAGE).is_ok(),
        (None, Ok(mut reference)) => reference.delete().is_ok(),
        (None, Err(_)) => true,
    }
}

pub(super) fn update(name: &str, old: Option<Oid>, new: Option<Oid>) -> GitRefUpdate {
    let text = |id: Option<Oid>| id.map(|id| id.to_string()).unwrap_or_default();
    GitRefUpdate { name: name.to_owned(), old_id: text(old), new_id: text(new) }
}

/// Writes the updates of a download, and the references that stay as they are. Returns the updates.
pub(super) fn write_fetched(fetched: &git_remote::Fetched, output: &mut Output) -> Vec<GitRefUpdate> {
    for git_remote::Rejected { name, why } in &fetched.rejected {
        output.push_str(&format!(" ! {} (not updated: {})\n", shown(name), shown(why)));
    }
    let updated = |moved: &git_remote::RefUpdate| {
        write(&moved.name, moved.old, Some(moved.new), output);
        update(&moved.name, moved.old, Some(moved.new))
    };
    fetched.updates.iter().map(updated).collect()
}

/// Writes a line about an update.
pub(super) fn write(name: &str, old: Option<Oid>, new: Option<Oid>, output: &mut Output) {
    let name = shown(name);
    output.push_str(&match (old, new) {
        (None, Some(new)) => format!(" * [new] {name} {}\n", digits(new)),
        (Some(old), Some(new)) => format!("   {}..{} {name}\n", digits(old), digits(new)),
        (Some(old), None) => format!(" - [deleted] {name} {}\n", digits(old)),
        (None, None) => return,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_of_a_remote_have_their_place() {
        let address = |name: Option<&str>| Address {
            url: git_remote::RemoteUrl::parse("https://git.example.org/org/app").unwrap(),
            name: name.map(str::to_owned),
        };
        let pair = |name: Option<&str>, reference: &str| {
            super::pair(&address(name), &GitRefName::parse(reference).unwrap())
        };
        assert_eq!(pair(Some("up"), "a/b"), "+refs/heads/a/b:refs/remotes/up/a/b");
        assert_eq!(pair(Some("up"), "refs/tags/v1"), "refs/tags/v1:refs/tags/v1");
        assert_eq!(pair(None, "a"), "+refs/heads/a:refs/fetched/heads/a");
        assert_eq!(pair(None, "refs/tags/v1"), "+refs/tags/v1:refs/fetched/tags/v1");
        for pair in [pair(Some("up"), "a"), pair(None, "refs/tags/v1")] {
            assert!(git_remote::Refspec::parse(&pair).is_ok(), "{pair}");
        }
    }
}
