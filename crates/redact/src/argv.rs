//! Finds secrets in argument lists, where a flag and its value are two strings: `--token X`, `curl -u user:X`, `mysql -pX`.

use serde_json::Value;

use super::{MARK_OPEN, keys, mark};

/// Hides the value after each flag with the name of a secret. `command` is the program if it is not the first item.
pub(super) fn hide<'a>(items: impl Iterator<Item = &'a mut Value>, command: Option<&str>) -> usize {
    let mut program = command.map(str::to_owned);
    let mut expected = Expected::Anything;
    let mut hidden = 0;
    for item in items {
        let Value::String(text) = item else {
            if item.is_number() && expected == Expected::Secret {
                *item = Value::String(mark("argument"));
                hidden += 1;
            }
            expected = Expected::Anything;
            continue;
        };
        let follows = Expected::after(program.as_deref().unwrap_or_default(), text);
        hidden += usize::from(hide_one(text, expected, program.as_deref().unwrap_or_default()));
        program.get_or_insert_with(|| text.clone());
        expected = follows;
    }
    hidden
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Expected {
    Anything,
    Secret,
    /// `user:password`, of which the user is not hidden.
    UserAndPassword,
}

impl Expected {
    fn after(program: &str, argument: &str) -> Self {
        let program = program.rsplit('/').next().unwrap_or_default();
        match (program, argument) {
            ("curl" | "http" | "https" | "xh", "-u" | "--user" | "-U" | "--proxy-user" | "-a") => {
                Self::UserAndPassword
            }
            (
                "sshpass" | "docker" | "podman" | "mongo" | "mongosh" | "redis-cli" | "openssl",
                "-p" | "-a" | "-k" | "-pass",
            ) => Self::Secret,
            _ => match argument.strip_prefix('-') {
                Some(flag) if !flag.contains(['=', ' ']) && keys::is_secret(flag) => Self::Secret,
                _ => Self::Anything,
            },
        }
    }
}

fn hide_one(text: &mut String, expected: Expected, program: &str) -> bool {
    let from = match expected {
        Expected::Secret if text.starts_with("--") => return false,
        Expected::Secret => 0,
        Expected::UserAndPassword => match text.find(':') {
            Some(colon) => colon + 1,
            None => return false,
        },
        Expected::Anything => {
            let attached = matches!(
                program.rsplit('/').next(),
                Some("mysql" | "mysqldump" | "mysqladmin" | "mariadb" | "mariadb-dump" | "sshpass")
            );
            if !(attached && text.starts_with("-p")) {
                return false;
            }
            2
        }
    };
    if text.len() == from || text[from..].starts_with(MARK_OPEN) {
        return false;
    }
    text.replace_range(from.., &mark("argument"));
    true
}
