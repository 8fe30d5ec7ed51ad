//! `write` of an archive: a whole tree in one call.

use std::fmt::Write as _;

use jail::{Jail, SandboxPath};
use operations::{
    Binder, Bound, Bounds, EditResult, OpResult, Outcome, Preview, ToolFailure, Uploaded, Write, WriteResult,
    before_effect,
};

use super::diff::sizes;
use super::location::Location;
use super::upload;
use crate::archive::{MemberKind, Protected, members, place, unpack as unpack_archive};

pub(super) fn unpack(jail: &Jail, write: &Write, uploaded: &Uploaded, bounds: &Bounds) -> Outcome {
    let archive = upload::open(jail, uploaded)?.file;
    let held_to = bounds.held_to.as_ref();
    if held_to.is_some() {
        let bound =
            bound(jail, write, uploaded, bounds).map_err(|failure| before_effect(held_to, failure))?;
        bound.demand(held_to)?;
    }
    upload::verify(&archive, uploaded)?;
    let unpacked =
        unpack_archive(jail, &write.path, &archive, bounds.max_transfer_bytes, Protected::Refused)?;
    upload::forget(jail, uploaded);
    Ok(OpResult::Write(WriteResult {
        path: write.path.to_string(),
        bytes_written: unpacked.bytes,
        sha256_before: String::new(),
        sha256_after: uploaded.sha256.clone(),
        created: false,
        entries: unpacked.entries,
    }))
}

/// Returns the preview: names and sizes of the archive's entries, as far as they fit.
pub(super) fn preview(
    jail: &Jail,
    write: &Write,
    uploaded: &Uploaded,
    bounds: &Bounds,
) -> Result<Preview, ToolFailure> {
    let most = usize::try_from(bounds.max_output_bytes).unwrap_or(usize::MAX);
    let (mut diff, mut left_out) = (String::new(), 0_u64);
    each(jail, write, uploaded, bounds, |path, size, _| {
        let line = sizes(path, None, size).text;
        if left_out == 0 && diff.len() + line.len() <= most {
            diff.push_str(&line);
        } else {
            left_out += 1;
        }
        Ok(())
    })?;
    if left_out > 0 {
        // Writing to a string cannot fail.
        let _ = writeln!(diff, "\\ {left_out} more entries of the archive are left out");
    }
    let result = OpResult::Edit(EditResult {
        path: write.path.to_string(),
        diff,
        diff_truncated: left_out > 0,
        replacements: 1,
        sha256_before: String::new(),
        sha256_after: uploaded.sha256.clone(),
    });
    Ok(Preview { result, bound: bound(jail, write, uploaded, bounds)? })
}

/// Binds every file that is replaced or created, and the directories that lead to each.
fn bound(jail: &Jail, write: &Write, uploaded: &Uploaded, bounds: &Bounds) -> Result<Bound, ToolFailure> {
    let mut binder = Binder::new("write");
    each(jail, write, uploaded, bounds, |path, _, is_file| {
        binder.bytes(path.to_string().as_bytes());
        if is_file {
            let location = Location::look(jail, path, bounds, 0)?;
            binder.bytes(location.sha256_before().as_bytes());
        }
        Ok(())
    })?;
    Ok(binder.finish())
}

/// Calls a function for each member with its path, the size of its content, and true if it is a file.
fn each(
    jail: &Jail,
    write: &Write,
    uploaded: &Uploaded,
    bounds: &Bounds,
    mut show: impl FnMut(&SandboxPath, Option<u64>, bool) -> Result<(), ToolFailure>,
) -> Result<(), ToolFailure> {
    let archive = upload::open(jail, uploaded)?.file;
    members(archive, bounds.max_transfer_bytes, |member, _| {
        let path = place(&write.path, &member.name)?;
        jail.writable(&path)?;
        match member.kind {
            MemberKind::File(size) => show(&path, Some(size), true),
            MemberKind::Same { bytes, .. } => show(&path, Some(bytes), true),
            MemberKind::Directory | MemberKind::Link(_) => show(&path, None, false),
        }
    })?;
    Ok(())
}
