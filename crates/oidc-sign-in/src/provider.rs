//! The endpoints of an issuer, by its discovery document (OpenID Connect Discovery, 4).

use std::time::Duration;

use serde::Deserialize;
use url::Url;
use webhook::{Target, Tls, fetch};

/// Path of the document, after the issuer's URL.
const DOCUMENT: &str = ".well-known/openid-configuration";
/// Largest answer of an issuer, bytes.
pub(crate) const LARGEST: usize = 64 << 10;
/// Time for an answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// Longest URL of an endpoint, bytes.
const LONGEST: usize = 2_048;
/// Method of PKCE that is used.
const METHOD: &str = "S256";

/// The endpoints of an issuer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Provider {
    /// Page at which people sign in.
    pub(crate) authorization: Url,
    pub(crate) token: Target,
    /// True if the issuer takes the client's secret only in the form, and not as a header.
    pub(crate) secret_in_form: bool,
    /// True if answers to the browser have to name the issuer (RFC 9207).
    pub(crate) names_itself: bool,
}

#[derive(Deserialize)]
struct Document {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    code_challenge_methods_supported: Option<Vec<String>>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

impl Provider {
    /// Fetches the document of an issuer. The error is for people, and has no path.
    pub(crate) async fn fetch(tls: &Tls, issuer: &str) -> Result<Self, String> {
        let slash = if issuer.ends_with('/') { "" } else { "/" };
        let url = format!("{issuer}{slash}{DOCUMENT}");
        let document = fetch(tls, &target(&url)?, LARGEST, PATIENCE).await;
        Self::parse(issuer, &document.map_err(|why| format!("its discovery document: {why}"))?)
    }

    fn parse(issuer: &str, text: &[u8]) -> Result<Self, String> {
        let document: Document = serde_json::from_slice(text)
            .map_err(|_| "its discovery document lacks its name or an endpoint".to_owned())?;
        // The document of another issuer would send its codes there (RFC 8414, 3.3).
        if document.issuer != issuer {
            return Err("its discovery document names another issuer".to_owned());
        }
        let lacks = |listed: &Option<Vec<String>>, one: &str| {
            listed.as_ref().is_some_and(|listed| listed.iter().all(|name| name != one))
        };
        if lacks(&document.code_challenge_methods_supported, METHOD) {
            return Err("it does not offer PKCE with S256".to_owned());
        }
        let methods = &document.token_endpoint_auth_methods_supported;
        let secret_in_form = lacks(methods, "client_secret_basic") && !lacks(methods, "client_secret_post");
        Ok(Self {
            authorization: page(&document.authorization_endpoint)?,
            token: target(&document.token_endpoint)?,
            secret_in_form,
            names_itself: document.authorization_response_iss_parameter_supported,
        })
    }
}

fn page(url: &str) -> Result<Url, String> {
    let wrong = || "its page for people is not a plain https URL".to_owned();
    if !url.starts_with("https://") || url.len() > LONGEST {
        return Err(wrong());
    }
    let url = Url::parse(url).map_err(|_| wrong())?;
    let is_anonymous = url.username().is_empty() && url.password().is_none();
    let is_plain = url.scheme() == "https" && url.has_host() && url.fragment().is_none() && is_anonymous;
    if is_plain { Ok(url) } else { Err(wrong()) }
}

/// Parses the URL of a server. It must be https: a code, a secret and a token are sent to it.
fn target(url: &str) -> Result<Target, String> {
    if !url.starts_with("https://") || url.len() > LONGEST {
        return Err("one of its endpoints is not an https URL".to_owned());
    }
    Target::parse(url, false).map_err(|why| format!("one of its endpoints {why}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ISSUER: &str = "https://login.example.org/a";

    fn document() -> Value {
        json!({
            "issuer": ISSUER,
            "authorization_endpoint": "https://login.example.org/authorize?tenant=1",
            "token_endpoint": "https://tokens.example.org/token",
        })
    }

    fn with(key: &str, value: Value) -> Result<Provider, String> {
        let mut document = document();
        document[key] = value;
        Provider::parse(ISSUER, document.to_string().as_bytes())
    }

    #[test]
    fn a_document_has_its_own_name_and_https_endpoints() {
        let provider = Provider::parse(ISSUER, document().to_string().as_bytes()).unwrap();
        assert_eq!(provider.authorization.as_str(), "https://login.example.org/authorize?tenant=1");
        assert_eq!(provider.token.authority(), "tokens.example.org");
        assert!(!provider.secret_in_form && !provider.names_itself);
        for (key, value) in [
            ("issuer", json!("https://login.example.org/a/")),
            ("issuer", json!("https://evil.example.org/a")),
            ("issuer", json!(null)),
            ("authorization_endpoint", json!("http://login.example.org/authorize")),
            ("authorization_endpoint", json!("javascript:alert(1)")),
            ("authorization_endpoint", json!("https://user@login.example.org/")),
            ("authorization_endpoint", json!("https://login.example.org/#fragment")),
            ("authorization_endpoint", json!("https:///x y")),
            ("authorization_endpoint", json!(format!("https://login.example.org/{}", "a".repeat(3_000)))),
            ("token_endpoint", json!("http://127.0.0.1/token")),
            ("token_endpoint", json!("https://user:word@tokens.example.org/token")),
            ("token_endpoint", json!(7)),
            ("code_challenge_methods_supported", json!(["plain"])),
        ] {
            assert!(with(key, value.clone()).is_err(), "{key}: {value}");
        }
        assert!(Provider::parse(ISSUER, b"{}").is_err());
        assert!(Provider::parse(ISSUER, b"[").is_err());
    }

    #[test]
    fn the_methods_of_an_issuer_are_followed() {
        let methods = |listed: Value| with("token_endpoint_auth_methods_supported", listed).unwrap();
        assert!(methods(json!(["client_secret_post", "private_key_jwt"])).secret_in_form);
        assert!(!methods(json!(["client_secret_post", "client_secret_basic"])).secret_in_form);
        assert!(!methods(json!([])).secret_in_form);
        assert!(with("authorization_response_iss_parameter_supported", json!(true)).unwrap().names_itself);
        assert!(with("code_challenge_methods_supported", json!(["plain", "S256"])).is_ok());
    }
}
