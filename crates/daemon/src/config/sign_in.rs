//! Reads `console.sign_in`: the issuers of `oidc` at which people sign in to the console.

use std::path::PathBuf;

use document::{At, Fields};
use oidc::Issuer;
use oidc_sign_in::Client;
use serde_json::{Value, json};

use super::secret_file;
use super::values::path;

/// Most scopes of a client.
const MOST_SCOPES: usize = 16;
/// Longest name of a client, and of a scope, bytes.
const MAX_TEXT: usize = 256;

/// The console as a client of an issuer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SignIn {
    /// Name of the issuer.
    name: String,
    /// URL of the issuer, by its entry in `oidc`.
    issuer: String,
    client_id: String,
    client_secret_file: Option<PathBuf>,
    /// Scopes beside `openid`.
    scopes: Vec<String>,
}

impl SignIn {
    /// Reads the secret of the client, if it has one.
    pub(crate) fn open(&self) -> anyhow::Result<Client> {
        let secret = self.client_secret_file.as_deref().map(secret_file::read).transpose();
        let secret = secret.map_err(|why| anyhow::anyhow!("console.sign_in: client_secret_file: {why}"))?;
        Ok(Client {
            name: self.name.clone(),
            issuer: self.issuer.clone(),
            id: self.client_id.clone(),
            secret,
            scopes: self.scopes.clone(),
        })
    }

    /// Returns the entry in the form of the configuration file.
    pub(super) fn shown(&self) -> Value {
        let mut shown = json!({ "issuer": self.name, "client_id": self.client_id });
        if let Some(file) = &self.client_secret_file {
            shown["client_secret_file"] = json!(file);
        }
        if !self.scopes.is_empty() {
            shown["scopes"] = json!(self.scopes);
        }
        shown
    }
}

/// Reads the list. Each issuer has one entry at most.
pub(super) fn read(console: &Fields<'_>, issuers: &[Issuer]) -> Vec<SignIn> {
    let mut all: Vec<SignIn> = Vec::new();
    for at in console.items("sign_in") {
        let Some(one) = entry(&at, issuers) else { continue };
        if all.iter().any(|before| before.name == one.name) {
            at.problem(format!("the issuer {} is listed twice", one.name));
        } else {
            all.push(one);
        }
    }
    all
}

fn entry(at: &At<'_>, issuers: &[Issuer]) -> Option<SignIn> {
    let fields = at.fields(&["issuer", "client_id", "client_secret_file", "scopes"]);
    let issuer = fields.required("issuer").and_then(|at| {
        let name = at.text()?;
        let issuer = issuers.iter().find(|issuer| issuer.name == name);
        match issuer {
            None => at.problem("is no name of an issuer in `oidc`"),
            Some(issuer) if !issuer.issuer.starts_with("https://") => {
                at.problem(
                    "has a URL (`issuer`) that does not begin with https://, so nobody can sign in there",
                );
            }
            Some(_) => {}
        }
        issuer
    });
    let client_id = fields.required("client_id").and_then(|at| {
        let id = word(at)?;
        if issuer.is_some_and(|issuer| !issuer.audiences.contains(&id)) {
            at.problem("is no `audience` of the issuer: ID tokens name the client there, so add it");
        }
        Some(id)
    });
    let client_secret_file = fields.get("client_secret_file").and_then(path);
    match client_secret_file.as_deref().map(secret_file::read) {
        Some(Err(message)) => fields.at("client_secret_file").problem(message),
        Some(Ok(secret)) if secret.is_empty() => {
            fields.at("client_secret_file").problem("names an empty file")
        }
        _ => {}
    }
    let scopes = fields.items("scopes");
    if scopes.len() > MOST_SCOPES {
        fields.at("scopes").problem(format!("has more than {MOST_SCOPES} scopes"));
    }
    let scopes = scopes.iter().take(MOST_SCOPES).filter_map(word).filter(|scope| scope != "openid").collect();
    let issuer = issuer?;
    Some(SignIn {
        name: issuer.name.clone(),
        issuer: issuer.issuer.clone(),
        client_id: client_id?,
        client_secret_file,
        scopes,
    })
}

/// Reads a text of visible characters (RFC 6749, appendix A).
fn word(at: &At<'_>) -> Option<String> {
    let text = at.text()?;
    let is_word = (1..=MAX_TEXT).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_word || text.contains(['"', '\\']) {
        at.problem(format!("must be 1 to {MAX_TEXT} visible ASCII characters without `\"` and `\\`"));
        return None;
    }
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::testing::{keys, parse};

    fn config(sign_in: &str) -> String {
        format!(
            "oidc:
  - {{ name: corp, issuer: 'https://login.example.org/', audience: [cofferdam, console], jwks: {{ url: 'https://login.example.org/keys' }},
      grants: [{{ claim: groups, value: ml, roles: [auditor] }}] }}
  - {{ name: file, issuer: inhouse, audience: console, jwks: {{ url: 'https://login.example.org/keys' }},
      grants: [{{ claim: groups, value: ml, roles: [auditor] }}] }}
console: {{ sign_in: [{sign_in}] }}
"
        )
    }

    #[test]
    fn a_client_is_read_and_printed_without_its_secret() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("secret");
        std::fs::write(&file, "s3cret\n").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let entry = format!(
            "{{ issuer: corp, client_id: console, client_secret_file: {}, scopes: [openid, groups] }}",
            file.display()
        );
        let parsed = parse(&config(&entry)).unwrap();
        let client = parsed.console.as_ref().unwrap().sign_in[0].open().unwrap();
        assert_eq!((client.name.as_str(), client.issuer.as_str()), ("corp", "https://login.example.org/"));
        assert_eq!((client.id.as_str(), client.secret.as_deref()), ("console", Some("s3cret")));
        assert_eq!(client.scopes, ["groups"]);
        let printed = parsed.to_string();
        assert!(!printed.contains("s3cret"), "{printed}");
        assert_eq!(parse(&printed).unwrap().to_string(), printed);
    }

    #[test]
    fn problems_of_a_client_are_reported_by_key() {
        for (entry, key) in [
            ("{ issuer: other, client_id: console }", "issuer"),
            ("{ issuer: file, client_id: console }", "issuer"),
            ("{ issuer: corp, client_id: unknown }", "client_id"),
            ("{ issuer: corp, client_id: 'two words' }", "client_id"),
            ("{ issuer: corp, client_id: console, client_secret_file: secret }", "client_secret_file"),
            ("{ issuer: corp, client_id: console, client_secret_file: /no/such }", "client_secret_file"),
            ("{ issuer: corp, client_id: console, scopes: ['a b'] }", "scopes[0]"),
            ("{ issuer: corp, client_id: console, secret: x }", "secret"),
        ] {
            assert_eq!(keys(&config(entry)), [format!("console.sign_in[0].{key}")], "{entry}");
        }
        let twice = "{ issuer: corp, client_id: console }, { issuer: corp, client_id: console }";
        assert_eq!(keys(&config(twice)), ["console.sign_in[1]"]);
    }

    #[test]
    fn a_change_of_its_issuer_needs_a_restart() {
        let text = config("{ issuer: corp, client_id: console }");
        let other = text.replace("'https://login.example.org/'", "'https://login2.example.org/'");
        let change = parse(&text).unwrap().change_to(parse(&other).unwrap());
        assert_eq!(change.needs_restart, ["console.sign_in"]);
        assert_eq!(change.applied, ["oidc"]);
    }
}
