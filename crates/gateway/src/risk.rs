//! How much harm a call can do: by operation, and by what its arguments name.

use jail::SandboxPath;
use ops::{Git, Operation};

use crate::decision::Risk;

/// The risk of an operation. `reads` are the paths of a command of the read-only rule.
pub(crate) fn risk_of(operation: &Operation, reads: Option<&[SandboxPath]>) -> Risk {
    match operation {
        Operation::Read(read) => of_reading([&read.path]),
        Operation::Grep(grep) => of_reading([&grep.path]),
        Operation::List(_) | Operation::Glob(_) | Operation::Git(Git::Status | Git::Diff { .. }) => Risk::Low,
        Operation::Exec(_) => reads.map_or(Risk::High, of_reading),
        Operation::Shell(_)
        | Operation::Write(_)
        | Operation::Edit(_)
        | Operation::Patch(_)
        | Operation::Git(Git::Add { .. } | Git::Commit { .. }) => Risk::High,
        Operation::Delete(_) => Risk::Critical,
    }
}

fn of_reading<'p>(paths: impl IntoIterator<Item = &'p SandboxPath>) -> Risk {
    if paths.into_iter().any(looks_secret) { Risk::Medium } else { Risk::Low }
}

/// Whether a path looks like that of a secret: a key, a password file, a token. By name alone, without case.
pub fn looks_secret(path: &SandboxPath) -> bool {
    const NAMES: [&str; 21] = [
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
        "id_ed25519",
        "id_xmss",
        "kubeconfig",
        "shadow",
    ];
    const ENDINGS: [&str; 10] =
        [".pem", ".key", ".p12", ".pfx", ".jks", ".keystore", ".kdbx", ".ppk", ".asc", ".tfstate"];
    const SAMPLES: [&str; 4] = [".example", ".sample", ".template", ".dist"];
    const DIRECTORIES: [&str; 6] = [".ssh", ".gnupg", ".aws", ".kube", ".docker", ".azure"];

    let secret = |name: &str| {
        NAMES.contains(&name)
            || ENDINGS.iter().any(|ending| name.ends_with(ending))
            || (name.starts_with(".env.") && !SAMPLES.iter().any(|sample| name.ends_with(sample)))
            || name
                .split_once('.')
                .is_some_and(|(stem, _)| matches!(stem, "secret" | "secrets" | "password" | "passwords"))
    };
    let rel = path.rel().as_str().to_lowercase();
    let mut names = rel.split('/').rev();
    names.next().is_some_and(secret) || names.any(|name| DIRECTORIES.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_known_by_name() {
        for (path, expected) in [
            (".env", true),
            ("deploy/.env.production", true),
            (".env.example", false),
            ("@state/.ssh/config", true),
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
}
