//! `diff --cc`: a file in conflict against both of its sides, as `git diff` shows it.
//!
//! git's algorithm, line for line, since its choices are the output: which lines a side lost hang on the line of the file
//! that follows them; hunks in which the file agrees with one side are left out.

mod hunks;
mod lines;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use git2::Patch;

use self::lines::Lines;
use super::abbrev::Abbreviations;
use super::contents::{Content, Contents};
use super::delta::is_binary;
use super::difference::{Difference, Sides, Version, What};
use super::error::GitError;
use super::output::Output;
use super::quote::{Spaces, quoted, quoted_with_prefix};
use super::repository::WORKSPACE;

/// Both sides.
const PARENTS: usize = 2;

/// Writes the conflicts that have both sides, and takes them out of `differences`: git shows them first.
pub(super) fn write(
    contents: &Contents<'_>,
    differences: &mut Vec<Difference>,
    output: &mut Output,
) -> Result<(), GitError> {
    let names = Abbreviations::of(contents.repository)?;
    let mut shown = Vec::new();
    for difference in differences.iter() {
        if let What::Unmerged(sides) = &difference.what
            && !sides.ours.is_none()
            && !sides.theirs.is_none()
        {
            conflict(contents, &names, &difference.path, sides, output)?;
            shown.push(difference.path.clone());
        }
    }
    differences.retain(|difference| shown.binary_search(&difference.path).is_err());
    Ok(())
}

fn conflict(
    contents: &Contents<'_>,
    names: &Abbreviations<'_>,
    path: &[u8],
    sides: &Sides,
    output: &mut Output,
) -> Result<(), GitError> {
    let parents = [contents.of(path, sides.ours)?, contents.of(path, sides.theirs)?];
    let result = contents.of(path, sides.work_tree)?;
    let mode = sides.work_tree.mode;
    let header = Header { path, sides, mode };
    if [&parents[0], &parents[1], &result].iter().any(|each| is_binary(contents.repository, path, each)) {
        header.write(names, false, output);
        output.push_str("Binary files differ\n");
        return Ok(());
    }
    header.write(names, true, output);
    if mode == 0 && !is_directory(path) {
        return Ok(());
    }
    let mut lines = Lines::of(result.bytes());
    for (number, parent) in parents.iter().enumerate() {
        if number > 0 && parent.id == parents[0].id {
            lines.same_as_first(number);
        } else {
            compare(path, parent, &result, number, &mut lines)?;
        }
    }
    hunks::mark(&mut lines);
    hunks::write(&lines, output);
    Ok(())
}

struct Header<'h> {
    path: &'h [u8],
    sides: &'h Sides,
    /// Of the file; 0 when it is gone.
    mode: u32,
}

impl Header<'_> {
    fn write(&self, names: &Abbreviations<'_>, with_files: bool, output: &mut Output) {
        let parents: [Version; PARENTS] = [self.sides.ours, self.sides.theirs];
        let short = |version: &Version| version.id.map(|id| names.shorten(id)).unwrap_or_default();
        output.push_str(&format!("diff --cc {}\n", quoted(self.path, Spaces::Plain)));
        let none = names.shorten(git2::Oid::ZERO_SHA1);
        output.push_str(&format!("index {},{}..{none}\n", short(&parents[0]), short(&parents[1])));
        if parents.iter().any(|parent| parent.mode != self.mode) {
            let modes = format!("{:06o},{:06o}", parents[0].mode, parents[1].mode);
            output.push_str(&match self.mode {
                0 => format!("deleted file mode {modes}\n"),
                mode => format!("mode {modes}..{mode:06o}\n"),
            });
        }
        if with_files {
            let new = match self.mode {
                0 => "/dev/null".to_owned(),
                _ => quoted_with_prefix("b/", self.path, Spaces::Plain),
            };
            let old = quoted_with_prefix("a/", self.path, Spaces::Plain);
            output.push_str(&format!("--- {old}\n+++ {new}\n"));
        }
    }
}

/// For git an empty file, other than nothing at all.
fn is_directory(path: &[u8]) -> bool {
    let path = Path::new(WORKSPACE).join(OsStr::from_bytes(path));
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir())
}

/// Notes what the file has that the side has not, and the reverse.
fn compare(
    place: &[u8],
    parent: &Content<'_>,
    result: &Content<'_>,
    number: usize,
    lines: &mut Lines<'_>,
) -> Result<(), GitError> {
    if let (Some(old), Some(new)) = (&parent.blob, &result.blob)
        && parent.bytes() != result.bytes()
    {
        let name = Some(Path::new(OsStr::from_bytes(place)));
        let mut options = super::diff::options();
        options.context_lines(0).force_text(true);
        let patch = Patch::from_blobs(old, name, new, name, Some(&mut options))?;
        for index in 0..patch.num_hunks() {
            let (hunk, count) = patch.hunk(index)?;
            let (first, added) = (hunk.new_start() as usize, hunk.new_lines() as usize);
            // Without new lines the place is the one behind line `first`, otherwise that line itself.
            let hangs_on = if added == 0 { first } else { first.saturating_sub(1) };
            let mut next = first.max(1) - 1;
            for line in 0..count {
                let line = patch.line_in_hunk(index, line)?;
                match line.origin() {
                    '-' => lines.lose(hangs_on, number, line.content()),
                    '+' => {
                        lines.add(next, number);
                        next += 1;
                    }
                    _ => {}
                }
            }
        }
    }
    lines.number(number);
    Ok(())
}
