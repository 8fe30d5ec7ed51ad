//! The corpus: no secret is visible in any setting, and most look-alikes stay.

#![allow(clippy::unwrap_used)]

use cofferdam_redact::Redactor;
use serde_json::{Value, json};

const TOKENS: &str = include_str!("redaction/tokens.txt");
const CONTEXTS: &str = include_str!("redaction/contexts.txt");
const INNOCENT: &str = include_str!("redaction/innocent.txt");

/// Of the look-alikes, so many may be hidden, in a hundred.
const FALSE_ALARMS: usize = 3;

fn lines(table: &str) -> impl Iterator<Item = &str> {
    table.lines().filter(|line| !line.is_empty() && !line.starts_with("# "))
}

fn tokens() -> Vec<(&'static str, String)> {
    lines(TOKENS)
        .map(|line| line.split_once('\t').unwrap())
        .map(|(name, t)| (name, t.replace('·', "")))
        .collect()
}

/// Name, text, and the secret in it.
fn contexts() -> Vec<(&'static str, String, String)> {
    let parse = |line: &'static str| {
        let (name, text) = line.split_once('\t').unwrap();
        let text = text.replace('·', "").replace("\\\\", "\u{1}").replace("\\n", "\n").replace('\u{1}', "\\");
        let secret = text.split_once('«').unwrap().1.split_once('»').unwrap().0.to_owned();
        (name, text.replace(['«', '»'], ""), secret)
    };
    lines(CONTEXTS).map(parse).collect()
}

/// A piece of eight characters is already too much. What the text has elsewhere, too, is no secret.
fn leaks(clean: &str, secret: &str, around: &str) -> bool {
    let letters: Vec<char> = secret.chars().filter(|c| *c != '\n' && *c != '\\').collect();
    let width = letters.len().min(8);
    letters.windows(width).any(|piece| {
        let piece: String = piece.iter().collect();
        !around.contains(&piece) && clean.contains(&piece)
    })
}

fn of_value(redactor: &Redactor, mut value: Value) -> (String, usize) {
    let hidden = redactor.value(&mut value);
    (value.to_string(), hidden)
}

fn check(
    missed: &mut Vec<String>,
    setting: &str,
    name: &str,
    secret: &str,
    around: &str,
    (clean, hidden): &(String, usize),
) {
    if *hidden == 0 || leaks(clean, secret, around) {
        missed.push(format!("{name} in {setting}: {clean}"));
    }
}

#[test]
fn no_token_is_visible_in_any_setting() {
    let redactor = Redactor::default();
    let tokens = tokens();
    assert!(tokens.len() >= 60);
    let mut missed = Vec::new();
    let mut settings = 0;
    for (name, token) in &tokens {
        let texts = [
            ("bare", token.clone()),
            ("a sentence", format!("it printed {token} and went on")),
            ("quotes", format!("x = \"{token}\"")),
            ("an environment", format!("PATH=/bin\nSERVICE_CREDENTIAL={token}\nHOME=/root")),
            ("an unsuspicious variable", format!("VALUE={token}")),
            ("JSON", json!({ "a": 1, "value": token }).to_string()),
            ("JSON in JSON", json!(json!({ "value": token }).to_string()).to_string()),
            ("YAML", format!("config:\n  value: {token}\n  other: 1\n")),
            ("a header", format!("X-Whatever: {token}\r\nHost: x\r\n")),
            ("a bearer header", format!("Authorization: Bearer {token}")),
            ("a URL's query", format!("https://example.org/a?value={token}&b=1")),
            ("many lines", format!("first\n{token}\nlast")),
            ("one flag", format!("tool --token={token} --verbose")),
            ("a flag and a value", format!("tool --token {token} --verbose")),
            ("a shell script", format!("set -e; export X='{token}'; run")),
            ("a list", format!("[{token}, other]")),
        ];
        for (setting, text) in texts {
            let around = text.replacen(token.as_str(), "", 1);
            check(&mut missed, setting, name, token, &around, &redactor.text(&text));
            settings += 1;
        }
        let values = [
            ("argv, apart", json!({ "command": "tool", "args": ["--token", token, "-v"] })),
            ("argv, together", json!({ "command": "tool", "args": [format!("--token={token}"), "-v"] })),
            ("argv, unnamed", json!({ "command": "tool", "args": ["login", token] })),
            ("env", json!({ "env": { "ANYTHING": token, "PATH": "/bin" } })),
            ("a named pair", json!([{ "name": "API_TOKEN", "value": token }])),
            ("a preview", json!({ "facts": { "preview": format!("$ cat x\n{token}\n") } })),
            ("a key", json!({ token.as_str(): 1 })),
        ];
        for (setting, value) in values {
            check(&mut missed, setting, name, token, "", &of_value(&redactor, value));
            settings += 1;
        }
    }
    println!("{} shapes in {settings} settings, missed: {}", tokens.len(), missed.len());
    assert!(missed.is_empty(), "{} missed:\n{}", missed.len(), missed.join("\n"));
}

#[test]
fn no_secret_is_visible_if_only_its_position_reveals_it() {
    let redactor = Redactor::default();
    let contexts = contexts();
    assert!(contexts.len() >= 60);
    let mut missed = Vec::new();
    for (name, text, secret) in &contexts {
        let around = text.replacen(secret.as_str(), "", 1);
        let texts = [
            ("a text", text.clone()),
            ("many lines", format!("$ cat it\n{text}\n$ done")),
            ("a script", format!("set -eu\n{text}\necho ok")),
        ];
        for (setting, text) in texts {
            check(&mut missed, setting, name, secret, &around, &redactor.text(&text));
        }
        let values = [
            ("an argument", json!({ "command": "bash", "args": ["-c", text] })),
            ("a preview", json!({ "facts": { "preview": text } })),
            ("standard input", json!({ "stdin": text })),
        ];
        for (setting, value) in values {
            check(&mut missed, setting, name, secret, &around, &of_value(&redactor, value));
        }
    }
    println!("{} contexts in 6 settings, missed: {}", contexts.len(), missed.len());
    assert!(missed.is_empty(), "{} missed:\n{}", missed.len(), missed.join("\n"));
}

#[test]
fn few_lookalikes_of_secrets_are_redacted() {
    let redactor = Redactor::default();
    let innocent: Vec<_> = lines(INNOCENT).collect();
    assert!(innocent.len() >= 200, "{}", innocent.len());
    let alarms: Vec<_> = innocent
        .iter()
        .map(|text| (text, redactor.text(text).0))
        .filter(|(text, clean)| clean != **text)
        .collect();
    println!("{} look-alikes, false alarms: {}", innocent.len(), alarms.len());
    for (text, clean) in &alarms {
        println!("  {text}\n    {clean}");
    }
    assert!(alarms.len() * 100 <= innocent.len() * FALSE_ALARMS, "{alarms:#?}");
}

#[test]
fn every_secret_is_hidden_once_and_for_all() {
    let redactor = Redactor::default();
    for (_, token) in tokens() {
        let once = redactor.text(&format!("--token {token} x={token}")).0;
        assert_eq!(redactor.text(&once), (once.clone(), 0));
    }
}

#[test]
fn repeated_prefixes_are_redacted_in_linear_time() {
    let redactor = Redactor::default();
    let starts = tokens().into_iter().map(|(_, token)| token.chars().take(6).collect::<String>());
    let contexts = contexts().into_iter().map(|(_, text, _)| text.chars().take(12).collect::<String>());
    for start in starts.chain(contexts) {
        effort::assert_linear(60_000 / start.len(), |n| start.repeat(n), |text| redactor.text(text));
    }
}
