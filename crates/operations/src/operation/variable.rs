//! Adds a variable of the daemon to the command of an operation.

use super::{Operation, ProcessProgram, check_env};

impl Operation {
    /// Sets an environment variable of the operation's command, unless the operation sets it itself.
    ///
    /// Nothing happens if the operation has no command, or has as many variables as it may.
    pub fn set_variable(&mut self, name: &str, value: &str) {
        let env = match self {
            Self::Exec(exec) => &mut exec.env,
            Self::Shell(shell) => &mut shell.env,
            Self::Process(process) => match &mut process.program {
                ProcessProgram::Command(exec) => &mut exec.env,
                ProcessProgram::Script(shell) => &mut shell.env,
                ProcessProgram::Session { env, .. } => env,
            },
            _ => return,
        };
        if env.contains_key(name) {
            return;
        }
        env.insert(name.to_owned(), value.to_owned());
        if check_env("env", env).is_err() {
            env.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Exec, Operation, Shell};

    #[test]
    fn a_variable_is_added_where_the_operation_has_none_of_its_name() {
        let mut exec = Operation::Exec(Exec::new("ls", [""; 0]));
        exec.set_variable("TRACEPARENT", "a");
        exec.set_variable("TRACEPARENT", "b");
        let Operation::Exec(exec) = exec else { unreachable!() };
        assert_eq!(exec.env, [("TRACEPARENT".to_owned(), "a".to_owned())].into());
    }

    #[test]
    fn an_operation_stays_within_its_bounds() {
        let mut shell = Shell::new("ls");
        while super::check_env("env", &shell.env).is_ok() {
            shell.env.insert(format!("V{}", shell.env.len()), String::new());
        }
        shell.env.pop_last();
        let mut full = Operation::Shell(shell.clone());
        full.set_variable("TRACEPARENT", "a");
        assert_eq!(full, Operation::Shell(shell));
    }
}
