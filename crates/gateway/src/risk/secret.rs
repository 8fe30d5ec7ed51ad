//! Names that look like a secret's: a key, a password file, a token. Only the name is checked, without case.

use globset::{GlobBuilder, GlobSet};
use jail::SandboxPath;

const NAMES: [&str; 23] = [
    ".env",
    ".envrc",
    ".netrc",
    "_netrc",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".htpasswd",
    ".git-credentials",
    ".dockercfg",
    ".vault-token",
    "credentials",
    "credentials.json",
    "service-account.json",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ecdsa_sk",
    "id_ed25519",
    "id_ed25519_sk",
    "id_xmss",
    "kubeconfig",
    "shadow",
];
const ENDINGS: [&str; 11] =
    [".pem", ".key", ".p12", ".pfx", ".jks", ".keystore", ".kdbx", ".ppk", ".asc", ".tfstate", ".env"];
const SAMPLES: [&str; 4] = [".example", ".sample", ".template", ".dist"];
const DIRECTORIES: [&str; 6] = [".ssh", ".gnupg", ".aws", ".kube", ".docker", ".azure"];
const STEMS: [&str; 4] = ["secret", "secrets", "password", "passwords"];

/// Returns true if a path looks like that of a secret, or of a directory of secrets.
pub fn looks_secret(path: &SandboxPath) -> bool {
    let rel = path.rel().as_str().to_lowercase();
    let mut names = rel.rsplit('/');
    names.next().is_some_and(|name| is_secret(name) || DIRECTORIES.contains(&name))
        || names.any(|name| DIRECTORIES.contains(&name))
}

/// Returns true if a file's lower-case name looks like a secret's.
fn is_secret(name: &str) -> bool {
    NAMES.contains(&name)
        || ENDINGS.iter().any(|ending| name.ends_with(ending))
        || (name.starts_with(".env.") && !SAMPLES.iter().any(|sample| name.ends_with(sample)))
        || name.split_once('.').is_some_and(|(stem, _)| STEMS.contains(&stem))
}

/// Longest pattern of one name that is compiled, bytes.
const LONGEST: usize = 128;

/// Returns true if a pattern of file names searches for secrets.
///
/// It then matches the name of a secret, but not the other names of that kind. `*.pem` and `.env*` do, `*` and `*.json`
/// do not.
pub(super) fn is_sought(pattern: &str) -> bool {
    let pattern = pattern.to_lowercase();
    if pattern.split(['/', '{', '}', ',']).any(|part| is_secret(part) || DIRECTORIES.contains(&part)) {
        return true;
    }
    let last = pattern.rsplit('/').next().unwrap_or_default();
    // Most patterns have these forms, and compiling one takes longer than the rest of a decision.
    if matches!(last, "" | "*" | "**") || is_plain_ending(last) {
        return false;
    }
    let Ok(glob) = GlobBuilder::new(last).literal_separator(true).build() else { return false };
    // A pattern that is too long to judge, or cannot be compiled with others, counts as one that searches for secrets.
    if last.len() > LONGEST {
        return true;
    }
    let Ok(matcher) = GlobSet::builder().add(glob).build() else { return true };
    let of_name = NAMES.iter().map(|name| ((*name).to_owned(), decoy(name)));
    let of_ending = ENDINGS.iter().map(|ending| (format!("server{ending}"), "server.txt".to_owned()));
    let of_stem = STEMS.iter().map(|stem| (format!("{stem}.yaml"), "server.yaml".to_owned()));
    of_name
        .chain(of_ending)
        .chain(of_stem)
        .any(|(name, decoy)| matcher.is_match(&name) && !matcher.is_match(&decoy))
}

/// Returns true for an ending such as `*.rs`. The caller has already checked for endings of secrets.
fn is_plain_ending(pattern: &str) -> bool {
    pattern.strip_prefix("*.").is_some_and(|ending| {
        // Only plain characters: `*.p*` has a second star and can match an ending of secrets.
        !ending.is_empty() && ending.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
    })
}

/// Returns a name of the same kind that no secret has.
fn decoy(name: &str) -> String {
    match name.rsplit_once('.') {
        Some(("", _)) => ".decoy".to_owned(),
        Some((_, ending)) => format!("decoy.{ending}"),
        None => "decoy".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_known_by_name() {
        for (path, expected) in [
            (".env", true),
            ("deploy/.env.production", true),
            ("deploy/production.env", true),
            (".env.example", false),
            ("@state/.ssh/config", true),
            (".ssh", true),
            ("home/.aws", true),
            ("home/.SSH/ID_RSA", true),
            ("id_rsa.pub", false),
            ("certs/server.pem", true),
            ("secrets.yaml", true),
            ("src/secrets/mod.rs", false),
            ("README.md", false),
            ("@project", false),
        ] {
            assert_eq!(looks_secret(&SandboxPath::parse(path).unwrap()), expected, "{path}");
        }
    }

    #[test]
    fn no_pattern_is_too_expensive() {
        for pattern in ["{a,b}".repeat(200), "[!b]".repeat(250), "*a".repeat(300), "{a,b}".repeat(25)] {
            assert!(is_sought(&pattern) || pattern.len() <= LONGEST, "{pattern}");
        }
        assert!(!is_sought(&"{".repeat(300)), "what is no pattern is refused elsewhere");
    }

    #[test]
    fn patterns_that_look_for_secrets_are_known() {
        for pattern in [
            ".env",
            "**/.env",
            ".env*",
            "*.pem",
            "*.PEM",
            "*.{pem,key}",
            "**/*.{rs,pem}",
            "id_*",
            "id_[re]*",
            "?env",
            "cred*.json",
            "**/.ssh/**",
            "secrets.*",
            "*.p*m",
        ] {
            assert!(is_sought(pattern), "{pattern}");
        }
        for pattern in
            ["*", "**", "**/*", "*.rs", "*.json", "src/**/*.toml", "*.{c,h}", "Cargo.*", "[", "", "README*"]
        {
            assert!(!is_sought(pattern), "{pattern}");
        }
    }
}
