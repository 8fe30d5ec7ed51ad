//! Tables first: what must never be seen again, and what must stay. A `·` in a secret is taken out at run time:
//! scanners of source code must not take the table for a leak.

use serde_json::json;

use super::*;

/// A shape: the text around the secret (`{}`), and the secret.
const SECRETS: &[(&str, &str)] = &[
    ("{}", "AKIA·IOSFODNN7EXAMPLE"),
    ("id {}.", "ASIA·Y34FZKBOKMUTVV7A"),
    ("aws_secret_access_key = {}", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    ("found {} in the log", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    ("git clone with {}", "ghp_·16C7e42F292c6912E7710c838347Ae178B4a"),
    ("x{}", "gho_·16C7e42F292c6912E7710c838347Ae178B4a"),
    ("{}", "github_pat_·11ABCDEFG0a1b2c3d4e5f6_ghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQ"),
    ("PRIVATE: {}", "glpat-·aBcD1234efGH5678ijKL"),
    ("{}", "xoxb-·123456789012-1234567890123-AbCdEfGhIjKlMnOpQrStUvWx"),
    ("{}", "xapp-·1-A0123456789-1234567890123-abcdef0123456789"),
    ("https://hooks.slack.com/services/{}", "T00000000/B00000000/·XXXXXXXXXXXXXXXXXXXXXXXX"),
    ("?key={}", "AIza·SyA1234567890abcdefghijklmnopqrstuv"),
    ("{}", "ya29.·a0AfH6SMBx1234567890abcdefghijk"),
    ("{}", "GOCSPX-·1234567890abcdefghijklmnopqr"),
    ("{}", "sk_live_·4eC39HqLyjWDarjtT1zdp7dc"),
    ("{}", "rk_test_·4eC39HqLyjWDarjtT1zdp7dc"),
    ("{}", "whsec_·MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
    ("key {}", "sk-·abcdefghijklmnopqrst1234567890ABCDEF"),
    ("key={}", "sk-proj-·aB3dE5fG7hI9jK1lM3nO5pQ7"),
    ("({})", "sk-ant-·api03-aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5z-AAAA"),
    ("//registry.example.org/:_authToken={}", "npm_·aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5"),
    ("{}", "npm_·aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5"),
    ("{}", "pypi-·AgEIcHlwaS5vcmcCJGFiY2RlZjAxLTIzNDUtNjc4OQ"),
    ("{}", "eyJhbGciOiJIUzI1NiJ9.·eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"),
    ("curl -H 'Authorization: Bearer {}'", "abc123def456"),
    ("Bearer {}", "mF_9.B5f-4.1JqM"),
    ("Authorization: Basic {}", "dXNlcjpwYXNzd29yZA=="),
    ("proxy-authorization: {}", "Negotiate YIIabcdefgh"),
    ("Cookie: {}", "session=abc; other=def"),
    ("Set-Cookie: {}", "sid=31d4d96e407aad42; Path=/"),
    ("{}", "-----BEGIN RSA ·PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\n-----END RSA PRIVATE KEY-----"),
    ("{}", "-----BEGIN OPENSSH ·PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA"),
    ("{}", "-----BEGIN PGP ·PRIVATE KEY BLOCK-----\n\nlQOYBF\n-----END PGP PRIVATE KEY BLOCK-----"),
    ("postgres://app:{}@db:5432/x", "hunter2"),
    ("https://user:{}@example.org/repo.git", "p@ss:w0rd"),
    ("redis://:{}@cache", "s3cr3t"),
    ("https://{}@github.com/o/r", "0123456789abcdef0123456789abcdef01234567"),
    ("password={}", "hunter2"),
    ("PASSWORD={}", "p,w;d&x"),
    ("DB_PASSWORD='{}'", "two words"),
    ("password: {}", "hunter2"),
    ("{\"password\": \"{}\"}", "hunter2"),
    ("{\\\"client_secret\\\":\\\"{}\\\"}", "hunter2"),
    ("{\"apiKey\":\"{}\",\"x\":1}", "hunter2"),
    ("env: GITHUB_TOKEN={}", "hunter2"),
    ("error: secret: {}", "hunter2"),
    ("login --token {} now", "hunter2"),
    ("login --client-secret={}", "hunter2"),
    ("os.environ['API_KEY'] = '{}'", "hunter2"),
    ("x --password \"{}\"", "two words"),
    ("password => '{}'", "hunter2"),
    ("AccountName=a;AccountKey={}", "Zm9vYmFyYmF6cXV4+x=="),
    ("machine h login u password {}", "hunter2"),
    ("curl -s -u admin:{} http://x", "hunter2"),
    ("sshpass -p {} ssh host", "hunter2"),
    ("mysql -u root -p{} db", "hunter2"),
    ("{}", "SG.·ngeVfQFYQlKU0ufo8x5d1A.TwL2iGABf9DHoTf-09kqeF8tAmbihYzrnopKc-1s5cr"),
    ("{}", "SK·0123456789abcdef0123456789abcdef"),
    ("bot {}", "123456789·:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw0"),
    ("{}", "hvs.·CAESIJRM-abcdefghijklmnopqrstuvwx1"),
    ("{}", "dckr_pat_·aB3dE5fG7hI9jK1lM3nO5pQ7"),
    ("{}", "hf_·aBcDeFgHiJkLmNoPqRsTuVwXyZabcdefgh"),
    ("{}", "dop_v1_·0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"),
    ("{}", "AGE-SECRET-·KEY-1QQPQQPQQPQQPQQPQQPQQPQQPQQPQQPQQPQQPQQPQQPQQPQQPQQPQQPQQP"),
    ("{}", "abcdefghij0123.·atlasv1.aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5z"),
    ("random {} here", "q7Rk2ZpX9vB4nM6tL8wY3hJ5"),
    ("random {}", "Zx9+Kp2/Lm4Qw8Er6Ty1Ui3Op5As7Df0="),
    ("random {}", "aB3_dE5-fG7hI9jK1lM3nO5pQ7"),
];

const INNOCENT: &[&str] = &[
    "",
    "hello, world",
    "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "commit 83baae61804e65cc73a7201a7252750c76066a30",
    "index 83baae6..1f2e3d4 100644",
    "md5 d41d8cd98f00b204e9800998ecf8427e",
    "123e4567-e89b-12d3-a456-426614174000",
    "0192F0C1-1111-7ABC-8DEF-0123456789AB",
    "01ARZ3NDEKTSV4RRFFQ69G5FAV",
    "max_tokens=4096",
    "\"total_tokens\": 128, \"prompt_tokens\": 7",
    "token_count: 12",
    "tokenizer=bpe",
    "token_type=bearer",
    "the bearer of this letter",
    "Bearer authentication is used",
    "basic functionality",
    "password_min_length=12",
    "password_file=/run/secrets/db",
    "secret_name: db-credentials-prod",
    "let token = next_token();",
    "let token = lexer.next(0)?;",
    "fn check(token: &str, password: String) -> bool",
    "secret: Option<String>,",
    "password: null",
    "token: true",
    "PASSWORD=$DB_PASSWORD",
    "token=${TOKEN}",
    "password=$(cat /run/x)",
    "password: <your password>",
    "token={{ token }}",
    "password=********",
    "if token == other { return }",
    "author=alice",
    "authors = [\"alice <alice@example.org>\"]",
    "keyboard=us",
    "monkey: banana",
    "key=value",
    "primary_key=id",
    "public_key = abc",
    "foreign keys: 3",
    "compass=north",
    "passed: 12, failed: 0",
    "bypass = 1",
    "pathological=yes",
    "src/components/UserProfile/UserProfileHeader.test.tsx",
    "/usr/lib/x86_64-linux-gnu/libstdc++.so.6.0.30",
    "node_modules/@types/node/ts4.8/index.d.ts",
    "crates/redact/src/tests.rs:120:13",
    "AbstractSingletonProxyFactoryBeanTest2",
    "getUserByIdAndOrganizationV2Handler",
    "test_http2_header_frame_roundtrip_with_padding",
    "_ZN4core3fmt9Formatter3pad17h0123456789abcdefE",
    "sha512-z7X9zKq0m1n2B3v4C5x6L7k8J9h0G1f2D3s4A5p6O7i8U9y0T1r2E3w4Q5==",
    "golang.org/x/net v0.17.0 h1:pVaXccu2ozPjCXewfr1S7xza/zcXTity9cCdXQYSjIM=",
    "SHA256:uNiVztksCsDhcc0u9e8BrDXVUTKvlJTXwqRDzNTkqkI alice@host",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBx9QmVzdGluZ0tleUZvckRvY3M alice@host",
    "toolu_01A09q90qw90lq917835lq9",
    "call_aB3dE5fG7hI9jK1lM3nO5pQ7",
    "https://example.org/a/b?page=2&sort=name#top",
    "https://example.org:8443/path@v1",
    "git@github.com:owner/repository.git",
    "alice@example.org: hello",
    "task-management-and-disk-usage-report-2024",
    "risk-assessment-of-the-quarter-q3-2025",
    "sk-toggleable__control-hidden--visually",
    "skip_live_tests=1",
    "2026-11-21T21:33:00.123456789Z",
    "rustc 1.95.0 (59807616e 2026-04-14)",
    "0x7ffeefbff5c8",
    "1234567890123456789012345678901234567890",
    "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "----------------------------------------",
    "================================",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "-----BEGIN PUBLIC KEY-----",
    "TODO(alice): rename_this_long_function_name_v2",
    "cargo test --package cofferdam-audit --all-targets",
    "grep -rn password src",
    "wc -l README.md",
    "find . -name '*.rs' -size +10k",
];

fn secret(joined: &str) -> String {
    joined.replace('·', "")
}

#[test]
fn no_secret_is_visible_after_redaction() {
    let redactor = Redactor::default();
    let mut missed = Vec::new();
    for (around, joined) in SECRETS {
        let secret = secret(joined);
        let text = around.replacen("{}", &secret, 1);
        let (clean, count) = redactor.text(&text);
        if clean.contains(&secret) || count == 0 || leaks(&clean, &secret) {
            missed.push((text, clean));
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
    assert!(SECRETS.len() >= 60);
}

/// A piece of eight characters is already too much.
fn leaks(clean: &str, secret: &str) -> bool {
    let letters: Vec<char> = secret.chars().collect();
    letters.windows(8).any(|piece| clean.contains(&piece.iter().collect::<String>()))
}

#[test]
fn lookalikes_of_secrets_are_kept() {
    let redactor = Redactor::default();
    let hit: Vec<_> =
        INNOCENT.iter().map(|text| (text, redactor.text(text))).filter(|(t, (c, _))| c != **t).collect();
    assert!(hit.is_empty(), "{hit:#?}");
    assert!(INNOCENT.len() >= 60);
}

#[test]
fn hiding_twice_changes_nothing_more() {
    let redactor = Redactor::default();
    for (around, joined) in SECRETS {
        let once = redactor.text(&around.replacen("{}", &secret(joined), 1)).0;
        assert_eq!(redactor.text(&once), (once.clone(), 0));
    }
}

#[test]
fn values_are_searched_by_key_by_shape_and_as_arguments() {
    let redactor = Redactor::default();
    let jwt = secret(SECRETS[23].1);
    let mut value = json!({
        "command": "curl",
        "args": ["-u", "me:hunter2", "--token", "hunter2", "-H", format!("X: {jwt}"), "https://example.org"],
        "env": {"DB_PASSWORD": "hunter2", "PATH": "/bin", "PIN": 1, "OLD_TOKEN_2": 123_456, "token": null},
        "list": [{"name": "API_KEY", "value": "hunter2"}, {"name": "HOME", "value": "/root"}],
        "credentials": {"user": "x", "pass": "hunter2"},
        "max_tokens": 4096,
        "argv": ["mysql", "-phunter2", "-P", "3306"],
        "flags": ["--password=hunter2", "SECRET=hunter2", "-v"],
    });
    let hidden = redactor.value(&mut value);
    let mark = |name: &str| format!("[redacted:{name}]");
    assert_eq!(
        value,
        json!({
            "command": "curl",
            "args": [
                "-u", format!("me:{}", mark("argument")), "--token", mark("argument"),
                "-H", format!("X: {}", mark("jwt")), "https://example.org",
            ],
            "env": {"DB_PASSWORD": mark("field"), "PATH": "/bin", "PIN": 1, "OLD_TOKEN_2": mark("field"), "token": null},
            "list": [{"name": "API_KEY", "value": mark("field")}, {"name": "HOME", "value": "/root"}],
            "credentials": mark("field"),
            "max_tokens": 4096,
            "argv": ["mysql", format!("-p{}", mark("argument")), "-P", "3306"],
            "flags": [format!("--password={}", mark("field")), format!("SECRET={}", mark("field")), "-v"],
        })
    );
    assert_eq!(hidden, 10);
    assert_eq!(redactor.value(&mut value), 0);
}

#[test]
fn keys_of_objects_are_searched_too() {
    let token = secret(SECRETS[4].1);
    let mut value = json!({(token.clone()): 1});
    assert_eq!(Redactor::default().value(&mut value), 1);
    assert_eq!(value, json!({"[redacted:github-token]": 1}));
}

#[test]
fn keys_that_become_the_same_text_keep_their_values() {
    let keys = ['a', 'b', 'c'].map(|c| secret(SECRETS[4].1).replace('a', &c.to_string()));
    let mut value = json!({(keys[0].clone()): 1, (keys[1].clone()): 2, (keys[2].clone()): 3, "[redacted:github-token] (2)": null});
    assert_eq!(Redactor::default().value(&mut value), 3);
    let map = value.as_object().unwrap();
    let mut values: Vec<_> = map.values().filter_map(Value::as_i64).collect();
    values.sort_unstable();
    assert_eq!((map.len(), &values[..]), (4, &[1, 2, 3][..]), "{map:?}");
    assert!(map.keys().all(|key| keys.iter().all(|secret| !leaks(key, secret))));
}

#[test]
fn long_texts_are_cut_and_no_token_is_cut_in_half() {
    let redactor = Redactor::default();
    let token = secret(SECRETS[4].1);
    for before in [MAX_TEXT - 60, MAX_TEXT - 20, MAX_TEXT - 8, MAX_TEXT - 1, MAX_TEXT] {
        let text = format!("{} {token} {}", "word ".repeat(before / 5), "x".repeat(MAX_TEXT));
        let (clean, _) = redactor.text(&text);
        assert!(!leaks(&clean, &token), "{before}");
        assert!(clean.len() <= MAX_TEXT + 64);
        assert!(clean.ends_with(" bytes]"));
    }
}

#[test]
fn long_texts_lose_only_secrets() {
    let redactor = Redactor::default();
    let token = secret(SECRETS[4].1);
    let words = "word ".repeat(MAX_TEXT / 5);
    let text = format!("{words}{token} {words}the end");
    let (clean, count) = redactor.whole(&text);
    assert!(!leaks(&clean, &token) && clean.ends_with(" word the end"));
    let mark = clean.len() - 2 * words.len() - " the end".len();
    assert_eq!((count, &clean[words.len()..words.len() + 10]), (1, "[redacted:"), "{mark}");
}

#[test]
fn hostile_texts_take_linear_time() {
    let redactor = Redactor::default();
    for piece in [
        "password=",
        "password=< ",
        "token=$(",
        "token=a(",
        "token=;",
        "key: ",
        "://a:",
        "eyJ",
        "sk-",
        "SG.",
        "curl -u ",
        "-----BEGIN PRIVATE KEY-----",
        "\\\"",
        "Aa1",
        "--token ",
        "--token '-",
        "[redacted:",
        "x.",
        "bearer ",
    ] {
        effort::assert_linear(MAX_TEXT / piece.len(), |n| piece.repeat(n), |text| redactor.text(text));
    }
}

#[test]
fn known_values_are_hidden_at_any_position_until_they_are_forgotten() {
    let redactor = Redactor::default();
    let shared = redactor.clone();
    redactor.learn("run 1", ["correct horse", "correct horse battery", "short"].into_iter());
    redactor.learn("run 2", ["plain old text"].into_iter());
    let args =
        || json!({"input": {"command": "echo", "args": ["xcorrect horse batteryx"]}, "note": "a short word"});
    let mut value = args();
    assert_eq!(shared.of("run 1").value(&mut value), 1);
    assert_eq!(
        value,
        json!({"input": {"command": "echo", "args": ["x[redacted:secret]x"]}, "note": "a short word"})
    );
    // Nobody's record is blotted out by another's secret.
    for other in ["run 2", "run 3", ""] {
        assert_eq!(shared.of(other).value(&mut args()), 0, "{other}");
    }
    assert_eq!(shared.of("run 2").text("plain old text").1, 1);
    redactor.forget("run 1");
    assert_eq!(shared.of("run 1").text("correct horse battery").1, 0);
    assert!(!format!("{:?}", redactor.of("run 2")).contains("plain"));
}
