//! Which refs of a server become which refs of a repository.

use git_wire::RefName;

use crate::advertisement::Advertised;
use crate::error::RemoteError;

/// Refs to fetch: a ref of the server, or all that match a pattern with one `*`, and the names that they get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refspec {
    source: String,
    target: String,
    is_forced: bool,
}

/// The reason why a text is no refspec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadRefspec {
    #[error("a refspec is `<ref of the server>:<ref here>`, with full names such as `refs/heads/main`")]
    Form,
    #[error("a name in a refspec is no valid full name of a ref, such as `refs/heads/main`")]
    Name,
    #[error("a refspec has one `*` on each side, or none")]
    Pattern,
}

/// A ref that is fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Selected {
    pub(crate) target: String,
    pub(crate) id: git2::Oid,
    pub(crate) is_forced: bool,
}

impl Refspec {
    /// Parses `source:target`. A `+` before it lets a ref be replaced by one that does not contain it.
    pub fn parse(text: &str) -> Result<Self, BadRefspec> {
        let is_forced = text.starts_with('+');
        let text = text.strip_prefix('+').unwrap_or(text);
        let (source, target) = text.split_once(':').ok_or(BadRefspec::Form)?;
        match [source, target].map(|side| side.matches('*').count()) {
            [0, 0] | [1, 1] => {}
            _ => return Err(BadRefspec::Pattern),
        }
        let is_name = |side: &str| RefName::parse(side.replace('*', "x").as_bytes()).is_ok();
        if source != "HEAD" && !is_name(source) || !is_name(target) {
            return Err(BadRefspec::Name);
        }
        Ok(Self { source: source.to_owned(), target: target.to_owned(), is_forced })
    }

    /// Returns the refs of a server that it names. A pattern may name none.
    fn select(&self, list: &Advertised, into: &mut Vec<Selected>) -> Result<(), RemoteError> {
        let selected = |target: String, id| Selected { target, id, is_forced: self.is_forced };
        let Some((before, after)) = self.source.split_once('*') else {
            let id = if self.source == "HEAD" { list.head_id } else { list.id_of(&self.source) };
            let id = id.ok_or_else(|| RemoteError::NoRef(self.source.clone()))?;
            into.push(selected(self.target.clone(), id));
            return Ok(());
        };
        for known in &list.refs {
            let middle = known.name.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
            if let Some(middle) = middle {
                let target = self.target.replacen('*', middle, 1);
                // A long middle can make a name that is too long.
                if RefName::parse(target.as_bytes()).is_ok() {
                    into.push(selected(target, known.id));
                }
            }
        }
        Ok(())
    }
}

/// Returns the refs of a server that these refspecs name, each target once.
pub(crate) fn select(wanted: &[Refspec], list: &Advertised) -> Result<Vec<Selected>, RemoteError> {
    let mut all = Vec::new();
    for refspec in wanted {
        refspec.select(list, &mut all)?;
    }
    all.sort_by(|one, two| one.target.cmp(&two.target));
    all.dedup_by(|later, first| *later == *first);
    match all.windows(2).find(|two| two[0].target == two[1].target) {
        Some(two) => Err(RemoteError::Ambiguous(two[0].target.clone())),
        None => Ok(all),
    }
}

#[cfg(test)]
mod tests {
    use git2::Oid;

    use super::*;
    use crate::advertisement::RemoteRef;

    fn list() -> Advertised {
        let of = |name: &str, digit: &str| RemoteRef {
            name: name.to_owned(),
            id: Oid::from_str(&digit.repeat(40)).unwrap(),
        };
        Advertised {
            refs: vec![of("refs/heads/a", "1"), of("refs/heads/b/c", "2"), of("refs/tags/v1", "3")],
            head_id: Some(Oid::from_str(&"1".repeat(40)).unwrap()),
            ..Advertised::default()
        }
    }

    fn targets(wanted: &[&str]) -> Result<Vec<String>, RemoteError> {
        let wanted: Vec<_> = wanted.iter().map(|text| Refspec::parse(text).unwrap()).collect();
        select(&wanted, &list()).map(|all| all.into_iter().map(|one| one.target).collect())
    }

    #[test]
    fn refspecs_name_refs_one_by_one_or_by_a_pattern() {
        let all = targets(&["+refs/heads/*:refs/remotes/origin/*", "refs/tags/v1:refs/tags/v1"]).unwrap();
        assert_eq!(all, ["refs/remotes/origin/a", "refs/remotes/origin/b/c", "refs/tags/v1"]);
        assert_eq!(targets(&["HEAD:refs/heads/x"]).unwrap(), ["refs/heads/x"]);
        assert!(targets(&["refs/none/*:refs/heads/*"]).unwrap().is_empty());
        // The same commit twice is no contradiction.
        assert_eq!(targets(&["HEAD:refs/heads/x", "refs/heads/a:refs/heads/x"]).unwrap().len(), 1);
        let two = targets(&["refs/heads/a:refs/heads/x", "refs/tags/v1:refs/heads/x"]);
        assert!(matches!(two, Err(RemoteError::Ambiguous(name)) if name == "refs/heads/x"));
        assert!(matches!(targets(&["refs/heads/z:refs/heads/z"]), Err(RemoteError::NoRef(_))));
    }

    #[test]
    fn other_texts_are_refused() {
        for (text, why) in [
            ("", BadRefspec::Form),
            ("refs/heads/main", BadRefspec::Form),
            ("main:refs/heads/main", BadRefspec::Name),
            ("refs/heads/main:main", BadRefspec::Name),
            ("refs/heads/main:", BadRefspec::Name),
            ("refs/heads/..:refs/heads/x", BadRefspec::Name),
            ("refs/heads/a:HEAD", BadRefspec::Name),
            ("refs/heads/*:refs/heads/x", BadRefspec::Pattern),
            ("refs/heads/a:refs/heads/*", BadRefspec::Pattern),
            ("refs/*/*:refs/*/*", BadRefspec::Pattern),
        ] {
            assert_eq!(Refspec::parse(text), Err(why), "{text}");
        }
    }
}
