//! `coffer call git fetch`, `pull` and `push`.

use clap::Args;
use wire::v1::git_pull::Mode;
use wire::v1::{GitFetch, GitPull, GitPush, GitPushRef};

#[derive(Args, Debug)]
pub(super) struct Fetch {
    /// A remote of the repository, or a URL that begins with https:// [default: origin].
    remote: Option<String>,
    /// Branches, or names that begin with refs/tags/ [default: all branches].
    #[arg(value_name = "REF")]
    refs: Vec<String>,
    /// Fetch all tags, too.
    #[arg(long)]
    tags: bool,
    /// Fetch at most this number of commits of each history.
    #[arg(long, value_name = "N")]
    depth: Option<u32>,
}

#[derive(Args, Debug)]
pub(super) struct Pull {
    /// A remote of the repository, or a URL that begins with https:// [default: origin].
    remote: Option<String>,
    /// Branch of the remote [default: the current branch].
    branch: Option<String>,
    /// Make a merge commit if the branch has commits of its own.
    #[arg(long)]
    merge: bool,
}

#[derive(Args, Debug)]
pub(super) struct Push {
    /// A remote of the repository, or a URL that begins with https:// [default: origin].
    remote: Option<String>,
    /// A branch, or LOCAL:REMOTE for another name at the remote [default: the current branch].
    #[arg(value_name = "REF", required_if_eq("delete", "true"))]
    refs: Vec<String>,
    /// Delete these references at the remote.
    #[arg(short, long)]
    delete: bool,
    /// Update this reference even if commits are lost, provided that it has this id now.
    #[arg(long, value_name = "REF:ID", value_parser = lease)]
    force_with_lease: Vec<(String, String)>,
}

impl Fetch {
    pub(super) fn wanted(self) -> GitFetch {
        let Self { remote, refs, tags, depth } = self;
        GitFetch { remote: remote.unwrap_or_default(), refs, tags, depth }
    }
}

impl Pull {
    pub(super) fn wanted(self) -> GitPull {
        let mode = if self.merge { Mode::Merge } else { Mode::FfOnly };
        GitPull {
            remote: self.remote.unwrap_or_default(),
            branch: self.branch.unwrap_or_default(),
            mode: mode.into(),
        }
    }
}

impl Push {
    pub(super) fn wanted(self) -> GitPush {
        let Self { remote, refs, delete, force_with_lease: leases } = self;
        let of = |name: &String| {
            let (local, remote_ref) = match name.split_once(':') {
                _ if delete => ("", name.as_str()),
                Some((local, remote)) => (local, remote),
                None => (name.as_str(), ""),
            };
            pushed(local, remote_ref, delete || local.is_empty(), &leases)
        };
        let mut refs: Vec<GitPushRef> = refs.iter().map(of).collect();
        if refs.is_empty() {
            // The branch that HEAD is on has the name of the only lease.
            let name = leases.first().map_or("", |(name, _)| name);
            refs.push(pushed("HEAD", name, false, &leases));
        }
        GitPush { remote: remote.unwrap_or_default(), refs, force: !leases.is_empty() }
    }
}

fn pushed(local: &str, remote_ref: &str, delete: bool, leases: &[(String, String)]) -> GitPushRef {
    let name = if remote_ref.is_empty() { local } else { remote_ref };
    let expected = leases.iter().find(|(leased, _)| leased == name).map(|(_, id)| id.clone());
    GitPushRef {
        local: local.to_owned(),
        remote_ref: remote_ref.to_owned(),
        expected: expected.unwrap_or_default(),
        delete,
    }
}

fn lease(typed: &str) -> Result<(String, String), String> {
    match typed.rsplit_once(':') {
        Some((name, id)) if !name.is_empty() && !id.is_empty() => Ok((name.to_owned(), id.to_owned())),
        _ => Err("must be a reference and its id, as in main:1a2b…".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    enum Line {
        Fetch(Fetch),
        Pull(Pull),
        Push(Push),
    }

    fn line(words: &str) -> Option<Line> {
        Line::try_parse_from([&["x"], words.split(' ').collect::<Vec<_>>().as_slice()].concat()).ok()
    }

    fn push(words: &str) -> Option<GitPush> {
        match line(words)? {
            Line::Push(push) => Some(push.wanted()),
            Line::Fetch(_) | Line::Pull(_) => None,
        }
    }

    #[test]
    fn fetch_and_pull_arrive() {
        let Some(Line::Fetch(fetch)) = line("fetch up main refs/tags/v1 --tags --depth 3") else {
            panic!("no fetch")
        };
        let refs = vec!["main".to_owned(), "refs/tags/v1".to_owned()];
        assert_eq!(fetch.wanted(), GitFetch { remote: "up".into(), refs, tags: true, depth: Some(3) });
        let Some(Line::Pull(pull)) = line("pull origin main --merge") else { panic!("no pull") };
        let wanted = GitPull { remote: "origin".into(), branch: "main".into(), mode: Mode::Merge.into() };
        assert_eq!(pull.wanted(), wanted);
        let Some(Line::Pull(pull)) = line("pull") else { panic!("no pull") };
        assert_eq!(pull.wanted(), GitPull { mode: Mode::FfOnly.into(), ..GitPull::default() });
        assert!(line("pull --rebase").is_none() && line("fetch --prune").is_none());
    }

    #[test]
    fn push_arrives() {
        let to = |local: &str, remote_ref: &str, expected: &str, delete| GitPushRef {
            local: local.into(),
            remote_ref: remote_ref.into(),
            expected: expected.into(),
            delete,
        };
        let of = |words: &str| push(words).map(|push| (push.refs, push.force));
        assert_eq!(of("push"), Some((vec![to("HEAD", "", "", false)], false)));
        assert_eq!(
            of("push origin main:a HEAD"),
            Some((vec![to("main", "a", "", false), to("HEAD", "", "", false)], false))
        );
        assert_eq!(of("push origin :old"), Some((vec![to("", "old", "", true)], false)));
        assert_eq!(of("push origin --delete old"), Some((vec![to("", "old", "", true)], false)));
        assert_eq!(
            of("push --force-with-lease main:1a"),
            Some((vec![to("HEAD", "main", "1a", false)], true))
        );
        assert_eq!(
            of("push origin HEAD:main --force-with-lease main:1a"),
            Some((vec![to("HEAD", "main", "1a", false)], true))
        );
        for bad in ["push --force", "push --delete", "push --force-with-lease main", "push --mirror"] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
