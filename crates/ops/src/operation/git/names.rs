//! The flags and revisions that git is asked with.

use std::fmt;

/// How much is shown of each change.
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
    /// The flag as it is typed.
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

/// The flags of `git diff` that are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GitDiffFlag {
    /// `--cached`, `--staged`
    Cached,
    /// `--no-color`
    NoColor,
    /// Another form than patches.
    Format(GitFormat),
}

impl GitDiffFlag {
    /// The flag as it is typed. `--staged` is the same as `--cached`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cached => "--cached",
            Self::NoColor => "--no-color",
            Self::Format(format) => format.as_str(),
        }
    }

    /// The flag that is typed like this.
    pub fn parse(flag: &str) -> Option<Self> {
        match flag {
            "--cached" | "--staged" => Some(Self::Cached),
            "--no-color" => Some(Self::NoColor),
            _ => GitFormat::parse(flag).map(Self::Format),
        }
    }
}

/// The flags of `git log` and `git show` that are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GitLogFlag {
    /// `--oneline`
    OneLine,
    /// `-s`, `--no-patch`
    NoPatch,
    /// `--no-color`
    NoColor,
    /// The changes of each commit in this form.
    Format(GitFormat),
}

impl GitLogFlag {
    /// The flag as it is typed. `-s` is the same as `--no-patch`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OneLine => "--oneline",
            Self::NoPatch => "--no-patch",
            Self::NoColor => "--no-color",
            Self::Format(format) => format.as_str(),
        }
    }

    /// The flag that is typed like this.
    pub fn parse(flag: &str) -> Option<Self> {
        match flag {
            "--oneline" => Some(Self::OneLine),
            "-s" | "--no-patch" => Some(Self::NoPatch),
            "--no-color" => Some(Self::NoColor),
            _ => GitFormat::parse(flag).map(Self::Format),
        }
    }
}

/// The commits that one revision reaches, without those that another one reaches: `A..B`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GitRevisions {
    /// Where they begin.
    pub of: GitRevision,
    /// These are left out, and all before them.
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

/// The name of a commit or tag: an id, a reference, and steps from it such as `~2`, `^` and `^{commit}`.
///
/// Not all that git understands: nothing that searches messages (`:/word`), asks reflogs (`@{1}`), or names what the index
/// has. Such a name costs more to find than to write, or is about another place than the history.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GitRevision(String);

/// Bytes of a revision, at most.
const MAX_REVISION: usize = 256;
/// What a tag or commit can be peeled to.
const PEELED: [&str; 3] = ["{}", "{commit}", "{tree}"];

impl GitRevision {
    /// The revision that is typed like this, if it is one.
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

    /// As it is typed.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether it can be an id or a reference.
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
