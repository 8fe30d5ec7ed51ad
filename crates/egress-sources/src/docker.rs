//! Docker: the mirrors of the engine.

use std::path::PathBuf;

use serde_json::Value;

use crate::found::Found;
use crate::host::Host;

pub(super) fn read(host: &Host, found: &mut Found) {
    let rootless = host.config().map(|config| config.join("docker/daemon.json"));
    for path in [PathBuf::from("/etc/docker/daemon.json")].into_iter().chain(rootless) {
        let Some(text) = found.text(host, &path) else { continue };
        let origin = format!("registry-mirrors in {}", path.display());
        let Ok(config) = serde_json::from_str::<Value>(&text) else {
            found.note(&origin, "not read, because the file is not JSON");
            continue;
        };
        let mirrors = config.get("registry-mirrors").and_then(Value::as_array);
        for url in mirrors.into_iter().flatten().filter_map(Value::as_str) {
            found.add(&origin, url);
        }
    }
}
