//! The path grammar: text from an agent becomes a mount and a path beneath it, or a refusal.

use std::fmt;
use std::str::FromStr;

use crate::mount::Mount;
use crate::refusal::PathRefusal;
use crate::rel::{Fault, RelPath};
use text::excerpt;

/// A location in a run: a mount and a normalised path beneath it. Displays as `@project/src/a.rs`, which parses back.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SandboxPath {
    mount: Mount,
    rel: RelPath,
}

impl SandboxPath {
    /// Makes a path from parts that are known to be well-formed.
    pub const fn new(mount: Mount, rel: RelPath) -> Self {
        Self { mount, rel }
    }

    /// Parses `@project/…`, `@pkg/…`, `@state/…`, the container's own `/workspace/…`, `/pkg/…`, `/state/…`, and
    /// relative paths, which are beneath `@project`.
    ///
    /// Every other text is refused. A backslash is an ordinary character of a name, but no path can begin with one or
    /// with a drive letter.
    pub fn parse(text: &str) -> Result<Self, PathRefusal> {
        if text.is_empty() {
            return Err(PathRefusal::Empty);
        }
        let (mount, beneath) = split_mount(text)?;
        let rel = RelPath::normalise(beneath).map_err(|fault| refusal(fault, mount, beneath))?;
        Ok(Self { mount, rel })
    }

    /// Parses like [`Self::parse`], and ignores a leading `./` or `/` before a mount's alias, which agents often write.
    ///
    /// For requests only. In a command, or on a disk, `./@project` is a name like any other.
    pub fn parse_written(text: &str) -> Result<Self, PathRefusal> {
        Self::parse(Self::from_alias(text).unwrap_or(text))
    }

    /// Parses like [`Self::parse_written`], and accepts paths outside the mounts: `/etc/hosts` is the container's own
    /// file.
    pub fn parse_anywhere(text: &str) -> Result<Self, PathRefusal> {
        let mount = Mount::Container;
        match Self::parse_written(text) {
            Err(PathRefusal::AbsoluteOutside { .. }) => {}
            parsed => return parsed,
        }
        let rel = RelPath::normalise(text).map_err(|fault| refusal(fault, mount, text))?;
        // `//workspace/a` is still a path in a mount.
        let plain = format!("/{}", rel.as_str());
        match Self::parse(&plain) {
            Err(PathRefusal::AbsoluteOutside { .. }) => Ok(Self { mount, rel }),
            parsed => parsed,
        }
    }

    /// Returns the part of `text` from a mount's alias on, if only `./` and `/` precede it.
    pub fn from_alias(text: &str) -> Option<&str> {
        let mut rest = text;
        while let Some(shorter) = rest.strip_prefix("./").or_else(|| rest.strip_prefix('/')) {
            rest = shorter;
        }
        let alias = rest.split('/').next().unwrap_or_default();
        Mount::from_alias(alias).map(|_| rest)
    }

    /// Splits a path or pattern that begins at the root of a mount, as agents write it. `None` if it begins elsewhere.
    pub fn split_written(text: &str) -> Option<(Mount, &str)> {
        let text = Self::from_alias(text).unwrap_or(text);
        split_mount(text).ok().filter(|_| text.starts_with(['@', '/']))
    }

    pub const fn mount(&self) -> Mount {
        self.mount
    }

    /// Returns the path beneath the mount.
    pub const fn rel(&self) -> &RelPath {
        &self.rel
    }

    /// Returns the path as commands in the container see it, such as `/workspace/src/a.rs`.
    pub fn container_path(&self) -> String {
        join(self.mount.container_path(), &self.rel)
    }

    /// Returns the display form of the path `beneath` this directory.
    pub fn shown(&self, beneath: impl fmt::Display) -> String {
        format!("{}/{beneath}", self.to_string().trim_end_matches('/'))
    }

    /// Returns the form for messages: as displayed, but on one line, and cut if it is very long.
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
                // The slash in between does not count for the limit of length, in either form.
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

/// Returns true for `\\server\share`, `\x`, `C:\x`, `C:/x`, `C:` and the drive-relative `C:x`.
fn is_windows(text: &str) -> bool {
    match text.as_bytes() {
        [b'\\', ..] => true,
        [drive, b':', ..] => drive.is_ascii_alphabetic(),
        _ => false,
    }
}

fn refusal(fault: Fault, mount: Mount, beneath: &str) -> PathRefusal {
    match fault {
        Fault::Nul => PathRefusal::NulByte { mount },
        Fault::Parent => PathRefusal::ParentSegment { mount, path: excerpt(beneath) },
        Fault::PathTooLong => PathRefusal::PathTooLong { mount },
        Fault::ComponentTooLong => PathRefusal::ComponentTooLong { mount },
    }
}

fn join(top: &str, rel: &RelPath) -> String {
    match rel.as_str() {
        "" => top.to_owned(),
        rel => format!("{}/{rel}", top.trim_end_matches('/')),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_outside_of_the_mounts_has_one_form_and_differs_from_every_path_inside() {
        let parsed = |text: &str| SandboxPath::parse_anywhere(text).map_err(|refusal| refusal.reason());
        for (text, shown) in [
            ("/etc/hosts", "/etc/hosts"),
            ("//tmp/./a//b/", "/tmp/a/b"),
            ("/", "/"),
            ("/workspaces/a", "/workspaces/a"),
            ("/@a", "/@a"),
            ("/workspace/a", "@project/a"),
            ("//workspace", "@project"),
            ("/./state//a", "@state/a"),
            ("/@pkg/a", "@pkg/a"),
            ("a", "@project/a"),
            ("/...", "/..."),
        ] {
            let path = parsed(text).unwrap();
            assert_eq!(path.to_string(), shown, "{text}");
            assert_eq!(parsed(shown).as_ref(), Ok(&path), "{text}");
            if path.mount() == Mount::Container {
                assert_eq!(
                    SandboxPath::parse(text).map_err(|refusal| refusal.reason()),
                    Err("absolute_path")
                );
                assert_eq!(path.container_path(), shown);
            }
        }
        for (text, reason) in [
            ("/tmp/../workspace/a", "parent_segment"),
            ("/..", "parent_segment"),
            ("/tmp/a\0", "nul_byte"),
            ("C:/a", "windows_path"),
            ("@none/a", "unknown_mount"),
            ("", "empty_path"),
        ] {
            assert_eq!(parsed(text), Err(reason), "{text}");
        }
    }
}
