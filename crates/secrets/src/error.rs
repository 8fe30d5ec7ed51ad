//! The reasons for which a secret has no value.

use std::io;

use egress_rules::SecretName;

/// The error of a secret that has no value. Neither a value nor a path is part of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the secret {name} cannot be read: {why}")]
pub struct SecretError {
    pub name: SecretName,
    pub why: Why,
}

/// Reason for which a secret has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    #[error("the daemon's configuration has no such secret; an operator has to add it to `secrets`")]
    Unknown,
    #[error("its file cannot be read ({0})")]
    File(io::ErrorKind),
    #[error("its file is a symbolic link; the configuration has to name the file itself")]
    Link,
    #[error("its file is not a regular file")]
    NotRegular,
    #[error("its file is open to other users; run chmod 600 on it")]
    Mode,
    #[error("its file belongs to another user; run chown on it, to root or to the user that runs cofferd")]
    Owner,
    #[error("the daemon was started without its variable")]
    NoVariable,
    #[error("the daemon was started without systemd credentials; add LoadCredential= to its unit")]
    NoCredentials,
    #[error("its command cannot be started ({0})")]
    Start(io::ErrorKind),
    #[error("its command failed with exit status {0}")]
    Exit(i32),
    #[error("its command was killed by a signal")]
    Killed,
    #[error("it was not there in time")]
    Timeout,
    #[error("its reading was interrupted")]
    Interrupted,
    #[error("its value is empty")]
    Empty,
    #[error("its value is longer than 8192 bytes")]
    TooLong,
    #[error("its value has a space, a second line or another character that is not visible ASCII")]
    Character,
}
