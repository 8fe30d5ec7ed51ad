//! npm: `registry` and the registries of scopes, from its files and its variables.

use std::path::PathBuf;

use crate::found::Found;
use crate::host::Host;
use crate::ini::entries;

pub(super) fn read(host: &Host, found: &mut Found) {
    for path in files(host) {
        let Some(text) = found.text(host, &path) else { continue };
        for entry in entries(&text, &['=']) {
            let Some(key) = key(&entry.key) else { continue };
            let value = entry.value.trim_matches(['"', '\'']);
            found.add(&format!("{key} in {}", path.display()), value);
        }
    }
    // npm reads these in both cases.
    for (name, value) in host.variables() {
        if name.eq_ignore_ascii_case("npm_config_registry") && !value.is_empty() {
            found.add(name, value);
        }
    }
}

/// Returns the key of a registry in words. Other keys, such as those of tokens, are not used.
fn key(key: &str) -> Option<String> {
    if key == "registry" {
        return Some(key.to_owned());
    }
    let scope = key.strip_suffix(":registry").filter(|scope| scope.starts_with('@'))?;
    let is_plain = scope.bytes().skip(1).all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte));
    Some(if is_plain { format!("registry of {scope}") } else { "registry of a scope".to_owned() })
}

fn files(host: &Host) -> Vec<PathBuf> {
    let variable = |name: &str| host.variable(name).or_else(|| host.variable(&name.to_lowercase()));
    let global = match variable("NPM_CONFIG_GLOBALCONFIG") {
        Some(path) => vec![path.into()],
        None => ["/etc/npmrc", "/usr/etc/npmrc", "/usr/local/etc/npmrc"].map(PathBuf::from).to_vec(),
    };
    let user = variable("NPM_CONFIG_USERCONFIG").map(PathBuf::from);
    let user = user.or_else(|| host.home(".npmrc"));
    // That of a project is beside its package.json, in this directory or above.
    let project = host.directories().map(|directory| directory.join(".npmrc"));
    let project = project.filter(|path| user.as_ref() != Some(path)).collect::<Vec<_>>();
    global.into_iter().chain(user.clone()).chain(project).collect()
}
