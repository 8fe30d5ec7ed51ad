//! One service of a Compose file.

use std::collections::BTreeMap;

use document::At;

use crate::check;
use crate::keys::{OF_SERVICE, REFUSED_IN_SERVICE, section};
use crate::model::{Companion, Program, Ready};
use crate::values::{environment, memory, ports, text, words};

/// Service with the locations that later checks report at.
pub(crate) struct Service<'t> {
    pub(crate) name: &'t str,
    pub(crate) at: At<'t>,
    pub(crate) depends_on: Vec<Dependency<'t>>,
    pub(crate) ready: Option<Ready>,
    image: String,
    command: Vec<String>,
    env: BTreeMap<String, String>,
    memory_mib: Option<u32>,
    ports: Vec<u16>,
}

/// Name under `depends_on`.
pub(crate) struct Dependency<'t> {
    pub(crate) name: String,
    /// It has to pass its check, not only to be started.
    pub(crate) healthy: bool,
    pub(crate) at: At<'t>,
}

/// Reads a service. The run needs no name that programs can look up.
pub(crate) fn read<'t>(name: &'t str, at: &At<'t>, is_run: bool) -> Service<'t> {
    if !is_run && !is_label(name) {
        at.problem(
            "programs of the run reach a companion by this name: at most 63 small letters, digits and `-`, a letter \
             first, no `-` at the end, and not `localhost`",
        );
    }
    let keys = section(at, &OF_SERVICE, &REFUSED_IN_SERVICE);
    if !keys.contains_key("image") {
        at.problem("`image` is missing");
    }
    says_as_it_is(&keys);
    let get = |key: &str| keys.get(key);
    let memory_mib = match (get("mem_limit"), get("deploy").and_then(deployed_memory)) {
        (Some(at), Some(_)) => {
            at.problem("give one of `mem_limit` and `deploy.resources.limits.memory`");
            None
        }
        (Some(at), None) => memory(at),
        (None, deployed) => deployed,
    };
    let ports = ports(&[get("expose"), get("ports")]);
    if ports.is_empty() && !is_run {
        at.problem_hint(
            "no program of the run could reach it, because it names no port",
            Some("write the port as in `expose: [5432]`".to_owned()),
        );
    }
    Service {
        name,
        at: at.clone(),
        depends_on: get("depends_on").map(depends_on).unwrap_or_default(),
        ready: get("healthcheck").and_then(check::read),
        image: get("image").and_then(text).unwrap_or_default(),
        command: get("command").and_then(words).unwrap_or_default(),
        env: get("environment").map(environment).unwrap_or_default(),
        memory_mib,
        ports,
    }
}

fn is_label(name: &str) -> bool {
    let letters = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    letters
        && name.len() <= 63
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && !name.ends_with('-')
        && name != "localhost"
}

/// Refuses keys that say anything else than what is so without them.
fn says_as_it_is(keys: &BTreeMap<&str, At<'_>>) {
    if let Some(at) = keys.get("init") {
        // No program of the run sees the difference.
        at.flag();
    }
    if let Some(at) = keys.get("restart").filter(|at| text(at).is_some_and(|word| word != "no")) {
        at.problem("a companion that ends is not started again; leave the key out");
    }
    if let Some(at) = keys.get("network_mode").filter(|at| text(at).is_some_and(|mode| mode != "none")) {
        at.problem("a companion has no network; leave the key out");
    }
}

fn deployed_memory(at: &At<'_>) -> Option<u32> {
    const OTHERS: &str = "of `deploy` only `resources.limits.memory` is read";
    let mut at = at.clone();
    for key in ["resources", "limits", "memory"] {
        let mut keys = at.entries();
        keys.retain(|(name, value)| {
            if *name != key {
                value.problem(OTHERS);
            }
            *name == key
        });
        at = keys.pop()?.1;
    }
    memory(&at)
}

/// Reads a list of names, or a mapping of names to conditions.
fn depends_on<'t>(at: &At<'t>) -> Vec<Dependency<'t>> {
    if at.is_list() {
        let items = at.items().into_iter();
        return items.filter_map(|at| Some(Dependency { name: text(&at)?, healthy: false, at })).collect();
    }
    let entries = at.entries().into_iter();
    entries.map(|(name, at)| Dependency { name: name.to_owned(), healthy: is_healthy(&at), at }).collect()
}

/// Reads the condition of a dependency.
fn is_healthy(at: &At<'_>) -> bool {
    let conditions = [("service_started", false), ("service_healthy", true)];
    let fields = at.fields(&["condition", "required"]);
    if fields.get("required").and_then(At::flag) == Some(false) {
        fields.at("required").problem("each service of the file is started; leave the key out");
    }
    fields.get("condition").and_then(|at| at.one_of(&conditions)).unwrap_or(false)
}

impl Service<'_> {
    pub(crate) fn into_program(self) -> Program {
        Program {
            image: self.image,
            env: self.env,
            memory_mib: self.memory_mib,
            has_command: !self.command.is_empty(),
        }
    }

    pub(crate) fn into_companion(self) -> Companion {
        let mut depends_on: Vec<String> =
            self.depends_on.into_iter().map(|dependency| dependency.name).collect();
        depends_on.sort_unstable();
        depends_on.dedup();
        Companion {
            name: self.name.to_owned(),
            image: self.image,
            command: self.command,
            env: self.env,
            ready: self.ready,
            memory_mib: self.memory_mib,
            ports: self.ports,
            depends_on,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::read;

    fn told(service: &str) -> String {
        let text = format!(
            "services:\n  a: {{ image: i, expose: [1] }}\n  b:\n    image: i\n    expose: [1]\n{service}"
        );
        read("f", &text, None).map_err(|problems| problems[0].to_string()).unwrap_err()
    }

    #[test]
    fn values_that_do_not_hold_are_refused_by_their_line() {
        for (service, expected) in [
            ("    restart: always\n", "f:6: services.b.restart: a companion that ends is not started again"),
            ("    network_mode: host\n", "f:6: services.b.network_mode: "),
            ("    deploy: { replicas: 2 }\n", "f:6: services.b.deploy.replicas: of `deploy` only"),
            (
                "    deploy: { resources: { limits: { cpus: 1 } } }\n",
                "f:6: services.b.deploy.resources.limits.cpus: ",
            ),
            (
                "    mem_limit: 1g\n    deploy: { resources: { limits: { memory: 1g } } }\n",
                "f:6: services.b.mem_limit: give one",
            ),
            ("    depends_on: [c]\n", "f:6: services.b.depends_on[0]: no service is named `c`"),
            ("    depends_on: [b]\n", "f:3: services.b: depends on itself"),
            ("    depends_on: { a: { condition: service_healthy } }\n", "`a` has no healthcheck"),
            ("    depends_on: { a: { condition: service_completed_successfully } }\n", "unknown value"),
            ("    depends_on: { a: { required: false } }\n", "each service of the file is started"),
            (
                "  c_d: { image: i }\n",
                "f:6: services.c_d: programs of the run reach a companion by this name",
            ),
            ("  localhost: { image: i, expose: [1] }\n", "f:6: services.localhost: "),
            ("  c: { image: i, expose: [] }\n", "services.c: no program of the run could reach it"),
            ("  1c: { image: i, expose: [1] }\n", "services.1c: "),
            ("  c: { expose: [1] }\n", "f:6: services.c: `image` is missing"),
            ("  c: { image: i, expose: [1], build: . }\n", "f:6: services.c.build: no image is built"),
            ("  c: { image: i, expose: [1] }\n  c: { image: i }\n", "f:7: services.c: given more than once"),
        ] {
            let told = told(service);
            assert!(told.contains(expected), "{service}{told}");
        }
    }

    #[test]
    fn values_that_hold_anyway_are_accepted() {
        let text = "services:\n  a_b: { image: i, restart: \"no\", network_mode: none, init: true, volumes: }\n  \
                    c: { image: i, expose: [1], depends_on: { d: { condition: service_started, required: true } } }\n  d: { image: i, expose: [1] }\n";
        let project = read("f", text, Some("a_b")).unwrap();
        assert_eq!(project.companions[0].depends_on, ["d"]);
        assert_eq!(project.companions.len(), 2);
    }

    #[test]
    fn a_circle_and_a_dependency_on_the_run_are_refused() {
        let circle = "services:\n  a: { image: i, expose: [1], depends_on: [b] }\n  b: { image: i, expose: [1], depends_on: [c] }\n  \
                      c: { image: i, expose: [1], depends_on: [b] }\n";
        let told: Vec<String> =
            read("f", circle, None).unwrap_err().iter().map(ToString::to_string).collect();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with("f:3: services.b: depends on itself"), "{told:?}");
        let on_run =
            "services:\n  a: { image: i, expose: [1] }\n  b: { image: i, expose: [1], depends_on: [a] }\n";
        assert!(read("f", on_run, Some("a")).unwrap_err()[0].to_string().contains("`a` is the run"));
        assert!(read("f", on_run, None).is_ok());
    }
}
