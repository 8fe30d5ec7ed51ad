//! The names of tools that upstream MCP servers offer.
//!
//! ```text
//! mcp.SERVER.TOOL       policy, record, MCP clients
//! mcp__SERVER__TOOL     vendors that allow letters, digits, `_` and `-` in names, at most 64 of them
//! ```
//!
//! The second form is made of the first: each `.` in the tool's own name is written as `--`. A name that is too long, or that would not
//! convert back to itself, has no second form.

use std::fmt;

use crate::Malformed;

/// Prefix of all canonical names.
const PREFIX: &str = "mcp.";
/// Prefix of the form without dots.
const UNDOTTED: &str = "mcp__";
/// Most characters of a server's name.
const MAX_SERVER: usize = 32;
/// Most characters of a tool's name, from SEP-986 of the Model Context Protocol.
const MAX_TOOL: usize = 128;
/// Most characters of the form without dots.
const MAX_UNDOTTED: usize = 64;

/// Canonical name of an upstream server's tool.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct McpTool {
    canonical: String,
    /// Offset at which the server's name ends.
    server_end: usize,
}

impl McpTool {
    /// Returns the name of a server's tool. Both parts are checked.
    pub fn new(server: &str, tool: &str) -> Result<Self, Malformed> {
        if !is_mcp_server(server) {
            return Err(Malformed::new(
                "mcp.server",
                format!(
                    "must be 1 to {MAX_SERVER} characters of `a-z`, `0-9` and `-`, and not begin with `-`"
                ),
            ));
        }
        if !is_tool(tool) {
            return Err(Malformed::new(
                "mcp.tool",
                format!("must be 1 to {MAX_TOOL} characters of `A-Z`, `a-z`, `0-9`, `_`, `-` and `.`"),
            ));
        }
        Ok(Self { canonical: format!("{PREFIX}{server}.{tool}"), server_end: PREFIX.len() + server.len() })
    }

    /// Parses either form. Returns `None` for any other name.
    pub fn parse(name: &str) -> Option<Self> {
        if let Some(rest) = name.strip_prefix(PREFIX) {
            let (server, tool) = rest.split_once('.')?;
            return Self::new(server, tool).ok();
        }
        let (server, tool) = name.strip_prefix(UNDOTTED)?.split_once("__")?;
        Self::new(server, &tool.replace("--", ".")).ok()
    }

    /// Returns `mcp.SERVER.TOOL`.
    pub fn canonical(&self) -> &str {
        &self.canonical
    }

    /// Returns `mcp__SERVER__TOOL`, if it converts back to this name.
    pub fn undotted(&self) -> Option<String> {
        let name = format!("{UNDOTTED}{}__{}", self.server(), self.tool().replace('.', "--"));
        (name.len() <= MAX_UNDOTTED && Self::parse(&name).as_ref() == Some(self)).then_some(name)
    }

    /// Returns the server's name in the policy.
    pub fn server(&self) -> &str {
        &self.canonical[PREFIX.len()..self.server_end]
    }

    /// Returns the tool's name as the server gives it.
    pub fn tool(&self) -> &str {
        &self.canonical[self.server_end + 1..]
    }

    /// Returns `mcp.SERVER`, the prefix that all tools of a server share.
    pub fn family(&self) -> &str {
        &self.canonical[..self.server_end]
    }
}

impl fmt::Debug for McpTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.canonical)
    }
}

/// Returns true if this is a valid name for an upstream server.
pub fn is_mcp_server(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=MAX_SERVER).contains(&name.len()) && name.chars().all(plain) && !name.starts_with('-')
}

/// Returns true if this is a valid name for an upstream server's tool.
fn is_tool(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    (1..=MAX_TOOL).contains(&name.len()) && name.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_have_their_grammar() {
        for (server, tool) in [
            ("", "a"),
            ("A", "a"),
            ("a.b", "a"),
            ("a_b", "a"),
            ("-a", "a"),
            (&*"a".repeat(33), "a"),
            ("a", ""),
            ("a", "a b"),
            ("a", "a/b"),
            ("a", "a*"),
            ("a", "é"),
            ("a", "a\n"),
            ("a", &*"a".repeat(129)),
        ] {
            assert!(McpTool::new(server, tool).is_err(), "{server:?} {tool:?}");
        }
        let tool = McpTool::new("db-1", "rows.read").unwrap();
        assert_eq!((tool.canonical(), tool.family()), ("mcp.db-1.rows.read", "mcp.db-1"));
        assert_eq!((tool.server(), tool.tool()), ("db-1", "rows.read"));
        assert_eq!(tool.undotted().as_deref(), Some("mcp__db-1__rows--read"));
    }

    #[test]
    fn ambiguous_tool_names_have_no_undotted_form() {
        for tool in ["a--b", "a-.b", &*"a".repeat(60)] {
            assert_eq!(McpTool::new("s", tool).unwrap().undotted(), None, "{tool}");
        }
        for name in ["mcp", "mcp.", "mcp.a", "mcp.a.", "mcp__a", "mcp__a__", "mcp___a__b", "fs.read", ""] {
            assert_eq!(McpTool::parse(name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn both_forms_lead_back(server in "[a-z0-9][a-z0-9-]{0,31}", tool in "[A-Za-z0-9_.-]{1,40}") {
            let tool = McpTool::new(&server, &tool).unwrap();
            prop_assert_eq!(McpTool::parse(tool.canonical()), Some(tool.clone()));
            if let Some(undotted) = tool.undotted() {
                prop_assert!(undotted.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b)));
                prop_assert_eq!(McpTool::parse(&undotted), Some(tool.clone()));
            }
        }

        #[test]
        fn no_two_tools_have_one_second_form(
            one in ("[a-c][a-c-]{0,3}", "[a-c_.-]{1,6}"),
            other in ("[a-c][a-c-]{0,3}", "[a-c_.-]{1,6}"),
        ) {
            let [one, other] = [one, other].map(|(server, tool)| McpTool::new(&server, &tool).unwrap());
            if one != other && one.undotted().is_some() {
                prop_assert_ne!(one.undotted(), other.undotted());
            }
        }
    }
}
