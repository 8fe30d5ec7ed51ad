//! Sources of policies: the built-in files, or a directory that replaces them.

#![expect(clippy::disallowed_methods, reason = "the policy directory, which is the operator's")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::names::{self, covers};
use crate::role::{self, Role};
use crate::team::{self, Team};
use crate::{
    Anomalies, Content, McpServer, Policy, Problems, Profile, RiskPolicy, holding, own_risk::default_risk,
    read, read_anomalies, read_mcp, read_tenants,
};
use document::{At, Node, Problem, Sink, Step, bounded, line_of, nearest, parse};
use tenants::{Tenant, Tenants};

/// Most files of a policy directory.
const MAX_FILES: usize = 256;
/// Most roles, and most teams, of a policy, because the whole lineage of each is read.
const MAX_ROLES: usize = 256;

const BUILT_IN: [(&str, &str); 7] = [
    ("roles.yaml", include_str!("../policies/roles.yaml")),
    ("review.yaml", include_str!("../policies/review.yaml")),
    ("build.yaml", include_str!("../policies/build.yaml")),
    ("open.yaml", include_str!("../policies/open.yaml")),
    ("harness.yaml", include_str!("../policies/harness.yaml")),
    ("strict.yaml", include_str!("../policies/strict.yaml")),
    ("anomalies.yaml", include_str!("../policies/anomalies.yaml")),
];

impl Policy {
    /// Returns the policy with the profiles `review`, `build`, `open`, `harness`, `strict` and the roles `worker`,
    /// `manager`, `director`.
    pub fn builtin() -> Result<Self, Problems> {
        Self::from_files(BUILT_IN)
    }

    /// Returns the files of [`Self::builtin`] with their comments, for operators to start from.
    pub fn builtin_files() -> impl Iterator<Item = (&'static str, &'static str)> {
        BUILT_IN.into_iter()
    }

    /// Reads every `*.yaml` of a directory, in the order of their names. Names that begin with a dot are skipped.
    ///
    /// The files *replace* the built-in ones: a directory without roles has no roles.
    pub fn load_dir(directory: &Path) -> Result<Self, Problems> {
        let (files, mut problems) = read_files(directory)?;
        let loaded = Self::from_files(files);
        match loaded {
            Ok(policy) if problems.is_empty() => Ok(policy),
            Ok(_) => Err(Problems(problems)),
            Err(Problems(more)) => {
                problems.extend(more);
                Err(Problems(problems))
            }
        }
    }

    /// Reads one file by itself.
    ///
    /// If it has no roles or no profiles, the built-in ones are used for them, because a policy directory may have them
    /// in other files.
    pub fn from_part(name: &str, text: &str) -> Result<Self, Problems> {
        let has = |section: &str| match parse(text) {
            Ok(Node::Map(entries)) => entries.iter().any(|(key, _)| key == section),
            _ => true,
        };
        let missing: Vec<&str> = [("roles", "roles.yaml"), ("profiles", "review.yaml")]
            .into_iter()
            .filter(|(section, _)| !has(section))
            .map(|(_, file)| file)
            .collect();
        let stand_ins = BUILT_IN.into_iter().filter(|(file, _)| missing.contains(file));
        let stand_ins = stand_ins.map(|(file, text)| (format!("built-in {file}"), text));
        let has_stand_ins = !missing.is_empty();
        let mut merged = Merged { is_part: true, has_stand_ins, ..Merged::default() };
        for (name, text) in stand_ins.chain([(name.to_owned(), text)]) {
            merged.add(&name, text);
        }
        merged.finish()
    }

    /// Returns the names and texts of the files that [`Self::load_dir`] would read, for a caller that sends them on.
    pub fn read_dir(directory: &Path) -> Result<Vec<(String, String)>, Problems> {
        let (files, problems) = read_files(directory)?;
        if problems.is_empty() { Ok(files) } else { Err(Problems(problems)) }
    }

    /// Makes a policy from files that have been read already: pairs of a name, for messages, and a text.
    pub fn from_files<N: AsRef<str>, T: AsRef<str>>(
        files: impl IntoIterator<Item = (N, T)>,
    ) -> Result<Self, Problems> {
        let mut merged = Merged::default();
        for (name, text) in files {
            merged.add(name.as_ref(), text.as_ref());
        }
        merged.finish()
    }
}

/// The content that was read so far, and its problems.
#[derive(Default)]
struct Merged {
    profiles: BTreeMap<String, Profile>,
    roles: BTreeMap<String, Role>,
    /// The section, with the name of its file.
    anomalies: Option<(String, Anomalies)>,
    teams: BTreeMap<String, Team>,
    tenants: BTreeMap<String, Tenant>,
    risk: Option<(String, RiskPolicy)>,
    mcp_servers: BTreeMap<String, McpServer>,
    /// The section, with the name of its file.
    aliases: Option<(String, BTreeMap<String, String>)>,
    /// File of each profile and role.
    origins: BTreeMap<(&'static str, String), String>,
    texts: BTreeMap<String, String>,
    problems: Vec<Problem>,
    /// Other files may have the missing parts.
    is_part: bool,
    /// The profiles or the roles are built-in ones.
    has_stand_ins: bool,
}

impl Merged {
    fn add(&mut self, file: &str, text: &str) {
        let tree = match parse(text) {
            Ok(tree) => tree,
            Err(malformed) => {
                return self.problems.push(malformed.in_file(file));
            }
        };
        self.texts.insert(file.to_owned(), text.to_owned());
        let sink = Sink::default();
        let fields = At::top(&tree, &sink).fields(&[
            "profiles",
            "roles",
            "teams",
            "tenants",
            "risk",
            "anomalies",
            "mcp_servers",
            "aliases",
        ]);
        for (name, at) in fields.get("profiles").map(At::entries).unwrap_or_default() {
            let profile = read::profile(&at);
            if self.is_new(file, "profile", name, &at) {
                self.profiles.insert(name.to_owned(), profile);
            }
        }
        for (name, at) in fields.get("roles").map(At::entries).unwrap_or_default() {
            let role = Role::read(&at);
            if self.is_new(file, "role", name, &at) {
                self.roles.insert(name.to_owned(), role);
            }
        }
        if let Some(at) = fields.get("anomalies") {
            let anomalies = read_anomalies::anomalies(at);
            match &self.anomalies {
                None => self.anomalies = Some((file.to_owned(), anomalies)),
                Some((before, _)) => {
                    at.problem_hint(format!("the section is also in {before}"), Some("keep one".to_owned()));
                }
            }
        }
        for (name, at) in fields.get("teams").map(At::entries).unwrap_or_default() {
            let team = Team::read(&at);
            if self.is_new(file, "team", name, &at) {
                self.teams.insert(name.to_owned(), team);
            }
        }
        for (name, at) in fields.get("tenants").map(At::entries).unwrap_or_default() {
            let tenant = Tenant { place: self.tenants.len(), ..read_tenants::tenant(name, &at) };
            if self.is_new(file, "tenant", name, &at) {
                self.tenants.insert(name.to_owned(), tenant);
            }
        }
        if let Some(at) = fields.get("risk") {
            let risk = at.fields(&["lowerable"]);
            let lowerable = risk.required("lowerable").map_or_else(Vec::new, holding::operations);
            match &self.risk {
                Some((before, _)) => {
                    at.problem_hint(format!("`risk` is also in {before}"), Some("keep one".to_owned()));
                }
                None => self.risk = Some((file.to_owned(), RiskPolicy { lowerable })),
            }
        }
        for (name, server) in fields.get("mcp_servers").map(read_mcp::servers).unwrap_or_default() {
            if let Some(at) = fields.get("mcp_servers")
                && self.is_new(file, "MCP server", &name, at)
            {
                self.mcp_servers.insert(name, server);
            }
        }
        if let Some(at) = fields.get("aliases") {
            match &self.aliases {
                Some((before, _)) => {
                    at.problem_hint(format!("`aliases` is also in {before}"), Some("keep one".to_owned()));
                }
                None => self.aliases = Some((file.to_owned(), read_mcp::aliases(at))),
            }
        }
        self.problems.extend(sink.into_problems(file, text));
    }

    fn is_new(&mut self, file: &str, what: &'static str, name: &str, at: &At<'_>) -> bool {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
        if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
            at.problem(format!(
                "the name of a {what} must be 1 to 64 characters of `a-z`, `0-9`, `-` and `_`"
            ));
            return false;
        }
        if let Some(before) = self.origins.insert((what, name.to_owned()), file.to_owned()) {
            at.problem_hint(format!("the {what} is also in {before}"), Some("keep one".to_owned()));
            return false;
        }
        true
    }

    /// Reports a problem at `section.name.key` that is found only when all files are read.
    fn report(&mut self, path: &[String; 3], message: String, suggestion: Option<String>) {
        let [section, name, _] = path;
        let kind = match section.as_str() {
            "profiles" => "profile",
            "roles" => "role",
            "tenants" => "tenant",
            _ => "team",
        };
        let file = self.origins.get(&(kind, name.clone())).cloned().unwrap_or_default();
        let steps = path.clone().map(Step::Key);
        let text = self.texts.get(&file).map_or("", String::as_str);
        let line = line_of(text, &steps, 0);
        self.problems.push(Problem { file, line, key: path.join("."), message, suggestion });
    }

    fn finish(mut self) -> Result<Policy, Problems> {
        for (what, count, most) in [
            ("roles", self.roles.len(), MAX_ROLES),
            ("teams", self.teams.len(), MAX_ROLES),
            ("tenants", self.tenants.len(), Tenants::MOST),
        ] {
            if count > most {
                self.problems.push(Problem::in_file("policy", format!("more than {most} {what}")));
                return Err(Problems(self.problems));
            }
        }
        // Roles and teams may inherit across files, so their lineage is resolved last.
        let mut found = Vec::new();
        role::resolve(&mut self.roles, |name, message, suggestion| {
            found.push((["roles".to_owned(), name.to_owned(), "inherits".to_owned()], message, suggestion));
        });
        team::resolve(&mut self.teams, &self.roles, |name, key, message, suggestion| {
            found.push((["teams".to_owned(), name.to_owned(), key.to_owned()], message, suggestion));
        });
        read_tenants::compare(&self.tenants, |name, key, message| {
            found.push((["tenants".to_owned(), name.to_owned(), key.to_owned()], message, None));
        });
        let roles: Vec<&str> = self.roles.keys().map(String::as_str).collect();
        for (name, profile) in &self.profiles {
            let unknown = profile.default_role.as_deref().filter(|role| !self.roles.contains_key(*role));
            // Profiles and roles of different policies need not match.
            if let Some(role) = unknown.filter(|_| !self.has_stand_ins) {
                let path = ["profiles".to_owned(), name.clone(), "default_role".to_owned()];
                found.push((path, format!("there is no role `{role}`"), Some(nearest(role, &roles))));
            }
        }
        let risk = self.risk.take().map(|(_, risk)| risk).unwrap_or_default();
        for (name, profile) in &self.profiles {
            let own_risk = |operation: &str| default_risk(operation, profile.exec.deny_list);
            let lowered = profile.risk.iter().filter(|(operation, risk)| **risk < own_risk(operation));
            for (operation, lower) in
                lowered.filter(|(operation, _)| !risk.lowerable.iter().any(|key| covers(key, operation)))
            {
                let own = own_risk(operation);
                let message = format!("{operation}: `{lower}` is lower than its own risk, `{own}`");
                let way = format!(
                    "raise it, or mark it at the top of a file: `risk: {{lowerable: [{operation}]}}`"
                );
                found.push((["profiles".to_owned(), name.clone(), "risk".to_owned()], message, Some(way)));
            }
        }
        let known: Vec<&str> = self.mcp_servers.keys().map(String::as_str).collect();
        let unknown_server = |key: &str| {
            let server = names::server_of(key).filter(|server| !known.contains(server))?;
            if self.is_part && known.is_empty() {
                return None;
            }
            Some((format!("{key} names no MCP server of this policy"), Some(nearest(server, &known))))
        };
        for (name, profile) in &self.profiles {
            for (section, keys) in [
                ("operations", profile.operations.keys().collect::<Vec<_>>()),
                ("risk", profile.risk.keys().collect()),
            ] {
                for (message, way) in keys.into_iter().filter_map(|key| unknown_server(key)) {
                    found.push((["profiles".to_owned(), name.clone(), section.to_owned()], message, way));
                }
            }
        }
        let aliases = self.aliases.take();
        for (file, alias, tool) in aliases
            .iter()
            .flat_map(|(file, aliases)| aliases.iter().map(move |(alias, tool)| (file, alias, tool)))
        {
            if let Some((message, suggestion)) = unknown_server(tool) {
                let line = line_of(
                    self.texts.get(file).map_or("", String::as_str),
                    &["aliases", alias].map(|key| Step::Key(key.to_owned())),
                    0,
                );
                let (file, key) = (file.clone(), format!("aliases.{alias}"));
                self.problems.push(Problem { file, line, key, message, suggestion });
            }
        }
        for (path, message, suggestion) in found {
            self.report(&path, message, suggestion);
        }
        for (what, none) in [("profile", self.profiles.is_empty()), ("role", self.roles.is_empty())] {
            if none && self.problems.is_empty() {
                let problem = Problem::in_file("policy", format!("no {what} is defined"));
                self.problems
                    .push(problem.suggest("a policy directory replaces everything that is built in"));
            }
        }
        if !self.problems.is_empty() {
            return Err(Problems(self.problems));
        }
        let anomalies = self.anomalies.map(|(_, anomalies)| anomalies).unwrap_or_default();
        let aliases = aliases.map(|(_, aliases)| aliases).unwrap_or_default();
        let Self { profiles, roles, teams, tenants, mcp_servers, .. } = self;
        let tenants = Tenants::new(tenants);
        Policy::new(Content { profiles, roles, teams, tenants, risk, anomalies, mcp_servers, aliases })
            .map_err(|error| Problems(vec![Problem::in_file("policy", error.to_string())]))
    }
}

fn policy_files(directory: &Path) -> Result<Vec<PathBuf>, Problems> {
    let shown = directory.display().to_string();
    let failed = |error: io::Error| {
        Problems(vec![Problem::in_file(&shown, format!("the policy directory cannot be read: {error}"))])
    };
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("yaml") if !hidden => paths.push(path),
            Some("yml") if !hidden => {
                let name = path.display().to_string();
                let problem =
                    Problem::in_file(&name, "policy files end in `.yaml`; this one would not be read");
                return Err(Problems(vec![problem.suggest("rename or remove it")]));
            }
            _ => {}
        }
    }
    if paths.is_empty() || paths.len() > MAX_FILES {
        let message = format!("holds {} files `*.yaml`; 1 to {MAX_FILES} are needed", paths.len());
        return Err(Problems(vec![Problem::in_file(&shown, message)]));
    }
    paths.sort();
    Ok(paths)
}

/// Names of files, with their texts.
type Texts = Vec<(String, String)>;

/// Reads the files of a directory. Returns also the problems of those that cannot be read.
fn read_files(directory: &Path) -> Result<(Texts, Vec<Problem>), Problems> {
    let (mut files, mut problems) = (Vec::new(), Vec::new());
    for path in policy_files(directory)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match read_bounded(&path) {
            Ok(text) => files.push((name, text)),
            Err(error) => problems.push(Problem::in_file(&name, format!("cannot be read: {error}"))),
        }
    }
    Ok((files, problems))
}

fn read_bounded(path: &Path) -> io::Result<String> {
    // Opening a FIFO would wait for a writer.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    bounded(File::open(path)?)
}
