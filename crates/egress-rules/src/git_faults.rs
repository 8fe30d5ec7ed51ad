//! Problems in the keys of a rule for git.

use git_wire::BadRules;

use crate::request_faults::NOT_OF_A_DENIAL;
use crate::rule::{Decision, Rule, Scheme};

/// Problem of a fetch that needs a reviewer.
const ASKED: &str = "`ask` is not possible for a fetch; write `allow` or `deny`";

impl Rule {
    /// Reports every problem of `repos`, `fetch` and `push`, and of keys that are not possible beside `scheme: git`.
    pub(crate) fn faults_of_git(&self, fault: &mut impl FnMut(&'static str, String)) {
        let keys =
            [("repos", self.repos.is_some()), ("fetch", self.fetch.is_some()), ("push", self.push.is_some())];
        let mut problem_of_keys = |problem: &str| {
            for (key, _) in keys.into_iter().filter(|(_, is_there)| *is_there) {
                fault(key, problem.to_owned());
            }
        };
        match (self.scheme, self.decision) {
            (Scheme::Git, Decision::Allow) => self.faults_of_repositories(fault),
            (Scheme::Git, Decision::Ask) => {
                let problem = "`ask` is not possible with `scheme: git`, because a connection does not show what it is for; \
                               write `allow`, and `push` for what is possible";
                fault("decision", problem.to_owned());
            }
            (Scheme::Git, Decision::Deny) => problem_of_keys(NOT_OF_A_DENIAL),
            _ => problem_of_keys("needs `scheme: git`"),
        }
    }

    fn faults_of_repositories(&self, fault: &mut impl FnMut(&'static str, String)) {
        let beside = [
            ("methods", self.methods.is_some()),
            ("paths", self.paths.is_some()),
            ("upstream", self.upstream.is_some()),
            ("meter", self.meter.is_some()),
        ];
        for (key, _) in beside.into_iter().filter(|(_, is_there)| *is_there) {
            fault(key, "is not possible with `scheme: git`; name repositories in `repos`".to_owned());
        }
        let Some(repos) = self.repos.clone() else {
            fault("repos", "is missing: name the repositories, such as `org/app` or `org/*`".to_owned());
            return;
        };
        if self.fetch == Some(Decision::Ask) {
            fault("fetch", ASKED.to_owned());
        }
        let (fetch, push) = (self.fetch.unwrap_or_default(), self.push.clone().unwrap_or_default());
        if let Err(problem) = git_wire::Rules::new(repos, fetch, push) {
            let key = match problem {
                BadRules::NoRepository | BadRules::TooMany => "repos",
                BadRules::Nothing => "fetch",
            };
            fault(key, problem.to_string());
        }
    }
}

#[cfg(test)]
#[path = "git_faults_tests.rs"]
mod tests;
