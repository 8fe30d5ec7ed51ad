//! `.gitignore` and `.ignore` files, read through the jail: the library only ever sees their lines.

use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use jail::{Dir, EntryName};

/// What lies beyond this in an ignore file does not count.
const MAX_BYTES: u64 = 64 * 1024;

/// The ignore files of one directory.
#[derive(Debug)]
struct Rules {
    /// Length of the directory's own path, with its slash.
    prefix: usize,
    git: Gitignore,
    plain: Gitignore,
}

/// The ignore files from the mount's root down to where the walk is.
#[derive(Debug, Default)]
pub(super) struct Ignores {
    stack: Vec<Rules>,
}

impl Ignores {
    /// Enters `dir`, whose own path from the mount's root is `path`: empty, or with a slash at the end.
    pub(super) fn enter(&mut self, dir: &Dir, path: &[u8]) {
        self.stack.push(Rules {
            prefix: path.len(),
            git: load(dir, b".gitignore"),
            plain: load(dir, b".ignore"),
        });
    }

    /// Leaves the directory that was entered last.
    pub(super) fn leave(&mut self) {
        self.stack.pop();
    }

    /// Whether the file or directory at `path` is ignored. The deepest file with a matching line decides, and `.ignore`
    /// before `.gitignore`. Directories that are ignored are not entered, so that their children need no look.
    pub(super) fn excludes(&self, path: &[u8], is_dir: bool) -> bool {
        let decide = |choose: fn(&Rules) -> &Gitignore| {
            self.stack.iter().rev().find_map(|rules| {
                let relative = Path::new(OsStr::from_bytes(path.get(rules.prefix..)?));
                match choose(rules).matched(relative, is_dir) {
                    Match::None => None,
                    Match::Ignore(_) => Some(true),
                    Match::Whitelist(_) => Some(false),
                }
            })
        };
        decide(|rules| &rules.plain).or_else(|| decide(|rules| &rules.git)).unwrap_or(false)
    }
}

/// The rules of one file; none when it is absent, unreadable or a link.
fn load(dir: &Dir, name: &[u8]) -> Gitignore {
    let mut bytes = Vec::new();
    let read = EntryName::new(name)
        .and_then(|name| dir.open_file(&name).ok())
        .and_then(|opened| opened.file.take(MAX_BYTES).read_to_end(&mut bytes).ok());
    if read.is_none_or(|length| length == 0) {
        return Gitignore::empty();
    }
    let mut builder = GitignoreBuilder::new(".");
    for line in String::from_utf8_lossy(&bytes).trim_start_matches('\u{feff}').lines() {
        // A line that is no pattern is passed over, as git does.
        let _ = builder.add_line(None, line);
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}
