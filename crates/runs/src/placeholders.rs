//! Placeholders: texts that the programs of a run see in place of secrets.
//!
//! They follow from the installation's key, the run and the variable, and are not stored. So each daemon gives a run the same ones, and no
//! other run has them, a fork neither. They open nothing: the egress replaces the headers in which programs send them.

use egress_rules::{Narrowed, SecretName};
use identity::RunId;
use store::Store;

/// Purpose of the bytes, as the store's key is used for others, too.
const PURPOSE: &str = "placeholder";

/// A variable of a run that has a placeholder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placeholder {
    pub(crate) variable: String,
    pub(crate) secret: SecretName,
    /// Text that the run sees.
    pub(crate) value: String,
}

impl Placeholder {
    /// Returns the variable, the secret and the text.
    pub(crate) fn into_parts(self) -> (String, SecretName, String) {
        (self.variable, self.secret, self.value)
    }
}

/// Returns the placeholders of a run under these rules.
pub(crate) fn of_run(store: &Store, run: RunId, rules: &Narrowed) -> Vec<Placeholder> {
    derived(store, &run.to_string(), rules)
}

/// Returns the placeholders of a run's companion under these rules. No name of a run or of a companion has a slash.
pub(crate) fn beside(store: &Store, run: RunId, companion: &str, rules: &Narrowed) -> Vec<Placeholder> {
    derived(store, &format!("{run}/{companion}"), rules)
}

fn derived(store: &Store, whose: &str, rules: &Narrowed) -> Vec<Placeholder> {
    let placeholders = rules.placeholders().iter().map(|(variable, placeholder)| {
        let block = |number: u32| store.derived(PURPOSE, format!("{whose} {variable} {number}").as_bytes());
        let value = placeholder.shape.fill(bytes(block));
        Placeholder { variable: variable.clone(), secret: placeholder.secret.clone(), value }
    });
    placeholders.collect()
}

/// Returns the bytes of numbered blocks, one at each call.
fn bytes(block: impl Fn(u32) -> [u8; 32]) -> impl FnMut() -> u8 {
    let (mut number, mut bytes, mut at) = (0, [0; 32], 32);
    move || {
        if at == bytes.len() {
            (bytes, at) = (block(number), 0);
            number += 1;
        }
        at += 1;
        bytes[at - 1]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use egress_rules::Rules;
    use store::OutcomeBounds;

    use super::*;

    fn opened(directory: &Path) -> Store {
        Store::open(&directory.join("store.db"), OutcomeBounds::WIDE).unwrap()
    }

    fn rules() -> Narrowed {
        let text = r#"{
            "rules": [{"host": "api.example.org", "ports": [443], "decision": "allow",
                "inject": {"header": "authorization", "value": "Bearer ${secret:model}"}}],
            "placeholders": {
                "MODEL_API_KEY": {"secret": "model", "shape": "key-{40}-x"},
                "OTHER_KEY": {"secret": "model", "shape": "{128}"}
            }
        }"#;
        Narrowed::new(Rules::from_json(text).unwrap())
    }

    #[test]
    fn placeholders_have_their_shape_and_belong_to_one_run_and_variable() {
        let directory = tempfile::tempdir().unwrap();
        let (store, rules) = (opened(directory.path()), rules());
        let mut values = BTreeSet::new();
        for run in [RunId::new(), RunId::new()] {
            let [first, second]: [Placeholder; 2] = of_run(&store, run, &rules).try_into().unwrap();
            let (_, secret, value) = first.into_parts();
            assert_eq!(secret.as_str(), "model");
            let random = value.strip_prefix("key-").and_then(|rest| rest.strip_suffix("-x")).unwrap();
            assert_eq!((random.len(), second.value.len()), (40, 128));
            for text in [random, second.value.as_str()] {
                assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{text}");
                // The beginning alone differs, too.
                values.insert(text[..16].to_owned());
            }
        }
        assert_eq!(values.len(), 4);
        let run = RunId::new();
        let all = [
            of_run(&store, run, &rules),
            beside(&store, run, "db", &rules),
            beside(&store, run, "dc", &rules),
        ];
        let all: BTreeSet<_> = all.iter().flatten().map(|placeholder| &placeholder.value).collect();
        assert_eq!(all.len(), 6, "companions have others than their run");
    }

    #[test]
    fn each_daemon_of_an_installation_gives_a_run_the_same_ones() {
        let directory = tempfile::tempdir().unwrap();
        let run = RunId::new();
        let before = of_run(&opened(directory.path()), run, &rules());
        assert_eq!(of_run(&opened(directory.path()), run, &rules()), before);
        let other = tempfile::tempdir().unwrap();
        assert_ne!(of_run(&opened(other.path()), run, &rules()), before, "another key");
    }

    #[test]
    fn bytes_come_from_one_block_after_the_other() {
        let mut next = bytes(|number| [u8::try_from(number).unwrap(); 32]);
        let found: Vec<u8> = (0..65).map(|_| next()).collect();
        assert_eq!([found[0], found[31], found[32], found[63], found[64]], [0, 0, 1, 1, 2]);
    }
}
