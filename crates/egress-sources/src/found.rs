//! Hosts that this host's tools are configured to use, from their documented files and variables.
//!
//! Files are hostile input: only regular files are read, up to a bound. No value is repeated in a message, as each may have a password
//! in it; of a URL, the scheme, host and port remain.

use crate::host::Host;
use crate::remote::Remote;

/// Most settings of all tools that are reported.
const MOST: usize = 1_024;

/// One server that a tool is configured to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) tool: &'static str,
    /// File and key, or variable.
    pub(super) origin: String,
    pub(super) remote: Remote,
}

/// Settings of all tools, and notes on what was not used.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) settings: Vec<Setting>,
    pub(super) notes: Vec<String>,
    /// Tools without a setting that names a host.
    pub(super) without: Vec<&'static str>,
    tool: &'static str,
}

impl Found {
    /// Adds the settings of a tool.
    pub(super) fn read(&mut self, tool: &'static str, read: impl FnOnce(&mut Self)) {
        self.tool = tool;
        read(self);
        if !self.settings.iter().any(|setting| setting.tool == tool) {
            self.without.push(tool);
        }
    }

    /// Adds the server of a URL, or a note that the URL cannot be used.
    pub(super) fn add(&mut self, origin: &str, url: &str) {
        match Remote::parse(url) {
            Ok(Some(remote)) => self.add_remote(origin, remote),
            Ok(None) => {}
            Err(problem) => self.note(origin, problem),
        }
    }

    pub(super) fn add_remote(&mut self, origin: &str, remote: Remote) {
        if self.settings.len() < MOST {
            self.settings.push(Setting { tool: self.tool, origin: origin.to_owned(), remote });
        } else if self.settings.len() == MOST && !self.notes.last().is_some_and(|note| note.contains("more"))
        {
            self.note(origin, "more settings are not read");
        }
    }

    pub(super) fn note(&mut self, origin: &str, problem: impl std::fmt::Display) {
        if self.notes.len() < MOST {
            self.notes.push(format!("{}: {origin}: {problem}", self.tool));
        }
    }

    /// Reads a file, if it is there, with a note if it cannot be read.
    pub(super) fn text(&mut self, host: &Host, path: &std::path::Path) -> Option<String> {
        host.text(path).unwrap_or_else(|problem| {
            self.note(&path.display().to_string(), problem);
            None
        })
    }
}
