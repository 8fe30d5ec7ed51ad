//! The words of a call that may name files.

use std::collections::BTreeSet;

use ops::{Exec, Operation, Shell};

use super::see_through::see_through;

/// Every word of a command line or script that may name a file, each once: arguments, words of the commands in scripts,
/// targets of redirections, values of variables. For operations that run nothing there are none.
///
/// A reviewer's consent is bound to the files that these name, so that a script which is swapped meanwhile does not run.
pub fn words(operation: &Operation) -> Vec<String> {
    let (argv, stdin) = match operation {
        Operation::Exec(Exec { command, args, stdin, .. }) => {
            (std::iter::once(command).chain(args).cloned().collect::<Vec<_>>(), stdin)
        }
        Operation::Shell(Shell { script, stdin, .. }) => {
            (["sh", "-c", script].map(str::to_owned).to_vec(), stdin)
        }
        _ => return Vec::new(),
    };
    // What is too intricate is refused, and nobody is asked about it.
    let seen = see_through(argv.clone(), stdin).ok();
    let words: BTreeSet<&str> = match &seen {
        Some(seen) => seen.words().collect(),
        None => argv.iter().map(String::as_str).collect(),
    };
    words.into_iter().filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{exec, shell};

    #[test]
    fn every_word_that_may_name_a_file_is_given() {
        let of_script = words(&Operation::Shell(shell(
            "F=a.sh; sh 'b c.sh' $F < d.txt > out.txt && ./e; sh -c '. f.sh'",
        )));
        for expected in ["a.sh", "b c.sh", "d.txt", "out.txt", "./e", "f.sh"] {
            assert!(of_script.iter().any(|word| word == expected), "{expected} not in {of_script:?}");
        }
        assert_eq!(words(&Operation::Exec(exec(&["sh", "a.sh", "a.sh", ""]))), ["a.sh", "sh"]);
        assert!(words(&Operation::Exec(exec(&["sh", "-c", "cat g.txt"]))).contains(&"g.txt".to_owned()));
        assert!(words(&Operation::Git(ops::Git::Status)).is_empty());
    }
}
