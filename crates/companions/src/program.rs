//! The program of a companion.

use std::collections::BTreeMap;

use containers::ImageProgram;
use wire::worker::v1::CompanionProgram;
use worker_protocol::frame::{FrameError, encode};

/// Directories of programs, for an image that names none.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A program with its arguments and variables, some of which may be secret.
pub struct Program(CompanionProgram);

/// Reason that a companion has no program.
#[derive(Debug, thiserror::Error)]
pub enum NoProgram {
    #[error("the image declares no program, and `command` is empty")]
    Nothing,
    #[error("its arguments and variables are too long")]
    Long(#[from] FrameError),
}

impl Program {
    /// Returns the program of an image. `command` replaces the image's arguments unless it is empty.
    ///
    /// A variable in a later one of `variables` replaces those before it, and those of the image. `home` is the user's home.
    pub fn of<'v>(
        image: ImageProgram,
        command: &[String],
        variables: impl IntoIterator<Item = &'v BTreeMap<String, String>>,
        home: &str,
    ) -> Result<Self, NoProgram> {
        let ImageProgram { entrypoint, command: usual, env, directory } = image;
        let command = if command.is_empty() { usual } else { command.to_vec() };
        let args: Vec<String> = entrypoint.into_iter().chain(command).collect();
        if args.first().is_none_or(String::is_empty) {
            return Err(NoProgram::Nothing);
        }
        let mut all = BTreeMap::from([("PATH", PATH), ("HOME", home)].map(owned));
        all.extend(env.iter().filter_map(|entry| entry.split_once('=')).map(owned));
        for variables in variables {
            all.extend(variables.iter().map(|(name, value)| owned((name, value))));
        }
        let directory = if directory.is_empty() { "/".to_owned() } else { directory };
        Ok(Self(CompanionProgram { args, env: all, directory }))
    }

    /// Returns the message from which a container's process becomes the program.
    pub fn message(&self) -> Result<Vec<u8>, NoProgram> {
        Ok(encode(&self.0)?)
    }

    /// Returns the message for another program with these variables.
    pub(crate) fn message_with(&self, args: &[String]) -> Result<Vec<u8>, NoProgram> {
        Ok(encode(&CompanionProgram { args: args.to_vec(), ..self.0.clone() })?)
    }
}

fn owned((name, value): (&str, &str)) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

#[cfg(test)]
mod tests {
    use worker_protocol::frame::FrameBuffer;

    use super::*;

    fn image(entrypoint: &[&str], command: &[&str], env: &[&str]) -> ImageProgram {
        let owned = |texts: &[&str]| texts.iter().map(ToString::to_string).collect();
        ImageProgram {
            entrypoint: owned(entrypoint),
            command: owned(command),
            env: owned(env),
            directory: String::new(),
        }
    }

    fn decoded(message: &[u8]) -> CompanionProgram {
        let mut buffer = FrameBuffer::new();
        buffer.extend(message);
        buffer.pop().unwrap().unwrap()
    }

    #[test]
    fn a_command_replaces_the_arguments_of_the_image_and_not_its_entrypoint() {
        let args = |image, command: &[&str]| {
            let command: Vec<String> = command.iter().map(ToString::to_string).collect();
            Program::of(image, &command, [], "/").map(|program| decoded(&program.message().unwrap()).args)
        };
        assert_eq!(args(image(&["start"], &["serve"], &[]), &[]).unwrap(), ["start", "serve"]);
        assert_eq!(args(image(&["start"], &["serve"], &[]), &["-v"]).unwrap(), ["start", "-v"]);
        assert_eq!(args(image(&[], &[], &[]), &["serve"]).unwrap(), ["serve"]);
        assert!(matches!(args(image(&[], &[], &[]), &[]), Err(NoProgram::Nothing)));
        assert!(matches!(args(image(&[""], &["x"], &[]), &[]), Err(NoProgram::Nothing)));
    }

    #[test]
    fn later_variables_replace_earlier_ones() {
        let pairs = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|pair| owned(*pair)).collect()
        };
        let (plain, secret) =
            (pairs(&[("MODE", "test"), ("A", "1")]), pairs(&[("A", "2"), ("KEY", "hunter2")]));
        let image = image(&["serve"], &[], &["PATH=/opt/bin", "MODE=production", "odd"]);
        let program = Program::of(image, &[], [&plain, &secret], "/home/agent").unwrap();
        let check = decoded(&program.message_with(&["check".to_owned()]).unwrap());
        let expected =
            [("A", "2"), ("HOME", "/home/agent"), ("KEY", "hunter2"), ("MODE", "test"), ("PATH", "/opt/bin")];
        assert_eq!(check.env, pairs(&expected));
        assert_eq!((check.args, check.directory.as_str()), (vec!["check".to_owned()], "/"));
        assert_eq!(decoded(&program.message().unwrap()).env, check.env);
    }
}
