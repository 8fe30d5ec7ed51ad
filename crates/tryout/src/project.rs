//! Recognises a project by its files, and chooses the commands that its agent may use.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use crate::failure::Failure;

/// Names that are read of a directory, at most.
const MOST_NAMES: usize = 10_000;

/// Toolchain of a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Toolchain {
    Cargo,
    Npm,
    Pnpm,
    Yarn,
    Python,
    Go,
    Make,
}

/// Files that reveal a toolchain, the most telling first.
const SIGNS: [(&str, Toolchain); 10] = [
    ("Cargo.toml", Toolchain::Cargo),
    ("pnpm-lock.yaml", Toolchain::Pnpm),
    ("yarn.lock", Toolchain::Yarn),
    ("package.json", Toolchain::Npm),
    ("pyproject.toml", Toolchain::Python),
    ("setup.py", Toolchain::Python),
    ("requirements.txt", Toolchain::Python),
    ("go.mod", Toolchain::Go),
    ("Makefile", Toolchain::Make),
    ("GNUmakefile", Toolchain::Make),
];

/// A rule for commands, in the words of a policy.
struct Rule {
    prefix: &'static str,
    why: &'static str,
    matches: &'static str,
}

impl Toolchain {
    /// Returns the commands of the toolchain, for people.
    pub(crate) fn commands(self) -> &'static str {
        match self {
            Self::Cargo => "cargo build, check, test, clippy, fmt and doc",
            Self::Npm => "npm test, ci, run and ls, and node --test",
            Self::Pnpm => "pnpm test, run and ls, and node --test",
            Self::Yarn => "yarn test, build, lint and run, and node --test",
            Self::Python => "pytest, python3 -m pytest and unittest, mypy and ruff",
            Self::Go => "go build, test, vet, fmt and list",
            Self::Make => "make",
        }
    }

    fn rules(self) -> &'static [Rule] {
        const NODE: Rule =
            Rule { prefix: "[node, --test]", why: "Node's own test runner.", matches: "node --test" };
        match self {
            Self::Cargo => &[Rule {
                prefix: "[cargo, [build, check, test, clippy, fmt, doc, tree, metadata, --version]]",
                why: "Builds and tests the project.",
                matches: "cargo test --workspace",
            }],
            Self::Npm => &[
                Rule {
                    prefix: "[npm, [test, ci, run, ls]]",
                    why: "The project's own scripts.",
                    matches: "npm test",
                },
                NODE,
            ],
            Self::Pnpm => &[
                Rule {
                    prefix: "[pnpm, [test, run, ls]]",
                    why: "The project's own scripts.",
                    matches: "pnpm test",
                },
                NODE,
            ],
            Self::Yarn => &[
                Rule {
                    prefix: "[yarn, [test, build, lint, run]]",
                    why: "The project's own scripts.",
                    matches: "yarn test",
                },
                NODE,
            ],
            Self::Python => &[
                Rule {
                    prefix: "[[python, python3], -m, [pytest, unittest, mypy, ruff]]",
                    why: "Tests and checks the project.",
                    matches: "python3 -m pytest -q",
                },
                Rule {
                    prefix: "[[pytest, mypy, ruff]]",
                    why: "Tests and checks the project.",
                    matches: "pytest -q",
                },
            ],
            Self::Go => &[Rule {
                prefix: "[go, [build, test, vet, fmt, list, version]]",
                why: "Builds and tests the project.",
                matches: "go test ./...",
            }],
            Self::Make => &[Rule {
                prefix: "[[make, gmake]]",
                why: "Builds with the project's own rules.",
                matches: "make test",
            }],
        }
    }
}

/// Toolchains of a project, each with the file that reveals it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Project {
    found: Vec<(Toolchain, &'static str)>,
}

impl Project {
    /// Reads the names of a directory's files. Their contents are not read.
    pub(crate) fn examine(directory: &Path) -> Result<Self, Failure> {
        let entries = directory.read_dir().map_err(|error| Failure::of_file(directory, &error))?;
        let names =
            entries.flatten().take(MOST_NAMES).filter_map(|entry| entry.file_name().into_string().ok());
        Ok(Self::of(&names.collect()))
    }

    fn of(names: &BTreeSet<String>) -> Self {
        let mut found: Vec<(Toolchain, &'static str)> = Vec::new();
        let scripts = [Toolchain::Npm, Toolchain::Pnpm, Toolchain::Yarn];
        for (sign, toolchain) in SIGNS.into_iter().filter(|(sign, _)| names.contains(*sign)) {
            let is_known = found.iter().any(|(before, _)| {
                // The lock file says which of them runs the scripts of package.json.
                *before == toolchain || (scripts.contains(before) && scripts.contains(&toolchain))
            });
            if !is_known {
                found.push((toolchain, sign));
            }
        }
        Self { found }
    }

    /// Says what was chosen and why, a line for each choice.
    pub(crate) fn reasons(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .found
            .iter()
            .map(|(toolchain, sign)| format!("{sign}: the profile allows {}", toolchain.commands()))
            .collect();
        if lines.is_empty() {
            lines.push("no known build file: every command but cat, head, tail, find and wc asks".to_owned());
        } else {
            lines.push("every other command asks, and a commit and a deletion do, too".to_owned());
            lines.push(
                "the default image has none of these tools: name one that has with `run create --image`"
                    .to_owned(),
            );
        }
        lines
    }

    /// Renders the profile `project`, as a policy file. `image` is the image of its runs.
    pub(crate) fn profile(&self, image: Option<&str>) -> String {
        const TEMPLATE: &str = include_str!("../templates/project.yaml");
        let mut rules = String::new();
        for rule in self.found.iter().flat_map(|(toolchain, _)| toolchain.rules()) {
            let _ = write!(
                rules,
                "        - prefix: {}\n          decision: allow\n          justification: {}\n          match: [{}]\n",
                rule.prefix, rule.why, rule.matches
            );
        }
        let rules = if rules.is_empty() { rules } else { format!("      rules:\n{rules}") };
        let image = image.map(|image| format!("    image: {}\n", serde_json::Value::from(image)));
        TEMPLATE.replace("    # IMAGE\n", &image.unwrap_or_default()).replace("      # RULES\n", &rules)
    }
}

#[cfg(test)]
mod tests {
    use policy::Policy;

    use super::*;

    fn project(names: &[&str]) -> Project {
        Project::of(&names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn each_build_file_reveals_its_toolchain() {
        for (names, found) in [
            (&["Cargo.toml", "Cargo.lock"][..], vec![(Toolchain::Cargo, "Cargo.toml")]),
            (&["package.json"][..], vec![(Toolchain::Npm, "package.json")]),
            (&["package.json", "pnpm-lock.yaml"][..], vec![(Toolchain::Pnpm, "pnpm-lock.yaml")]),
            (&["package.json", "yarn.lock"][..], vec![(Toolchain::Yarn, "yarn.lock")]),
            (&["pyproject.toml", "setup.py"][..], vec![(Toolchain::Python, "pyproject.toml")]),
            (&["go.mod", "Makefile"][..], vec![(Toolchain::Go, "go.mod"), (Toolchain::Make, "Makefile")]),
            (&["README.md", "cargo.toml"][..], vec![]),
        ] {
            assert_eq!(project(names), Project { found }, "{names:?}");
        }
    }

    #[test]
    fn names_of_a_directory_are_examined() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("go.mod"), "").unwrap();
        assert_eq!(Project::examine(directory.path()), Ok(project(&["go.mod"])));
        assert!(Project::examine(&directory.path().join("none")).is_err());
    }

    #[test]
    fn every_profile_is_a_policy() {
        let all = SIGNS.map(|(sign, _)| sign);
        let each = all.iter().map(|sign| vec![*sign]);
        for names in each.chain([vec![], all.to_vec()]) {
            for image in [None, Some("tools:1")] {
                let text = project(&names).profile(image);
                let policy = Policy::from_part("project.yaml", &text);
                assert!(policy.is_ok(), "{names:?}: {:?}\n{text}", policy.err());
            }
        }
    }

    #[test]
    fn profile_of_a_project_with_two_toolchains() {
        insta::assert_snapshot!("profile", project(&["Cargo.toml", "package.json"]).profile(Some("tools:1")));
    }

    #[test]
    fn choices_are_explained() {
        assert_eq!(
            project(&["Cargo.toml"]).reasons(),
            [
                "Cargo.toml: the profile allows cargo build, check, test, clippy, fmt and doc",
                "every other command asks, and a commit and a deletion do, too",
                "the default image has none of these tools: name one that has with `run create --image`",
            ]
        );
        assert_eq!(
            project(&[]).reasons(),
            ["no known build file: every command but cat, head, tail, find and wc asks"]
        );
    }
}
