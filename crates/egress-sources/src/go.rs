//! Go: `GOPROXY` and `GOSUMDB`, from its variables or the file of `go env -w`.

use std::path::{Path, PathBuf};

use crate::found::Found;
use crate::host::Host;
use crate::ini::entries;
use crate::remote::{Protocol, Remote};

const KEYS: [&str; 2] = ["GOPROXY", "GOSUMDB"];

pub(super) fn read(host: &Host, found: &mut Found) {
    let path = match host.variable("GOENV") {
        Some("off") => None,
        Some(path) => Some(PathBuf::from(path)),
        None => host.config().map(|config| config.join("go/env")),
    };
    let text = path.as_deref().and_then(|path| found.text(host, path)).unwrap_or_default();
    let entries = entries(&text, &['=']);
    for key in KEYS {
        // A variable counts more than the file.
        if let Some(value) = host.variable(key) {
            read_value(key, value, key, found);
        } else if let Some(entry) = entries.iter().rev().find(|entry| entry.key == key) {
            let path = path.as_deref().unwrap_or(Path::new("")).display();
            read_value(key, &entry.value, &format!("{key} in {path}"), found);
        }
    }
}

fn read_value(key: &str, value: &str, origin: &str, found: &mut Found) {
    if key == "GOSUMDB" {
        return sum_database(value, origin, found);
    }
    for proxy in value.split([',', '|']).map(str::trim).filter(|proxy| !proxy.is_empty()) {
        match proxy {
            "off" => {}
            "direct" => {
                found.note(origin, "`direct` gets modules from their own hosts, which are not listed here");
            }
            url => found.add(origin, url),
        }
    }
}

/// Adds the server of a checksum database: `NAME[+KEY] [URL]`. Without a URL, the name is the host.
fn sum_database(value: &str, origin: &str, found: &mut Found) {
    let mut words = value.split_whitespace();
    let name = words.next().and_then(|name| name.split('+').next()).unwrap_or_default();
    match words.next() {
        _ if name == "off" || name.is_empty() => {}
        Some(url) => found.add(origin, url),
        None => match Remote::of(name, 443, Protocol::Https) {
            Ok(remote) => found.add_remote(origin, remote),
            Err(problem) => found.note(origin, problem),
        },
    }
}
