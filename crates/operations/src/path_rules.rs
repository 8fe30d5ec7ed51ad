//! Rules of a profile for paths. The gateway applies them to named paths, and the lanes to every path that they reach.
//!
//! The gateway sees names. A lane follows links and walks directories, and its jail checks each path on the way. So neither a link nor
//! another spelling of a path circumvents a rule.

use std::sync::Arc;

use jail::{Access, Jail, PathGuard, PathRefusal, SandboxPath};
use serde::Serialize;

use crate::path_pattern::{PathPattern, within};

/// Kind of access that a rule covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RuledAccess {
    #[default]
    Any,
    Read,
    Write,
}

impl RuledAccess {
    /// Returns the name in policies and in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Read => "read",
            Self::Write => "write",
        }
    }

    fn is_of(self, access: Access) -> bool {
        match access {
            Access::Read => self != Self::Write,
            Access::Write => self != Self::Read,
            // The files of a running program are not checked.
            Access::Execute => false,
        }
    }
}

/// Paths to which a rule applies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuledPaths {
    /// Patterns, one of which has to match.
    pub path: Vec<PathPattern>,
    /// Patterns of paths that are exempt.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<PathPattern>,
    pub access: RuledAccess,
}

impl RuledPaths {
    /// Returns true if the rule applies to this access to this path.
    pub fn cover(&self, path: &SandboxPath, access: Access) -> bool {
        self.cover_text(&path.to_string(), access)
    }

    fn cover_text(&self, path: &str, access: Access) -> bool {
        self.access.is_of(access)
            && self.path.iter().any(|pattern| pattern.matches_text(path))
            && !self.except.iter().any(|pattern| pattern.takes_in(path))
    }

    /// Returns true if the rule may apply to a path beneath this directory.
    pub fn may_cover_beneath(&self, directory: &SandboxPath, access: Access) -> bool {
        self.access.is_of(access)
            && self.path.iter().any(|pattern| pattern.may_be_beneath(directory))
            && !self.except.iter().any(|pattern| pattern.takes_in(&directory.to_string()))
    }
}

/// Rule for a lane, which refuses the paths that it covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathRule {
    pub paths: RuledPaths,
    /// True if a reviewer can consent to it in a call that names the path.
    pub asks: bool,
}

/// Rules that a lane applies to one call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PathRules {
    pub rules: Vec<PathRule>,
    /// Paths that a reviewer saw in the call and consented to, with everything beneath them.
    pub consented: Vec<SandboxPath>,
}

impl PathRules {
    /// Returns the jail under these rules.
    #[must_use]
    pub fn guard(&self, jail: Jail) -> Jail {
        if self.rules.is_empty() { jail } else { jail.with_guard(Arc::new(self.clone())) }
    }
}

impl PathGuard for PathRules {
    fn check(&self, path: &SandboxPath, access: Access) -> Result<(), PathRefusal> {
        let text = path.to_string();
        let covering = self.rules.iter().filter(|rule| rule.paths.cover_text(&text, access));
        match covering.map(|rule| rule.asks).min() {
            None => Ok(()),
            Some(false) => Err(PathRefusal::Denied { path: path.excerpt() }),
            Some(true) if self.consented.iter().any(|named| within(&text, &named.to_string())) => Ok(()),
            Some(true) => Err(PathRefusal::NeedsConsent { path: path.excerpt() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(texts: &[&str]) -> Vec<PathPattern> {
        texts.iter().map(|text| PathPattern::parse(text).unwrap()).collect()
    }

    fn rule(path: &[&str], except: &[&str], access: RuledAccess, asks: bool) -> PathRule {
        PathRule { paths: RuledPaths { path: patterns(path), except: patterns(except), access }, asks }
    }

    #[test]
    fn the_strictest_rule_for_the_access_decides_in_every_spelling_of_a_path() {
        let rules = vec![
            rule(&["**"], &["src/**"], RuledAccess::Write, true),
            rule(&["secrets/**", "**/*.pem", "/etc/ssl/**"], &["secrets/README.md"], RuledAccess::Any, false),
            rule(&["@state/**"], &[], RuledAccess::Read, false),
        ];
        let consented = vec![SandboxPath::parse("docs").unwrap()];
        let rules = PathRules { rules, consented };
        for (path, access, expected) in [
            ("src/a.rs", Access::Write, "ok"),
            ("src", Access::Write, "ok"),
            ("srcs/a.rs", Access::Write, "path_asks"),
            ("README.md", Access::Write, "path_asks"),
            ("README.md", Access::Read, "ok"),
            ("docs/deep/a.md", Access::Write, "ok"),
            ("docs2/a.md", Access::Write, "path_asks"),
            ("docs/a.pem", Access::Write, "path_denied"),
            ("secrets/key", Access::Read, "path_denied"),
            ("secrets/key", Access::Write, "path_denied"),
            ("./secrets//./key", Access::Read, "path_denied"),
            ("/workspace/secrets/key", Access::Read, "path_denied"),
            ("secrets", Access::Read, "ok"),
            ("secrets/README.md", Access::Read, "ok"),
            ("src/deep/x.pem", Access::Write, "path_denied"),
            ("/etc/ssl/private/k", Access::Read, "path_denied"),
            ("/etc/hosts", Access::Read, "ok"),
            ("@state/a", Access::Read, "path_denied"),
            ("@state/a", Access::Write, "ok"),
            ("secrets/run.sh", Access::Execute, "ok"),
        ] {
            let path = SandboxPath::parse_anywhere(path).unwrap();
            let said = rules.check(&path, access).map_or_else(|refusal| refusal.reason(), |()| "ok");
            assert_eq!(said, expected, "{path} {access:?}");
        }
    }
}
