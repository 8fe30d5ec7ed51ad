//! `coffer call patch`.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Map, Value};
use wire::v1::operation::Kind as Operation;
use wire::v1::patch_request::Change;
use wire::v1::{PatchRequest, PatchResult, UpdateFrontmatter, patched_file};

use super::{CallOptions, Target, make, stdin};
use crate::client::Context;
use crate::failure::{Ended, Failure};
use crate::output::Output;

/// Change several files, all or none of them, and print the diff.
#[derive(Args, Debug)]
#[command(before_help = "Example: git diff | coffer call patch 3f2a9c01 --unified -")]
pub(crate) struct Patch {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    form: PatchSource,
    #[command(flatten)]
    options: CallOptions,
    // It is the last member, because its heading would also apply to the members after it.
    #[command(flatten)]
    update: Update,
}

/// Source of the change.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct PatchSource {
    /// A unified diff, as `git diff` and `diff -u` write it, from this file; `-` for standard input.
    #[arg(long, value_name = "FILE")]
    unified: Option<PathBuf>,
    /// A `*** Begin Patch` envelope from this file; `-` for standard input.
    #[arg(long, value_name = "FILE")]
    envelope: Option<PathBuf>,
    /// Change the YAML front matter of this Markdown file in the run.
    #[arg(long, value_name = "PATH")]
    front_matter: Option<String>,
}

/// Changes of the front matter.
#[derive(Args, Debug)]
#[command(next_help_heading = "Front matter")]
struct Update {
    /// Append this step to `stepsCompleted`, unless it is there.
    #[arg(long, value_name = "STEP", conflicts_with_all = ["unified", "envelope"])]
    add_step: Vec<String>,
    /// Set one of `variables`; a value that is not JSON is text.
    #[arg(long, value_name = "NAME=VALUE", conflicts_with_all = ["unified", "envelope"], value_parser = assignment)]
    set: Vec<(String, Value)>,
    /// Append this JSON object to `decisionLog`.
    #[arg(long, value_name = "JSON", conflicts_with_all = ["unified", "envelope"])]
    add_decision: Vec<String>,
    /// Append this artifact to `artifacts`, unless it is there.
    #[arg(long, value_name = "ARTIFACT", conflicts_with_all = ["unified", "envelope"])]
    add_artifact: Vec<String>,
    /// Set `currentNodeId`.
    #[arg(long, value_name = "ID", conflicts_with_all = ["unified", "envelope"])]
    current_node_id: Option<String>,
    /// Set `updatedAt`.
    #[arg(long, value_name = "TIME", conflicts_with_all = ["unified", "envelope"])]
    updated_at: Option<String>,
    /// Only if the file has this SHA-256.
    #[arg(long, value_name = "SHA256", conflicts_with_all = ["unified", "envelope"])]
    if_match: Option<String>,
}

fn assignment(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("write it as NAME=VALUE")?;
    if name.is_empty() {
        return Err("the name is missing: write it as NAME=VALUE".to_owned());
    }
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
    Ok((name.to_owned(), value))
}

impl Patch {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let change = self.form.change(self.update)?;
        let operation = Operation::Patch(PatchRequest { change: Some(change) });
        make(context, &self.target, self.options, operation).await
    }
}

impl PatchSource {
    fn change(self, update: Update) -> Result<Change, Failure> {
        Ok(match (self.unified, self.envelope) {
            (Some(file), _) => Change::UnifiedDiff(text(&file)?),
            (None, Some(file)) => Change::Envelope(text(&file)?),
            (None, None) => Change::UpdateFrontmatter(update.of_file(self.front_matter.unwrap_or_default())),
        })
    }
}

impl Update {
    fn of_file(self, path: String) -> UpdateFrontmatter {
        let variables: Map<String, Value> = self.set.into_iter().collect();
        UpdateFrontmatter {
            path,
            if_match_sha256: self.if_match.unwrap_or_default(),
            steps_completed_append: self.add_step,
            variables_set_json: if variables.is_empty() {
                String::new()
            } else {
                Value::Object(variables).to_string()
            },
            decision_log_append_json: self.add_decision,
            artifacts_append: self.add_artifact,
            current_node_id: self.current_node_id,
            updated_at: self.updated_at,
        }
    }
}

fn text(file: &Path) -> Result<String, Failure> {
    String::from_utf8(stdin::read(file)?)
        .map_err(|_| Failure::usage(format!("{} is not UTF-8 text; a patch must be", file.display())))
}

pub(super) fn render(result: &PatchResult, data: &mut Output, talk: &mut Output) {
    use patched_file::Change;
    for file in &result.files {
        let what = match file.change() {
            Change::Created => "created ",
            Change::Updated => "edited ",
            Change::Deleted => "deleted ",
            Change::Moved => "moved ",
            Change::Unspecified => "changed ",
        };
        data.own(what);
        if !file.moved_from.is_empty() {
            data.word(&file.moved_from).own(" to ");
        }
        data.word(&file.path);
        if file.trash_entry.is_empty() {
            data.own(": sha256 ").word(&file.sha256_after);
        } else {
            data.own(": in the run's trash as ").word(&file.trash_entry);
        }
        data.own("\n");
    }
    data.diff(&result.diff);
    for note in &result.notes {
        talk.own("note: ").word(note).own("\n");
    }
    talk.cut_short(result.diff_truncated, "see the rest with `coffer call read`");
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use wire::v1::PatchedFile;

    use super::*;
    use crate::output::Look;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        patch: Patch,
    }

    fn change(line: &[&str]) -> Option<Change> {
        let line = ["patch", "r"].iter().chain(line);
        let patch = Line::try_parse_from(line).ok()?.patch;
        Some(patch.form.change(patch.update).unwrap())
    }

    #[test]
    fn one_form_of_patch() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "--- a\n").unwrap();
        let name = file.path().to_str().unwrap();
        assert_eq!(change(&["--unified", name]), Some(Change::UnifiedDiff("--- a\n".into())));
        assert_eq!(change(&["--envelope", name]), Some(Change::Envelope("--- a\n".into())));
        let update = UpdateFrontmatter {
            path: "a.md".into(),
            steps_completed_append: vec!["s".into(), "t".into()],
            variables_set_json: r#"{"a":1,"b":"x=y"}"#.into(),
            decision_log_append_json: vec!["{}".into()],
            updated_at: Some("now".into()),
            ..Default::default()
        };
        assert_eq!(
            change(&[
                "--front-matter",
                "a.md",
                "--add-step",
                "s",
                "--add-step",
                "t",
                "--set",
                "b=x=y",
                "--set",
                "a=1",
                "--add-decision",
                "{}",
                "--updated-at",
                "now",
            ]),
            Some(Change::UpdateFrontmatter(update))
        );
        for wrong in [
            &[][..],
            &["--unified", name, "--envelope", name],
            &["--unified", name, "--add-step", "s"],
            &["--front-matter", "a.md", "--set", "a"],
            &["--front-matter", "a.md", "--set", "=a"],
        ] {
            assert_eq!(change(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn the_result_of_each_file_is_shown() {
        let file = |path: &str, change: patched_file::Change| PatchedFile {
            path: path.into(),
            change: change.into(),
            sha256_after: "a".into(),
            ..Default::default()
        };
        let result = PatchResult {
            files: vec![
                file("@project/n", patched_file::Change::Created),
                PatchedFile { trash_entry: "e".into(), ..file("@project/d", patched_file::Change::Deleted) },
                PatchedFile {
                    moved_from: "@project/o".into(),
                    ..file("@project/m", patched_file::Change::Moved)
                },
            ],
            diff: "+x\n".into(),
            diff_truncated: true,
            notes: vec!["n".into()],
        };
        let (mut data, mut talk) = (Output::new(Look::PIPE), Output::new(Look::PIPE));
        render(&result, &mut data, &mut talk);
        assert_eq!(
            data.as_str(),
            "created @project/n: sha256 a\ndeleted @project/d: in the run's trash as e\n\
             moved @project/o to @project/m: sha256 a\n+x\n"
        );
        assert_eq!(talk.as_str(), "note: n\ncut short: see the rest with `coffer call read`\n");
    }
}
