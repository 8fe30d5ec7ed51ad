//! A small project with a bug, for a demonstration without a repository at hand.
//!
//! Its commands are those of busybox, which the default image has.

use std::fs;
use std::path::Path;

use git2::{IndexAddOption, Repository, RepositoryInitOptions, Signature};

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
    commit(directory).map_err(|error| {
        Failure::failed(format!("the sample repository cannot be made: {}", error.message()), "")
    })
}

fn commit(directory: &Path) -> Result<(), git2::Error> {
    let mut options = RepositoryInitOptions::new();
    // No template of this host.
    options.external_template(false).initial_head("main");
    let repository = Repository::init_opts(directory, &options)?;
    let mut index = repository.index()?;
    index.add_all(["*"], IndexAddOption::DEFAULT, None)?;
    index.write()?;
    let tree = repository.find_tree(index.write_tree()?)?;
    let author = Signature::now("Coffer", "coffer@example.org")?;
    repository.commit(Some("HEAD"), &author, &author, "Add up prices", &tree, &[])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_is_a_clean_repository_with_one_bug() {
        let directory = tempfile::tempdir().unwrap();
        make(directory.path()).unwrap();
        let repository = Repository::open(directory.path()).unwrap();
        assert!(repository.statuses(None).unwrap().is_empty());
        let head = repository.head().unwrap().peel_to_commit().unwrap();
        assert_eq!((head.tree().unwrap().len(), head.parent_count()), (FILES.len(), 0));
        let bugs: usize = FILES.iter().map(|(_, text)| text.matches(BUG).count()).sum();
        assert_eq!(bugs, 1);
    }

    #[test]
    fn test_of_the_sample_fails_before_the_repair_and_succeeds_after_it() {
        let directory = tempfile::tempdir().unwrap();
        make(directory.path()).unwrap();
        let test = || {
            let output = std::process::Command::new("sh").arg("test.sh").current_dir(&directory).output();
            let output = output.unwrap();
            (output.status.code(), String::from_utf8(output.stdout).unwrap())
        };
        assert_eq!(test(), (Some(1), "wrong: the sum is 9, and should be 12\n".to_owned()));
        let program = directory.path().join("tally.sh");
        let text = fs::read_to_string(&program).unwrap().replace(BUG, REPAIR);
        fs::write(&program, text).unwrap();
        assert_eq!(test(), (Some(0), "ok: the sum is 12\n".to_owned()));
    }
}
