//! Reads `secrets`: where the values come from that rules put into requests.

use std::collections::{BTreeMap, BTreeSet};

use ::secrets::Source;
use document::{At, Fields, time_or};
use egress_rules::{Narrowed, SecretName};
use policy::Policy;
use serde_json::{Value, json};

use super::seconds;
use super::values::path;

/// Maximum number of secrets.
const MAX_SECRETS: usize = 64;
/// Maximum number of words of a command.
const MAX_WORDS: usize = 32;
/// Maximum length of a variable's name, bytes.
const MAX_VARIABLE: usize = 128;
/// Maximum length of a credential's name, bytes: it is the name of a file.
const MAX_CREDENTIAL: usize = 255;
const WEEK: u64 = 7 * 86_400;

/// Keys of which each secret has one.
const SOURCES: [&str; 4] = ["file", "env", "credential", "command"];
/// Keys that belong to a command.
const OF_COMMAND: [&str; 2] = ["timeout", "refresh"];

/// Reads the section. The sources themselves are not read.
pub(super) fn read(top: &Fields<'_>) -> BTreeMap<SecretName, Source> {
    let Some(at) = top.get("secrets") else { return BTreeMap::new() };
    let entries = at.entries();
    if entries.len() > MAX_SECRETS {
        at.problem(format!("has more than {MAX_SECRETS} secrets"));
        return BTreeMap::new();
    }
    let mut sources = BTreeMap::new();
    for (name, at) in entries {
        let name = SecretName::parse(name).map_err(|error| at.problem(error.to_string())).ok();
        if let (Some(name), Some(source)) = (name, source(&at)) {
            sources.insert(name, source);
        }
    }
    sources
}

fn source(at: &At<'_>) -> Option<Source> {
    if at.is_text() || at.is_number() {
        at.problem(
            "must name a source, such as { file: /etc/cofferdam/secrets/model }; a value is never written here",
        );
        return None;
    }
    let fields = at.fields(&[&SOURCES[..], &OF_COMMAND].concat());
    let given: Vec<&str> = SOURCES.into_iter().filter(|key| fields.get(key).is_some()).collect();
    let [kind] = given[..] else {
        at.problem("must have one of `file`, `env`, `credential` and `command`");
        return None;
    };
    if kind != "command" {
        for key in OF_COMMAND.into_iter().filter(|key| fields.get(key).is_some()) {
            fields.at(key).problem("is only for a secret with `command`");
        }
    }
    let at = fields.get(kind)?;
    match kind {
        "file" => path(at).map(Source::File),
        "env" => variable(at).map(Source::Env),
        "credential" => credential(at).map(Source::Credential),
        _ => Some(Source::Command {
            argv: words(at)?,
            timeout: time_or(&fields, "timeout", (1, 60), 10),
            refresh: time_or(&fields, "refresh", (1, WEEK), 300),
        }),
    }
}

fn variable(at: &At<'_>) -> Option<String> {
    let name = at.text()?;
    let is_first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let is_name = name.len() <= MAX_VARIABLE
        && name.bytes().next().is_some_and(is_first)
        && name.bytes().all(|byte| is_first(byte) || byte.is_ascii_digit());
    if !is_name {
        at.problem("must be the name of a variable, such as MODEL_KEY");
    }
    is_name.then(|| name.to_owned())
}

fn credential(at: &At<'_>) -> Option<String> {
    let name = at.text()?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let is_name = name.len() <= MAX_CREDENTIAL && !name.starts_with('.') && name.bytes().all(is_plain);
    if !is_name {
        at.problem(
            "must be the name of a credential in letters, digits, `.`, `-` and `_`, such as model-key",
        );
    }
    is_name.then(|| name.to_owned())
}

/// Reads a program and its arguments.
fn words(at: &At<'_>) -> Option<Vec<String>> {
    let items = at.items();
    if !at.is_list() {
        return None;
    }
    let Some(program) = items.first().filter(|_| items.len() <= MAX_WORDS) else {
        at.problem(format!("must have 1 to {MAX_WORDS} words: a program and its arguments"));
        return None;
    };
    path(program)?;
    items.iter().map(At::argument).collect()
}

/// Returns the section in the form of the configuration file. It has no values.
pub(super) fn shown(sources: &BTreeMap<SecretName, Source>) -> Value {
    let one = |source: &Source| match source {
        Source::File(path) => json!({ "file": path }),
        Source::Env(variable) => json!({ "env": variable }),
        Source::Credential(name) => json!({ "credential": name }),
        Source::Command { argv, timeout, refresh } => {
            json!({ "command": argv, "timeout": seconds(*timeout), "refresh": seconds(*refresh) })
        }
    };
    sources.iter().map(|(name, source)| (name.to_string(), one(source))).collect()
}

/// Checks that the configuration has every secret that the rules and placeholders of a policy name.
///
/// The error has a line for each that is missing.
pub(crate) fn check(known: &BTreeSet<SecretName>, policy: &Policy) -> Result<(), String> {
    let mut missing = Vec::new();
    for name in policy.profile_names() {
        let Some(profile) = policy.profile(name) else { continue };
        let of_companions = profile.companions.egress.values().map(|rules| ("companions.egress", rules));
        let all = std::iter::once(("egress", &profile.egress)).chain(of_companions);
        for (place, secret) in all.flat_map(|(place, rules)| {
            Narrowed::new(rules.clone()).secrets().into_iter().map(move |secret| (place, secret))
        }) {
            if !known.contains(&secret) {
                missing.push(format!(
                    "profiles.{name}.{place}: needs the secret {secret}: add it to `secrets` of the configuration"
                ));
            }
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(missing.join("\n")) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::testing::{keys, parse};
    use super::*;

    fn named(names: &[&str]) -> BTreeSet<SecretName> {
        names.iter().map(|name| SecretName::parse(name).unwrap()).collect()
    }

    #[test]
    fn each_source_is_read_and_printed_as_it_is() {
        assert!(!parse("{}").unwrap().to_string().contains("secrets"));
        let text = "secrets: { model: { file: /etc/cofferdam/model }, pkg: { env: PKG_TOKEN },
            build: { credential: build-token }, vault: { command: [/usr/bin/fetch, --name, 7], timeout: 5s, refresh: 1h },
            plain: { command: [/usr/bin/fetch] } }";
        let config = parse(text).unwrap();
        assert_eq!(config.secrets.len(), 5);
        assert_eq!(parse(&config.to_string()).unwrap().secrets, config.secrets);
        let of = |name: &str| &config.secrets[&SecretName::parse(name).unwrap()];
        assert_eq!(of("pkg"), &Source::Env("PKG_TOKEN".to_owned()));
        let vault = Source::Command {
            argv: ["/usr/bin/fetch", "--name", "7"].map(str::to_owned).into(),
            timeout: Duration::from_secs(5),
            refresh: Duration::from_secs(3_600),
        };
        assert_eq!(of("vault"), &vault);
        let plain = Source::Command {
            argv: vec!["/usr/bin/fetch".to_owned()],
            timeout: Duration::from_secs(10),
            refresh: Duration::from_secs(300),
        };
        assert_eq!(of("plain"), &plain);
    }

    #[test]
    fn a_value_in_the_place_of_a_source_is_refused_and_not_repeated() {
        let told = parse("secrets: { model: key-hunter2 }").unwrap_err().to_string();
        assert!(told.contains("secrets.model: must name a source") && !told.contains("hunter2"), "{told}");
    }

    #[test]
    fn every_problem_has_its_key() {
        let text = "secrets: { Model: { file: /a }, a: { file: relative }, b: { file: /a, env: A }, c: {},
            d: { env: 7up }, e: { credential: ../x }, f: { command: fetch }, g: { command: [fetch] }, h: { command: [] },
            i: { command: [/bin/true], timeout: 2m, refresh: 0s }, j: { file: /a, refresh: 5s }, k: { files: /a } }";
        assert_eq!(
            keys(text),
            [
                "secrets.Model",
                "secrets.a.file",
                "secrets.b",
                "secrets.c",
                "secrets.d.env",
                "secrets.e.credential",
                "secrets.f.command",
                "secrets.g.command[0]",
                "secrets.h.command",
                "secrets.i.timeout",
                "secrets.i.refresh",
                "secrets.j.refresh",
                "secrets.k.files",
                "secrets.k",
            ]
        );
        let many = (0..=MAX_SECRETS).map(|number| format!("s{number}: {{ file: /a }}"));
        let many = many.collect::<Vec<_>>().join(", ");
        assert_eq!(keys(&format!("secrets: {{ {many} }}")), ["secrets"]);
        assert_eq!(keys("secrets: [model]"), ["secrets"]);
    }

    #[test]
    fn a_policy_whose_secrets_are_missing_is_refused_by_name() {
        let policy = |egress: &str| {
            let text = format!(
                "profiles: {{ p: {{ operations: {{}}, egress: {egress} }} }}\nroles: {{ r: {{ allow: '*' }} }}\n"
            );
            Policy::from_files([("p.yaml", text)]).unwrap()
        };
        let injects = policy(
            "{ rules: [{ host: api.example.org, ports: [443], decision: allow,
                inject: { header: Authorization, value: 'Bearer ${secret:model}' } }],
               placeholders: { API_KEY: { secret: other, shape: 'key-{40}' } } }",
        );
        let told = check(&named(&[]), &injects).unwrap_err();
        assert_eq!(
            told,
            "profiles.p.egress: needs the secret model: add it to `secrets` of the configuration\n\
             profiles.p.egress: needs the secret other: add it to `secrets` of the configuration"
        );
        assert!(check(&named(&["model"]), &injects).unwrap_err().contains("secret other"));
        assert_eq!(check(&named(&["model", "other", "more"]), &injects), Ok(()));
        assert_eq!(check(&named(&[]), &policy("{ rules: [] }")), Ok(()));
        assert_eq!(check(&named(&[]), &Policy::builtin().unwrap()), Ok(()));
    }
}
