//! `git fetch`, `pull` and `push`: the remote, its references, and what is done with them.

use std::fmt;

use wire::v1;

use super::super::check::{known, within};
use super::names::GitRevision;
use crate::Malformed;

/// Most bytes of a URL.
const MAX_URL: usize = 1_024;
/// Most bytes of the name of a remote or of a reference.
const MAX_NAME: usize = 256;
const MAX_REFS: usize = 64;
const MAX_PUSHED: usize = 32;
const MAX_DEPTH: u32 = 1_000_000;
const HTTPS: &str = "https://";
const HEADS: &str = "refs/heads/";
const TAGS: &str = "refs/tags/";

/// Repository to exchange commits with.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum GitRemote {
    /// Name of a remote in the configuration of the repository.
    Name(String),
    /// URL of the form `https://HOST[:PORT]/PATH`.
    Url(String),
}

impl GitRemote {
    /// Parses a URL. The lane parses it again, in the form that its transport needs.
    fn url(typed: &str) -> Result<Self, &'static str> {
        let Some(rest) = typed.strip_prefix(HTTPS) else {
            return Err("is no https URL: ssh, git, http and file are not supported");
        };
        let (place, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = place.split_once(':').map_or((place, None), |(host, port)| (host, Some(port)));
        if place.contains('@') {
            return Err("has a user name or a password, which belong into a secret of the operator's");
        }
        let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
        if host.is_empty() || !host.chars().all(is_host) || !port.is_none_or(is_port) {
            return Err("has no valid host and port");
        }
        let is_path = |c: char| c.is_ascii_graphic() && !matches!(c, '?' | '#' | '\\' | '"' | '<' | '>');
        if path.is_empty() || !path.chars().all(is_path) || path.split('/').any(|part| part == "..") {
            return Err("has no plain path: it may have no query, fragment, space or `..`");
        }
        if typed.len() > MAX_URL {
            return Err("is longer than 1,024 bytes");
        }
        Ok(Self::Url(typed.to_owned()))
    }

    fn parse(field: &str, typed: &str) -> Result<Self, Malformed> {
        if typed.contains("://") {
            return Self::url(typed).map_err(|why| Malformed::new(field, why));
        }
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        let typed = if typed.is_empty() { "origin" } else { typed };
        let is_name = typed.len() <= MAX_NAME
            && typed.chars().all(is_part)
            && !typed.starts_with(['-', '.'])
            && !typed.contains("..");
        if is_name && GitRefName::parse(typed).is_some() {
            return Ok(Self::Name(typed.to_owned()));
        }
        Err(Malformed::new(
            field,
            "must name a remote, such as origin, or be a URL that begins with https://",
        ))
    }

    /// Returns the name or the URL.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Name(text) | Self::Url(text) => text,
        }
    }
}

impl fmt::Display for GitRemote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Full name of a branch or a tag, such as `refs/heads/main`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GitRefName(String);

impl GitRefName {
    /// Parses a full name, or the name of a branch without `refs/heads/`. Returns `None` for any other.
    pub fn parse(typed: &str) -> Option<Self> {
        let full = if typed.starts_with("refs/") { typed.to_owned() } else { format!("{HEADS}{typed}") };
        let name = full.strip_prefix(HEADS).or_else(|| full.strip_prefix(TAGS))?;
        let forbidden =
            |c: char| c.is_control() || matches!(c, ' ' | '~' | '^' | ':' | '?' | '*' | '[' | '\\');
        // Git compares the ending with its case.
        let is_lock = |part: &str| part.as_bytes().ends_with(b".lock");
        let is_part = |part: &str| !part.is_empty() && !part.starts_with('.') && !is_lock(part);
        let is_name = full.len() <= MAX_NAME
            && name.split('/').all(is_part)
            && !name.starts_with('-')
            && !name.ends_with('.')
            && !["..", "@{"].iter().any(|part| name.contains(part))
            && !matches!(name, "@" | "HEAD")
            && !name.chars().any(forbidden);
        is_name.then_some(Self(full))
    }

    /// Returns the full name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name of a branch without `refs/heads/`; `None` for a tag.
    pub fn branch(&self) -> Option<&str> {
        self.0.strip_prefix(HEADS)
    }
}

impl fmt::Display for GitRefName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `git fetch`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitFetch {
    /// Source of the commits.
    pub remote: GitRemote,
    /// At most 64; none stands for all branches.
    pub refs: Vec<GitRefName>,
    /// All tags, too.
    pub tags: bool,
    /// Most commits of each history, if there is a bound.
    pub depth: Option<u32>,
}

impl GitFetch {
    pub(super) fn parse(message: &v1::GitFetch) -> Result<Self, Malformed> {
        if message.refs.len() > MAX_REFS {
            return Err(Malformed::new("git.fetch.refs", format!("are more than {MAX_REFS}")));
        }
        let refs = message.refs.iter().map(|name| reference("git.fetch.refs", name));
        let depth = |depth| within("git.fetch.depth", Some(depth), 1, 1, MAX_DEPTH);
        Ok(Self {
            remote: GitRemote::parse("git.fetch.remote", &message.remote)?,
            refs: refs.collect::<Result<_, _>>()?,
            tags: message.tags,
            depth: message.depth.map(depth).transpose()?,
        })
    }

    pub(super) fn message(&self) -> v1::GitFetch {
        v1::GitFetch {
            remote: self.remote.to_string(),
            refs: self.refs.iter().map(ToString::to_string).collect(),
            tags: self.tags,
            depth: self.depth,
        }
    }
}

/// Way in which a pull brings a branch to the commits of a remote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GitPullMode {
    /// The branch has no local commits.
    #[default]
    FastForward,
    /// A merge commit where it has.
    Merge,
}

/// `git pull`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitPull {
    /// Source of the commits.
    pub remote: GitRemote,
    /// Branch of the remote; `None` stands for the one with the name of the current branch.
    pub branch: Option<GitRefName>,
    /// Way to get the commits into the current branch.
    pub mode: GitPullMode,
}

impl GitPull {
    pub(super) fn parse(message: &v1::GitPull) -> Result<Self, Malformed> {
        const BRANCH: &str = "git.pull.branch";
        let branch = (!message.branch.is_empty()).then(|| reference(BRANCH, &message.branch)).transpose()?;
        if branch.as_ref().is_some_and(|branch| branch.branch().is_none()) {
            return Err(Malformed::new(BRANCH, "must be a branch"));
        }
        let mode = v1::git_pull::Mode::try_from(message.mode);
        known(mode.is_ok(), "git.pull.mode")?;
        Ok(Self {
            remote: GitRemote::parse("git.pull.remote", &message.remote)?,
            branch,
            mode: match mode {
                Ok(v1::git_pull::Mode::Merge) => GitPullMode::Merge,
                _ => GitPullMode::FastForward,
            },
        })
    }

    pub(super) fn message(&self) -> v1::GitPull {
        let mode = match self.mode {
            GitPullMode::FastForward => v1::git_pull::Mode::FfOnly,
            GitPullMode::Merge => v1::git_pull::Mode::Merge,
        };
        v1::GitPull {
            remote: self.remote.to_string(),
            branch: self.branch.as_ref().map(ToString::to_string).unwrap_or_default(),
            mode: mode.into(),
        }
    }
}

/// `git push`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitPush {
    /// Repository that gets the commits.
    pub remote: GitRemote,
    /// 1 to 32 references.
    pub refs: Vec<GitPushed>,
    /// References whose commits would be lost are updated, too. Each has an expected id.
    pub force: bool,
}

/// A reference that a push updates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitPushed {
    /// Revision that the reference gets; `None` deletes it.
    pub local: Option<GitRevision>,
    /// Name of the reference; `None` stands for the branch that `local` names.
    pub reference: Option<GitRefName>,
    /// Id that it must have at the remote, 40 digits; zeroes if it must not exist.
    pub expected: Option<String>,
}

impl GitPush {
    pub(super) fn parse(message: v1::GitPush) -> Result<Self, Malformed> {
        const REFS: &str = "git.push.refs";
        if message.refs.is_empty() || message.refs.len() > MAX_PUSHED {
            return Err(Malformed::new(REFS, format!("must have 1 to {MAX_PUSHED} references")));
        }
        let refs = message.refs.into_iter().map(GitPushed::parse).collect::<Result<Vec<_>, _>>()?;
        if message.force && refs.iter().any(|pushed| pushed.expected.is_none()) {
            return Err(Malformed::new(
                "git.push.refs.expected",
                "is missing: with force, each reference needs the id that it has now",
            ));
        }
        let mut names: Vec<_> = refs.iter().filter_map(|pushed| pushed.reference.as_ref()).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        if names.len() < count {
            return Err(Malformed::new(REFS, "name a reference twice"));
        }
        Ok(Self { remote: GitRemote::parse("git.push.remote", &message.remote)?, refs, force: message.force })
    }

    pub(super) fn message(&self) -> v1::GitPush {
        let pushed = |pushed: &GitPushed| v1::GitPushRef {
            local: pushed.local.as_ref().map(ToString::to_string).unwrap_or_default(),
            remote_ref: pushed.reference.as_ref().map(ToString::to_string).unwrap_or_default(),
            expected: pushed.expected.clone().unwrap_or_default(),
            delete: pushed.local.is_none(),
        };
        v1::GitPush {
            remote: self.remote.to_string(),
            refs: self.refs.iter().map(pushed).collect(),
            force: self.force,
        }
    }
}

impl GitPushed {
    fn parse(message: v1::GitPushRef) -> Result<Self, Malformed> {
        const LOCAL: &str = "git.push.refs.local";
        const REMOTE: &str = "git.push.refs.remote_ref";
        let local = match (message.delete, message.local.as_str()) {
            (true, "") => None,
            (true, _) => return Err(Malformed::new(LOCAL, "must be empty for a reference that is deleted")),
            (false, "") => Some(GitRevision::default()),
            (false, local) => Some(GitRevision::parse(local).ok_or_else(|| {
                Malformed::new(LOCAL, "must name a commit or tag, such as HEAD, main~2 or 1a2b3c4")
            })?),
        };
        let reference =
            (!message.remote_ref.is_empty()).then(|| reference(REMOTE, &message.remote_ref)).transpose()?;
        if reference.is_none() && local.is_none() {
            return Err(Malformed::new(REMOTE, "is missing: name the reference to delete"));
        }
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let expected = Some(message.expected).filter(|id| !id.is_empty());
        if expected.as_ref().is_some_and(|id| id.len() != 40 || !id.bytes().all(is_digit)) {
            return Err(Malformed::new(
                "git.push.refs.expected",
                "is not an id of 40 lower-case hexadecimal digits",
            ));
        }
        Ok(Self { local, reference, expected })
    }
}

fn reference(field: &str, typed: &str) -> Result<GitRefName, Malformed> {
    GitRefName::parse(typed).ok_or_else(|| {
        Malformed::new(field, "must be a branch, or a name that begins with refs/heads/ or refs/tags/")
    })
}

#[cfg(test)]
mod tests;
