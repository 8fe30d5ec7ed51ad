//! Cargo: replaced sources and registries, from its `config.toml` files and its variables.

use std::path::{Path, PathBuf};

use toml_edit::{Document, Item, TableLike};

use crate::found::Found;
use crate::host::Host;

pub(super) fn read(host: &Host, found: &mut Found) {
    for path in files(host) {
        let Some(text) = found.text(host, &path) else { continue };
        match Document::parse(text.as_str()) {
            Ok(document) => read_document(document.as_table(), &path, found),
            // The parser's message repeats the line.
            Err(_) => found.note(&path.display().to_string(), "not read, because it is not TOML"),
        }
    }
    for (name, value) in host.variables() {
        let registry = name.strip_prefix("CARGO_REGISTRIES_").and_then(|rest| rest.strip_suffix("_INDEX"));
        if registry.is_some() && !value.is_empty() {
            found.add(name, value);
        }
    }
}

fn read_document(document: &dyn TableLike, path: &Path, found: &mut Found) {
    for (section, keys) in [("source", &["registry", "git"][..]), ("registries", &["index"])] {
        let tables = document.get(section).and_then(Item::as_table_like);
        let tables =
            tables.into_iter().flat_map(TableLike::iter).filter_map(|(_, item)| item.as_table_like());
        for table in tables {
            for key in keys {
                if let Some(url) = table.get(key).and_then(Item::as_str) {
                    found.add(&format!("{section}.*.{key} in {}", path.display()), url);
                }
            }
        }
    }
}

fn files(host: &Host) -> Vec<PathBuf> {
    let home = host.path_or_home("CARGO_HOME", ".cargo");
    let above = host.directories().map(|directory| directory.join(".cargo"));
    let mut directories: Vec<PathBuf> = home.into_iter().chain(above).collect();
    directories.sort();
    directories.dedup();
    directories
        .iter()
        .flat_map(|directory| ["config.toml", "config"].map(|name| directory.join(name)))
        .collect()
}
