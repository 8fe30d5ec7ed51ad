//! `.gitignore` and `.ignore` files on the way of a walk, read through the jail, in bounded memory.

use std::io::Read as _;

use jail::{Dir, EntryName};

use super::gitignore::Gitignore;

/// Largest part of an ignore file that counts.
const MAX_BYTES: usize = 64 * 1024;
/// Memory for all rules from the mount's root down to the current directory. Further files do not count.
const MAX_RULES_BYTES: usize = 2 * 1024 * 1024;

/// Ignore files of one directory. Most directories have none.
#[derive(Debug, Default)]
struct Rules {
    /// Length of the directory's own path, with its slash.
    prefix: usize,
    /// True for the top of a repository, where no `.gitignore` from above applies.
    repository: bool,
    git: Option<Gitignore>,
    plain: Option<Gitignore>,
}

/// Ignore files from the mount's root down to the walk's current directory.
#[derive(Debug, Default)]
pub(super) struct Ignores {
    stack: Vec<Rules>,
    /// Bytes that the files take.
    bytes: usize,
    /// True if a file, or a part of one, does not count.
    cut: bool,
}

impl Ignores {
    /// Enters `dir`, whose own path from the mount's root is `path`: empty, or with a slash at the end.
    ///
    /// `may_have` returns false for a name that need not be looked up.
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

    /// Returns true if a rule excludes everything in the directory `path` by its path. `path` ends with a slash.
    pub(super) fn exclude_all_in(&self, path: &[u8]) -> bool {
        let any = [path, b"\x01"].concat();
        let excludes = |(rules, file): (&Rules, &Gitignore)| {
            file.excludes_by_path(any.get(rules.prefix..).unwrap_or_default())
        };
        self.plain().any(excludes) || self.git().any(excludes)
    }

    /// Returns the `.ignore` files, the deepest first.
    fn plain(&self) -> impl Iterator<Item = (&Rules, &Gitignore)> {
        self.stack.iter().rev().filter_map(|rules| Some((rules, rules.plain.as_ref()?)))
    }

    /// Returns the `.gitignore` files of the walk's current repository, the deepest first.
    fn git(&self) -> impl Iterator<Item = (&Rules, &Gitignore)> {
        let top = self.stack.iter().rposition(|rules| rules.repository).unwrap_or(0);
        let own = self.stack.get(top..).unwrap_or_default();
        own.iter().rev().filter_map(|rules| Some((rules, rules.git.as_ref()?)))
    }

    /// Returns true if some rules did not fit into memory, so that visited files may be excluded by them.
    pub(super) fn cut(&self) -> bool {
        self.cut
    }

    /// Returns true if the file or directory at `path` is ignored; `Some(false)` if a line includes it (`!name`).
    ///
    /// The deepest file with a matching line decides, and `.ignore` precedes `.gitignore`. Ignored directories are not entered, so their
    /// children need no check.
    pub(super) fn excludes(&self, path: &[u8], is_dir: bool) -> Option<bool> {
        let decide = |(rules, file): (&Rules, &Gitignore)| file.matched(path.get(rules.prefix..)?, is_dir);
        self.plain().find_map(decide).or_else(|| self.git().find_map(decide))
    }

    /// Loads the rules of one file; none if it is absent, empty, unreadable or a link.
    fn load(&mut self, dir: &Dir, name: &[u8]) -> Option<Gitignore> {
        let mut bytes = Vec::new();
        let opened = dir.open_file(&EntryName::new(name)?).ok()?;
        let read = opened.file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).ok()?;
        if read > MAX_BYTES {
            // Half a line may exclude files that the whole line does not.
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
