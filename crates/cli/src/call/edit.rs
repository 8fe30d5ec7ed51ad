//! `coffer call edit`.

use clap::Args;
use wire::v1::edit_request::Change;
use wire::v1::operation::Kind as Operation;
use wire::v1::{CreateFile, EditRequest, EditResult, InsertText, StrReplace};

use super::{CallOptions, Target, make};
use crate::client::Context;
use crate::failure::Ended;
use crate::output::Output;
use crate::quantity::count;

/// Change one file atomically and print the diff.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer call edit 3f2a9c01 README.md --old 'Helo' --new 'Hello'")]
pub(crate) struct Edit {
    #[command(flatten)]
    target: Target,
    /// The file to change.
    path: String,
    #[command(flatten)]
    form: EditChange,
    /// The replacement; may be empty.
    #[arg(long, value_name = "TEXT", requires = "old", allow_hyphen_values = true)]
    new: Option<String>,
    /// Replace every occurrence.
    #[arg(long, requires = "old")]
    replace_all: bool,
    /// The text to insert.
    #[arg(long, value_name = "TEXT", requires = "insert_after", allow_hyphen_values = true)]
    text: Option<String>,
    /// Only if the file has this SHA-256.
    #[arg(long, value_name = "SHA256")]
    if_match: Option<String>,
    #[command(flatten)]
    options: CallOptions,
}

/// Kind of the change.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct EditChange {
    /// Replace this text, which must occur exactly once.
    #[arg(long, value_name = "TEXT", requires = "new", allow_hyphen_values = true)]
    old: Option<String>,
    /// Create the file with this content.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    create: Option<String>,
    /// Insert after this line; 0 is the beginning.
    #[arg(long, value_name = "LINE", requires = "text")]
    insert_after: Option<u64>,
}

impl Edit {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let (target, options, operation) = self.request();
        make(context, &target, options, Operation::Edit(operation)).await
    }

    fn request(self) -> (Target, CallOptions, EditRequest) {
        let change = match (self.form.old, self.form.create, self.form.insert_after) {
            (Some(old_str), ..) => Change::StrReplace(StrReplace {
                old_str,
                new_str: self.new.unwrap_or_default(),
                replace_all: self.replace_all,
            }),
            (None, Some(content), _) => Change::Create(CreateFile { content }),
            (None, None, after_line) => Change::Insert(InsertText {
                after_line: after_line.unwrap_or_default(),
                text: self.text.unwrap_or_default(),
            }),
        };
        let operation = EditRequest {
            path: self.path,
            if_match_sha256: self.if_match.unwrap_or_default(),
            change: Some(change),
        };
        (self.target, self.options, operation)
    }
}

pub(super) fn render(result: &EditResult, data: &mut Output, talk: &mut Output) {
    let created = result.sha256_before.is_empty();
    data.own(if created { "created " } else { "edited " }).word(&result.path);
    if !created {
        data.own(": ").word(&count(result.replacements.into(), "place", "places"));
    }
    data.own(", sha256 ").word(&result.sha256_after).own("\n").diff(&result.diff);
    talk.cut_short(result.diff_truncated, "see the rest with `coffer call read`");
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::output::Look;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        edit: Edit,
    }

    fn change(line: &[&str]) -> Option<Change> {
        let line = ["edit", "r", "a.txt"].iter().chain(line);
        Line::try_parse_from(line).ok().and_then(|line| line.edit.request().2.change)
    }

    #[test]
    fn one_form_of_change() {
        assert_eq!(
            change(&["--old", "hi", "--new", "", "--replace-all"]),
            Some(Change::StrReplace(StrReplace {
                old_str: "hi".into(),
                new_str: String::new(),
                replace_all: true
            }))
        );
        assert_eq!(change(&["--create", "-x"]), Some(Change::Create(CreateFile { content: "-x".into() })));
        assert_eq!(
            change(&["--insert-after", "0", "--text", "t"]),
            Some(Change::Insert(InsertText { after_line: 0, text: "t".into() }))
        );
        for wrong in [
            &[][..],
            &["--old", "hi"],
            &["--new", "hi"],
            &["--insert-after", "3"],
            &["--create", "x", "--replace-all"],
            &["--create", "x", "--old", "a", "--new", "b"],
        ] {
            assert_eq!(change(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn prints_the_difference() {
        let result = EditResult {
            path: "@project/a".into(),
            diff: "@@ -1 +1 @@\n-hi\x1b\n+ho\n".into(),
            diff_truncated: true,
            sha256_before: "a".into(),
            sha256_after: "b".into(),
            replacements: 1,
        };
        let (mut data, mut talk) = (Output::new(Look::PIPE), Output::new(Look::PIPE));
        render(&result, &mut data, &mut talk);
        assert_eq!(data.as_str(), "edited @project/a: 1 place, sha256 b\n@@ -1 +1 @@\n-hi␛\n+ho\n");
        assert_eq!(talk.as_str(), "cut short: see the rest with `coffer call read`\n");
    }
}
