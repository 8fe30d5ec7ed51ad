//! A small project with a bug, for a demonstration without a repository at hand.
//!
//! Its commands are those of busybox, which the default image has.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Output};

use crate::failure::Failure;

pub(crate) const FILES: [(&str, &str); 4] = [
    ("README.md", "# Tally\n\nAdds up the prices of a shopping list: `sh tally.sh prices.txt`.\n"),
    ("prices.txt", "bread 3\nmilk 2\ncheese 7\n"),
    (
        "tally.sh",
        "# Prints the sum of the second column of a file.\nawk 'NR > 1 { sum += $2 } END { print sum }' \"$1\"\n",
    ),
    (
        "test.sh",
        "# Succeeds if the prices add up.\nsum=$(sh tally.sh prices.txt)\n\
         if [ \"$sum\" = 12 ]; then echo \"ok: the sum is 12\"; exit 0; fi\n\
         echo \"wrong: the sum is $sum, and should be 12\"\nexit 1\n",
    ),
];

/// The bug, in `tally.sh`, and its repair.
pub(crate) const BUG: &str = "NR > 1 { sum";
pub(crate) const REPAIR: &str = "{ sum";

/// Makes the project in a new directory, as a repository with one commit.
pub(crate) fn make(directory: &Path) -> Result<(), Failure> {
    fs::create_dir_all(directory).map_err(|error| Failure::of_file(directory, &error))?;
    for (name, text) in FILES {
        let path = directory.join(name);
        fs::write(&path, text).map_err(|error| Failure::of_file(&path, &error))?;
    }
    for arguments in COMMIT {
        let output = git(directory, arguments).map_err(|error| {
            Failure::failed(
                format!("the sample is a repository, and git cannot be run: {error}"),
                "install git",
            )
        })?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let what = format!("the sample repository cannot be made: {}", text::excerpt(said.trim()));
            return Err(Failure::failed(what, ""));
        }
    }
    Ok(())
}

const COMMIT: [&[&str]; 3] = [
    &["init", "--quiet", "--template=", "--initial-branch=main"],
    &["add", "--all"],
    &["commit", "--quiet", "--message=Add up prices"],
];

/// Runs git without the configuration of this host.
fn git(directory: &Path, arguments: &[&str]) -> io::Result<Output> {
    let mut command = Command::new("git");
    command.args(arguments).current_dir(directory).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    for role in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{role}_NAME"), "Coffer");
        command.env(format!("GIT_{role}_EMAIL"), "coffer@example.org");
    }
    command.output()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_is_a_clean_repository_with_one_bug() {
        let directory = tempfile::tempdir().unwrap();
        make(directory.path()).unwrap();
        let said = |arguments: &[&str]| {
            let output = git(directory.path(), arguments).unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        assert_eq!(said(&["status", "--porcelain"]), "");
        assert_eq!(said(&["log", "--format=%an %s"]), "Coffer Add up prices\n");
        assert_eq!(said(&["ls-files"]).lines().count(), FILES.len());
        let bugs: usize = FILES.iter().map(|(_, text)| text.matches(BUG).count()).sum();
        assert_eq!(bugs, 1);
    }

    #[test]
    fn test_of_the_sample_fails_before_the_repair_and_succeeds_after_it() {
        let directory = tempfile::tempdir().unwrap();
        make(directory.path()).unwrap();
        let test = || {
            let output = Command::new("sh").arg("test.sh").current_dir(&directory).output();
            let output = output.unwrap();
            (output.status.code(), String::from_utf8(output.stdout).unwrap())
        };
        assert_eq!(test(), (Some(1), "wrong: the sum is 9, and should be 12\n".to_owned()));
        let program = directory.path().join("tally.sh");
        let repaired = fs::read_to_string(&program).unwrap().replace(BUG, REPAIR);
        fs::write(&program, repaired).unwrap();
        assert_eq!(test(), (Some(0), "ok: the sum is 12\n".to_owned()));
    }
}
