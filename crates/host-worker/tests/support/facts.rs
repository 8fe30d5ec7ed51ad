//! Facts of answers about a repository, whoever words them: each fact is a path, as it is shown, and its state. A rename counts
//! as a deleted file and a new one, since it is a guess which of two files was renamed.

use std::collections::BTreeSet;

pub type Facts = BTreeSet<(String, String)>;

/// Of `status --porcelain=v1 --branch`: the letters of each path, and the branch.
pub fn status(text: &str) -> Facts {
    let mut facts = Facts::new();
    for line in text.lines() {
        let (codes, rest) = line.split_at(2);
        let name = rest.strip_prefix(' ').unwrap();
        let fact = match name.split_once(" -> ") {
            Some((from, to)) if codes.starts_with('R') => {
                facts.insert((from.to_owned(), "D ".to_owned()));
                (to.to_owned(), codes.replacen('R', "A", 1))
            }
            _ => (name.to_owned(), codes.to_owned()),
        };
        facts.insert(fact);
    }
    with_types(facts, ["D ", "A ", "T "])
}

/// What is gone and new at the same path became something of another type.
fn with_types(mut facts: Facts, [gone, new, changed]: [&str; 3]) -> Facts {
    let fact = |path: &String, said: &str| (path.clone(), said.to_owned());
    let paths: Vec<String> = facts.iter().map(|(path, _)| path.clone()).collect();
    for path in paths {
        if facts.contains(&fact(&path, gone)) && facts.contains(&fact(&path, new)) {
            facts.remove(&fact(&path, gone));
            facts.remove(&fact(&path, new));
            facts.insert(fact(&path, changed));
        }
    }
    facts
}

/// Of `diff --name-status`: the letter of each path.
pub fn name_status(text: &str) -> Facts {
    let mut facts = Facts::new();
    for line in text.lines() {
        let fields: Vec<_> = line.split('\t').map(str::to_owned).collect();
        match &fields[..] {
            [renamed, from, to] if renamed.starts_with('R') => {
                facts.insert((from.clone(), "D".to_owned()));
                facts.insert((to.clone(), "A".to_owned()));
            }
            [letter, path] => drop(facts.insert((path.clone(), letter.clone()))),
            _ => panic!("{line:?}"),
        }
    }
    with_types(facts, ["D", "A", "T"])
}

/// Of `diff --name-only`: the paths.
pub fn names(text: &str) -> BTreeSet<String> {
    text.lines().map(str::to_owned).collect()
}

/// Of `diff --numstat`: lines added and deleted of each path, but for renames.
pub fn numbers(text: &str) -> Facts {
    let fact = |line: &str| {
        let (rest, path) = line.rsplit_once('\t').unwrap();
        (path.to_owned(), rest.to_owned())
    };
    text.lines().map(fact).filter(|(path, _)| !path.contains(" => ")).collect()
}
