//! Reads the settings of clients from the configuration of the console.

use std::fmt;
use std::path::PathBuf;

use document::{At, Fields};
use serde_json::{Value, json};

/// Most scopes of a client.
const MOST_SCOPES: usize = 16;
/// Longest name of a client, and of a scope, bytes.
const MAX_TEXT: usize = 256;

/// An issuer whose tokens the API accepts.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// Name in the configuration.
    pub name: &'a str,
    /// Value of the claim `iss`.
    pub url: &'a str,
    pub audiences: &'a [String],
}

/// The console as a client of an issuer.
#[derive(Clone, PartialEq, Eq)]
pub struct Client {
    /// Name of the issuer in the configuration.
    pub name: String,
    /// URL of the issuer, as the claim `iss` has it.
    pub issuer: String,
    pub id: String,
    /// Secret of the client; `None` for a public one.
    pub secret: Option<String>,
    /// Scopes beside `openid`.
    pub scopes: Vec<String>,
}

/// An entry of the configuration. It is printed without its secret.
#[derive(Clone, PartialEq, Eq)]
pub struct SignIn {
    pub(crate) client: Client,
    secret_file: Option<PathBuf>,
}

impl fmt::Debug for SignIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SignIn({:?})", self.client.name)
    }
}

impl SignIn {
    /// Returns the entry in the form of the configuration file.
    pub fn shown(&self) -> Value {
        let mut shown = json!({ "issuer": self.client.name, "client_id": self.client.id });
        if let Some(file) = &self.secret_file {
            shown["client_secret_file"] = json!(file);
        }
        if !self.client.scopes.is_empty() {
            shown["scopes"] = json!(self.client.scopes);
        }
        shown
    }
}

/// Reads the list `sign_in`. Each issuer has one entry at most. `secret` reads the file that a value names, and reports its problems.
pub fn read(
    console: &Fields<'_>,
    issuers: &[Known<'_>],
    secret: impl Fn(&At<'_>) -> Option<(PathBuf, String)>,
) -> Vec<SignIn> {
    let mut all: Vec<SignIn> = Vec::new();
    for at in console.items("sign_in") {
        let Some(one) = entry(&at, issuers, &secret) else { continue };
        if all.iter().any(|before| before.client.name == one.client.name) {
            at.problem(format!("the issuer {} is listed twice", one.client.name));
        } else {
            all.push(one);
        }
    }
    all
}

fn entry(
    at: &At<'_>,
    issuers: &[Known<'_>],
    secret: &impl Fn(&At<'_>) -> Option<(PathBuf, String)>,
) -> Option<SignIn> {
    let fields = at.fields(&["issuer", "client_id", "client_secret_file", "scopes"]);
    let issuer = fields.required("issuer").and_then(|at| {
        let name = at.text()?;
        let issuer = issuers.iter().find(|issuer| issuer.name == name);
        match issuer {
            None => at.problem("is no name of an issuer in `oidc`"),
            Some(issuer) if !issuer.url.starts_with("https://") => {
                at.problem(
                    "has a URL (`issuer`) that does not begin with https://, so it has no page to sign in",
                );
            }
            Some(_) => {}
        }
        issuer
    });
    let id = fields.required("client_id").and_then(|at| {
        let id = word(at)?;
        if issuer.is_some_and(|issuer| !issuer.audiences.contains(&id)) {
            at.problem("is no `audience` of the issuer: ID tokens name the client there, so add it");
        }
        Some(id)
    });
    let secret = fields.get("client_secret_file").and_then(|at| {
        let read = secret(at);
        if read.as_ref().is_some_and(|(_, secret)| secret.is_empty()) {
            at.problem("names an empty file");
        }
        read
    });
    let scopes = fields.items("scopes");
    if scopes.len() > MOST_SCOPES {
        fields.at("scopes").problem(format!("has more than {MOST_SCOPES} scopes"));
    }
    let scopes = scopes.iter().take(MOST_SCOPES).filter_map(word).filter(|scope| scope != "openid").collect();
    let Known { name, url, .. } = issuer?;
    let (secret_file, secret) = secret.unzip();
    let client = Client { name: (*name).to_owned(), issuer: (*url).to_owned(), id: id?, secret, scopes };
    Some(SignIn { client, secret_file })
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
