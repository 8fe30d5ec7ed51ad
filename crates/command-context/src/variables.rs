//! The environment variables of a run, from the command line.
//!
//! The values of secret variables never appear on the command line, because `ps` shows it to every user of the host.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

use clap::Args;
use presentation::failure::Failure;
use presentation::quantity;

/// Length of the longest value that the daemon accepts, in bytes.
const MAX_VALUE: u64 = 32 * 1024;

#[derive(Args, Debug)]
pub struct Variables {
    /// Set an environment variable for all commands of the run; can be repeated.
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = quantity::parse_pair)]
    env: Vec<(String, String)>,
    /// The same with a secret value, which is taken from coffer's own variable NAME, or from a file as in
    /// NAME=@PATH (without the line break at its end), and is never shown; can be repeated.
    #[arg(long = "secret-env", value_name = "NAME[=@PATH]")]
    secret_env: Vec<String>,
}

type Values = BTreeMap<String, String>;

impl Variables {
    /// Returns the plain and the secret variables.
    pub fn read(self) -> Result<(Values, Values), Failure> {
        let secrets =
            self.secret_env.iter().map(|given| secret("--secret-env", given)).collect::<Result<_, _>>()?;
        Ok((self.env.into_iter().collect(), secrets))
    }
}

/// Reads a secret variable that `option` gives: `NAME`, or `NAME=@PATH`.
pub(crate) fn secret(option: &str, given: &str) -> Result<(String, String), Failure> {
    let Some((name, value)) = given.split_once('=') else {
        let value = std::env::var(given).map_err(|_| {
            Failure::usage(format!(
                "{option} {given}: coffer has no environment variable of this name, or it is not UTF-8"
            ))
        })?;
        return Ok((given.to_owned(), value));
    };
    let path = value.strip_prefix('@').ok_or_else(|| {
        // The message does not contain the value, because it is a secret.
        Failure::usage(format!(
            "{option} {name}=…: the value would be shown by `ps`; set the variable {name} for coffer and name it without a \
             value, or name a file as in {option} {name}=@PATH"
        ))
    })?;
    let mut text = String::new();
    std::fs::File::open(Path::new(path))?.take(MAX_VALUE + 2).read_to_string(&mut text)?;
    let value = text.strip_suffix('\n').unwrap_or(&text);
    if value.len() as u64 > MAX_VALUE {
        return Err(Failure::usage(format!("{option} {name}: the file is longer than {MAX_VALUE} bytes")));
    }
    Ok((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::secret;

    #[test]
    fn secrets_come_from_variables_and_files_and_never_from_the_command_line() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "two\nlines\n").unwrap();
        let named = |value: &str| secret("--secret-env", &format!("TOKEN={value}"));
        let path = file.path().to_str().unwrap();
        assert_eq!(named(&format!("@{path}")).unwrap(), ("TOKEN".to_owned(), "two\nlines".to_owned()));
        let refused = named("hunter2").unwrap_err().to_string();
        assert!(refused.contains("--secret-env TOKEN=@PATH") && !refused.contains("hunter2"), "{refused}");
        assert!(secret("--secret-env", "NO_SUCH_VARIABLE_IS_SET").is_err());
        // There is always one.
        assert_eq!(secret("--secret-env", "PATH").unwrap().1, std::env::var("PATH").unwrap());
        std::fs::write(file.path(), "x".repeat(40_000)).unwrap();
        assert!(named(&format!("@{path}")).is_err());
    }
}
