//! The part of a path beneath its mount.

use crate::name::EntryName;

/// Most bytes of a path beneath its mount.
pub const MAX_PATH_BYTES: usize = 4096;
/// Most bytes of one component, as in Linux file systems.
pub const MAX_COMPONENT_BYTES: usize = 255;

/// A normalised relative path. The empty path is the mount's root.
///
/// Its components are joined by single slashes. None of them is empty, `.` or `..`. It has no NUL, and is within the
/// two size limits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RelPath(String);

/// Reason why a text is not a [`RelPath`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Nul,
    Parent,
    PathTooLong,
    ComponentTooLong,
}

impl RelPath {
    pub const fn root() -> Self {
        Self(String::new())
    }

    /// Removes empty and `.` components. `..` is refused, never resolved: `a/../b` means another file if `a` is a link.
    ///
    /// A `..` between backslashes is refused too, because a later reader may treat backslashes as separators.
    pub(crate) fn normalise(text: &str) -> Result<Self, Fault> {
        if text.len() > MAX_PATH_BYTES {
            return Err(Fault::PathTooLong);
        }
        if text.contains('\0') {
            return Err(Fault::Nul);
        }
        let mut path = String::with_capacity(text.len());
        for component in text.split('/').filter(|component| !matches!(*component, "" | ".")) {
            if component.split('\\').any(|part| part == "..") {
                return Err(Fault::Parent);
            }
            if component.len() > MAX_COMPONENT_BYTES {
                return Err(Fault::ComponentTooLong);
            }
            if !path.is_empty() {
                path.push('/');
            }
            path.push_str(component);
        }
        Ok(Self(path))
    }

    /// Returns the path as text, empty for the root.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true if this is the mount itself.
    pub const fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the components from the top.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('/').filter(|component| !component.is_empty())
    }

    /// Returns the last component. `None` for the root.
    pub fn file_name(&self) -> Option<&str> {
        self.components().next_back()
    }

    /// Returns the directory of this path. `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        if self.is_root() {
            return None;
        }
        Some(self.0.rsplit_once('/').map_or_else(Self::root, |(parent, _)| Self(parent.to_owned())))
    }

    /// Returns the child `name`. `None` if no path can express it: not UTF-8, a `..` between backslashes, or too long.
    pub fn join(&self, name: &EntryName) -> Option<Self> {
        let name = name.as_str()?;
        let joined = if self.is_root() { name.to_owned() } else { format!("{}/{name}", self.0) };
        Self::normalise(&joined).ok()
    }

    pub(crate) fn split_last(&self) -> Option<(Self, EntryName)> {
        Some((self.parent()?, EntryName::new(self.file_name()?.as_bytes())?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rel(text: &str) -> RelPath {
        RelPath::normalise(text).unwrap()
    }

    #[test]
    fn normalises() {
        assert_eq!(rel("./a//b/./c/"), rel("a/b/c"));
        assert_eq!(rel("."), RelPath::root());
        assert_eq!(rel("...").as_str(), "...");
    }

    #[test]
    fn limits_are_exact() {
        assert!(RelPath::normalise(&"a".repeat(255)).is_ok());
        assert_eq!(RelPath::normalise(&"a".repeat(256)), Err(Fault::ComponentTooLong));
        assert!(RelPath::normalise(&"a/".repeat(2048)).is_ok());
        assert_eq!(RelPath::normalise(&format!("{}b", "a/".repeat(2048))), Err(Fault::PathTooLong));
    }

    #[test]
    fn parents_and_children() {
        let name = EntryName::new(b"c").unwrap();
        assert_eq!(rel("a/b").join(&name), Some(rel("a/b/c")));
        assert_eq!(RelPath::root().join(&name), Some(rel("c")));
        assert_eq!(rel("a/b").join(&EntryName::new(b"x\\..").unwrap()), None);
        assert_eq!(rel("a/b").join(&EntryName::new(b"\xff").unwrap()), None);
        assert_eq!(rel("a/b").parent(), Some(rel("a")));
        assert_eq!(rel("a").parent(), Some(RelPath::root()));
        assert_eq!(RelPath::root().parent(), None);
        assert_eq!(rel("a/b").split_last(), Some((rel("a"), EntryName::new(b"b").unwrap())));
    }
}
