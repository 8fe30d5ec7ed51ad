//! Keys for operations in a policy: their own names, and for tools of upstream MCP servers also prefixes.
//!
//! ```text
//! read            an operation
//! mcp.db.query    a tool of the server `db`
//! mcp.db.get_*    every tool of it that begins like this
//! mcp.db.*        every tool of it
//! mcp.*           every tool of every server
//! ```
//!
//! If several keys of one table match a tool, the longest decides, because it is the most specific. A denial of a role,
//! a team or a revocation applies if any of its keys matches.

use document::{At, nearest};
use std::collections::BTreeMap;

use operations::{McpTool, Operation, is_mcp_server};

/// Every tool of every upstream server.
pub(crate) const EVERY_TOOL: &str = "mcp.*";

/// Returns true if `key` matches the operation `name`.
pub fn covers(key: &str, name: &str) -> bool {
    match key.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => key == name,
    }
}

/// Returns the entry of a table for an operation, and its key.
pub fn speaking<'t, V>(table: &'t BTreeMap<String, V>, name: &str) -> Option<(&'t str, &'t V)> {
    let own = table.get_key_value(name).map(|(key, value)| (key.as_str(), value));
    if own.is_some() || !name.starts_with("mcp.") {
        return own;
    }
    let beginnings = table.iter().filter(|(key, _)| covers(key, name));
    beginnings.max_by_key(|(key, _)| key.len()).map(|(key, value)| (key.as_str(), value))
}

/// Returns true if the key names tools of upstream servers.
pub fn is_of_tools(key: &str) -> bool {
    let Some(beginning) = key.strip_suffix('*') else {
        return McpTool::parse(key).is_some_and(|tool| tool.canonical() == key);
    };
    // A prefix is valid if it can be continued to the name of a tool.
    beginning == "mcp."
        || McpTool::parse(&format!("{beginning}x")).is_some() && beginning.matches('.').count() > 1
}

/// Returns the server that a key names. `None` if it names any server or no tool.
pub(crate) fn server_of(key: &str) -> Option<&str> {
    let (server, _) = key.strip_prefix("mcp.")?.split_once('.')?;
    is_mcp_server(server).then_some(server)
}

/// Reads a key of a table or list, and reports a problem if there is no such operation. `others` are words besides the
/// operations.
pub(super) fn key(at: &At<'_>, written: &str, others: &[&str]) -> Option<String> {
    if Operation::NAMES.contains(&written) || others.contains(&written) || is_of_tools(written) {
        return Some(written.to_owned());
    }
    if written.starts_with("mcp.") {
        at.problem_hint(
            "this names no tool of an MCP server",
            Some("write `mcp.SERVER.TOOL`, `mcp.SERVER.*` or `mcp.*`".to_owned()),
        );
        return None;
    }
    let known: Vec<&str> = Operation::NAMES.into_iter().chain(others.iter().copied()).collect();
    at.problem_hint("unknown operation", Some(nearest(written, &known)));
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_tools_have_a_form() {
        for key in ["mcp.*", "mcp.db.*", "mcp.db.get_*", "mcp.db.query", "mcp.db.a.b*", "mcp.db-2.a.*"] {
            assert!(is_of_tools(key), "{key}");
        }
        for key in [
            "mcp",
            "mcp.",
            "mcp*",
            "mcp.db",
            "mcp.db*",
            "mcp.d*",
            "mcp.*.a",
            "mcp.DB.*",
            "mcp.db.a*b",
            "mcp__db__a",
            "*",
            "mcp.db.**",
        ] {
            assert!(!is_of_tools(key), "{key}");
        }
        assert_eq!(server_of("mcp.db.get_*"), Some("db"));
        assert_eq!(server_of("mcp.*"), None);
    }

    #[test]
    fn the_longest_key_speaks() {
        let keys = ["read", "mcp.*", "mcp.db.*", "mcp.db.get_*", "mcp.db.get_all"];
        let table: BTreeMap<String, usize> =
            keys.iter().enumerate().map(|(n, key)| ((*key).to_owned(), n)).collect();
        let of = |name| speaking(&table, name).map(|(key, _)| key);
        for (name, key) in [
            ("read", Some("read")),
            ("write", None),
            ("mcp.web.get", Some("mcp.*")),
            ("mcp.db.put", Some("mcp.db.*")),
            ("mcp.db.get_one", Some("mcp.db.get_*")),
            ("mcp.db.get_all", Some("mcp.db.get_all")),
            ("mcp.db.get_all_of", Some("mcp.db.get_*")),
        ] {
            assert_eq!(of(name), key, "{name}");
        }
    }
}
