//! Glob patterns over paths, with the semantics of `.gitignore` and ripgrep's `-g`.
//!
//! `*` and `?` stay within a component and `**` does not. `?` is one byte, as in ripgrep. A pattern without a slash matches the last
//! component at any depth; with a slash it matches the path from the searched directory. A slash at the end means everything below. A
//! pattern that begins like an answer's paths (`@project/…`, `/workspace/…`) matches the path from that mount's root.
//!
//! Directories that a pattern names in full are opened, not searched for: the walk begins in the last of them. So they may be hidden,
//! ignored or links.

use globset::{ErrorKind, GlobBuilder, GlobSet, GlobSetBuilder};
use jail::{EntryName, Mount, RelPath, SandboxPath, excerpt};
use operations::{Reason, ToolFailure};

use super::spelling::{components, doubts, is_plain, misunderstood, whole_components};

/// Compiled pattern.
#[derive(Debug)]
pub(super) struct Pattern {
    matcher: GlobSet,
    start: SandboxPath,
    /// Path from the matcher's directory to `start`: empty, or with a slash at the end.
    lead: String,
    name: Option<EntryName>,
    names_hidden: bool,
    doubts: Vec<&'static str>,
}

impl Pattern {
    /// Compiles the pattern of a search in the directory `within`.
    pub(super) fn compile(text: &str, within: &SandboxPath) -> Result<Self, ToolFailure> {
        if let Some(why) = misunderstood(text) {
            return Err(refused(why));
        }
        let from_root = from_root(text, within.mount());
        let (base, given) = match from_root {
            Some((mount, given)) => (SandboxPath::new(mount, RelPath::root()), given),
            None => (within.clone(), text),
        };
        let mut parts: Vec<&str> =
            components(given).into_iter().filter(|part| !matches!(*part, "" | ".")).collect();
        if parts.contains(&"..") {
            return Err(refused(
                "`..` is not supported in a pattern; give the directory to search as the path",
            ));
        }
        if given.ends_with('/') && !parts.is_empty() || parts.is_empty() && from_root.is_some() {
            parts.push("**");
        }
        let Some(last) = parts.len().checked_sub(1) else { return Err(refused("it is empty")) };
        let anchored = from_root.is_some() || given.contains('/');
        let named = if anchored { parts[..last].iter().take_while(|part| is_plain(part)).count() } else { 0 };
        let (named, rest) = parts.split_at(named);
        let top = named
            .iter()
            .try_fold(base.rel().clone(), |rel, part| rel.join(&EntryName::new(part.as_bytes())?));
        let top = SandboxPath::new(base.mount(), top.ok_or_else(|| refused("its path is too long"))?);
        let (start, lead) = if is_in(&top, within) {
            (top, String::new())
        } else if is_in(within, &top) {
            let beyond = within.rel().as_str()[top.rel().as_str().len()..].trim_start_matches('/');
            (within.clone(), format!("{beyond}/"))
        } else {
            let why = format!("it cannot match files in {}; search in {}", within.excerpt(), top.excerpt());
            return Err(refused(&why));
        };
        let name = match rest {
            [name] if anchored && lead.is_empty() && is_plain(name) => EntryName::new(name.as_bytes()),
            _ => None,
        };
        let rest = rest.join("/");
        let any_depth = if anchored { "" } else { "**/" };
        let names_hidden = rest.starts_with('.') || ["/.", "{.", ",."].iter().any(|dot| rest.contains(dot));
        let matcher = matcher(&format!("{any_depth}{}", whole_components(&rest)))?;
        Ok(Self { matcher, start, lead, name, names_hidden, doubts: doubts(text) })
    }

    /// Returns the directory that contains all matching files: the searched one, or one below it.
    pub(super) const fn start(&self) -> &SandboxPath {
        &self.start
    }

    /// Returns the file name in [`Self::start`], if the pattern names one file in full.
    pub(super) const fn name(&self) -> Option<&EntryName> {
        self.name.as_ref()
    }

    /// Returns true if the path, relative to [`Self::start`], matches.
    pub(super) fn matches(&self, path: &str) -> bool {
        if self.lead.is_empty() {
            self.matcher.is_match(path)
        } else {
            self.matcher.is_match(format!("{}{path}", self.lead))
        }
    }

    /// Returns true if the pattern names dot files, so that the walk has to visit them.
    pub(super) const fn names_hidden(&self) -> bool {
        self.names_hidden
    }

    /// Returns why it might match no file although files exist: its characters may have a different meaning in other tools.
    pub(super) fn doubts(&self) -> &[&'static str] {
        &self.doubts
    }
}

/// Splits a pattern that begins at the root of a mount.
fn from_root(text: &str, within: Mount) -> Option<(Mount, &str)> {
    SandboxPath::split_written(text)
        .or_else(|| (within == Mount::Container && text.starts_with('/')).then_some((within, text)))
}

fn is_in(path: &SandboxPath, above: &SandboxPath) -> bool {
    let rest = path.rel().as_str().strip_prefix(above.rel().as_str());
    path.mount() == above.mount()
        && rest.is_some_and(|rest| above.rel().is_root() || rest.is_empty() || rest.starts_with('/'))
}

fn matcher(text: &str) -> Result<GlobSet, ToolFailure> {
    let glob = GlobBuilder::new(text)
        .literal_separator(true)
        .backslash_escape(true)
        .empty_alternates(true)
        .build()
        .map_err(|error| refused(&error.kind().to_string()))?;
    // A set of one, because a single matcher panics on patterns that are too deep or too large. A set returns an error.
    GlobSetBuilder::new().add(glob).build().map_err(|error| match error.kind() {
        ErrorKind::Regex(_) => refused("it is too large, or its braces are nested too deeply"),
        kind => refused(&kind.to_string()),
    })
}

fn refused(why: &str) -> ToolFailure {
    ToolFailure::new(Reason::InvalidArgument, format!("the glob pattern is not valid: {}", excerpt(why)))
}

#[cfg(test)]
mod property;

#[cfg(test)]
mod tests;
