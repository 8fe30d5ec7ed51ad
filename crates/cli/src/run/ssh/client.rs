//! The key and the configuration of the host's SSH client, in a directory of the user.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::client::Context;
use crate::failure::Failure;
use crate::ids;

/// A server in a run that listens.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Server {
    pub(super) port: u16,
    pub(super) user: String,
    /// Type and key in base64.
    pub(super) host_key: String,
}

/// The key of this user for one run.
pub(super) struct Identity {
    run_id: String,
    directory: PathBuf,
    /// Type and key in base64.
    public_key: String,
}

impl Identity {
    /// Opens the key for a run. Makes one if there is none.
    pub(super) fn open(run_id: &str) -> Result<Self, Failure> {
        let directory = state_directory()?.join("coffer/ssh").join(run_id);
        let failed = |what: &str| Failure::failed(format!("{}: {what}", directory.display()));
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .map_err(|error| failed(&error.to_string()))?;
        let file = directory.join("key");
        if !file.exists() {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-C", "coffer", "-f"])
                .arg(&file)
                .stdin(Stdio::null())
                .status();
            let made = made.map_err(|error| {
                Failure::failed(format!("ssh-keygen cannot be started: {error}"))
                    .with_hint("install OpenSSH's client")
            })?;
            if !made.success() {
                return Err(failed("ssh-keygen made no key in it"));
            }
        }
        let text =
            fs::read_to_string(file.with_extension("pub")).map_err(|error| failed(&error.to_string()))?;
        let public_key = public_key(&text).ok_or_else(|| failed("key.pub has no Ed25519 key"))?;
        Ok(Self { run_id: run_id.to_owned(), directory, public_key })
    }

    pub(super) fn public_key(&self) -> &str {
        &self.public_key
    }

    /// Returns the end of the key, in characters that a tag may have.
    pub(super) fn name(&self) -> String {
        let key = self.public_key.trim_end_matches('=');
        key[key.len() - 16..].replace('+', "-").replace('/', "_")
    }

    /// Returns a number that differs from key to key.
    pub(super) fn number(&self) -> u16 {
        self.name().bytes().fold(0, |sum: u16, byte| sum.wrapping_mul(31).wrapping_add(byte.into()))
    }

    /// Returns the name of the run for SSH.
    pub(super) fn alias(&self) -> String {
        format!("coffer-{}", ids::short(&self.run_id))
    }

    pub(super) fn config_file(&self) -> PathBuf {
        self.directory.join("config")
    }

    /// Writes the server's host key and the configuration. Returns the latter.
    pub(super) fn configure(&self, context: &Context, server: &Server) -> Result<String, Failure> {
        let alias = self.alias();
        let known_hosts = self.directory.join("known_hosts");
        fs::write(&known_hosts, format!("{alias} {}\n", server.host_key))?;
        let program = std::env::current_exe()?;
        let mut command = vec![
            program.display().to_string(),
            "--endpoint".to_owned(),
            context.daemon.endpoint().to_string(),
        ];
        let tls = context.daemon.tls();
        let pair = tls.pair.as_ref().map(|(certificate, key)| [("--cert", certificate), ("--cert-key", key)]);
        for (option, file) in tls.ca.iter().map(|file| ("--ca", file)).chain(pair.into_iter().flatten()) {
            command.extend([option.to_owned(), std::path::absolute(file)?.display().to_string()]);
        }
        let port = format!("{}:-", server.port);
        command.extend(["run", "forward", &self.run_id, &port].map(str::to_owned));
        let command: Vec<String> = command.iter().map(|word| quoted(word)).collect();
        let config = format!(
            "Host {alias}\n    User {}\n    ProxyCommand {}\n    IdentityFile {}\n    IdentitiesOnly yes\n    \
             UserKnownHostsFile {}\n    StrictHostKeyChecking yes\n    UpdateHostKeys no\n    ForwardAgent no\n    \
             ForwardX11 no\n",
            server.user,
            command.join(" "),
            in_quotes(&self.directory.join("key")),
            in_quotes(&known_hosts),
        );
        fs::write(self.config_file(), &config)?;
        Ok(config)
    }
}

/// Returns the directory for the user's state (XDG Base Directory Specification).
fn state_directory() -> Result<PathBuf, Failure> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    variable("XDG_STATE_HOME")
        .or_else(|| Some(variable("HOME")?.join(".local/state")))
        .ok_or_else(|| Failure::usage("HOME is not set, so that there is no place for the SSH key"))
}

/// Returns type and key of a file that ssh-keygen wrote.
fn public_key(text: &str) -> Option<String> {
    let mut words = text.split_ascii_whitespace();
    let (kind, key) = (words.next()?, words.next()?);
    let is_base64 = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
    (kind == "ssh-ed25519" && key.len() >= 40 && is_base64).then(|| format!("{kind} {key}"))
}

/// Returns a word for the shell that ssh gives a `ProxyCommand` to. `%` begins a token of ssh.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''").replace('%', "%%"))
}

/// Returns a path for a value of the configuration, in which `%` begins a token.
fn in_quotes(path: &Path) -> String {
    format!("\"{}\"", path.display().to_string().replace('%', "%%"))
}

#[cfg(test)]
mod tests {
    use super::{public_key, quoted};

    #[test]
    fn words_of_the_proxy_command_are_quoted() {
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's 100%"), r"'it'\''s 100%%'");
    }

    #[test]
    fn only_an_ed25519_key_is_taken() {
        let key = format!("ssh-ed25519 {}", "A".repeat(68));
        assert_eq!(public_key(&format!("{key} coffer\n")), Some(key));
        for wrong in ["", "ssh-ed25519", "ssh-rsa AAAA", "ssh-ed25519 AAAA", "ssh-ed25519 'AAAA;id'"] {
            assert_eq!(public_key(wrong), None, "{wrong}");
        }
    }
}
