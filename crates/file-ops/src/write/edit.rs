//! `edit`: a change of one text file, and a helpful failure if it does not fit.

use std::io::Write as _;

use jail::{Jail, SandboxPath, Then, WriteMode};
use operations::{
    Binder, Bound, Bounds, Edit, EditChange, EditResult, Hint, OpResult, Outcome, Preview, Reason,
    ToolFailure, before_effect, sha256,
};

use super::change::{Changed, Mismatch, insert, replace};
use super::diff::unified;
use super::file::as_text;
use super::location::{Location, most_edited, most_written, within};
use super::nearest::{Candidate, Nearest};
use super::when::{Go, Undone, when};

/// Edits the file. The module `change` describes how text is found and inserted. If `go` is given, the effect waits for it.
pub fn edit(jail: &Jail, edit: &Edit, bounds: &Bounds, go: Option<Go<'_>>) -> Outcome {
    let held_to = bounds.held_to.as_ref();
    if held_to.is_none() {
        return when(|go| put(jail, edit, bounds, go), go);
    }
    if let Some(go) = go {
        go()?;
    }
    let plan = plan(jail, edit, bounds).map_err(|failure| before_effect(held_to, failure))?;
    bound(&plan)?.demand(held_to)?;
    let then = Then::Put { content: plan.text.into_bytes(), like: None };
    jail.commit(vec![plan.location.into_held_change(then)])?;
    Ok(OpResult::Edit(plan.result))
}

/// Makes a change that needs no consent.
fn put(jail: &Jail, edit: &Edit, bounds: &Bounds, go: Option<Go<'_>>) -> Result<OpResult, Undone> {
    let Plan { location, text, mode, result } = plan(jail, edit, bounds)?;
    let done = location.put(&mut |file| file.write_all(text.as_bytes()), None, mode, go);
    done.map_err(|undone| match (undone, &edit.change) {
        // Another process created the file meanwhile.
        (Undone::Failed(failure), EditChange::Create { .. })
            if failure.reason == Reason::PreconditionFailed =>
        {
            exists(&edit.path).into()
        }
        (undone, _) => undone,
    })?;
    Ok(OpResult::Edit(result))
}

/// Returns the result that [`edit()`] would have. Fails as [`edit()`] would, and changes nothing.
pub fn preview_edit(jail: &Jail, edit: &Edit, bounds: &Bounds) -> Result<Preview, ToolFailure> {
    let plan = plan(jail, edit, bounds)?;
    Ok(Preview { bound: bound(&plan)?, result: OpResult::Edit(plan.result) })
}

fn bound(plan: &Plan<'_>) -> Result<Bound, ToolFailure> {
    let mut binder = Binder::new("edit");
    plan.location.bind(&mut binder)?;
    Ok(binder.finish())
}

/// Edit that fits the file.
struct Plan<'j> {
    location: Location<'j>,
    text: String,
    mode: WriteMode,
    result: EditResult,
}

fn plan<'j>(jail: &'j Jail, edit: &'j Edit, bounds: &Bounds) -> Result<Plan<'j>, ToolFailure> {
    let location = Location::look(jail, &edit.path, bounds, Bounds::LARGEST_EDIT)?;
    let (changed, mode) = match &edit.change {
        EditChange::Create { content } => (create(&location, edit, content, bounds)?, WriteMode::CreateOnly),
        EditChange::StrReplace { .. } | EditChange::Insert { .. } => {
            (change(&location, edit, bounds)?, WriteMode::ReplaceUnchanged)
        }
    };
    let old = location.before.as_ref().and_then(|before| before.content.as_deref()).and_then(as_text);
    let diff = unified(&edit.path, old, &changed.text, bounds.max_output_bytes);
    let result = EditResult {
        path: edit.path.to_string(),
        diff_truncated: diff.is_cut(),
        diff: diff.noted(),
        sha256_before: location.sha256_before(),
        sha256_after: sha256(changed.text.as_bytes()),
        replacements: changed.replacements,
    };
    Ok(Plan { location, text: changed.text, mode, result })
}

fn create(
    location: &Location<'_>,
    edit: &Edit,
    content: &str,
    bounds: &Bounds,
) -> Result<Changed, ToolFailure> {
    if let Some(before) = &location.before {
        return Err(exists(&edit.path).with("sha256", &before.sha256));
    }
    location.demand(edit.if_match_sha256.as_deref())?;
    within(&edit.path, content.len() as u64, most_written(bounds))?;
    Ok(Changed { text: content.to_owned(), replacements: 1 })
}

fn change(location: &Location<'_>, edit: &Edit, bounds: &Bounds) -> Result<Changed, ToolFailure> {
    let path = edit.path.excerpt();
    let Some(before) = &location.before else {
        return Err(ToolFailure::new(
            Reason::NotFound,
            format!("{path}: no such file or directory; create it first"),
        )
        .hint(Hint::Find));
    };
    location.demand(edit.if_match_sha256.as_deref())?;
    let Some(content) = &before.content else {
        return Err(ToolFailure::new(
            Reason::ReadLimit,
            format!(
                "{path} has {} bytes, more than the {} that can be edited",
                before.size,
                Bounds::LARGEST_EDIT
            ),
        )
        .with("size_bytes", before.size.to_string()));
    };
    let Some(text) = as_text(content) else {
        return Err(ToolFailure::new(
            Reason::PreconditionFailed,
            format!("{path} is not UTF-8 text, so it cannot be edited; write it as a whole instead"),
        ));
    };
    let most = bounds.max_edit_bytes;
    let changed = match &edit.change {
        EditChange::StrReplace { old, new, replace_all } => replace(text, old, new, *replace_all, most),
        EditChange::Insert { after_line, text: added } => insert(text, *after_line, added, most),
        EditChange::Create { .. } => return Err(exists(&edit.path)),
    };
    changed.map_err(|mismatch| failure(&edit.path, mismatch, bounds))
}

fn exists(path: &SandboxPath) -> ToolFailure {
    let path = path.excerpt();
    let message = format!("File already exists: {path}; change what is there, or choose another name");
    ToolFailure::new(Reason::PreconditionFailed, message)
}

fn failure(path: &SandboxPath, mismatch: Mismatch, bounds: &Bounds) -> ToolFailure {
    let shown = path.excerpt();
    match mismatch {
        Mismatch::TooLong { size } => within(path, size, most_edited(bounds)).err().unwrap_or_else(|| {
            ToolFailure::new(Reason::WriteLimit, format!("{shown} would have {size} bytes"))
        }),
        Mismatch::NoSuchLine { lines } => ToolFailure::new(
            Reason::InvalidArgument,
            format!("{shown} has {lines} lines: insert after line 0 (the beginning) to {lines} (the end)"),
        )
        .with("total_lines", lines.to_string()),
        Mismatch::Ambiguous { count, lines } => {
            let more = if lines.len() < count { ", …" } else { "" };
            let lines = join(lines.iter(), ", ");
            ToolFailure::new(
                Reason::PreconditionFailed,
                format!("the text to replace occurs {count} times in {shown} (lines {lines}{more}): include lines around it until it is unique"),
            )
            .hint(Hint::ReplaceAll)
            .with("count", count.to_string())
            .with("lines", lines)
        }
        Mismatch::Absent(nearest) => absent(&shown, &nearest),
    }
}

fn absent(path: &str, nearest: &Nearest) -> ToolFailure {
    let not_found = format!("the text to replace is not found in {path}");
    let fail = |rest: &str| ToolFailure::new(Reason::PreconditionFailed, format!("{not_found}{rest}"));
    match nearest {
        Nearest::Whitespace(spans) => {
            let spans =
                join(
                    spans.iter().map(|(first, last)| {
                        if first == last { first.to_string() } else { format!("{first}-{last}") }
                    }),
                    ", ",
                );
            fail(&format!("; lines {spans} differ from it in white space only (indentation, tabs, blank lines or line endings): read them and copy them exactly"))
                .with("candidates", spans)
        }
        Nearest::Lines(candidates) if candidates.is_empty() => {
            fail(", nor anything like it: read the file again")
        }
        Nearest::Lines(candidates) => {
            let lines = join(
                candidates.iter().map(|Candidate { line, text }| format!("line {line} `{}`", text.trim())),
                ", ",
            );
            fail(&format!("; the nearest is {lines}: read the file again and copy the text exactly"))
                .with("candidates", join(candidates, "\n"))
        }
    }
}

fn join<T: ToString>(items: impl IntoIterator<Item = T>, separator: &str) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(separator)
}
