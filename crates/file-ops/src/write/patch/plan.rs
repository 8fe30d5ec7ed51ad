//! Applies a patch file by file, in memory. No file is changed by this module.

use jail::{Jail, SandboxPath};
use operations::patch::{Action, FilePatch, Hunk, HunkPosition};
use operations::{Bounds, FrontMatter, Patch, PatchChange, Reason, ToolFailure};

use super::apply::{Moved, apply};
use super::{front_matter, mismatch};
use crate::write::file::as_text;
use crate::write::location::{Before, Location, Most, most_edited, most_written, within};
use crate::write::newline::Newlines;

/// Most lines of a file that is patched: an index of them is in memory.
const MAX_LINES: usize = 1 << 21;
/// Most bytes of old and new contents of one patch together: all of them are in memory.
const MAX_TOTAL_BYTES: u64 = 64 * 1024 * 1024;

/// One file and its change.
pub(super) struct Planned<'j> {
    pub(super) path: &'j SandboxPath,
    pub(super) location: Location<'j>,
    /// The content afterwards; `None` if the file is deleted.
    pub(super) content: Option<Vec<u8>>,
    /// New path of the file.
    pub(super) moved_to: Option<(&'j SandboxPath, Location<'j>)>,
    pub(super) notes: Vec<String>,
}

impl Planned<'_> {
    pub(super) fn is_deletion(&self) -> bool {
        self.content.is_none()
    }

    /// Returns true if no file has to be written.
    pub(super) fn is_unchanged(&self) -> bool {
        let before = self.location.before.as_ref().and_then(|before| before.content.as_ref());
        self.moved_to.is_none() && self.content.is_some() && self.content.as_ref() == before
    }
}

/// Examines all files and applies the patch to them in memory.
pub(super) fn plan<'j>(
    jail: &'j Jail,
    patch: &'j Patch,
    bounds: &Bounds,
) -> Result<Vec<Planned<'j>>, ToolFailure> {
    if let PatchChange::FrontMatter(change) = patch.change() {
        return Ok(vec![front_matter(jail, change, bounds)?]);
    }
    let (mut planned, mut total) = (Vec::new(), 0);
    for file in patch.files() {
        let file = one(jail, file, bounds)?;
        let before = file.location.before.as_ref().and_then(|before| before.content.as_ref());
        total += [before, file.content.as_ref()]
            .into_iter()
            .flatten()
            .map(|bytes| bytes.len() as u64)
            .sum::<u64>();
        if total > MAX_TOTAL_BYTES {
            return Err(ToolFailure::new(
                Reason::WriteLimit,
                format!("the files of this patch have more than {MAX_TOTAL_BYTES} bytes together: split it"),
            ));
        }
        planned.push(file);
    }
    Ok(planned)
}

fn one<'j>(jail: &'j Jail, file: &'j FilePatch, bounds: &Bounds) -> Result<Planned<'j>, ToolFailure> {
    let path = &file.path;
    let location = Location::look(jail, path, bounds, Bounds::LARGEST_EDIT)?;
    match (&file.action, &location.before) {
        (Action::Create { .. }, Some(before)) => Err(exists(path, before)),
        (Action::Create { content }, None) => {
            put(path, location, content.clone().into_bytes(), None, Vec::new(), most_written(bounds))
        }
        (Action::Update { moved_to: None, hunks }, None) if creates(hunks) => {
            let content = hunks.iter().map(|hunk| Hunk::text(hunk.lines.iter())).collect::<String>();
            put(path, location, content.into_bytes(), None, Vec::new(), most_written(bounds))
        }
        (_, None) => Err(ToolFailure::new(
            Reason::NotFound,
            format!("{}: no such file or directory; no file was changed", path.excerpt()),
        )),
        (Action::Delete { content }, Some(before)) => {
            if let Some(expected) = content {
                demand(path, before, expected)?;
            }
            Ok(Planned { path, location, content: None, moved_to: None, notes: Vec::new() })
        }
        (Action::Update { moved_to, hunks }, Some(before)) => {
            let old = content_of(path, before)?;
            let lines = old.split(|&byte| byte == b'\n').count();
            if lines > MAX_LINES {
                return Err(ToolFailure::new(
                    Reason::ReadLimit,
                    format!(
                        "{} has {lines} lines, more than the {MAX_LINES} that can be patched",
                        path.excerpt()
                    ),
                ));
            }
            let applied =
                apply(old, hunks).map_err(|mismatch| mismatch::failure(path, old, hunks, &mismatch))?;
            let notes = applied.moved.iter().map(|moved| note(path, moved)).collect();
            let moved_to = moved_to.as_ref().map(|to| destination(jail, to, bounds)).transpose()?;
            put(path, location, applied.content, moved_to, notes, most_edited(bounds))
        }
    }
}

/// Returns true if the hunks create a file: `diff -u` shows a new file like this if it was given a name for the old one.
fn creates(hunks: &[Hunk]) -> bool {
    matches!(hunks, [hunk] if hunk.old().next().is_none() && matches!(hunk.place, HunkPosition::Stated { old: 0, .. }))
}

fn put<'j>(
    path: &'j SandboxPath,
    location: Location<'j>,
    content: Vec<u8>,
    moved_to: Option<(&'j SandboxPath, Location<'j>)>,
    notes: Vec<String>,
    most: Most,
) -> Result<Planned<'j>, ToolFailure> {
    within(moved_to.as_ref().map_or(path, |(to, _)| to), content.len() as u64, most)?;
    Ok(Planned { path, location, content: Some(content), moved_to, notes })
}

fn destination<'j>(
    jail: &'j Jail,
    to: &'j SandboxPath,
    bounds: &Bounds,
) -> Result<(&'j SandboxPath, Location<'j>), ToolFailure> {
    let location = Location::look(jail, to, bounds, 0)?;
    match &location.before {
        Some(before) => Err(exists(to, before)),
        None => Ok((to, location)),
    }
}

fn content_of<'b>(path: &SandboxPath, before: &'b Before) -> Result<&'b [u8], ToolFailure> {
    before.content.as_deref().ok_or_else(|| {
        ToolFailure::new(
            Reason::ReadLimit,
            format!(
                "{} has {} bytes, more than the {} that can be patched",
                path.excerpt(),
                before.size,
                Bounds::LARGEST_EDIT
            ),
        )
        .with("size_bytes", before.size.to_string())
    })
}

/// Demands that a file which a diff deletes has the content that the diff shows.
fn demand(path: &SandboxPath, before: &Before, expected: &str) -> Result<(), ToolFailure> {
    let found = content_of(path, before)?;
    let fits = found == expected.as_bytes()
        || as_text(found).is_some_and(|text| Newlines::of(text).fit(expected) == text);
    if fits {
        return Ok(());
    }
    Err(ToolFailure::new(
        Reason::PreconditionFailed,
        format!(
            "{} does not have the content that the patch deletes, so it was not deleted; read it again, or \
             delete it with `*** Delete File: ` or the delete operation",
            path.excerpt()
        ),
    )
    .with("path", path.to_string())
    .with("sha256", &before.sha256))
}

fn exists(path: &SandboxPath, before: &Before) -> ToolFailure {
    ToolFailure::new(
        Reason::PreconditionFailed,
        format!("{} already exists: update it, or choose another name; no file was changed", path.excerpt()),
    )
    .with("path", path.to_string())
    .with("sha256", &before.sha256)
}

fn note(path: &SandboxPath, moved: &Moved) -> String {
    let Moved { hunk, said, found } = moved;
    let (lines, way) = if found > said { (found - said, "below") } else { (said - found, "above") };
    format!("{}: hunk {hunk} was applied at line {found}, {lines} lines {way} where it says", path.excerpt())
}

fn front_matter<'j>(
    jail: &'j Jail,
    change: &'j FrontMatter,
    bounds: &Bounds,
) -> Result<Planned<'j>, ToolFailure> {
    let path = &change.path;
    let location = Location::look(jail, path, bounds, Bounds::LARGEST_EDIT)?;
    let Some(before) = &location.before else {
        return Err(ToolFailure::new(
            Reason::NotFound,
            format!("{}: no such file or directory", path.excerpt()),
        ));
    };
    location.demand(change.if_match_sha256.as_deref())?;
    let Some(text) = as_text(content_of(path, before)?) else {
        return Err(ToolFailure::new(
            Reason::InvalidFrontmatter,
            format!("{} is not UTF-8 text, so it has no front matter", path.excerpt()),
        ));
    };
    let updated = front_matter::update(text, change).map_err(|invalid| invalid.failure(path))?;
    let notes = updated.notes.iter().map(|note| format!("{}: {note}", path.excerpt())).collect();
    put(path, location, updated.text.into_bytes(), None, notes, most_edited(bounds))
}
