//! The reasons for which a secret has no value.

use std::io;

use egress_rules::SecretName;

/// The error of a secret that has no value. Neither a value nor a path is part of it, because an agent may read it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the secret {name} cannot be read: {why}")]
pub struct SecretError {
    pub name: SecretName,
    pub why: Why,
}

impl SecretError {
    /// Returns the error with the step that helps, for the operator.
    pub fn for_operator(&self) -> String {
        match self.why.remedy() {
            Some(remedy) => format!("{self}; {remedy}"),
            None => self.to_string(),
        }
    }
}

/// Reason for which a secret has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    #[error("the daemon's configuration has no such secret")]
    Unknown,
    #[error("its file cannot be read ({0})")]
    File(io::ErrorKind),
    #[error("its file is a symbolic link")]
    Link,
    #[error("its file is not a regular file")]
    NotRegular,
    #[error("its file is open to other users")]
    Mode,
    #[error("its file belongs to another user")]
    Owner,
    #[error("the daemon was started without its variable")]
    NoVariable,
    #[error("the daemon was started without systemd credentials")]
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

impl Why {
    /// Returns the step that helps, if there is one that is not in the reason itself.
    fn remedy(self) -> Option<&'static str> {
        match self {
            Self::Unknown => Some("add it to `secrets`, and reload the daemon"),
            Self::Link => Some("name the file itself"),
            Self::Mode => Some("run chmod 600 on it"),
            Self::Owner => Some("run chown on it, to root or to the user that runs cofferd"),
            Self::NoVariable => Some("add it to the daemon's environment, and restart the daemon"),
            Self::NoCredentials => Some("add LoadCredential= to its unit, and restart it"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operator_reads_the_next_step_and_an_agent_does_not() {
        let error = SecretError { name: SecretName::parse("model").unwrap(), why: Why::Mode };
        assert_eq!(error.to_string(), "the secret model cannot be read: its file is open to other users");
        assert_eq!(
            error.for_operator(),
            "the secret model cannot be read: its file is open to other users; run chmod 600 on it"
        );
        let error = SecretError { why: Why::Empty, ..error };
        assert_eq!(error.for_operator(), error.to_string());
    }
}
