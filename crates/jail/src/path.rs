//! The path grammar: text from an agent becomes a mount and a path beneath it, or a refusal.

use std::fmt;
use std::str::FromStr;

use crate::mount::Mount;
use crate::refusal::PathRefusal;
use crate::rel::{Fault, RelPath};
use text::excerpt;

/// A place in a run: a mount and a normalised path beneath it. Displays as `@project/src/a.rs`, which parses back.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SandboxPath {
    mount: Mount,
    rel: RelPath,
}

impl SandboxPath {
    /// A path that is already known to be well-formed.
    pub const fn new(mount: Mount, rel: RelPath) -> Self {
        Self { mount, rel }
    }

    /// Accepts `@project/…`, `@pkg/…`, `@state/…`, the container's own `/workspace/…`, `/pkg/…`, `/state/…`, and
    /// relative paths, which are beneath `@project`. Everything else is refused. A backslash is an ordinary
    /// character of a name, but no path can begin with one or with a drive letter.
    pub fn parse(text: &str) -> Result<Self, PathRefusal> {
        if text.is_empty() {
            return Err(PathRefusal::Empty);
        }
        let (mount, beneath) = split_mount(text)?;
        match RelPath::normalise(beneath) {
            Ok(rel) => Ok(Self { mount, rel }),
            Err(Fault::Nul) => Err(PathRefusal::NulByte { mount }),
            Err(Fault::Parent) => Err(PathRefusal::ParentSegment { mount, path: excerpt(beneath) }),
            Err(Fault::PathTooLong) => Err(PathRefusal::PathTooLong { mount }),
            Err(Fault::ComponentTooLong) => Err(PathRefusal::ComponentTooLong { mount }),
        }
    }

    /// As [`Self::parse`], of a path as agents write it: a leading `./` or `/` before a mount's alias means nothing. For
    /// requests only. In a command, or on a disk, `./@project` is a name like any other.
    pub fn parse_written(text: &str) -> Result<Self, PathRefusal> {
        Self::parse(Self::from_alias(text).unwrap_or(text))
    }

    /// The part of `text` that begins with a mount's alias, when nothing but `./` and `/` is before it.
    pub fn from_alias(text: &str) -> Option<&str> {
        let mut rest = text;
        while let Some(shorter) = rest.strip_prefix("./").or_else(|| rest.strip_prefix('/')) {
            rest = shorter;
        }
        let alias = rest.split('/').next().unwrap_or_default();
        Mount::from_alias(alias).map(|_| rest)
    }

    pub const fn mount(&self) -> Mount {
        self.mount
    }

    /// The path beneath the mount.
    pub const fn rel(&self) -> &RelPath {
        &self.rel
    }

    /// The path as commands in the container see it, such as `/workspace/src/a.rs`.
    pub fn container_path(&self) -> String {
        join(self.mount.container_path(), &self.rel)
    }

    /// The form for messages: as displayed, but on one line and cut when very long.
    pub fn excerpt(&self) -> String {
        excerpt(&self.to_string())
    }
}

fn split_mount(text: &str) -> Result<(Mount, &str), PathRefusal> {
    if text.starts_with('@') {
        let (alias, beneath) = text.split_once('/').unwrap_or((text, ""));
        return match Mount::from_alias(alias) {
            Some(mount) => Ok((mount, beneath)),
            None => Err(PathRefusal::UnknownMount { given: excerpt(text) }),
        };
    }
    if text.starts_with('/') {
        return Mount::ALL
            .into_iter()
            .find_map(|mount| {
                let behind = text.strip_prefix(mount.container_path())?;
                // The slash between is no part of what the limit of length is about, in either form.
                if behind.is_empty() {
                    Some((mount, behind))
                } else {
                    Some((mount, behind.strip_prefix('/')?))
                }
            })
            .ok_or_else(|| PathRefusal::AbsoluteOutside { given: excerpt(text) });
    }
    if is_windows(text) {
        return Err(PathRefusal::Windows { given: excerpt(text) });
    }
    Ok((Mount::Project, text))
}

/// `\\server\share`, `\x`, `C:\x`, `C:/x`, `C:` and the drive-relative `C:x`.
fn is_windows(text: &str) -> bool {
    match text.as_bytes() {
        [b'\\', ..] => true,
        [drive, b':', ..] => drive.is_ascii_alphabetic(),
        _ => false,
    }
}

fn join(top: &str, rel: &RelPath) -> String {
    if rel.is_root() { top.to_owned() } else { format!("{top}/{}", rel.as_str()) }
}

impl fmt::Display for SandboxPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&join(self.mount.alias(), &self.rel))
    }
}

impl FromStr for SandboxPath {
    type Err = PathRefusal;

    fn from_str(text: &str) -> Result<Self, PathRefusal> {
        Self::parse(text)
    }
}
