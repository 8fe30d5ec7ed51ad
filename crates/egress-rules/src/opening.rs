//! The part of a verdict that is about requests within a connection.

use std::collections::BTreeSet;

use git_wire::Rules as GitRules;

use crate::inject::{Injection, together};
use crate::path::PathPattern;
use crate::secret_name::SecretName;
use crate::upstream::Upstream;

/// Demands on the requests of a connection, and changes to them. Without any, only the connection itself is looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Opening {
    /// Lists of paths, sorted. A request has to match one pattern of each list.
    pub paths: Vec<BTreeSet<PathPattern>>,
    /// Headers to set, by name; no name is there twice.
    pub inject: Vec<Injection>,
    /// Server that the requests go to in place of the host.
    pub upstream: Option<Upstream>,
    /// The tokens that responses report are counted.
    pub is_metered: bool,
    /// Rules for the repositories of git, by list. A request has to pass each list, in which the rules that cover its repository judge.
    pub git: Vec<Vec<GitRules>>,
}

impl Opening {
    /// Returns true if it says nothing about requests.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the secrets of the headers that are set.
    pub fn secrets(&self) -> BTreeSet<&SecretName> {
        self.inject.iter().flat_map(Injection::secrets).collect()
    }

    /// Returns the demands and changes of both. `None` if they set a header to two values, or name two servers.
    pub(crate) fn meet(self, other: Self) -> Option<Self> {
        let upstream = match (self.upstream, other.upstream) {
            (Some(one), Some(two)) if one != two => return None,
            (one, two) => one.or(two),
        };
        let mut paths = [self.paths, other.paths].concat();
        paths.sort_unstable();
        paths.dedup();
        let inject = together(self.inject, other.inject)?;
        let git = [self.git, other.git].concat();
        Some(Self { paths, inject, upstream, is_metered: self.is_metered || other.is_metered, git })
    }

    /// Makes one list of the rules for repositories, because all of them are in one list of rules.
    pub(crate) fn join_git(&mut self) {
        if self.git.len() > 1 {
            self.git = vec![std::mem::take(&mut self.git).concat()];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(patterns: &[&str]) -> Opening {
        let patterns = patterns.iter().map(|pattern| PathPattern::parse(pattern).unwrap()).collect();
        Opening { paths: vec![patterns], ..Opening::default() }
    }

    fn at(upstream: &str) -> Opening {
        Opening { upstream: Some(Upstream::parse(upstream).unwrap()), ..Opening::default() }
    }

    #[test]
    fn the_paths_of_both_are_demanded() {
        let (one, two) = (paths(&["/v1/*"]), paths(&["/v1/a", "/v2/a"]));
        let both = one.clone().meet(two.clone()).unwrap();
        assert_eq!(both.paths.len(), 2);
        assert_eq!(two.clone().meet(one.clone()), Some(both.clone()));
        assert_eq!(both.clone().meet(two), Some(both.clone()), "a list is there once");
        assert_eq!(Opening::default().meet(both.clone()), Some(both));
    }

    #[test]
    fn there_is_one_server_at_most() {
        let (one, two) = (at("https://a.example.org"), at("https://b.example.org"));
        assert_eq!(one.clone().meet(one.clone()), Some(one.clone()));
        assert_eq!(one.clone().meet(Opening::default()), Some(one.clone()));
        assert_eq!(one.meet(two), None);
    }

    #[test]
    fn tokens_are_counted_if_one_of_both_says_so() {
        let metered = Opening { is_metered: true, ..Opening::default() };
        assert_eq!(Opening::default().meet(metered.clone()), Some(metered.clone()));
        assert!(!metered.is_nothing() && Opening::default().is_nothing());
    }
}
