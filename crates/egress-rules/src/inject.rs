//! Headers that the run does not know.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::secret_name::SecretName;
use crate::template::Template;

/// Longest name of a header, and longest name of a user, bytes.
const MOST: usize = 128;
/// The header of basic authentication (RFC 7617).
const AUTHORIZATION: &str = "authorization";

/// Headers that decide how a request is sent, and so belong to the process that sends it.
const FRAMING: [&str; 10] = [
    "accept-encoding",
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A header with a secret, set on each request of a rule in place of all headers of its name that the program sent.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub enum Injection {
    Header {
        /// Name in lower case.
        header: String,
        value: Template,
    },
    /// Basic authentication.
    Basic { user: String, password: Template },
}

impl Injection {
    /// Makes one of a header's name in any case.
    pub fn of_header(name: &str, value: Template) -> Result<Self, BadInjection> {
        let header = name.to_ascii_lowercase();
        check_header(&header)?;
        Ok(Self::Header { header, value })
    }

    /// Makes one of a user's name and a password.
    pub fn of_basic(user: &str, password: Template) -> Result<Self, BadInjection> {
        check_user(user)?;
        Ok(Self::Basic { user: user.to_owned(), password })
    }

    /// Returns the name of the header in lower case.
    pub fn header(&self) -> &str {
        match self {
            Self::Header { header, .. } => header,
            Self::Basic { .. } => AUTHORIZATION,
        }
    }

    /// Returns the secrets that it needs.
    pub fn secrets(&self) -> impl Iterator<Item = &SecretName> {
        match self {
            Self::Header { value, .. } => value.secrets(),
            Self::Basic { password, .. } => password.secrets(),
        }
    }

    /// Checks one that was not made by a constructor.
    pub(crate) fn check(&self) -> Result<(), BadInjection> {
        match self {
            Self::Header { header, .. } if header.bytes().any(|byte| byte.is_ascii_uppercase()) => {
                Err(BadInjection::Header)
            }
            Self::Header { header, .. } => check_header(header),
            Self::Basic { user, .. } => check_user(user),
        }
    }
}

fn check_header(header: &str) -> Result<(), BadInjection> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if !(1..=MOST).contains(&header.len()) || !header.bytes().all(is_token) {
        return Err(BadInjection::Header);
    }
    if FRAMING.contains(&header) || header.starts_with("proxy-") {
        return Err(BadInjection::Framing);
    }
    Ok(())
}

/// A colon would end the user's name.
fn check_user(user: &str) -> Result<(), BadInjection> {
    let is_letter = |byte: u8| (byte.is_ascii_graphic() || byte == b' ') && byte != b':';
    let is_valid = (1..=MOST).contains(&user.len()) && user.bytes().all(is_letter);
    if is_valid { Ok(()) } else { Err(BadInjection::User) }
}

/// Returns the injections of both lists by header. `None` if they set a header to two values.
pub(crate) fn together(one: Vec<Injection>, other: Vec<Injection>) -> Option<Vec<Injection>> {
    let mut all: BTreeMap<String, Injection> = BTreeMap::new();
    for injection in one.into_iter().chain(other) {
        let header = injection.header().to_owned();
        if all.get(&header).is_some_and(|known| *known != injection) {
            return None;
        }
        all.insert(header, injection);
    }
    Some(all.into_values().collect())
}

/// The form of an injection in a policy: `{ header, value }` or `{ basic: { user, password } }`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    header: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<Template>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    basic: Option<Basic>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Basic {
    user: String,
    password: Template,
}

impl TryFrom<Written> for Injection {
    type Error = BadInjection;

    fn try_from(written: Written) -> Result<Self, BadInjection> {
        match written {
            Written { header: Some(header), value: Some(value), basic: None } => {
                Self::of_header(&header, value)
            }
            Written { header: None, value: None, basic: Some(Basic { user, password }) } => {
                Self::of_basic(&user, password)
            }
            _ => Err(BadInjection::Form),
        }
    }
}

impl From<Injection> for Written {
    fn from(injection: Injection) -> Self {
        match injection {
            Injection::Header { header, value } => {
                Self { header: Some(header), value: Some(value), basic: None }
            }
            Injection::Basic { user, password } => {
                Self { header: None, value: None, basic: Some(Basic { user, password }) }
            }
        }
    }
}

/// Reads `inject`: one entry or a list.
pub(crate) fn one_or_more<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Injection>, D::Error> {
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "`inject` is one of `{ header, value }` and `{ basic: { user, password } }`, or a list"
    )]
    enum OneOrMore {
        One(Injection),
        More(Vec<Injection>),
    }

    Ok(match OneOrMore::deserialize(deserializer)? {
        OneOrMore::One(injection) => vec![injection],
        OneOrMore::More(injections) => injections,
    })
}

/// An injection that no request could have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadInjection {
    #[error(
        "write `{{ header: NAME, value: \"${{secret:NAME}}\" }}` or `{{ basic: {{ user: NAME, password: \"${{secret:NAME}}\" }} }}`"
    )]
    Form,
    #[error("the name of a header has 1 to {MOST} letters, digits and characters such as `-`")]
    Header,
    #[error(
        "this header belongs to the connection and cannot be set; the header of a credential can, such as `Authorization`"
    )]
    Framing,
    #[error("the name of a user has 1 to {MOST} visible ASCII characters, without `:`")]
    User,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(value: Value) -> Result<Injection, String> {
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    fn header(name: &str, value: &str) -> Injection {
        Injection::of_header(name, Template::parse(value).unwrap()).unwrap()
    }

    #[test]
    fn both_forms_are_read_and_written_back() {
        let bearer = read(json!({ "header": "Authorization", "value": "Bearer ${secret:model}" })).unwrap();
        assert_eq!(bearer, header("authorization", "Bearer ${secret:model}"));
        let basic = read(json!({ "basic": { "user": "reader", "password": "${secret:pkg}" } })).unwrap();
        for injection in [bearer, basic] {
            assert_eq!(injection.header(), "authorization");
            assert_eq!(injection.check(), Ok(()));
            assert_eq!(injection.secrets().count(), 1);
            assert_eq!(read(serde_json::to_value(&injection).unwrap()), Ok(injection));
        }
        for bad in [
            json!({}),
            json!({ "header": "x" }),
            json!({ "value": "${secret:model}" }),
            json!({ "header": "x", "value": "literal" }),
            json!({ "header": "x", "value": "${secret:m}", "basic": { "user": "r", "password": "${secret:m}" } }),
            json!({ "basic": { "user": "r" } }),
            json!({ "basic": { "user": "r:s", "password": "${secret:m}" } }),
            json!({ "basic": { "user": "r\n", "password": "${secret:m}" } }),
            json!({ "basic": { "user": "", "password": "${secret:m}" } }),
            json!({ "header": "x", "value": "${secret:m}", "when": "always" }),
        ] {
            assert!(read(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn headers_of_the_connection_and_no_tokens_are_refused() {
        let value = || Template::parse("${secret:model}").unwrap();
        for name in [
            "Host",
            "content-length",
            "Transfer-Encoding",
            "connection",
            "upgrade",
            "TE",
            "trailer",
            "expect",
            "keep-alive",
            "Accept-Encoding",
            "Proxy-Authorization",
            "proxy-x",
        ] {
            assert_eq!(Injection::of_header(name, value()), Err(BadInjection::Framing), "{name}");
        }
        let long = "x".repeat(129);
        for name in ["", ":authority", "x:", "x y", "x\r\ny", "é", "x\0", "(x)", &long] {
            assert_eq!(Injection::of_header(name, value()), Err(BadInjection::Header), "{name:?}");
        }
        let unchecked = Injection::Header { header: "X-Key".to_owned(), value: value() };
        assert_eq!(unchecked.check(), Err(BadInjection::Header));
    }

    #[test]
    fn injections_of_two_rules_are_all_set_unless_they_contradict() {
        let (one, two) = (header("x-one", "${secret:a}"), header("x-two", "${secret:b}"));
        assert_eq!(together(vec![two.clone()], vec![one.clone()]), Some(vec![one.clone(), two.clone()]));
        assert_eq!(together(vec![one.clone()], vec![one.clone()]), Some(vec![one.clone()]));
        assert_eq!(together(vec![one], vec![two, header("X-One", "${secret:c}")]), None);
    }
}
