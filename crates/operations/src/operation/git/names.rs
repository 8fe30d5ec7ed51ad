//! The flags and revisions that git is called with.

use std::fmt;

/// Format in which changes are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GitFormat {
    /// `--stat`
    Stat,
    /// `--name-only`
    NameOnly,
    /// `--name-status`
    NameStatus,
    /// `--shortstat`
    ShortStat,
    /// `--numstat`
    NumStat,
}

impl GitFormat {
    /// Returns the flag as it is typed.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stat => "--stat",
            Self::NameOnly => "--name-only",
            Self::NameStatus => "--name-status",
            Self::ShortStat => "--shortstat",
            Self::NumStat => "--numstat",
        }
    }

    fn parse(flag: &str) -> Option<Self> {
        Some(match flag {
            "--stat" => Self::Stat,
            "--name-only" => Self::NameOnly,
            "--name-status" => Self::NameStatus,
            "--shortstat" => Self::ShortStat,
            "--numstat" => Self::NumStat,
            _ => return None,
        })
    }
}

/// Allowed flag of `git diff`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GitDiffFlag {
    /// `--cached`, `--staged`
    Cached,
    /// `--no-color`
    NoColor,
    /// Another format than patches.
    Format(GitFormat),
}

impl GitDiffFlag {
    /// Returns the flag as it is typed. `--staged` is the same as `--cached`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cached => "--cached",
            Self::NoColor => "--no-color",
            Self::Format(format) => format.as_str(),
        }
    }

    /// Parses a flag as it is typed.
    pub fn parse(flag: &str) -> Option<Self> {
        match flag {
            "--cached" | "--staged" => Some(Self::Cached),
            "--no-color" => Some(Self::NoColor),
            _ => GitFormat::parse(flag).map(Self::Format),
        }
    }
}

/// Allowed flag of `git log` and `git show`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GitLogFlag {
    /// `--oneline`
    OneLine,
    /// `-s`, `--no-patch`
    NoPatch,
    /// `--no-color`
    NoColor,
    /// The changes of each commit in this format.
    Format(GitFormat),
}

impl GitLogFlag {
    /// Returns the flag as it is typed. `-s` is the same as `--no-patch`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OneLine => "--oneline",
            Self::NoPatch => "--no-patch",
            Self::NoColor => "--no-color",
            Self::Format(format) => format.as_str(),
        }
    }

    /// Parses a flag as it is typed.
    pub fn parse(flag: &str) -> Option<Self> {
        match flag {
            "--oneline" => Some(Self::OneLine),
            "-s" | "--no-patch" => Some(Self::NoPatch),
            "--no-color" => Some(Self::NoColor),
            _ => GitFormat::parse(flag).map(Self::Format),
        }
    }
}

/// Commits that are reachable from one revision but not from another: `A..B`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GitRevisions {
    /// Revision at which they begin.
    pub of: GitRevision,
    /// Revision that is left out, with all commits before it.
    pub without: Option<GitRevision>,
}

impl fmt::Display for GitRevisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.without {
            Some(without) => write!(f, "{without}..{}", self.of),
            None => self.of.fmt(f),
        }
    }
}

/// Name of a commit or tag: an id, a reference, and steps from it such as `~2`, `^` and `^{commit}`.
///
/// This is less than git accepts. It excludes names that search messages (`:/word`), query reflogs (`@{1}`), or mean the index. Such a name
/// costs more to resolve than to write, or does not concern the history.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GitRevision(String);

/// Most bytes of a revision.
const MAX_REVISION: usize = 256;
/// Types that a tag or commit can be peeled to.
const PEELED: [&str; 3] = ["{}", "{commit}", "{tree}"];

impl GitRevision {
    /// Parses a revision as it is typed, or returns `None`.
    pub fn parse(typed: &str) -> Option<Self> {
        let steps = typed.find(['~', '^']).unwrap_or(typed.len());
        let (name, mut steps) = typed.split_at(steps);
        if typed.len() > MAX_REVISION || !is_name(name) {
            return None;
        }
        while let Some(kind) = steps.chars().next() {
            steps = &steps[kind.len_utf8()..];
            let peeled = PEELED.iter().find(|peeled| kind == '^' && steps.starts_with(**peeled));
            let digits = steps.bytes().take_while(u8::is_ascii_digit).count();
            if !matches!(kind, '~' | '^') || digits > 6 {
                return None;
            }
            steps = &steps[peeled.map_or(digits, |peeled| peeled.len())..];
        }
        Some(Self(typed.to_owned()))
    }

    /// Returns the revision as it is typed.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns true if the text can be an id or a reference.
fn is_name(name: &str) -> bool {
    let forbidden =
        |c: char| c.is_control() || c.is_whitespace() || matches!(c, ':' | '?' | '*' | '[' | '\\');
    !name.is_empty()
        && !name.starts_with(['-', '/', '.'])
        && !["..", "//", "/.", "@{"].iter().any(|part| name.contains(part))
        && !name.chars().any(forbidden)
}

impl Default for GitRevision {
    fn default() -> Self {
        Self("HEAD".to_owned())
    }
}

impl fmt::Display for GitRevision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_are_names_with_steps() {
        for good in [
            "HEAD",
            "@",
            "main",
            "feature/ä-b_c",
            "v1.0",
            "refs/heads/main",
            "1a2b3c4",
            "HEAD~",
            "HEAD^",
            "HEAD^2~3",
            "HEAD~999999",
            "v1.0^{}",
            "v1.0^{commit}",
            "main^{tree}",
            "HEAD^^^",
            "a@b",
        ] {
            assert_eq!(GitRevision::parse(good).as_ref().map(GitRevision::as_str), Some(good), "{good}");
        }
        for bad in [
            "",
            "~1",
            "^main",
            "-n",
            "--all",
            "a b",
            "a\tb",
            "a\n",
            "a\0",
            ":/fix",
            ":0:a",
            "a:b",
            "HEAD@{1}",
            "@{-1}",
            "@{upstream}",
            "a..b",
            "a...b",
            "../a",
            "a/../b",
            "/a",
            ".git/x",
            "a//b",
            "a/.b",
            "HEAD^{/fix}",
            "HEAD^{blob",
            "HEAD~1x",
            "HEAD~1000000",
            "HEAD^-",
            "HEAD^!",
            "a*",
            "a?",
            "a[b",
            "a\\b",
            &"a".repeat(257),
        ] {
            assert_eq!(GitRevision::parse(bad), None, "{bad:?}");
        }
    }
}
