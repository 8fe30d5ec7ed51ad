//! The rules that let a run fetch from a server before it exists.

use egress_rules::{Decision, GitRules, Narrowed, Scheme, Verdict};
use git_wire::Repository;
use operations::{Digest, Reason};
use refusal::Refusal;

use crate::address::RepositoryUrl;

const FIELD: &str = "workspace.clone.url";

/// Refuses a repository that the rules of a run do not let it fetch, or only with a reviewer.
///
/// Each connection and each request is judged again, by the egress. This answers before anything is started.
pub fn check(url: &RepositoryUrl, rules: &Narrowed) -> Result<(), Refusal> {
    verdict(url, rules).map(drop)
}

/// Returns the key of the mirror that a run with these rules may use.
///
/// Runs have a mirror in common if their rules lead to the same server with the same secrets. So the objects of a mirror come from a
/// server that the run's own rules name.
pub(crate) fn key(url: &RepositoryUrl, rules: &Narrowed) -> Result<String, Refusal> {
    let opening = verdict(url, rules)?.opening;
    let parts = serde_json::to_vec(&(
        url.host().to_string(),
        url.port(),
        url.repository().as_str(),
        &opening.upstream,
        &opening.inject,
    ));
    let parts = parts.map_err(|error| Refusal::internal("naming a mirror", &error))?;
    let mut digest = Digest::default();
    digest.update(&parts);
    Ok(digest.hex())
}

fn verdict(url: &RepositoryUrl, rules: &Narrowed) -> Result<Verdict, Refusal> {
    let (host, port) = (url.host(), url.port());
    if rules.is_nothing() {
        return Err(refused(&format!(
            "nothing is open to the run: its profile needs an `egress` rule that allows {host}:{port}"
        )));
    }
    let verdict = rules.decide(host, port);
    let rule = &verdict.rule;
    match (verdict.decision, verdict.scheme) {
        (Decision::Deny, _) => {
            Err(refused(&format!("the run's `egress` does not allow {host}:{port} ({rule})")))
        }
        (Decision::Ask, _) => Err(asks(&format!("a connection to {host}:{port} ({rule})"))),
        (Decision::Allow, Scheme::Http) => {
            Err(refused(&format!("{rule} is for plain HTTP, and a clone needs `scheme: git` or `https`")))
        }
        (Decision::Allow, Scheme::Git) => {
            let decision = of_lists(&verdict.opening.git, url.repository());
            match decision {
                Decision::Allow => Ok(verdict),
                Decision::Ask => Err(asks(&format!("a fetch from {} ({rule})", url.repository()))),
                Decision::Deny => Err(refused(&format!(
                    "the run's `egress` does not allow a fetch from {} of {host}:{port} ({rule}): `repos` and `fetch: allow` \
                     would",
                    url.repository()
                ))),
            }
        }
        (Decision::Allow, Scheme::Https | Scheme::Tcp) => Ok(verdict),
    }
}

/// Returns the strictest answer of the lists to a fetch. In each list, the rules that may mean the repository judge.
fn of_lists(lists: &[Vec<GitRules>], repository: &Repository) -> Decision {
    let of_list = |list: &Vec<GitRules>| {
        let judges = list.iter().filter(|rules| rules.may_mean(repository));
        judges.map(|rules| rules.judge_fetch(repository).0).max().unwrap_or(Decision::Deny)
    };
    lists.iter().map(of_list).max().unwrap_or(Decision::Deny)
}

fn refused(why: &str) -> Refusal {
    Refusal::new(Reason::PermissionDenied, format!("{FIELD}: {why}")).with("field", FIELD)
}

fn asks(what: &str) -> Refusal {
    refused(&format!(
        "a reviewer would have to allow {what}, and none is asked before a run exists: the rule has to say `allow`, or create \
         the run without a clone and fetch from within it"
    ))
}

#[cfg(test)]
mod tests {
    use egress_rules::{Push, RepositoryPattern};

    use super::*;

    fn rules(rules: &str) -> Narrowed {
        Narrowed::new(egress_rules::Rules::from_json(&format!("{{\"rules\":[{rules}]}}")).unwrap())
    }

    fn git(repos: &str, fetch: &str, more: &str) -> String {
        format!(
            "{{\"host\":\"git.example.org\",\"ports\":[443],\"scheme\":\"git\",\"repos\":[{repos}],\"fetch\":\"{fetch}\",\
             \"push\":\"allow\",\"decision\":\"allow\"{more}}}"
        )
    }

    fn url() -> RepositoryUrl {
        RepositoryUrl::parse("https://git.example.org/org/app.git").unwrap()
    }

    #[test]
    fn only_rules_that_allow_a_fetch_without_a_reviewer_let_a_run_be_cloned() {
        let https = |decision: &str| {
            format!("{{\"host\":\"git.example.org\",\"ports\":[443],\"decision\":\"{decision}\"}}")
        };
        for good in [git("\"org/*\"", "allow", ""), https("allow")] {
            check(&url(), &rules(&good)).unwrap();
        }
        for (bad, why) in [
            (String::new(), "nothing is open to the run"),
            (https("deny"), FIELD),
            (https("ask"), "a reviewer would have to allow a connection"),
            (git("\"org/*\"", "deny", ""), "does not allow a fetch from org/app"),
            (git("\"other/*\"", "allow", ""), "does not allow a fetch from org/app"),
            (
                https("allow").replace("git.example.org", "files.example.org"),
                "does not allow git.example.org:443",
            ),
            (https("allow").replace("443", "8443"), "does not allow git.example.org:443"),
        ] {
            let refused = check(&url(), &rules(&bad)).unwrap_err();
            assert_eq!(refused.reason, Reason::PermissionDenied);
            assert!(refused.message.contains(why), "{}", refused.message);
        }
    }

    #[test]
    fn the_strictest_list_decides_about_a_fetch_and_none_allows_nothing() {
        let list = |fetch| {
            let repos = [RepositoryPattern::parse("org/*").unwrap()].into();
            vec![GitRules::new(repos, fetch, Push::for_branches(Decision::Allow)).unwrap()]
        };
        let (allow, ask) = (list(Decision::Allow), list(Decision::Ask));
        let app = Repository::parse("org/app").unwrap();
        assert_eq!(of_lists(&[], &app), Decision::Deny);
        assert_eq!(of_lists(std::slice::from_ref(&allow), &app), Decision::Allow);
        assert_eq!(of_lists(&[allow.clone(), ask], &app), Decision::Ask);
        assert_eq!(of_lists(&[allow, Vec::new()], &app), Decision::Deny);
        let other = list(Decision::Allow);
        assert_eq!(of_lists(&[other], &Repository::parse("lib/app").unwrap()), Decision::Deny);
    }

    #[test]
    fn a_path_in_another_case_is_not_covered() {
        let upper = RepositoryUrl::parse("https://git.example.org/ORG/app").unwrap();
        assert!(check(&upper, &rules(&git("\"org/app\"", "allow", ""))).is_err());
    }

    #[test]
    fn runs_with_other_secrets_have_other_mirrors() {
        let with = |more: &str| key(&url(), &rules(&git("\"org/*\"", "allow", more))).unwrap();
        let inject = |secret: &str| {
            format!(",\"inject\":{{\"header\":\"Authorization\",\"value\":\"Bearer ${{secret:{secret}}}\"}}")
        };
        let (none, one, two) = (with(""), with(&inject("one")), with(&inject("two")));
        assert!(none != one && one != two && none != two);
        assert_eq!(with(&inject("one")), one);
        assert!(none.len() == 64 && none.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let plain = RepositoryUrl::parse("https://GIT.example.org:443/org/app").unwrap();
        assert_eq!(
            key(&plain, &rules(&git("\"org/*\"", "allow", ""))).unwrap(),
            none,
            "with and without .git"
        );
    }
}
