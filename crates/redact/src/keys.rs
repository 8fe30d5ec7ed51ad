//! Finds secrets by their names: `password`, `GITHUB_TOKEN`, `apiKey`, `--client-secret`, `Authorization:`.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;
use text::floor;

use super::Finding;

/// Words that name a secret by themselves.
const SECRET: [&str; 25] = [
    "password",
    "passwords",
    "passwd",
    "passwort",
    "passphrase",
    "passcode",
    "pass",
    "pwd",
    "secret",
    "secrets",
    "token",
    "apikey",
    "apikeys",
    "credential",
    "credentials",
    "authorization",
    "auth",
    "cookie",
    "cookies",
    "jwt",
    "bearer",
    "otp",
    "pat",
    "psk",
    "pgpassword",
];
/// Words after which `key` names a secret.
const OF_A_KEY: [&str; 25] = [
    "admin",
    "api",
    "access",
    "secret",
    "private",
    "signing",
    "encryption",
    "master",
    "account",
    "auth",
    "storage",
    "service",
    "deploy",
    "ssh",
    "session",
    "shared",
    "hmac",
    "client",
    "app",
    "sas",
    "license",
    "subscription",
    "crypt",
    "jwt",
    "token",
];
/// Ends of words that were joined without a separator.
const ENDS: [&str; 16] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "secretkey",
    "privatekey",
    "accountkey",
    "signingkey",
    "authkey",
    "encryptionkey",
    "masterkey",
    "credentials",
    "authorization",
];
/// Last words that turn a secret's name into the name of a property of it.
const ABOUT: [&str; 59] = [
    "age",
    "count",
    "counts",
    "type",
    "types",
    "limit",
    "limits",
    "max",
    "min",
    "length",
    "len",
    "size",
    "policy",
    "policies",
    "name",
    "names",
    "id",
    "ids",
    "file",
    "path",
    "dir",
    "url",
    "uri",
    "endpoint",
    "ttl",
    "expiry",
    "expires",
    "expiration",
    "at",
    "in",
    "budget",
    "usage",
    "used",
    "required",
    "enabled",
    "disabled",
    "algorithm",
    "domain",
    "kind",
    "format",
    "version",
    "field",
    "header",
    "regex",
    "pattern",
    "exists",
    "hint",
    "prompt",
    "label",
    "index",
    "position",
    "offset",
    "samesite",
    "ref",
    "stdin",
    "timeout",
    "rate",
    "provider",
    "method",
];

/// Returns true if the value of a key with this name must be hidden. It compares the words of the name, in any style of joining them.
pub(super) fn is_secret(key: &str) -> bool {
    if key.len() > 256 {
        return false;
    }
    let words = words(key);
    let secret = words.iter().enumerate().any(|(at, word)| {
        SECRET.contains(&word.as_str())
            || (word == "key" || word == "keys") && at > 0 && OF_A_KEY.contains(&words[at - 1].as_str())
            || ENDS.iter().any(|end| word.len() > end.len() && word.ends_with(end))
    });
    // A name such as `token_count` or `password-file` is harmless, but `TOKEN_1` and `password_old` are not.
    secret && !words.last().is_some_and(|last| words.len() > 1 && ABOUT.contains(&last.as_str()))
}

/// Splits a name into its words: `githubApiToken`, `GITHUB_API_TOKEN` and `github-api-token` all become github, api, token.
fn words(key: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    let mut characters = key.chars().peekable();
    while let Some(c) = characters.next() {
        let hump = c.is_uppercase()
            && (before.is_lowercase()
                || before.is_ascii_digit()
                || before.is_uppercase() && characters.peek().is_some_and(|next| next.is_lowercase()));
        if hump || !c.is_alphanumeric() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut()
            && c.is_alphanumeric()
        {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    words.retain(|word| !word.is_empty());
    // Removes digits at the end, as in `token2` and `PASSWORD1`.
    for word in &mut words {
        let letters = word.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        if letters > 0 {
            word.truncate(letters);
        }
    }
    words
}

#[expect(clippy::expect_used, reason = "the pattern is a constant that every test compiles")]
static NAMED: LazyLock<Regex> = LazyLock::new(|| {
    // A name and its connection to a value: `name=`, `name: `, `"name": "`, `\"name\":`, `name => `, or `--name `.
    Regex::new(
        r#"(?x) (?:name|key)=["'](?P<attribute>[A-Za-z_][A-Za-z0-9_.\-]{1,63})["'][\ \t]{1,4}value=
         |      (?P<key>[A-Za-z0-9_][A-Za-z0-9_.\-]{1,63}) (?: \\{0,4}["']?[\ \t]{0,4}(?:=>|:=|[=:]) | ["']\] [\ \t]{0,4}= )
         |      (?:^|[\s"'(])--?(?P<flag>[A-Za-z][A-Za-z0-9_\-]{1,63})[\ \t]{1,4}
         |      (?:^|\n)[\ \t]{0,8}ENV[\ \t]{1,4}(?P<env>[A-Za-z_][A-Za-z0-9_]{1,63})[\ \t]{1,4}
         |      <(?P<tag>[A-Za-z][A-Za-z0-9_.\-]{1,63})> "#,
    )
    .expect("a valid pattern")
});

/// Finds the values in `text` that follow the name of a secret.
pub(super) fn find(text: &str) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    let mut covered = 0;
    for captures in NAMED.captures_iter(text) {
        // Skips names inside a value that is hidden anyway, which keeps `token=token=token=…` linear.
        let Some(whole) = captures.get(0).filter(|whole| whole.start() >= covered) else { continue };
        let flag = captures.name("flag");
        let names = ["key", "flag", "env", "tag", "attribute"];
        let name = names.iter().find_map(|group| captures.name(group)).map(|name| name.as_str());
        let Some(name) = name.filter(|name| is_secret(name)) else { continue };
        let at = match captures.name("tag") {
            Some(_) => element(text, whole.end()),
            None => value(text, whole.end(), is_header(name)),
        };
        let secret = &text[at.clone()];
        // `Token::Eof` is a path.
        if whole.as_str().ends_with(':') && text[whole.end()..].starts_with(':') {
            continue;
        }
        // A flag at the end of a sentence is not followed by its value.
        let bare = flag.is_some() && secret.starts_with('-');
        if !secret.is_empty() && !bare && !is_harmless(secret) && !is_placeholder(&text[at.start..]) {
            covered = at.end;
            findings.push(Finding { at, name: if flag.is_some() { "argument" } else { "field" } });
        }
    }
    findings
}

/// Returns true for headers whose value may contain spaces.
fn is_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with("authorization") || name.ends_with("cookie")
}

/// Returns the range of the value that begins at `from`. It ends at the closing quote, at a space, or for a header at the line's end.
fn value(text: &str, from: usize, header: bool) -> Range<usize> {
    let rest = &text[from..];
    let start = rest.len() - rest.trim_start_matches([' ', '\t', '\\']).len();
    let rest = &rest[start..];
    let (quote, start) = match rest.chars().next() {
        Some(quote @ ('"' | '\'' | '`')) => (Some(quote), start + 1),
        _ => (None, start),
    };
    let rest = &text[from + start..];
    let end = rest.find(|c: char| match quote {
        Some(quote) => c == quote || c == '\n',
        None if header => matches!(c, '\n' | '\r' | '"' | '\''),
        None => c.is_whitespace() || c == '"' || c == '\'',
    });
    from + start..from + start + end.unwrap_or(rest.len())
}

/// Returns the range of the content of an XML element that begins at `from`.
fn element(text: &str, from: usize) -> Range<usize> {
    let rest = &text[from..];
    from..from + rest.find(['<', '\n']).unwrap_or(rest.len())
}

/// Length of the longest harmless value, in bytes. A limit is necessary to keep the search linear.
const LONGEST_HARMLESS: usize = 100;

/// Returns true if the text that a secret would have is a reference, a placeholder, a type, or a call in source code.
fn is_harmless(value: &str) -> bool {
    if value.len() > LONGEST_HARMLESS {
        return false;
    }
    let bare = value.trim_end_matches([',', ';', ')', '}', ']', '.', '\\', '?', '{']);
    let opaque = ["Bearer ", "Basic ", "token "].iter().find_map(|scheme| bare.strip_prefix(scheme));
    bare.is_empty()
        || is_reference(bare, value)
        || opaque.is_some_and(|value| is_reference(value, value))
        || is_type_or_nothing(bare)
        || is_call(value)
        || bare.chars().all(|c| matches!(c, '*' | '.' | '…' | 'x' | 'X' | '=' | '>' | '|' | '&'))
}

/// Returns true for a placeholder such as `<your password>`, which may contain spaces.
fn is_placeholder(rest: &str) -> bool {
    let rest = &rest[..floor(rest, LONGEST_HARMLESS)];
    let Some((inner, behind)) = rest.strip_prefix('<').and_then(|inner| inner.split_once('>')) else {
        return false;
    };
    let word = |c: char| c.is_ascii_alphabetic() || matches!(c, ' ' | '-' | '_' | '.');
    inner.chars().all(word) && !behind.starts_with(char::is_alphanumeric)
}

/// Returns true for `$TOKEN`, `${TOKEN}`, `$(cat …)`, `{{ token }}` and `%TOKEN%`.
fn is_reference(bare: &str, value: &str) -> bool {
    let variable = |name: &str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
    };
    bare.strip_prefix('$').is_some_and(variable)
        || (value.starts_with("${") || value.starts_with("$(") || value.starts_with("{{"))
        || (bare.len() > 2 && bare.starts_with('%') && bare.ends_with('%'))
}

fn is_type_or_nothing(bare: &str) -> bool {
    const TYPES: [&str; 31] = [
        "await",
        "!vault",
        "!ref",
        "!sub",
        "!secret",
        "null",
        "none",
        "nil",
        "undefined",
        "true",
        "false",
        "string",
        "str",
        "bool",
        "boolean",
        "int",
        "integer",
        "number",
        "any",
        "bytes",
        "object",
        "u8",
        "u32",
        "u64",
        "usize",
        "i64",
        "optional",
        "required",
        "redacted",
        "hidden",
        "unknown",
    ];
    let inner = bare.trim_start_matches(['&', '*', '[', '(']);
    let inner = inner.strip_prefix("Option<").or_else(|| inner.strip_prefix("Vec<")).unwrap_or(inner);
    TYPES.contains(&inner.trim_end_matches('>').to_ascii_lowercase().as_str())
}

/// Returns true for an expression of a program, such as `next_token()` or `lexer.next(0);`.
fn is_call(value: &str) -> bool {
    let Some((function, rest)) = value.split_once('(') else { return false };
    let name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ':');
    let identifier =
        function.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && function.chars().all(name);
    // The value was cut at a quote, as in `request.headers.get("…")`.
    let cut = rest.is_empty() && function.contains(['.', ':']);
    identifier && (cut || rest.trim_end_matches([';', ',', '?', '{', '.']).ends_with(')'))
}
