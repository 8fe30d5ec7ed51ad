//! Reads `oidc`: the issuers whose tokens are accepted, and the roles that their claims grant.

use document::{At, Fields, time_or};
use oidc::{Grant, Issuer, Issuers, Source};
use serde_json::{Value, json};

use super::access::{roles, user};
use super::seconds;
use super::values::{name, path};

/// Maximum number of issuers, and of audiences of an issuer.
const MOST: usize = 16;
/// Maximum number of grants of an issuer.
const MOST_GRANTS: usize = 256;
/// Maximum length of a text in this section, bytes.
const MAX_TEXT: usize = 512;

const HOUR: u64 = 3_600;
const DAY: u64 = 86_400;

/// Returns an issuer in the form of the configuration file.
pub(super) fn shown(issuer: &Issuer) -> Value {
    let keys = match &issuer.keys {
        Source::File(file) => json!({ "file": file }),
        Source::Url { url, refresh, max_age } => {
            json!({ "url": url, "refresh": seconds(*refresh), "max_age": seconds(*max_age) })
        }
    };
    let grants = issuer.grants.iter().map(|grant| {
        let mut shown = json!({ "claim": grant.claim, "value": grant.value, "roles": grant.roles.names() });
        if !grant.profiles.is_empty() {
            shown["profiles"] = json!(grant.profiles);
        }
        if let Some((uid, gid)) = grant.user {
            shown["files"] = json!({ "uid": uid, "gid": gid });
        }
        shown
    });
    json!({
        "name": issuer.name,
        "issuer": issuer.issuer,
        "audience": issuer.audiences,
        "jwks": keys,
        "principal_claim": issuer.principal_claim,
        "groups_claim": issuer.groups_claim,
        "leeway": seconds(issuer.leeway),
        "max_lifetime": seconds(issuer.max_lifetime),
        "grants": grants.collect::<Vec<_>>(),
    })
}

/// Reads the section.
pub(super) fn read(top: &Fields<'_>) -> Vec<Issuer> {
    let mut issuers: Vec<Issuer> = Vec::new();
    for (index, at) in top.items("oidc").iter().enumerate() {
        if index == MOST {
            top.at("oidc").problem(format!("has more than {MOST}"));
            break;
        }
        issuers.extend(issuer(at, &issuers));
    }
    issuers
}

fn issuer(at: &At<'_>, before: &[Issuer]) -> Option<Issuer> {
    let fields = at.fields(&[
        "name",
        "issuer",
        "audience",
        "jwks",
        "principal_claim",
        "groups_claim",
        "leeway",
        "max_lifetime",
        "grants",
    ]);
    let once = |at: &At<'_>, text: &str, of: fn(&Issuer) -> &str| {
        let is_new = before.iter().all(|before| of(before) != text);
        if !is_new {
            at.problem(format!("{text:?} is listed twice"));
        }
        is_new
    };
    let name = fields.required("name").and_then(|at| {
        let name = name(at)?;
        once(at, &name, |issuer| &issuer.name).then_some(name)
    });
    let url = fields.required("issuer").and_then(|at| {
        let url = text(at)?;
        once(at, &url, |issuer| &issuer.issuer).then_some(url)
    });
    let audiences = fields.required("audience").map(|at| {
        let audiences: Vec<_> = at.one_or_more().iter().filter_map(text).collect();
        if at.is_list() && !(1..=MOST).contains(&at.items().len()) {
            at.problem(format!(
                "must be 1 to {MOST} audience names, one of which a token for this daemon must have"
            ));
        }
        audiences
    });
    let keys = fields.required("jwks").and_then(source);
    let principal_claim = fields.get("principal_claim").map_or(Some("sub".to_owned()), text);
    let groups_claim = fields.get("groups_claim").map_or_else(|| vec!["groups".to_owned()], claim);
    let leeway = time_or(&fields, "leeway", (0, 300), 30);
    let max_lifetime = time_or(&fields, "max_lifetime", (60, 365 * DAY), DAY);
    let grants = grants(&fields);
    let issuer = Issuer {
        name: name?,
        issuer: url?,
        audiences: audiences?,
        keys: keys?,
        principal_claim: principal_claim?,
        groups_claim,
        leeway,
        max_lifetime,
        grants,
    };
    if let Err((_, why)) = Issuers::open(vec![issuer.clone()]) {
        let of = if matches!(issuer.keys, Source::File(_)) { "file" } else { "url" };
        fields.section("jwks", &["file", "url", "refresh", "max_age"]).at(of).problem(why);
    }
    Some(issuer)
}

fn source(at: &At<'_>) -> Option<Source> {
    let fields = at.fields(&["file", "url", "refresh", "max_age"]);
    match (fields.get("file"), fields.get("url")) {
        (Some(file), None) => {
            for of_url in ["refresh", "max_age"] {
                if let Some(at) = fields.get(of_url) {
                    at.problem("is only for a `url`: a file is read again when it changes");
                }
            }
            path(file).map(Source::File)
        }
        (None, Some(url)) => {
            let refresh = time_or(&fields, "refresh", (60, DAY), HOUR);
            let max_age = time_or(&fields, "max_age", (60, 30 * DAY), DAY);
            if max_age < refresh {
                fields.at("max_age").problem("must be at least as long as `refresh`");
            }
            Some(Source::Url { url: text(url)?, refresh, max_age })
        }
        _ => {
            at.problem("must have a `file` or a `url`, and not both");
            None
        }
    }
}

fn grants(fields: &Fields<'_>) -> Vec<Grant> {
    let Some(at) = fields.required("grants") else { return Vec::new() };
    if at.is_list() && !(1..=MOST_GRANTS).contains(&at.items().len()) {
        at.problem(format!("must have 1 to {MOST_GRANTS} entries: without one, no token has a role"));
    }
    let read = |at: &At<'_>| {
        let fields = at.fields(&["claim", "value", "roles", "profiles", "files"]);
        let claim = claim(fields.required("claim")?);
        let value = fields.required("value").and_then(text);
        let roles = roles(&fields);
        let profiles = fields.items("profiles").iter().filter_map(text).collect();
        if fields.get("profiles").is_some_and(|at| at.is_list() && at.items().is_empty()) {
            fields.at("profiles").problem("must name profiles, or be left out for all profiles");
        }
        Some(Grant { claim, value: value?, roles, profiles, user: fields.get("files").and_then(user) })
    };
    at.items().iter().filter_map(read).collect()
}

fn claim(at: &At<'_>) -> Vec<String> {
    let path: Vec<_> = at.one_or_more().iter().filter_map(text).collect();
    if path.is_empty() {
        at.problem("must be the name of a claim, or the list of names that leads to a nested one");
    }
    path
}

fn text(at: &At<'_>) -> Option<String> {
    let text = at.text()?;
    if text.len() > MAX_TEXT {
        at.problem(format!("is longer than {MAX_TEXT} bytes"));
        return None;
    }
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::testing::{keys, parse};

    const SET: &str = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"1","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

    fn file(directory: &Path) -> String {
        let file = directory.join("jwks.json");
        std::fs::write(&file, SET).unwrap();
        file.display().to_string()
    }

    #[test]
    fn j5_issuer_problems_are_reported_by_key() {
        let directory = tempfile::tempdir().unwrap();
        let file = file(directory.path());
        let text = format!(
            "oidc:
  - {{ name: 'A b', issuer: '', audience: [], jwks: {{}}, principal_claim: 7, leeway: 1h, max_lifetime: 1s, grants: [] }}
  - {{ name: a, issuer: i, audience: x, jwks: {{ file: /no/such }}, grants: [{{ claim: g, value: v, roles: [king] }}] }}
  - {{ name: a, issuer: j, audience: x, jwks: {{ file: {file}, refresh: 1h }}, grants: [{{ claim: g, value: v, roles: [] }}] }}
  - {{ name: b, issuer: i, audience: x, jwks: {{ url: 'http://localhost/' }}, grants: [{{ claim: [], value: 1, roles: [auditor], profiles: [] }}] }}
  - {{ name: c, issuer: k, audience: x, jwks: {{ url: 'http://localhost/', refresh: 1h, max_age: 5m }}, grants: [{{ claim: g, value: v, roles: [auditor] }}] }}
  - {{ name: d, isuer: k }}
"
        );
        let expected = [
            "[0].name",
            "[0].issuer",
            "[0].audience",
            "[0].jwks",
            "[0].principal_claim",
            "[0].leeway",
            "[0].max_lifetime",
            "[0].grants",
            "[1].jwks.file",
            "[1].grants[0].roles[0]",
            "[2].name",
            "[2].jwks.refresh",
            "[3].issuer",
            "[3].grants[0].claim",
            "[3].grants[0].value",
            "[3].grants[0].profiles",
            "[4].jwks.url",
            "[4].jwks.max_age",
            "[5]",
            "[5].isuer",
        ];
        let mut found = keys(&text);
        found.dedup();
        let mut wanted: Vec<_> = expected.map(|key| format!("oidc{key}")).into();
        wanted.sort();
        found.sort();
        found.dedup();
        assert_eq!(found, wanted);
        assert_eq!(
            keys(&format!("oidc: [{}]", "{}, ".repeat(17))).iter().filter(|key| *key == "oidc").count(),
            1
        );
    }

    #[test]
    fn j5_printed_issuers_parse_back() {
        let directory = tempfile::tempdir().unwrap();
        let file = file(directory.path());
        assert!(parse("{}").unwrap().oidc.is_empty());
        for jwks in
            [format!("file: {file}"), "url: 'https://login.example.org/keys?x=1', refresh: 5m".to_owned()]
        {
            let text = format!(
                "oidc: [{{ name: corp, issuer: 'https://login.example.org/', audience: cofferdam, jwks: {{ {jwks} }}, grants: [
                    {{ claim: [realm, roles], value: ml, roles: [orchestrator], profiles: [open], files: {{ uid: 7, gid: 8 }} }},
                    {{ claim: sub, value: alice, roles: [auditor, operator] }}] }}]"
            );
            let config = parse(&text).unwrap();
            assert_eq!((config.oidc[0].audiences.len(), config.oidc[0].grants.len()), (1, 2));
            let printed = config.to_string();
            assert_eq!(parse(&printed).unwrap().to_string(), printed);
        }
    }
}
