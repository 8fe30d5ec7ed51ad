//! The tools whose configuration is read.

use crate::found::Found;
use crate::host::Host;
use crate::{apt, cargo, docker, git, go, npm, pip};

/// Reads the configuration of one tool.
type Read = fn(&Host, &mut Found);

/// The tools, in the order of the output.
const TOOLS: [(&str, Read); 7] = [
    ("pip", pip::read),
    ("npm", npm::read),
    ("cargo", cargo::read),
    ("go", go::read),
    ("apt", apt::read),
    ("git", git::read),
    ("Docker", docker::read),
];

/// Reads the configuration of all tools.
pub(super) fn read(host: &Host) -> Found {
    let mut found = Found::default();
    for (tool, read) in TOOLS {
        found.read(tool, |found| read(host, found));
    }
    found
}

#[cfg(test)]
#[path = "tools_tests.rs"]
mod tests;
