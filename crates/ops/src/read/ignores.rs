//! `.gitignore` and `.ignore` files on the way of a walk, read through the jail, in bounded memory.

use std::io::Read as _;

use jail::{Dir, EntryName};

use super::gitignore::Gitignore;

/// What lies beyond this in an ignore file does not count.
const MAX_BYTES: usize = 64 * 1024;
/// What all rules from the mount's root down to where a walk is may take. Further files do not count.
const MAX_RULES_BYTES: usize = 2 * 1024 * 1024;

/// The ignore files of one directory. Most directories have none.
#[derive(Debug, Default)]
struct Rules {
    /// Length of the directory's own path, with its slash.
    prefix: usize,
    /// It is the top of a repository, in which no `.gitignore` from above it counts.
    repository: bool,
    git: Option<Gitignore>,
    plain: Option<Gitignore>,
}

/// The ignore files from the mount's root down to where the walk is.
#[derive(Debug, Default)]
pub(super) struct Ignores {
    stack: Vec<Rules>,
    /// Bytes that they take.
    bytes: usize,
    /// Some file, or a part of one, does not count.
    cut: bool,
}

impl Ignores {
    /// Enters `dir`, whose own path from the mount's root is `path`: empty, or with a slash at the end. `may_have` says
    /// whether it is worth to look for a name.
    pub(super) fn enter(&mut self, dir: &Dir, path: &[u8], may_have: impl Fn(&[u8]) -> bool) {
        let mut load = |name: &[u8]| if may_have(name) { self.load(dir, name) } else { None };
        let (git, plain) = (load(b".gitignore"), load(b".ignore"));
        let repository =
            may_have(b".git") && EntryName::new(b".git").is_some_and(|name| dir.metadata(&name).is_ok());
        self.stack.push(Rules { prefix: path.len(), repository, git, plain });
    }

    /// Leaves the directory that was entered last.
    pub(super) fn leave(&mut self) {
        for rules in self.stack.pop().into_iter().flat_map(|rules| [rules.git, rules.plain]).flatten() {
            self.bytes -= rules.size();
        }
    }

    /// Leaves all directories at once.
    pub(super) fn forget(&mut self) {
        *self = Self { cut: self.cut, ..Self::default() };
    }

    /// Returns whether a rule excludes everything in the directory `path` by its path. `path` ends with a slash.
    pub(super) fn exclude_all_in(&self, path: &[u8]) -> bool {
        let any = [path, b"\x01"].concat();
        let excludes = |(rules, file): (&Rules, &Gitignore)| {
            file.excludes_by_path(any.get(rules.prefix..).unwrap_or_default())
        };
        self.plain().any(excludes) || self.git().any(excludes)
    }

    /// The `.ignore` files, the deepest first.
    fn plain(&self) -> impl Iterator<Item = (&Rules, &Gitignore)> {
        self.stack.iter().rev().filter_map(|rules| Some((rules, rules.plain.as_ref()?)))
    }

    /// The `.gitignore` files of the repository that the walk is in, the deepest first.
    fn git(&self) -> impl Iterator<Item = (&Rules, &Gitignore)> {
        let top = self.stack.iter().rposition(|rules| rules.repository).unwrap_or(0);
        let own = self.stack.get(top..).unwrap_or_default();
        own.iter().rev().filter_map(|rules| Some((rules, rules.git.as_ref()?)))
    }

    /// Whether some rules were too many to count: something was visited that they may exclude.
    pub(super) fn cut(&self) -> bool {
        self.cut
    }

    /// Returns whether the file or directory at `path` is ignored; `Some(false)` if a line asks for it (`!name`). The deepest
    /// file with a matching line decides, and `.ignore` before `.gitignore`. Directories that are ignored are not entered, so
    /// that their children need no look.
    pub(super) fn excludes(&self, path: &[u8], is_dir: bool) -> Option<bool> {
        let decide = |(rules, file): (&Rules, &Gitignore)| file.matched(path.get(rules.prefix..)?, is_dir);
        self.plain().find_map(decide).or_else(|| self.git().find_map(decide))
    }

    /// The rules of one file; none when it is absent, empty, unreadable or a link.
    fn load(&mut self, dir: &Dir, name: &[u8]) -> Option<Gitignore> {
        let mut bytes = Vec::new();
        let opened = dir.open_file(&EntryName::new(name)?).ok()?;
        let read = opened.file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).ok()?;
        if read > MAX_BYTES {
            // Half a line may exclude what the whole one does not.
            let last = bytes.iter().rposition(|&byte| byte == b'\n').unwrap_or(0);
            bytes.truncate(last);
            self.cut = true;
        }
        let rules = (!bytes.is_empty()).then(|| Gitignore::parse(bytes))?;
        if self.bytes + rules.size() > MAX_RULES_BYTES {
            self.cut = true;
            return None;
        }
        self.bytes += rules.size();
        Some(rules)
    }
}
