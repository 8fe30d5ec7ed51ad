//! The versions of everything that one daemon leaves to the next.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Versions by name: of the store, of the log, of the protocol of the workers.
///
/// A successor has to have the same ones. It must read the data of its predecessor, and the predecessor must be able to go on with that
/// data if the successor fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Formats(BTreeMap<String, u32>);

impl Formats {
    pub fn new(formats: impl IntoIterator<Item = (&'static str, u32)>) -> Self {
        Self(formats.into_iter().map(|(name, version)| (name.to_owned(), version)).collect())
    }

    /// Returns a sentence for each format in which `next` differs.
    pub fn differences(&self, next: &Self) -> Vec<String> {
        let shown = |version: Option<&u32>| version.map_or("none".to_owned(), u32::to_string);
        let names = self.0.keys().chain(next.0.keys().filter(|name| !self.0.contains_key(*name)));
        names
            .map(|name| (name, self.0.get(name), next.0.get(name)))
            .filter(|(_, ours, theirs)| ours != theirs)
            .map(|(name, ours, theirs)| {
                format!("{name}: the daemon has version {}, the new program {}", shown(ours), shown(theirs))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_difference_is_named_and_equal_formats_have_none() {
        let ours = Formats::new([("log", 1), ("store", 18), ("workers", 2)]);
        assert_eq!(ours.differences(&ours.clone()), Vec::<String>::new());
        let theirs = Formats::new([("log", 1), ("store", 19), ("usage", 1)]);
        assert_eq!(
            ours.differences(&theirs),
            [
                "store: the daemon has version 18, the new program 19",
                "workers: the daemon has version 2, the new program none",
                "usage: the daemon has version none, the new program 1",
            ]
        );
    }
}
