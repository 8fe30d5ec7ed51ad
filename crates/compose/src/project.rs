//! A Compose file as a whole.

use document::{At, Problem, nearest};

use crate::keys::{REFUSED_IN_FILE, section};
use crate::model::Project;
use crate::order;
use crate::service::{self, Service};

/// Most services of a file.
const MAX_SERVICES: usize = 32;

/// Reads a Compose file, or returns every problem in it.
///
/// `file` is its name in problems. `run` names the service that is the run itself.
pub fn read(file: &str, text: &str, run: Option<&str>) -> Result<Project, Vec<Problem>> {
    document::read(file, text, |top| project(top, run))
}

fn project(top: &At<'_>, run: Option<&str>) -> Project {
    // The name of a project and the version of the form have no effect.
    let keys = section(top, &["services", "name", "version"], &REFUSED_IN_FILE);
    let Some(at) = keys.get("services") else {
        top.problem("`services` is missing");
        return Project::default();
    };
    let entries = at.entries();
    if entries.is_empty() || entries.len() > MAX_SERVICES {
        at.problem(format!("must have 1 to {MAX_SERVICES} services"));
        return Project::default();
    }
    let services: Vec<Service<'_>> =
        entries.iter().map(|(name, at)| service::read(name, at, run == Some(*name))).collect();
    if let Some(run) = run.filter(|run| !entries.iter().any(|(name, _)| name == run)) {
        let names: Vec<&str> = entries.iter().map(|(name, _)| *name).collect();
        at.problem_hint(format!("no service is named `{run}`"), Some(nearest(run, &names)));
    }
    order::check(&services, run);
    let mut project = Project::default();
    for service in services {
        if run == Some(service.name) {
            project.run = Some(service.into_program());
        } else {
            project.companions.push(service.into_companion());
        }
    }
    project.companions.sort_by(|a, b| a.name.cmp(&b.name));
    project
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Companion, Program, Ready};

    const FILE: &str = r#"
name: shop
version: "3.9"
x-common: &env { LOG_LEVEL: info }
services:
  app:
    image: shop/app:1
    environment: *env
    command: sleep infinity
    init: true
    depends_on:
      db: { condition: service_healthy }
      cache: { condition: service_started }
    mem_limit: 1g
    expose: [8000]
  db:
    image: postgres:15
    x-owner: team
    environment:
      POSTGRES_PASSWORD: test$$only
      POSTGRES_PORT: 5432
      EMPTY: ""
    healthcheck:
      test: ["CMD", "pg_isready", "-U", "postgres"]
      interval: 2s
      timeout: 3s
      retries: 4
      start_period: 10s
    expose: [5432]
    deploy: { resources: { limits: { memory: 512M } } }
  cache:
    image: redis:7
    command: redis-server --save "" --appendonly no
    environment: [A=b=c, EMPTY=]
    depends_on: [db]
    ports: ["6379"]
"#;

    fn told(text: &str, run: Option<&str>) -> Vec<String> {
        read("compose.yaml", text, run).unwrap_err().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn services_become_the_run_and_its_companions() {
        let variables = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let cache = Companion {
            name: "cache".into(),
            image: "redis:7".into(),
            command: ["redis-server", "--save", "", "--appendonly", "no"].map(str::to_owned).into(),
            env: variables(&[("A", "b=c"), ("EMPTY", "")]),
            ports: vec![6379],
            depends_on: vec!["db".into()],
            ..Default::default()
        };
        let db = Companion {
            name: "db".into(),
            image: "postgres:15".into(),
            env: variables(&[("POSTGRES_PASSWORD", "test$only"), ("POSTGRES_PORT", "5432"), ("EMPTY", "")]),
            ready: Some(Ready {
                command: words("pg_isready -U postgres"),
                timeout_seconds: 30,
                interval_milliseconds: Some(2_000),
            }),
            memory_mib: Some(512),
            ports: vec![5432],
            ..Default::default()
        };
        let run = Program {
            image: "shop/app:1".into(),
            env: variables(&[("LOG_LEVEL", "info")]),
            memory_mib: Some(1024),
            has_command: true,
        };
        let project = read("compose.yaml", FILE, Some("app")).unwrap();
        assert_eq!(project, Project { run: Some(run), companions: vec![cache, db] });
        let project = read("compose.yaml", FILE, None).unwrap();
        assert_eq!(project.run, None);
        let names: Vec<&str> = project.companions.iter().map(|companion| companion.name.as_str()).collect();
        assert_eq!(names, ["app", "cache", "db"]);
        assert_eq!(project.companions[0].depends_on, ["cache", "db"]);
    }

    #[test]
    fn the_example_is_read() {
        let text = include_str!("../../../examples/companions/compose.yaml");
        let project =
            read("compose.yaml", text, Some("tests")).unwrap_or_else(|problems| panic!("{problems:?}"));
        assert_eq!(project.run.unwrap().image, "shop/tests:1");
        let ports: Vec<_> =
            project.companions.iter().map(|one| (one.name.as_str(), one.ports.as_slice())).collect();
        assert_eq!(ports, [("cache", &[6379][..]), ("db", &[5432])]);
        let ready = project.companions[1].ready.as_ref().unwrap();
        assert_eq!((ready.command[0].as_str(), ready.timeout_seconds), ("pg_isready", 52));
    }

    #[test]
    fn every_other_key_is_refused_by_its_line_with_its_reason() {
        let text = "services:\n  db:\n    image: a\n    build: .\n    volumes: [a:/b]\n    privileged: true\n    \
                    network_mode: host\n    imge: b\n    expose: [1]\nvolumes: { a: {} }\n";
        let told = told(text, None);
        let lines: Vec<&str> = told.iter().map(|line| line.split(": ").next().unwrap()).collect();
        assert_eq!(lines, [4, 5, 6, 7, 8, 10].map(|line| format!("compose.yaml:{line}")), "{told:#?}");
        assert!(
            told[0].contains("services.db.build: ") && told[0].contains("`coffer image build`"),
            "{told:#?}"
        );
        assert!(told[4].contains("did you mean `image`?"), "{told:#?}");
    }

    #[test]
    fn a_run_needs_its_service_and_a_file_needs_services() {
        assert!(
            told("services: { app: { image: a, expose: [1] } }", Some("ap"))[0]
                .contains("did you mean `app`?")
        );
        assert!(told("name: x", None)[0].contains("`services` is missing"));
        assert!(told("services: {}", None)[0].contains("1 to 32 services"));
        let many = (0..33).fold(String::new(), |text, n| text + &format!("  s{n}: {{ image: a }}\n"));
        assert!(told(&format!("services:\n{many}"), None)[0].contains("1 to 32 services"));
        assert!(told("", None)[0].contains("`services` is missing"));
        assert!(told("[1]", None)[0].contains("expected a mapping"));
    }
}
