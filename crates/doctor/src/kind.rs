//! The kind of a container engine, as it describes itself in `/version` and `/info`.

use serde_json::Value;

/// Name by which Podman calls itself among the components of its version.
const PODMAN: &str = "Podman Engine";

/// An engine, and what is special about the way in which it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    is_podman: bool,
    is_rootless: bool,
    maps_users: bool,
}

impl Kind {
    /// Reads the kind from both answers. An engine that does not say otherwise is Docker, of root.
    pub(crate) fn of(version: &Value, info: Option<&Value>) -> Self {
        let components = version.get("Components").and_then(Value::as_array);
        let named = |component: &Value| component.get("Name").and_then(Value::as_str) == Some(PODMAN);
        let options = info.map(security_options).unwrap_or_default();
        // Podman has a field as well, and in earlier versions no such option.
        let told = info.and_then(|info| info.get("Rootless")).and_then(Value::as_bool);
        Self {
            is_podman: components.into_iter().flatten().any(named),
            is_rootless: options.contains(&"rootless") || told == Some(true),
            maps_users: options.contains(&"userns"),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        if self.is_podman { "Podman" } else { "Docker" }
    }

    /// Returns an addition to the version.
    pub(crate) fn way(&self) -> &'static str {
        match (self.is_rootless, self.maps_users) {
            (true, _) => ", rootless",
            (false, true) => ", with userns-remap",
            (false, false) => "",
        }
    }

    /// Returns the reason why no run can become ready on such an engine, and what to do.
    pub(crate) fn unusable(&self) -> Option<&'static str> {
        if self.is_podman {
            return Some(
                "Podman's Docker API does not find an imported image by its name, and takes no seccomp profile that is \
                 sent with a request, so no run would become ready: use Docker Engine, which can run beside Podman",
            );
        }
        self.is_rootless.then_some(
            "an engine without root cannot open the directories and mounts that cofferd makes as root, and has no \
             ids of the workspaces' owners, so no run would become ready: use an engine that root runs. With \
             `userns-remap`, root of its containers is an unprivileged user, too",
        )
    }
}

/// Returns the names of the engine's security options.
pub(crate) fn security_options(info: &Value) -> Vec<&str> {
    let options = info.get("SecurityOptions").and_then(Value::as_array);
    let options = options.into_iter().flatten().filter_map(Value::as_str);
    options.filter_map(|option| option.split(',').find_map(|part| part.strip_prefix("name="))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_kind_of_engine_is_named_and_judged() {
        let docker = json!({"Components": [{"Name": "Engine"}, {"Name": "runc"}]});
        let podman = json!({"Components": [{"Name": "Podman Engine"}, {"Name": "Conmon"}]});
        let options = |options: &[&str]| json!({"SecurityOptions": options});
        let seccomp = "name=seccomp,profile=default";
        for (version, info, name, way, unusable) in [
            (&docker, options(&[seccomp]), "Docker", "", None),
            (&docker, options(&[seccomp, "name=userns"]), "Docker", ", with userns-remap", None),
            (
                &docker,
                options(&[seccomp, "name=rootless"]),
                "Docker",
                ", rootless",
                Some("an engine without root"),
            ),
            (&podman, options(&[seccomp]), "Podman", "", Some("Podman's Docker API")),
            (&podman, json!({"Rootless": true}), "Podman", ", rootless", Some("Podman's Docker API")),
            (&json!(3), json!({"Rootless": "true", "SecurityOptions": {}}), "Docker", "", None),
        ] {
            let kind = Kind::of(version, Some(&info));
            assert_eq!((kind.name(), kind.way()), (name, way), "{version} {info}");
            match (kind.unusable(), unusable) {
                (None, None) => {}
                (Some(why), Some(begin)) => assert!(why.starts_with(begin), "{why}"),
                other => panic!("{other:?}: {version} {info}"),
            }
        }
        assert_eq!(Kind::of(&docker, None).unusable(), None);
    }
}
