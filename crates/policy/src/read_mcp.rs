//! Reads `mcp_servers` and `aliases`: the upstream MCP servers, and plain names for their tools.
//!
//! Only the operator's policy defines servers: no client and no agent can start another server or reach another
//! address. No call is allowed by the definition alone: profiles and roles have to name the tools, `mcp.SERVER.TOOL`.
//! The policy's digest covers the destination of a call, so an approval is valid for this server only.

use document::{At, Fields};
use std::collections::BTreeMap;
use std::path::PathBuf;

use operations::transport::MAX_UPSTREAM;
use operations::{McpTool, is_mcp_server};
use serde::Serialize;

/// Most servers of a policy.
const MAX_SERVERS: usize = 64;
/// Most words of a command, and most variables of its environment.
const MAX_WORDS: usize = 256;
/// Most bytes of a word, a URL or a path.
const MAX_TEXT: usize = 4_096;

/// An upstream MCP server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct McpServer {
    /// Text for people. May be missing.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Way in which the server is reached.
    #[serde(flatten)]
    pub transport: McpTransport,
    /// Time in which the server has to start, complete the handshake and list its tools, seconds.
    pub start_timeout_s: u64,
    /// Time for one call, seconds.
    pub call_timeout_s: u64,
    /// Most bytes of one answer that are passed on.
    pub max_result_bytes: u64,
    /// Most tools of its list that are used.
    pub max_tools: u64,
    /// Digests that pin tools, by name: SHA-256 of the definition as the server lists it, lower-case hex.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub pins: BTreeMap<String, String>,
}

/// Way in which a server is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum McpTransport {
    /// A program in the run's own container, over its standard streams.
    Stdio(McpStdio),
    /// Streamable HTTP, from the daemon.
    Http(McpHttp),
}

/// A program of the container's image. It runs like the run's commands, in a separate cgroup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct McpStdio {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Environment besides that of every command. Not for secrets: it is shown with the policy.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

/// A server outside the container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct McpHttp {
    /// `https://…`. Plain `http://` is only for this host itself, by a loopback address.
    pub url: String,
    /// File with a token, which is sent as `Authorization: Bearer`. It is read at each connection to the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bearer_token_file: Option<PathBuf>,
}

/// Reads the servers by name.
pub(super) fn servers(at: &At<'_>) -> Vec<(String, McpServer)> {
    let entries = at.entries();
    if entries.len() > MAX_SERVERS {
        at.problem(format!("has more than {MAX_SERVERS} servers"));
    }
    let mut servers = Vec::new();
    for (name, at) in entries.into_iter().take(MAX_SERVERS) {
        if !is_mcp_server(name) {
            at.problem("the name of a server must be 1 to 32 characters of `a-z`, `0-9` and `-`, and not begin with `-`");
            continue;
        }
        if let Some(server) = server(&at) {
            servers.push((name.to_owned(), server));
        }
    }
    servers
}

fn server(at: &At<'_>) -> Option<McpServer> {
    let fields = at.fields(&[
        "description",
        "stdio",
        "http",
        "start_timeout_s",
        "call_timeout_s",
        "max_result_bytes",
        "max_tools",
        "pins",
    ]);
    let transport = match (fields.get("stdio"), fields.get("http")) {
        (Some(at), None) => stdio(at).map(McpTransport::Stdio),
        (None, Some(at)) => http(at).map(McpTransport::Http),
        _ => {
            at.problem_hint(
                "a server has either `stdio` or `http`",
                Some(
                    "write `stdio: {command: [/usr/bin/server]}` or `http: {url: \"https://host/mcp\"}`"
                        .to_owned(),
                ),
            );
            None
        }
    };
    let server = McpServer {
        description: fields.text_or("description", ""),
        start_timeout_s: fields.number_or("start_timeout_s", 1..=60, 10),
        call_timeout_s: fields.number_or("call_timeout_s", 1..=120, 30),
        max_result_bytes: fields.number_or("max_result_bytes", 1_024..=MAX_UPSTREAM, 64 * 1024),
        max_tools: fields.number_or("max_tools", 1..=512, 128),
        pins: pins(&fields),
        transport: transport?,
    };
    Some(server)
}

fn stdio(at: &At<'_>) -> Option<McpStdio> {
    let fields = at.fields(&["command", "env"]);
    let words = fields.required("command")?;
    let command: Vec<String> = words.items().iter().filter_map(At::argument).collect();
    let program = command.first().map_or("", String::as_str);
    if command.len() > MAX_WORDS || command.iter().any(|word| word.len() > MAX_TEXT) {
        words.problem(format!("must be at most {MAX_WORDS} words of at most {MAX_TEXT} bytes"));
    }
    if program.is_empty() || !program.starts_with('/') && program.contains('/') {
        words.problem("must begin with a program: a bare name, or an absolute path in the container");
        return None;
    }
    let mut env = BTreeMap::new();
    let variables = fields.get("env").map_or_else(Vec::new, At::entries);
    if let Some(at) = fields.get("env").filter(|_| variables.len() > MAX_WORDS) {
        at.problem(format!("must be at most {MAX_WORDS} variables"));
    }
    for (name, at) in variables.into_iter().take(MAX_WORDS) {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(word) || name.starts_with(|c: char| c.is_ascii_digit()) {
            at.problem("must be the name of an environment variable");
        }
        let Some(value) = at.argument() else { continue };
        if value.len() > MAX_TEXT {
            at.problem(format!("must have at most {MAX_TEXT} bytes"));
        }
        env.insert(name.to_owned(), value);
    }
    Some(McpStdio { command, env })
}

fn http(at: &At<'_>) -> Option<McpHttp> {
    let fields = at.fields(&["url", "bearer_token_file"]);
    let at = fields.required("url")?;
    let url = at.text()?;
    if let Err(problem) = HttpTarget::parse(url) {
        at.problem(problem);
        return None;
    }
    let bearer_token_file = fields.get("bearer_token_file").and_then(|at| {
        let path = PathBuf::from(at.text()?);
        if !path.is_absolute() || path.as_os_str().len() > MAX_TEXT {
            at.problem("must be an absolute path");
        }
        Some(path)
    });
    Some(McpHttp { url: url.to_owned(), bearer_token_file })
}

fn pins(fields: &Fields<'_>) -> BTreeMap<String, String> {
    let mut pins = BTreeMap::new();
    for (tool, at) in fields.get("pins").map_or_else(Vec::new, At::entries) {
        if McpTool::new("x", tool).is_err() {
            at.problem("must be the name of a tool as the server lists it");
        }
        let Some(hash) = at.text() else { continue };
        if hash.len() != 64 || !hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            at.problem(
                "must be a SHA-256 in 64 lower-case hexadecimal digits, as `coffer call tools` shows it",
            );
        }
        pins.insert(tool.to_owned(), hash.to_owned());
    }
    pins
}

/// Address of an HTTP server, parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpTarget {
    /// A name or an address, without brackets.
    pub host: String,
    pub port: u16,
    /// Uses TLS.
    pub tls: bool,
    /// Path and query.
    pub path: String,
    /// Value of the `Host` header.
    pub authority: String,
}

impl HttpTarget {
    /// Parses a URL. The error says what is wrong with it.
    pub fn parse(url: &str) -> Result<Self, String> {
        let (tls, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => return Err("must begin with `https://`, or with `http://` for this host itself".to_owned()),
        };
        let plain = |c: char| {
            c.is_ascii_graphic() && !matches!(c, '"' | '<' | '>' | '\\' | '^' | '`' | '{' | '|' | '}' | '#')
        };
        if url.len() > MAX_TEXT || !rest.chars().all(plain) {
            return Err("must be a URL of visible ASCII without a fragment".to_owned());
        }
        let (authority, path) = rest.find(['/', '?']).map_or((rest, ""), |at| rest.split_at(at));
        if authority.contains('@') {
            return Err("must hold no user and no password; use `bearer_token_file`".to_owned());
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or("the address has no closing bracket")?,
            None => authority.find(':').map_or((authority, ""), |at| authority.split_at(at)),
        };
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => {
                if tls {
                    443
                } else {
                    80
                }
            }
            Some(digits) => {
                digits.parse().ok().filter(|port| *port != 0).ok_or("the port must be from 1 to 65535")?
            }
            None => return Err("the address is followed by something other than a port".to_owned()),
        };
        let named = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '_');
        if host.is_empty() || host.len() > 253 || !host.chars().all(named) {
            return Err("must name a host".to_owned());
        }
        let loopback = host == "localhost"
            || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
        if !tls && !loopback {
            return Err(
                "plain http is not allowed over a network: use https, or a loopback address".to_owned()
            );
        }
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Self { host: host.to_owned(), port, tls, path, authority: authority.to_owned() })
    }
}

/// Reads plain names for tools of upstream servers.
pub(super) fn aliases(at: &At<'_>) -> BTreeMap<String, String> {
    let mut aliases: BTreeMap<String, String> = BTreeMap::new();
    for (name, at) in at.entries() {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if name.is_empty() || name.len() > 64 || !name.chars().all(plain) || name.starts_with("mcp__") {
            at.problem("an alias must be 1 to 64 characters of `A-Z`, `a-z`, `0-9`, `_` and `-`, and must not begin with `mcp__`");
            continue;
        }
        let Some(tool) = at.text() else { continue };
        if McpTool::parse(tool).is_none_or(|parsed| parsed.canonical() != tool) {
            at.problem("must be a tool of an MCP server, `mcp.SERVER.TOOL`");
            continue;
        }
        if let Some((other, _)) = aliases.iter().find(|(_, other)| *other == tool) {
            at.problem_hint(format!("`{tool}` is also called `{other}`"), Some("keep one".to_owned()));
            continue;
        }
        aliases.insert(name.to_owned(), tool.to_owned());
    }
    aliases
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Policy, Problems};

    const REST: &str = "roles: {r: {allow: [\"mcp.*\"]}}\nprofiles: {p: {operations: {\"mcp.*\": ask}}}\n";

    fn problems(yaml: &str) -> Vec<String> {
        match Policy::from_files([("p.yaml", format!("{REST}{yaml}"))]) {
            Ok(_) => Vec::new(),
            Err(Problems(problems)) => problems.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn a_policy_with_servers_is_shown_as_it_is_loaded() {
        let yaml = "mcp_servers:
  db:
    description: Rows.
    stdio: {command: [/usr/bin/db, --port, 5], env: {MODE: ro}}
    call_timeout_s: 5
    pins: {query: \"0000000000000000000000000000000000000000000000000000000000000000\"}
  web:
    http: {url: \"https://tools.example.com/mcp?x=1\", bearer_token_file: /etc/token}
aliases: {http_get: mcp.web.get}
";
        let policy = Policy::from_files([("p.yaml", format!("{REST}{yaml}"))]).unwrap();
        let db = policy.mcp_server("db").unwrap();
        assert_eq!((db.call_timeout_s, db.start_timeout_s, db.max_result_bytes), (5, 10, 65_536));
        let McpTransport::Stdio(stdio) = &db.transport else { panic!("{db:?}") };
        assert_eq!(stdio.command, ["/usr/bin/db", "--port", "5"]);
        assert_eq!(
            policy.alias("http_get").map(|tool| tool.canonical().to_owned()).as_deref(),
            Some("mcp.web.get")
        );
        assert_eq!(policy.alias("other"), None);
        let again = Policy::from_files([("p.yaml", policy.to_yaml().unwrap())]).unwrap();
        assert_eq!(again.digest(), policy.digest());
        // Where a call goes is part of what a reviewer consents to.
        let elsewhere = format!("{REST}{}", yaml.replace("tools.example", "other.example"));
        assert_ne!(Policy::from_files([("p.yaml", elsewhere)]).unwrap().digest(), policy.digest());
    }

    #[test]
    fn server_problems_are_reported() {
        for (yaml, said) in [
            ("mcp_servers: {Db: {stdio: {command: [a]}}}", "the name of a server"),
            ("mcp_servers: {db: {}}", "either `stdio` or `http`"),
            (
                "mcp_servers: {db: {stdio: {command: [a]}, http: {url: \"https://a\"}}}",
                "either `stdio` or `http`",
            ),
            ("mcp_servers: {db: {stdio: {command: []}}}", "must begin with a program"),
            ("mcp_servers: {db: {stdio: {command: [./a]}}}", "must begin with a program"),
            ("mcp_servers: {db: {stdio: {command: [a], env: {\"A B\": c}}}}", "environment variable"),
            ("mcp_servers: {db: {http: {url: \"http://example.com/mcp\"}}}", "plain http"),
            ("mcp_servers: {db: {http: {url: \"https://u:p@example.com/\"}}}", "no password"),
            ("mcp_servers: {db: {http: {url: \"https://a\", bearer_token_file: token}}}", "absolute path"),
            ("mcp_servers: {db: {stdio: {command: [a]}, pins: {q: abc}}}", "SHA-256"),
            ("mcp_servers: {db: {stdio: {command: [a]}, call_timeout_s: 500}}", "from 1 to 120"),
            ("mcp_servers: {db: {stdio: {command: [a]}, url: x}}", "unknown key"),
            ("aliases: {mcp__a__b: mcp.a.b}", "an alias must be"),
            ("aliases: {get: web.get}", "must be a tool of an MCP server"),
            (
                "mcp_servers: {web: {stdio: {command: [a]}}}\naliases: {get: mcp.web.get, fetch: mcp.web.get}",
                "is also called",
            ),
            ("aliases: {get: mcp.web.get}", "names no MCP server of this policy"),
        ] {
            let problems = problems(yaml);
            assert!(problems.len() == 1 && problems[0].contains(said), "{yaml}: {problems:?}");
        }
    }

    #[test]
    fn urls_are_parsed_into_parts() {
        let target = HttpTarget::parse("https://a.example:8443/mcp?x=1").unwrap();
        assert_eq!((target.host.as_str(), target.port, target.tls), ("a.example", 8_443, true));
        assert_eq!((target.path.as_str(), target.authority.as_str()), ("/mcp?x=1", "a.example:8443"));
        let target = HttpTarget::parse("http://[::1]?a").unwrap();
        assert_eq!((target.host.as_str(), target.port, target.path.as_str()), ("::1", 80, "/?a"));
        for wrong in [
            "",
            "ftp://a/",
            "https://",
            "https://a:0/",
            "https://a:x/",
            "https://a:99999/",
            "https://[::1/",
            "https://[::1]x/",
            "https://a b/",
            "https://a/\u{e9}",
            "https://a/#b",
            "http://127.0.0.1.example.com/",
            "http://10.0.0.1/",
        ] {
            assert!(HttpTarget::parse(wrong).is_err(), "{wrong}");
        }
    }
}
