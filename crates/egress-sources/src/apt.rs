//! apt: the sources of both formats.

use std::path::{Path, PathBuf};

use crate::found::Found;
use crate::host::Host;

const DIRECTORY: &str = "/etc/apt/sources.list.d";

pub(super) fn read(host: &Host, found: &mut Found) {
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    match host.files(Path::new(DIRECTORY)) {
        Ok(more) => files.extend(more),
        Err(problem) => found.note(DIRECTORY, problem),
    }
    for path in files {
        let form: fn(&str) -> Vec<&str> = match path.extension().and_then(|extension| extension.to_str()) {
            Some("list") => lines,
            Some("sources") => stanzas,
            _ => continue,
        };
        let Some(text) = found.text(host, &path) else { continue };
        for url in form(&text) {
            found.add(&path.display().to_string(), url);
        }
    }
}

/// Returns the URLs of `deb [options] URL suite component`.
fn lines(text: &str) -> Vec<&str> {
    text.lines().filter_map(url_of_line).collect()
}

fn url_of_line(line: &str) -> Option<&str> {
    let line = line.split('#').next()?.trim();
    let (kind, rest) = line.split_once(char::is_whitespace)?;
    if !["deb", "deb-src"].contains(&kind) {
        return None;
    }
    let rest = rest.trim_start();
    let rest = if rest.starts_with('[') { rest.split_once(']')?.1 } else { rest };
    rest.split_whitespace().next()
}

/// Returns the URLs of the stanzas that are enabled, in the format deb822.
fn stanzas(text: &str) -> Vec<&str> {
    let (mut urls, mut of_stanza, mut is_enabled, mut field) = (Vec::new(), Vec::new(), true, String::new());
    for line in text.lines().chain([""]) {
        if line.trim().is_empty() {
            if is_enabled {
                urls.append(&mut of_stanza);
            }
            of_stanza.clear();
            (is_enabled, field) = (true, String::new());
            continue;
        }
        if line.starts_with('#') {
            continue;
        }
        let mut value = line;
        if !line.starts_with([' ', '\t']) {
            let Some((name, rest)) = line.split_once(':') else { continue };
            field = name.trim().to_lowercase();
            value = rest;
        }
        match field.as_str() {
            "uris" => of_stanza.extend(value.split_whitespace()),
            "enabled" => {
                is_enabled = !["no", "false", "without", "off", "disable", "0"].contains(&value.trim());
            }
            _ => {}
        }
    }
    urls
}
