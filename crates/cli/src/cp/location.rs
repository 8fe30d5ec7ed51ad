//! Source and destination of a copy.

use std::convert::Infallible;
use std::path::PathBuf;
use std::str::FromStr;

use crate::run_ref::RunRef;

/// A local path, or a path in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Location {
    Local(PathBuf),
    Remote(Remote),
}

/// A path in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Remote {
    pub(super) run: RunRef,
    pub(super) path: String,
}

impl FromStr for Location {
    type Err = Infallible;

    /// Parses a path. As with `scp`, a colon before the first slash makes it a path in a run.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        match text.split_once(':') {
            Some((run, path)) if !run.is_empty() && !run.contains('/') => {
                let run: RunRef = run.parse()?;
                Ok(Self::Remote(Remote { run, path: path.to_owned() }))
            }
            _ => Ok(Self::Local(text.into())),
        }
    }
}

impl Remote {
    /// Returns the path of the copy of a file or directory called `name`.
    pub(super) fn beneath(&self, name: &str) -> String {
        if self.path.is_empty() || self.path.ends_with('/') {
            format!("{}{name}", self.path)
        } else {
            self.path.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_before_the_first_slash_names_a_run() {
        let remote = |text: &str| match text.parse() {
            Ok(Location::Remote(Remote { path, .. })) => Some(path),
            _ => None,
        };
        assert_eq!(remote("3f2a:src/a.rs").as_deref(), Some("src/a.rs"));
        assert_eq!(remote("-:@state/a:b").as_deref(), Some("@state/a:b"));
        assert_eq!(remote("3f2a:").as_deref(), Some(""));
        for local in ["a.rs", "./a:b", "/a:b", ":a", "dir/3f2a:x"] {
            assert_eq!(remote(local), None, "{local}");
        }
    }

    #[test]
    fn a_copy_keeps_its_name_in_a_destination_with_a_final_slash() {
        let beneath = |path: &str| Remote { run: RunRef::Environment, path: path.to_owned() }.beneath("x");
        assert_eq!([beneath(""), beneath("d/"), beneath("d")], ["x", "d/x", "d"]);
    }
}
