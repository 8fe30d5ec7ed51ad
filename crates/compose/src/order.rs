//! Checks the names under `depends_on`: each exists, none is the run, and there is no circle.

use document::nearest;

use crate::service::Service;

/// Reports each wrong dependency at its line.
pub(crate) fn check(services: &[Service<'_>], run: Option<&str>) {
    let names: Vec<&str> = services.iter().map(|service| service.name).collect();
    for service in services {
        for dependency in &service.depends_on {
            let name = dependency.name.as_str();
            let needed = services.iter().find(|needed| needed.name == name);
            match needed {
                None => {
                    dependency
                        .at
                        .problem_hint(format!("no service is named `{name}`"), Some(nearest(name, &names)));
                }
                Some(_) if run == Some(name) => {
                    dependency
                        .at
                        .problem(format!("`{name}` is the run, which is ready after all companions"));
                }
                Some(needed) if dependency.healthy && needed.ready.is_none() => dependency.at.problem(
                    format!("`{name}` has no healthcheck; write one, or `condition: service_started`"),
                ),
                Some(_) => {}
            }
        }
        if reaches(services, service.name, service.name) {
            service.at.problem("depends on itself, directly or by way of others");
        }
    }
}

/// Returns true if a service needs another one, directly or by way of others.
fn reaches(services: &[Service<'_>], from: &str, target: &str) -> bool {
    let mut seen = vec![from];
    let mut next = 0;
    while let Some(name) = seen.get(next).copied() {
        next += 1;
        let found = services.iter().find(|service| service.name == name);
        for dependency in found.iter().flat_map(|service| &service.depends_on) {
            if dependency.name == target {
                return true;
            }
            if !seen.contains(&dependency.name.as_str()) {
                seen.push(&dependency.name);
            }
        }
    }
    false
}
