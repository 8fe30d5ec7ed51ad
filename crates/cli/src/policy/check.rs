//! `coffer policy check`: checks a policy without a daemon, by the same code that the daemon uses to load it.

use std::path::{Path, PathBuf};

use clap::Args;
use policy::{Policy, Problem, Problems};
use serde::Serialize;

use super::read;
use crate::client::Context;
use crate::exit::Exit;
use crate::failure::{Ended, Failure};
use crate::output::{Output, Style};

/// Report every problem of a policy. Needs no daemon; exits with 1 if there is a problem.
///
/// A directory is checked as the daemon would load it. A file is checked alone: if it has no roles, or no
/// profiles, the built-in ones are used.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer policy check /etc/cofferdam/policy")]
pub(crate) struct Check {
    /// A policy file, or a directory of them.
    #[arg(value_name = "FILE|DIR")]
    path: PathBuf,
}

#[derive(Serialize)]
struct Report<'r> {
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<&'r str>,
    /// Profiles whose deny list is off.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    deny_list_off: Vec<&'r str>,
    /// Profiles that allow paths outside of the mounts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    container_paths: Vec<&'r str>,
    /// Wildcards in rules for connections.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    egress: Vec<EgressNote<'r>>,
    problems: &'r [Problem],
}

#[derive(Serialize)]
struct EgressNote<'r> {
    profile: &'r str,
    note: String,
}

impl Check {
    #[allow(clippy::unused_async)] // like every other verb
    pub(super) async fn run(self, context: &Context) -> Ended {
        let checked = load(&self.path)?;
        let report = match &checked {
            Ok(policy) => Report {
                ok: true,
                digest: Some(policy.digest()),
                deny_list_off: policy.without_deny_list().collect(),
                container_paths: policy.with_container_paths().collect(),
                egress: policy.egress_notes().map(|(profile, note)| EgressNote { profile, note }).collect(),
                problems: &[],
            },
            Err(Problems(problems)) => {
                let (deny_list_off, container_paths, egress) = (Vec::new(), Vec::new(), Vec::new());
                Report { ok: false, digest: None, deny_list_off, container_paths, egress, problems }
            }
        };
        context.ui.answer(report, |_, page| render(&checked, page))?;
        Ok(if checked.is_ok() { Exit::Ok } else { Exit::Failed })
    }
}

pub(super) fn load(path: &Path) -> Result<Result<Policy, Problems>, Failure> {
    if path.is_dir() {
        return Ok(Policy::load_dir(path));
    }
    let text = read(path)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Ok(Policy::from_part(&name, &text))
}

const OFF: &str = "the deny list is off: rm, dd, su and all others run unless the profile names them";
const OUTSIDE: &str =
    "container paths are allowed: operations can read and write files outside of the mounts, as commands can";

fn render(checked: &Result<Policy, Problems>, page: &mut Output) {
    match checked {
        Ok(policy) => {
            let names = |names: Vec<&str>| names.join(" ");
            page.facts(&[
                ("policy", "ok".to_owned()),
                ("digest", policy.digest().to_owned()),
                ("profiles", names(policy.profile_names().collect())),
                ("roles", names(policy.role_names().collect())),
                ("teams", names(policy.team_names().collect())),
            ]);
            let off = policy.without_deny_list().map(|profile| (profile, OFF.to_owned()));
            let outside = policy.with_container_paths().map(|profile| (profile, OUTSIDE.to_owned()));
            for (profile, said) in off.chain(outside).chain(policy.egress_notes()) {
                page.styled(Style::Yellow, "note")
                    .own(": profile ")
                    .word(profile)
                    .own(": ")
                    .word(&said)
                    .end_line();
            }
        }
        Err(Problems(problems)) => {
            for problem in problems {
                page.styled(Style::Red, "wrong").own(": ").word(&problem.to_string()).end_line();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Look;

    fn shown(path: &Path) -> String {
        let mut page = Output::new(Look::PIPE);
        render(&load(path).unwrap(), &mut page);
        page.as_str().to_owned()
    }

    #[test]
    fn files_and_directories_are_checked_with_problems() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("mine.yaml");
        std::fs::write(&file, "profiles: {mine: {operations: {read: allow}}}\n").unwrap();
        let shown_file = shown(&file);
        assert!(
            shown_file.contains("ok") && shown_file.contains("mine") && shown_file.contains("worker"),
            "{shown_file}"
        );
        assert!(!shown_file.contains("deny list"), "{shown_file}");
        assert!(shown(directory.path()).contains("no role is defined"));
        std::fs::write(&file, "profiles: {mine: {operations: {}, exec: {deny_list: off}}}\n").unwrap();
        assert!(shown(&file).contains("note: profile mine: the deny list is off"), "{}", shown(&file));
        std::fs::write(&file, "profiles: {mine: {operations: {}, container_paths: allow}}\n").unwrap();
        assert!(shown(&file).contains("note: profile mine: container paths are allowed"), "{}", shown(&file));
        let egress = "{rules: [{host: '*.example.net', ports: [443], decision: allow}]}";
        std::fs::write(&file, format!("profiles: {{mine: {{operations: {{}}, egress: {egress}}}}}\n"))
            .unwrap();
        let wildcard = "note: profile mine: egress rule 1: `*.example.net`: a wildcard is a channel";
        assert!(shown(&file).contains(wildcard), "{}", shown(&file));
        std::fs::write(&file, "profiles:\n  mine:\n    operations: {raed: allow}\n").unwrap();
        assert_eq!(
            shown(&file),
            "wrong: mine.yaml:3: profiles.mine.operations.raed: unknown operation (did you mean `read`?)\n"
        );
        assert!(load(&directory.path().join("none.yaml")).is_err());
    }
}
