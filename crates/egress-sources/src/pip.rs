//! pip: `index-url`, `extra-index-url` and `find-links`, from its files and its variables.

use std::path::{Path, PathBuf};

use crate::found::Found;
use crate::host::Host;
use crate::ini::entries;

const KEYS: [&str; 3] = ["index-url", "extra-index-url", "find-links"];

pub(super) fn read(host: &Host, found: &mut Found) {
    for path in files(host) {
        let Some(text) = found.text(host, &path) else { continue };
        for entry in entries(&text, &['=', ':']) {
            let key = entry.key.to_lowercase().replace('_', "-");
            if KEYS.contains(&key.as_str()) {
                add_each(found, &format!("{key} in {}", path.display()), &entry.value);
            }
        }
    }
    for key in KEYS {
        let variable = format!("PIP_{}", key.to_uppercase().replace('-', "_"));
        if let Some(value) = host.variable(&variable) {
            add_each(found, &variable, value);
        }
    }
}

/// Adds each URL of a list. `find-links` may have paths as well.
fn add_each(found: &mut Found, origin: &str, value: &str) {
    for url in value.split_whitespace().filter(|url| !url.starts_with(['/', '.', '~'])) {
        found.add(origin, url);
    }
}

fn files(host: &Host) -> Vec<PathBuf> {
    let named = host.variable("PIP_CONFIG_FILE");
    // This value switches all files off.
    if named == Some("/dev/null") {
        return Vec::new();
    }
    let of_all = host.variable("XDG_CONFIG_DIRS").unwrap_or("/etc/xdg").split(':');
    let mut files: Vec<PathBuf> = of_all.map(|directory| Path::new(directory).join("pip/pip.conf")).collect();
    files.push("/etc/pip.conf".into());
    files.extend(host.home(".pip/pip.conf"));
    files.extend(host.config().map(|config| config.join("pip/pip.conf")));
    files.extend(host.variable("VIRTUAL_ENV").map(|directory| Path::new(directory).join("pip.conf")));
    files.extend(named.map(PathBuf::from));
    files
}
